/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/relay.h"
#include "lib/base/test.h"

static void expect_request(const char *body, enum relay_usage usage, const char *want)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    relay_request_put(&out, str_from(body), STR("theirs"), usage);
    buf_put_char(&out, '\0');
    assert_string_equal(buf_data(&out), want);
}

static void test_requests(void **state)
{
    (void)state;
    expect_request("{\"model\":\"ours\",\"prompt\":\"a\\\"b\",\"nvext\":{\"x\":1},\"n\":1e0}",
                   RELAY_WHOLE, "{\"model\":\"theirs\",\"prompt\":\"a\\\"b\",\"n\":1e0}");
    expect_request("{\"stream\":true,\"model\":\"ours\"}", RELAY_STREAM,
                   "{\"model\":\"theirs\",\"stream\":true,"
                   "\"stream_options\":{\"include_usage\":true}}");
    expect_request("{\"stream_options\":{\"include_usage\":false,\"continuous_usage_stats\":true},"
                   "\"model\":\"m\",\"k\\u0041\":[{}]}",
                   RELAY_STREAM,
                   "{\"model\":\"theirs\",\"k\\u0041\":[{}],\"stream_options\":{"
                   "\"continuous_usage_stats\":true,\"include_usage\":true}}");
    expect_request("{\"stream_options\":null,\"model\":\"m\"}", RELAY_STREAM,
                   "{\"model\":\"theirs\",\"stream_options\":{\"include_usage\":true}}");
}

static void expect_text(const char *body, const char *prompt_json, const char *want)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    relay_text_put(&out, str_from(body), str_from(prompt_json));
    assert_string_equal(buf_cstr(&out), want);
}

static void test_text_requests(void **state)
{
    (void)state;
    expect_text("{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"n\":null,\"nvext\":{\"x\":null}}",
                NULL, "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"nvext\":{\"x\":null}}");
    expect_text("{\"prompt\":[\"a\",\"b\"],\"n\":2}", "\"b\"", "{\"prompt\":\"b\",\"n\":2}");
}

static void test_answers(void **state)
{
    static const struct {
        const char *json;
        bool choices, text, finish;
        uint64_t tokens, cached;
    } cases[] = {
        {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}", true, false,
         false, 0, 0},
        {"{\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}", true, true,
         false, 0, 0},
        {"{\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}],\"usage\":{"
         "\"completion_tokens\":4}}",
         true, true, false, 4, 0},
        {"{\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}", true, true, false, 0, 0},
        {"{\"choices\":[{\"text\":\" b\",\"finish_reason\":\"stop\"}]}", true, true, true, 0, 0},
        {"{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":7,"
         "\"prompt_tokens_details\":{\"cached_tokens\":2}}}",
         false, false, false, 7, 2},
        {"{}", false, false, false, 0, 0},
    };
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct relay_answer a;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        EXPECT_OK(relay_answer_read(str_from(cases[i].json), &scratch, &a, &e), &e);
        assert_int_equal(a.has_choices, cases[i].choices);
        assert_int_equal(a.has_text, cases[i].text);
        assert_int_equal(a.has_finish, cases[i].finish);
        assert_int_equal(a.completion_tokens.v, cases[i].tokens);
        assert_int_equal(a.cached_tokens.v, cases[i].cached);
        assert_false(a.is_error);
    }
    assert_true(relay_answer_read(STR("[]"), &scratch, &a, &e) < 0);
    assert_true(relay_answer_read(STR("{\"choices\":["), &scratch, &a, &e) < 0);
}

