/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/openai.h"

#include "lib/base/test.h"

#define HEAD "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"x\":{}}}}},{\"type\":\"function\",\"function\":{\"name\":"       \
    "\"g\"}}]"

/* What the reference sends to its workers for these, 0.9.0 and 1.4.2. */
static void test_guided_decoding(void **state)
{
    static const struct {
        const char *body, *want; /* NULL = 400 */
    } cases[] = {
        {HEAD TOOLS "}", ""},
        {HEAD TOOLS ",\"tool_choice\":\"auto\"}", ""},
        {HEAD TOOLS ",\"tool_choice\":\"required\"}",
         "{\"json\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"anyOf\":["
         "{\"properties\":{\"name\":{\"type\":\"string\",\"enum\":[\"f\"]},\"parameters\":{"
         "\"type\":\"object\",\"properties\":{\"x\":{}}}},\"required\":[\"name\",\"parameters\"]},"
         "{\"properties\":{\"name\":{\"type\":\"string\",\"enum\":[\"g\"]},\"parameters\":{"
         "\"type\":\"object\",\"properties\":{}}},\"required\":[\"name\",\"parameters\"]}]}}}"},
        {HEAD TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}",
         "{\"json\":{\"type\":\"object\",\"properties\":{\"x\":{}}}}"},
        {HEAD TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"zz\"}}}",
         NULL},
        {HEAD "\"tool_choice\":\"required\"}", NULL},
        {HEAD TOOLS ",\"tool_choice\":\"bogus\"}", NULL},
        {HEAD "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]}", NULL},
        {HEAD "\"response_format\":{\"type\":\"json_object\"}}",
         "{\"json\":{\"type\":\"object\"}}"},
        {HEAD "\"response_format\":{\"type\":\"text\"}}", ""},
        {HEAD "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
              "\"schema\":{\"z\":1,\"a\":2}}}}",
         "{\"json\":{\"z\":1,\"a\":2}}"},
        {HEAD "\"guided_regex\":\"a+\"}", "{\"regex\":\"a+\"}"},
        {HEAD "\"guided_choice\":[\"a\",\"b\"],\"guided_decoding_backend\":\"x\"}",
         "{\"choice\":[\"a\",\"b\"],\"backend\":\"x\"}"},
        {HEAD "\"guided_choice\":[ ]}", ""},
        {HEAD "\"guided_json\":{\"type\":\"string\"}}", "{\"json\":{\"type\":\"string\"}}"},
        {HEAD "\"guided_regex\":\"a\",\"guided_grammar\":\"b\"}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        struct openai_request r;
        struct api_error e;
        bool ok = openai_request_parse(API_CHAT, str_from(cases[i].body), a, &r, &e);

        if (ok != (cases[i].want != NULL) || (!ok && e.status != 400))
            fail_msg("%s: %s", cases[i].body, ok ? "taken" : e.text);
        if (ok && !str_is(r.sampling.guided_decoding_json, cases[i].want))
            fail_msg("%s: %.*s", cases[i].body, STR_ARG(r.sampling.guided_decoding_json));
        openai_request_done(&r);
    }
}

int main(void)
{
    return TEST_RUN(T(test_guided_decoding));
}
