/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/openai.h"

#include "lib/base/test.h"

#define HEAD "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define FUNCTION(more) "{\"type\":\"function\",\"function\":{\"name\":" more "}}"
#define F FUNCTION("\"f\",\"parameters\":{\"type\":\"object\"}")
#define G FUNCTION("\"g\"")
#define LOOSE FUNCTION("\"k\",\"strict\":false,\"parameters\":{\"type\":\"object\"}")
#define TIGHT FUNCTION("\"h\",\"strict\":true,\"parameters\":{\"type\":\"object\"}")
#define CLOSED FUNCTION("\"c\",\"parameters\":{\"properties\":{},\"additionalProperties\":false}")
#define ASK(tools, more) HEAD ",\"tools\":[" tools "]" more "}"
#define REQUIRED ",\"tool_choice\":\"required\""
#define NAMED(name) ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define ONE ",\"parallel_tool_calls\":false"

#define TAG(format) "{\"structural_tag\":{\"type\":\"structural_tag\",\"format\":" format "}}"
#define CALL(begin, content, end)                                                                  \
    "{\"type\":\"tag\",\"begin\":\"" begin "\",\"content\":" content ",\"end\":\"" end "\"}"
#define SCHEMA(schema, style)                                                                      \
    "{\"type\":\"json_schema\",\"json_schema\":" schema ",\"style\":\"" style "\"}"
#define COUNTS(some, one) "\"at_least_one\":" some ",\"stop_after_first\":" one
#define TRIGGERED(trigger, tags, counts)                                                           \
    TAG("{\"type\":\"triggered_tags\",\"triggers\":[\"" trigger "\"],\"tags\":[" tags "]," counts  \
        "}")
#define HERMES(name, schema)                                                                       \
    CALL("<tool_call>\\n{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": ",                     \
         SCHEMA(schema, "json"), "}\\n</tool_call>")
#define OF_HERMES(tags, counts) TRIGGERED("<tool_call>", tags, counts)
#define OBJECT "{\"type\":\"object\"}"

static const struct call_tags ALWAYS = {"hermes", true, true, false};
static const struct call_tags NEEDED = {"hermes", true, false, false};
static const struct call_tags STRICT = {"hermes", true, true, true};
static const struct call_tags OFF = {"hermes", false, false, false};
static const struct call_tags QWEN = {"qwen3_coder", true, true, false};
static const struct call_tags GLM = {"glm47", true, true, false};
static const struct call_tags KIMI_OFF = {"kimi_k2", false, false, false};
static const struct call_tags OTHER = {"mistral", true, true, false};
static const struct call_tags NONE = {NULL, true, true, false};

/* What the frontend of 1.6.1 sends (e2e/test_call_tags.py compares all of it). */
static void test_tags(void **state)
{
    static const struct {
        const struct call_tags *conf;
        const char *body, *want; /* NULL = no tag */
    } cases[] = {
        {&ALWAYS, ASK(F, ""), OF_HERMES(HERMES("f", OBJECT), COUNTS("false", "false"))},
        {&ALWAYS, ASK(F, ONE), OF_HERMES(HERMES("f", OBJECT), COUNTS("false", "true"))},
        {&ALWAYS, ASK(F "," G "," LOOSE, REQUIRED),
         OF_HERMES(HERMES("f", OBJECT) "," HERMES("g", "true") "," HERMES("k", "true"),
                   COUNTS("true", "false"))},
        {&STRICT, ASK(LOOSE, REQUIRED), OF_HERMES(HERMES("k", OBJECT), COUNTS("true", "false"))},
        {&ALWAYS, ASK(F "," G, NAMED("g")),
         OF_HERMES(HERMES("g", "true"), COUNTS("true", "false"))},
        {&ALWAYS, ASK(F, ",\"tool_choice\":\"none\""), NULL},
        {&ALWAYS, HEAD "}", NULL},
        {&ALWAYS, ASK(F, ",\"guided_regex\":\"a\""), NULL},
        {&ALWAYS, ASK(F, ",\"response_format\":{\"type\":\"json_object\"}"), NULL},
        {&ALWAYS, ASK(F, REQUIRED ",\"response_format\":{\"type\":\"json_object\"}"),
         OF_HERMES(HERMES("f", OBJECT), COUNTS("true", "false"))},
        {&NEEDED, ASK(F, ""), NULL},
        {&NEEDED, ASK(F, ",\"parallel_tool_calls\":true"), NULL},
        {&NEEDED, ASK(F, ONE), OF_HERMES(HERMES("f", OBJECT), COUNTS("false", "true"))},
        {&NEEDED, ASK(TIGHT, ""), OF_HERMES(HERMES("h", OBJECT), COUNTS("false", "false"))},
        {&NEEDED, ASK(F, REQUIRED), OF_HERMES(HERMES("f", OBJECT), COUNTS("true", "false"))},
        {&OFF, ASK(F, REQUIRED), NULL},
        {&QWEN, ASK(CLOSED, REQUIRED),
         TRIGGERED("<tool_call>\\n<function=",
                   CALL("<tool_call>\\n<function=c>\\n",
                        "{\"type\":\"const_string\",\"value\":\"\"}",
                        "\\n</function>\\n</tool_call>"),
                   COUNTS("true", "false"))},
        {&GLM, ASK(F, NAMED("f")),
         TAG(CALL("<tool_call>f", SCHEMA(OBJECT, "glm_xml"), "</tool_call>"))},
        {&KIMI_OFF, ASK(F, ""), NULL},
        {&KIMI_OFF, ASK(F, NAMED("f")),
         TAG("{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\",\"value\":"
             "\"<|tool_calls_section_begin|>\"}," CALL(
                 "<|tool_call_begin|>functions.f:",
                 "{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"\\\\d+\"},"
                 "{\"type\":\"const_string\",\"value\":\"<|tool_call_argument_begin|>\"}," SCHEMA(
                     OBJECT, "json") "]}",
                 "<|tool_call_end|>") ",{\"type\":\"const_string\",\"value\":"
                                      "\"<|tool_calls_section_end|>\"}]}")},
        {&OTHER, ASK(F, REQUIRED), NULL},
        {&NONE, ASK(F, REQUIRED), NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        struct openai_request r;
        struct api_error e;

        assert_true(openai_request_parse(API_CHAT, str_from(cases[i].body), a, &r, &e));
        openai_settle_tags(&r, cases[i].conf, a);
        if (r.tagged != (cases[i].want != NULL) ||
            (r.tagged && !str_is(r.sampling.guided_decoding_json, cases[i].want)))
            fail_msg("%s: %.*s", cases[i].body, STR_ARG(r.sampling.guided_decoding_json));
        openai_request_done(&r);
    }
}

int main(void)
{
    return TEST_RUN(T(test_tags));
}
