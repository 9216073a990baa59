/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/openai.h"
#include "lib/base/json_tree.h"
#include "lib/base/test.h"

static bool parse(enum api api, const char *body, struct arena *a, struct openai_request *r,
                  struct api_error *e)
{
    return openai_request_parse(api, str_from(body), a, r, e);
}

static void thoughts_by_every_name(void **state)
{
    static const struct {
        const char *args, *want;
    } cases[] = {
        {"{}", "{}"},
        {"{\"thinking\":false}",
         "{\"thinking\":false,\"enable_thinking\":false,\"thinking_mode\":\"disabled\"}"},
        {"{\"enable_thinking\":true,\"reasoning_effort\":\"none\"}",
         "{\"enable_thinking\":true,\"reasoning_effort\":\"none\",\"thinking\":true,"
         "\"thinking_mode\":\"enabled\"}"},
        {"{\"thinking_mode\":\"Enabled\",\"thinking\":\"no\"}",
         "{\"thinking_mode\":\"enabled\",\"thinking\":true,\"enable_thinking\":true}"},
        {"{\"reasoning_effort\":\"low\"}",
         "{\"reasoning_effort\":\"low\",\"thinking\":true,\"enable_thinking\":true,"
         "\"thinking_mode\":\"enabled\"}"},
        {"{\"reasoning_effort\":\"low\",\"thinking_mode\":\"adaptive\"}",
         "{\"reasoning_effort\":\"low\",\"thinking_mode\":\"adaptive\"}"},
        /* words that only hint at it */
        {"{\"thinking\":\" YES \"}", "{\"thinking\":true,\"enable_thinking\":true}"},
        {"{\"enable_thinking\":\"x\"}", "{\"enable_thinking\":false,\"thinking\":false}"},
        {"{\"enable_thinking\":0}", "{\"enable_thinking\":false,\"thinking\":false}"},
        {"{\"thinking_mode\":\"off\"}",
         "{\"thinking_mode\":\"off\",\"thinking\":false,\"enable_thinking\":false}"},
        {"{\"thinking_mode\":\"chat\",\"thinking\":null}",
         "{\"thinking_mode\":\"chat\",\"thinking\":null}"},
    };

    (void)state;
    openai_settle_thinking(NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *args = NULL, *want = NULL;
        struct err e;

        EXPECT_OK(json_parse(&args, str_from(cases[i].args), &e), &e);
        EXPECT_OK(json_parse(&want, str_from(cases[i].want), &e), &e);
        openai_settle_thinking(args);
        assert_true(json_equal(args, want));
    }
}