static void test_errors(void **state)
{
    static const struct {
        const char *json, *text, *param;
        int status;
    } cases[] = {
        {"{\"error\":{\"message\":\"too \\u006cong\",\"type\":\"BadRequestError\",\"code\":400}}",
         "too long", NULL, 400},
        {"{\"error\":{\"message\":\"no\",\"type\":\"BadRequestError\",\"param\":\"max_tokens\","
         "\"code\":400}}",
         "no", "max_tokens", 400}, /* vLLM 0.32.0's form */
        {"{\"error\":{\"message\":\"no\",\"param\":\"a\\n\"}}", "no", NULL, 0},
        {"{\"error\":{\"message\":\"no\",\"param\":null}}", "no", NULL, 0},
        {"{\"object\":\"error\",\"message\":\"no\",\"code\":404}", "no", NULL, 404},
        {"{\"error\":\"plain\"}", "plain", NULL, 0},
        {"{\"error\":{\"code\":\"x\"}}", NULL, NULL, 0},
    };
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct relay_answer a;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        EXPECT_OK(relay_answer_read(str_from(cases[i].json), &scratch, &a, &e), &e);
        assert_true(a.is_error);
        assert_int_equal(a.status, cases[i].status);
        assert_true(str_eq(a.error, str_from(cases[i].text)));
        assert_true(str_eq(a.param, str_from(cases[i].param)));
    }
}

static void test_unsteered_requests(void **state)
{
    static const struct {
        const char *body, *want; /* NULL: it is no object */
    } cases[] = {
        {"{\"model\":\"m\",\"n\":1e0}", "{\"model\":\"m\",\"n\":1e0}"},
        {"{\"nvext\":{\"backend_instance_id\":7},\"n\":1}", "{\"nvext\":{},\"n\":1}"},
        {"{ \"\\u006evext\" : {\"backend_instance_id\":7} }", "{\"\\u006evext\":{}}"},
        {"{\"nvext\":{\"a\":[1],\"cache\\u005fsalt\":\"s\",\"token_data\":[1]}}",
         "{\"nvext\":{\"cache\\u005fsalt\":\"s\"}}"},
        {"{\"nvext\": {\"a\":1},\"nvext\":{\"b\":1}}", "{\"nvext\":{},\"nvext\":{}}"},
        {"{\"nvext\":7}", "{\"nvext\":7}"},
        {"{\"nvext\":null}", "{\"nvext\":null}"},
        {"{\"x\":{\"nvext\":{\"a\":1}}}", "{\"x\":{\"nvext\":{\"a\":1}}}"},
        {"{\"nvext\":{\"a\":1}}x", NULL},
        {"{\"nvext\":{\"a\":}}", NULL},
        {"{\"nvext\":{\"a\":1}", NULL},
        {"[]", NULL},
        {"", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        assert_int_equal(relay_put_unsteered(&out, str_from(cases[i].body)), cases[i].want != NULL);
        assert_true(str_eq(buf_str(&out), str_from(cases[i].want ? cases[i].want : "")));
    }
}

static void test_changes(void **state)
{
    static const char json[] = "{\"id\":\"1\",\"model\":\"t\",\"choices\":[],\"usage\":{\"a\":1}}";
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    relay_answer_put(&out, str_from(json), &(struct relay_change){.hide_usage = false});
    assert_true(str_is(buf_str(&out), json));
    buf_clear(&out);
    relay_answer_put(&out, str_from(json),
                     &(struct relay_change){.model = STR("ours"), .hide_usage = true});
    assert_true(str_is(buf_str(&out), "{\"id\":\"1\",\"model\":\"ours\",\"choices\":[]}"));
    buf_clear(&out);
    relay_answer_put(&out, STR("{\"usage\":null}"), &(struct relay_change){.hide_usage = true});
    assert_true(str_is(buf_str(&out), "{\"usage\":null}"));
    buf_clear(&out);
    relay_answer_put(&out, STR("{\"system_fingerprint\":null,\"id\":\"1\"}"),
                     &(struct relay_change){.fingerprint_json = STR("\"f\"")});
    assert_true(str_is(buf_str(&out), "{\"id\":\"1\",\"system_fingerprint\":\"f\"}"));
}

int main(void)
{
    return TEST_RUN(T(test_requests), T(test_text_requests), T(test_answers), T(test_errors),
                    T(test_unsteered_requests), T(test_changes));
}
