/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/relay_own.h"
#include "lib/base/test.h"

/* --- requests --------------------------------------------------------------------------------- */

static void test_requests(void **state)
{
    static const struct {
        const char *body, *model;
        bool stream, ok;
    } cases[] = {
        {"{\"model\":\"m\",\"input\":[{\"type\":\"new\"}],\"stream\":true}", "m", true, true},
        {"{\"x\":{\"model\":1},\"model\":\"m\",\"stream\":null,\"user\":[7]}", "m", false, true},
        {"{\"model\":7}", NULL, false, false},
        {"{\"model\":\"m\",\"stream\":1}", NULL, false, false},
        {"{\"input\":\"a\"}", NULL, false, false},
        {"{\"model\":\"m\"", NULL, false, false},
        {"{\"model\":\"m\"} 1", NULL, false, false},
        {"[]", NULL, false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        struct openai_request in;
        struct api_error e;

        assert_int_equal(relay_own_parse(str_from(cases[i].body), a, &in, &e), cases[i].ok);
        if (cases[i].ok) {
            assert_true(str_is(in.model, cases[i].model));
            assert_int_equal(in.stream, cases[i].stream);
        } else {
            assert_int_equal(e.status, 400);
        }
        arena_free(a);
    }
}

static void test_bodies(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    relay_request_put(
        &out, STR("{\"model\":\"m\",\"nvext\":{},\"stream\":true,\"stream_options\":{\"x\":1}}"),
        STR("theirs"), RELAY_AS_IS);
    assert_string_equal(buf_cstr(&out),
                        "{\"model\":\"theirs\",\"stream\":true,\"stream_options\":{\"x\":1}}");
    buf_clear(&out);
    relay_request_put(&out, STR("{\"chat_template_args\":{\"a\":1}}"), STR("m"), RELAY_WHOLE);
    assert_string_equal(buf_cstr(&out), "{\"model\":\"m\",\"chat_template_kwargs\":{\"a\":1}}");
    buf_clear(&out);
    relay_request_put(&out, STR("{\"chat_template_args\":1,\"chat_template_kwargs\":{}}"), STR("m"),
                      RELAY_WHOLE);
    assert_string_equal(buf_cstr(&out),
                        "{\"model\":\"m\",\"chat_template_args\":1,\"chat_template_kwargs\":{}}");
}

/* --- answers ---------------------------------------------------------------------------------- */

/* As vLLM 0.32.0 writes them. */
static const struct {
    const char *json;
    bool text, finish, error;
    uint64_t prompt, completion, cached;
} answers[] = {
    {"{\"response\":{\"model\":\"m\",\"usage\":null},\"type\":\"response.created\"}", false, false,
     false, 0, 0, 0},
    {"{\"delta\":\"Hi\",\"type\":\"response.output_text.delta\"}", true, false, false, 0, 0, 0},
    {"{\"delta\":\"\",\"type\":\"response.output_text.delta\"}", false, false, false, 0, 0, 0},
    {"{\"text\":\"Hi\",\"type\":\"response.output_text.done\"}", false, false, false, 0, 0, 0},
    {"{\"response\":{\"usage\":{\"input_tokens\":28,\"input_tokens_details\":{\"cached_tokens\":16}"
     ","
     "\"output_tokens\":4}},\"type\":\"response.completed\"}",
     false, true, false, 28, 4, 16},
    {"{\"object\":\"response\",\"error\":{\"message\":\"x\"},\"usage\":{\"input_tokens\":5,"
     "\"output_tokens\":2}}",
     false, true, false, 5, 2, 0},
    {"{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":28,\"output_tokens\":0}}"
     "}",
     false, false, false, 28, 0, 0},
    {"{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}", true,
     false, false, 0, 0, 0},
    {"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{"
     "\"input_tokens\":12,\"output_tokens\":4,\"cache_creation_input_tokens\":0,"
     "\"cache_read_input_tokens\":16}}",
     false, false, false, 28, 4, 16},
    {"{\"type\":\"message_stop\"}", false, true, false, 0, 0, 0},
    {"{\"type\":\"message\",\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}", false, true,
     false, 3, 1, 0},
    {"{\"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"no\"}}", false, false, true, 0, 0,
     0},
    {"{\"type\":\"error\",\"code\":\"x\",\"message\":\"no\"}", false, false, true, 0, 0, 0},
    {"{\"error\":{\"message\":\"no\",\"code\":404}}", false, false, true, 0, 0, 0},
    {"{\"scores\":[1]}", false, false, false, 0, 0, 0},
};

static void test_answers(void **state)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct relay_answer a;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        EXPECT_OK(relay_own_read(str_from(answers[i].json), &scratch, &a, &e), &e);
        assert_int_equal(a.has_text, answers[i].text);
        assert_int_equal(a.has_finish, answers[i].finish);
        assert_int_equal(a.is_error, answers[i].error);
        assert_true(!a.is_error || str_is(a.error, "no"));
        assert_int_equal(a.prompt_tokens.v, answers[i].prompt);
        assert_int_equal(a.completion_tokens.v, answers[i].completion);
        assert_int_equal(a.cached_tokens.v, answers[i].cached);
    }
    assert_true(relay_own_read(STR("7"), &scratch, &a, &e) < 0);
}

static void test_names(void **state)
{
    static const struct {
        const char *json, *want;
    } cases[] = {
        {"{\"id\":1,\"model\":\"t\"}", "{\"id\":1,\"model\":\"o\\\"\"}"},
        {"{\"response\":{\"a\":[{\"model\":\"t\"}],\"model\":\"t\"},\"model\":null}",
         "{\"response\":{\"a\":[{\"model\":\"t\"}],\"model\":\"o\\\"\"},\"model\":\"o\\\"\"}"},
        {"{\"message\":{\"model\":\"t\"}}", "{\"message\":{\"model\":\"o\\\"\"}}"},
        {"{\"message\":\"model\"}", "{\"message\":\"model\"}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL, same = BUF_NULL;

        relay_own_put(&out, str_from(cases[i].json), STR("o\""));
        assert_string_equal(buf_cstr(&out), cases[i].want);
        relay_own_put(&same, str_from(cases[i].json), STR_NULL);
        assert_string_equal(buf_cstr(&same), cases[i].json);
    }
}

int main(void)
{
    return TEST_RUN(T(test_requests), T(test_bodies), T(test_answers), T(test_names));
}