static void thoughts_by_default(void **state)
{
    static const struct {
        const char *args, *want;
    } cases[] = {
        {"", "{\"thinking\":false,\"enable_thinking\":false,\"thinking_mode\":\"disabled\"}"},
        {",\"chat_template_args\":{\"x\":1}", "{\"x\":1,\"thinking\":false,\"enable_thinking\":"
                                              "false,\"thinking_mode\":\"disabled\"}"},
        {",\"chat_template_args\":{\"thinking\":null}", "{\"thinking\":null}"},
        {",\"thinking\":{\"type\":\"adaptive\"}", "{\"thinking_mode\":\"adaptive\"}"},
        {",\"chat_template_args\":{\"enable_thinking\":true}", "{\"enable_thinking\":true}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mem_free)
        char *body =
            xasprintf("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]%s}",
                      cases[i].args);
        AUTO(arena_free) struct arena *a = arena_new();
        AUTO(buf_done) struct buf got = BUF_NULL;
        struct openai_request r;
        struct api_error e;

        assert_true(openai_request_parse(API_CHAT, str_from(body), a, &r, &e));
        openai_default_thinking(&r, false);
        json_print(r.template_args, &got);
        assert_string_equal(buf_cstr(&got), cases[i].want);
        openai_request_done(&r);
    }
}

static void a_full_chat_request(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_true(parse(
        API_CHAT,
        "{\"model\":\"m\\u00e9\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_"
        "tokens\":6,"
        "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"temperature\":0.0,\"seed\":-"
        "7,"
        "\"stop\":[\"a\",\"b\"],\"logprobs\":true,\"top_logprobs\":3,\"user\":null,\"ignore_eos\":"
        "true,"
        "\"nvext\":{\"annotations\":[\"request_id\"],\"backend_instance_id\":18446744073709551615,"
        "\"agent_hints\":{\"priority\":-3,\"strict_priority\":4294967295,\"osl\":9,\"x\":[1]},"
        "\"extra_fields\":[\"timing\"],\"unheard_of\":{\"x\":1},\"routing_constraints\":{"
        "\"required_taints\":[\"gpu=h100\"],\"preferred_taints\":{\"zone=a\":0.5,\"zone=b\":-1},"
        "\"other\":3}}}",
        a, &r, &e));
    assert_true(str_is(r.model, "m\xc3\xa9"));
    assert_int_equal(json_len(r.messages), 1);
    assert_true(r.stream && r.include_usage && r.wants_timing && r.has_nvext);
    assert_int_equal(r.stop.max_tokens.v, 6);
    assert_int_equal(r.stop.n_stop, 2);
    assert_true(r.stop.ignore_eos.v);
    assert_true(r.sampling.temperature.set && r.sampling.temperature.v == 0);
    assert_int_equal(r.sampling.seed.v, -7);
    assert_int_equal(r.output.logprobs.v, 3);
    assert_true(r.backend_instance_id.v == UINT64_MAX);
    assert_int_equal(r.n_annotations, 1);
    assert_true(r.priority.set && r.priority.v == -3);
    assert_int_equal(r.strict_priority.v, UINT32_MAX);
    assert_int_equal(r.expected_output_tokens.v, 9);
    assert_int_equal(r.n_required_taints, 1);
    assert_true(str_is(r.required_taints[0], "gpu=h100"));
    assert_int_equal(r.n_preferred_taints, 2);
    assert_true(str_is(r.preferred_taints[1].name, "zone=b") && r.preferred_taints[1].weight == -1);
    openai_request_done(&r);
}

static void prompts_in_every_form(void **state)
{
    static const struct {
        const char *prompt;
        size_t n_ids;
    } cases[] = {{"\"abc\"", 0}, {"[\"abc\"]", 0}, {"[1,2,3]", 3}, {"[[1,2,4294967295]]", 3}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        AUTO(mem_free) char *body = xasprintf("{\"model\":\"m\",\"prompt\":%s}", cases[i].prompt);
        struct openai_request r;
        struct api_error e;

        assert_true(parse(API_COMPLETIONS, body, a, &r, &e));
        assert_int_equal(r.prompt.n_ids, cases[i].n_ids);
        assert_int_equal(r.prompt.is_ids, cases[i].n_ids > 0);
        assert_true(r.prompt.is_ids || str_is(r.prompt.text, "abc"));
    }
}

static void several_prompts_and_choices(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_true(parse(API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"a\",[1,2],\"c\"],\"n\":2}",
                      a, &r, &e));
    assert_int_equal(r.n_prompts, 3);
    assert_int_equal(openai_request_choices(&r), 6);
    assert_true(str_is(r.prompts[0].text, "a") && str_is(r.prompts[2].text, "c"));
    assert_true(r.prompts[1].is_ids && r.prompts[1].n_ids == 2);
    assert_true(str_is(r.prompt.text, "a"));
    assert_false(parse(API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"a\",\"\"]}", a, &r, &e));
    assert_false(
        parse(API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"n\":65}", a, &r, &e));
    assert_int_equal(e.status, 400);
    assert_false(
        parse(API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"prompt\":\"b\"}", a, &r, &e));
    assert_string_equal(e.param, "prompt");
}

static void what_only_newer_workers_know(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_true(parse(API_COMPLETIONS,
                      "{\"model\":\"m\",\"prompt\":\"x\",\"stop\":[5,6],\"stop_token_ids\":[7],"
                      "\"nvext\":{\"cache_salt\":\"b\",\"extra_fields\":[\"timing\"],"
                      "\"router\":{\"ttft_target\":0,\"itl_target\":null},\"token_data\":[1]},"
                      "\"cache_salt\":\"a\","
                      "\"allowed_token_ids\":[1, 2],\"echo\":true,\"prompt_logprobs\":3}",
                      a, &r, &e));
    assert_int_equal(r.stop.n_ids, 2);
    assert_int_equal(r.stop.ids[1], 6);
    assert_int_equal(r.output.prompt_logprobs.v, 3);
    assert_true(str_is(r.cache_salt, "b"));
    assert_true(r.has_targets && r.ttft_target_ms.set && !r.itl_target_ms.set);
    assert_true(str_is(r.extra_args_json,
                       "{\"nvext\":{\"extra_fields\":[\"timing\"],\"token_in\":true,\"cache_salt\":"
                       "\"b\"},\"sampling_options\":{\"allowed_token_ids\":[1, 2]}}"));
    openai_request_set_salt(&r, STR("t"), a);
    assert_true(str_is(r.cache_salt, "t"));
    assert_true(str_has(r.extra_args_json, STR("\"cache_salt\":\"t\"}")));
    openai_request_done(&r);
}

#define M "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
static void read_loosely_unknown_keys_are_passed_over(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_true(openai_request_parse_loosely(
        API_CHAT, STR("{\"foo\":{\"model\":\"x\"}," M ",\"bar\":2}"), a, &r, &e));
    assert_true(str_is(r.model, "m"));
    openai_request_done(&r);
    assert_false(openai_request_parse_loosely(API_CHAT, STR("{" M ",\"foo\":}"), a, &r, &e));
    openai_request_done(&r);
    assert_false(openai_request_parse_loosely(API_CHAT, STR("{" M ",\"foo\":1,\"temperature\":9}"),
                                              a, &r, &e));
    openai_request_done(&r);
}

static const struct {
    const char *body;
    int status;
    const char *text; /* start of the message */
} BAD[] = {
    {"{\"model\":", 400, "Failed to parse the request body as JSON: "},
    {"", 400, "Failed to parse the request body as JSON: "},
    {"[]", 400, "The request body must be a JSON object"},
    {"{" M "}x", 400, "Failed to parse the request body as JSON: "},
    {"{" M ",\"foo\":1,\"bar\":2}", 400, "Validation: Unsupported parameter(s): `foo`, `bar`"},
    {"{\"messages\":[{\"role\":\"user\"}]}", 400, "Validation: model must not be empty"},
    {"{\"model\":\"m\",\"messages\":[]}", 400, "Validation: messages must not be empty"},
    {"{\"model\":\"m\",\"messages\":\"x\"}", 400,
     "Failed to deserialize the JSON body into the target type: messages: expected an array"},
    {"{\"model\":\"m\",\"messages\":[{\"content\":\"x\"}]}", 400,
     "Failed to deserialize the JSON body into the target type: messages[0]: missing field "
     "`role`"},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":7}]}", 400,
     "Failed to deserialize the JSON body into the target type: messages[0]: content: "
     "expected"},
    {"{\"model\":7,\"messages\":[]}", 400,
     "Failed to deserialize the JSON body into the target type: model: expected a string"},
    {"{" M ",\"temperature\":-0.1}", 400,
     "Validation: temperature must be between 0 and 2, got -0.1"},
    {"{" M ",\"top_k\":-2}", 400, "Validation: top_k must be at least -1"},
    {"{" M ",\"top_p\":0}", 400, "Validation: top_p must be above 0"},
    {"{" M ",\"logit_bias\":{\"a\":1}}", 400, "Validation: logit_bias must be by token ids"},
    {"{" M ",\"continue_final_message\":true}", 400,
     "Validation: continue_final_message needs add_generation_prompt false"},
    {"{" M ",\"stream_options\":{}}", 400, "Validation: stream_options needs stream"},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\"}]}", 400,
     "Failed to deserialize the JSON body into the target type: messages[0]: missing field "
     "`content`"},
    {"{" M ",\"max_tokens\":-1}", 400,
     "Failed to deserialize the JSON body into the target type: max_tokens: expected a "
     "non-negative whole number"},
    {"{" M ",\"max_tokens\":1e99}", 400,
     "Failed to deserialize the JSON body into the target type: max_tokens"},
    {"{" M ",\"max_completion_tokens\":0}", 400,
     "Validation: max_completion_tokens must be greater than 0"},
    {"{" M ",\"stop\":\"\"}", 400, "Validation: stop sequences must not be empty"},
    {"{" M ",\"n\":129}", 400, "Validation: n must be 1"},
    {"{" M ",\"stream_options\":{\"include_usage\":true}}", 400,
     "Validation: stream_options needs stream"},
    {"{" M ",\"logit_bias\":{\"5\":101}}", 400,
     "Validation: logit_bias must be between -100 and 100, got 101"},
    {"{" M ",\"stop_token_ids\":[-1]}", 400,
     "Failed to deserialize the JSON body into the target type: stop_token_ids: expected"},
    {"{" M ",\"stop\":[\"a\",5]}", 400,
     "Failed to deserialize the JSON body into the target type: stop: expected"},
    {"{" M ",\"thinking\":{\"type\":\"foo\"}}", 400,
     "Failed to deserialize the JSON body into the target type: thinking: expected"},
    {"{" M ",\"reasoning_effort\":\"nope\"}", 400,
     "Failed to deserialize the JSON body into the target type: reasoning_effort: expected"},
    {"{" M ",\"response_format\":{\"type\":\"nope\"}}", 400,
     "Failed to deserialize the JSON body into the target type: response_format: expected"},
    {"{" M ",\"nvext\":{\"annotations\":\"x\"}}", 400,
     "Failed to deserialize the JSON body into the target type: annotations: expected"},
    {"{" M ",\"nvext\":{\"annotations\":[],\"annotations\":[]}}", 400,
     "Failed to parse the request body as JSON: "},
    {"{" M
     ",\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include\\u005fusage\":true}}",
     400, "Failed to parse the request body as JSON: "},
    {"{" M ",\"mod\\u0065l\":\"m\"}", 400,
     "Failed to deserialize the JSON body into the target type: duplicate field `model`"},
    {"{" M ",\"functions\":[]}", 501, "`functions` is not supported"},
    {"{" M ",\"functions\":[{\"name\":\"f\",\"parameters\":{}}]}", 501, "`functions` is not"},
    {"{" M ",\"functions\":[{\"name\":\"f\"}]}", 400,
     "Failed to deserialize the JSON body into the target type: functions: expected"},
    {"{" M ",\"functions\":5}", 400,
     "Failed to deserialize the JSON body into the target type: functions: expected"},
    {"{" M ",\"function_call\":{\"name\":\"f\"}}", 501, "`function_call` is not supported"},
    {"{" M ",\"function_call\":\"f\"}", 400,
     "Failed to deserialize the JSON body into the target type: function_call: expected"},
};

static void json_has_several_types(void **state)
{
    static const struct {
        const char *type;
        bool is_json;
    } cases[] = {{"application/json", true},
                 {"Application/JSON; charset=utf-8", true},
                 {"application/vnd.x+json", true},
                 {"application/+json", false},
                 {"text/plain", false},
                 {"", false},
                 {"text/json", false},
                 {"application/jsonl", false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (openai_content_is_json(str_from(cases[i].type)) != cases[i].is_json)
            fail_msg("%s", cases[i].type);
    assert_false(openai_content_is_json(STR_NULL));
}

static void names_may_have_escapes(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_true(
        parse(API_CHAT,
              "{\"mod\\u0065l\":\"m\",\"messages\":[{\"rol\\u0065\":\"user\",\"content\":\"x\"}],"
              "\"nvext\":{\"max\\u005fthinking_tokens\":5}}",
              a, &r, &e));
    assert_true(str_is(r.model, "m") && r.stop.max_thinking_tokens.v == 5);
    openai_request_done(&r);
}

static void bad_requests_are_told_what_is_wrong(void **state)
{

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        struct openai_request r;
        struct api_error e;

        if (parse(API_CHAT, BAD[i].body, a, &r, &e))
            fail_msg("accepted: %s", BAD[i].body);
        assert_int_equal(e.status, BAD[i].status);
        if (!str_starts(str_from(e.text), str_from(BAD[i].text)))
            fail_msg("%s: %s", BAD[i].body, e.text);
        openai_request_done(&r);
    }
}

/* What is no request at all, as a Rust reader of typed bodies refuses it, and what is a wrong one. */
static void bodies_that_are_no_requests_are_told_apart(void **state)
{
    static const struct {
        const char *body;
        bool malformed;
    } cases[] = {
        {"{", true},
        {"[]", true},
        {"{}", true},
        {"{\"model\":\"m\"}", true},
        {"{" M ",\"temperature\":\"a\"}", true},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\"}]}", true},
        {"{" M ",\"response_format\":{\"type\":\"nope\"}}", true},
        {"{" M ",\"temperature\":3}", false},
        {"{" M ",\"foo\":1}", false},
        {"{\"model\":\"\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", false},
        {"{\"model\":\"m\",\"messages\":[]}", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        struct openai_request r;
        struct api_error e;

        assert_false(parse(API_CHAT, cases[i].body, a, &r, &e));
        if (e.malformed != cases[i].malformed)
            fail_msg("%s", cases[i].body);
        openai_request_done(&r);
    }
}

int main(void)
{
    return TEST_RUN(T(thoughts_by_every_name), T(thoughts_by_default), T(a_full_chat_request),
                    T(prompts_in_every_form), T(several_prompts_and_choices),
                    T(what_only_newer_workers_know), T(names_may_have_escapes),
                    T(bad_requests_are_told_what_is_wrong), T(json_has_several_types),
                    T(bodies_that_are_no_requests_are_told_apart),
                    T(read_loosely_unknown_keys_are_passed_over));
}
