/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/worker_said.h"

#include "lib/base/test.h"

#define CALL(id) "{\"id\":\"" id "\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"

static void a_chunk_says_what_its_choices_say(void **state)
{
    static const struct {
        const char *choices, *text, *thoughts, *finish;
        bool has_calls;
    } cases[] = {
        {"{\"delta\":{\"content\":\"a\\n\"},\"finish_reason\":null}", "a\n", "", "", false},
        {"{\"delta\":{\"content\":null,\"reasoning_content\":\"t\"}}", "", "t", "", false},
        {"{\"delta\":{\"content\":\"a\"}},{\"delta\":{\"content\":\"b\"}}", "ab", "", "", false},
        {"{\"delta\":{\"content\":[{\"text\":\"a\"},5,{\"x\":1},{\"text\":\"b\"}]}}", "ab", "", "",
         false},
        {"{\"delta\":{\"tool_calls\":[" CALL("1") "]},\"finish_reason\":\"tool_calls\"}", "", "",
         "tool_calls", true},
        {"{\"delta\":{\"tool_calls\":[]},\"finish_reason\":\"x\"}", "", "", "", false},
        {"{\"delta\":{},\"finish_reason\":5}", "", "", "", false},
        {"", "", "", "", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(worker_said_done) struct worker_said s;
        AUTO(mem_free) char *chunk = xasprintf("{\"choices\":[%s]}", cases[i].choices);

        worker_said_init(&s);
        assert_int_equal(worker_said_read_chunk(&s, str_from(chunk)), cases[i].has_calls);
        assert_string_equal(buf_cstr(&s.text), cases[i].text);
        assert_string_equal(buf_cstr(&s.thoughts), cases[i].thoughts);
        assert_string_equal(s.finish, cases[i].finish);
        assert_int_equal(s.calls.len, 0);
    }
}

static void each_chunk_is_read_anew_but_for_its_end(void **state)
{
    AUTO(worker_said_done) struct worker_said s;

    (void)state;
    worker_said_init(&s);
    (void)worker_said_read_chunk(&s, STR("{\"choices\":[{\"delta\":{\"content\":\"a\"},"
                                         "\"finish_reason\":\"length\"}]}"));
    (void)worker_said_read_chunk(&s, STR("{\"choices\":[{\"delta\":{\"content\":\"b\"}}]}"));
    assert_string_equal(buf_cstr(&s.text), "b");
    assert_string_equal(s.finish, "length");
}

static void the_first_choice_is_the_answer_and_calls_are_those_of_all(void **state)
{
    static const char choices[] =
        "{\"message\":{\"content\":\"a\",\"tool_calls\":[" CALL("1") "]},\"finish_reason\":"
                                                                     "\"stop\"},"
                                                                     "{\"message\":{\"content\":"
                                                                     "\"b\",\"tool_calls\":"
                                                                     "[" CALL("2") "]}}";
    AUTO(worker_said_done) struct worker_said s;

    (void)state;
    worker_said_init(&s);
    worker_said_read_first(&s, STR(choices));
    assert_string_equal(buf_cstr(&s.text), "a");
    assert_string_equal(buf_cstr(&s.calls), CALL("1"));
    assert_string_equal(s.finish, "stop");
    worker_said_read_calls(&s, STR(choices));
    assert_int_equal(s.text.len, 0);
    assert_string_equal(buf_cstr(&s.calls), CALL("1") "," CALL("2"));
    worker_said_read_first(&s, STR_NULL);
    assert_int_equal(s.calls.len, 0);
}

static void usage_and_nvext_are_the_last_that_were_told(void **state)
{
    AUTO(worker_said_done) struct worker_said s;
    const struct usage *u;

    (void)state;
    worker_said_init(&s);
    worker_said_read_rest(&s, STR("{\"usage\":null,\"nvext\":5}"));
    assert_null(worker_said_usage(&s));
    worker_said_read_rest(&s, STR("{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,"
                                  "\"prompt_tokens_details\":{\"cached_tokens\":3},"
                                  "\"completion_tokens_details\":{\"reasoning_tokens\":1}},"
                                  "\"nvext\":{\"stop_reason\":\"x\"}}"));
    worker_said_read_rest(&s, STR("{\"choices\":[]}"));
    u = worker_said_usage(&s);
    assert_non_null(u);
    assert_int_equal(u->prompt_tokens, 5);
    assert_int_equal(u->completion_tokens, 2);
    assert_true(u->reasoning_tokens.set && u->reasoning_tokens.v == 1);
    assert_true(str_is(u->prompt_details_json, "{\"cached_tokens\":3}"));
    assert_string_equal(buf_cstr(&s.stop_json), "\"x\"");
    assert_string_equal(buf_cstr(&s.nvext), "{\"stop_reason\":\"x\"}");
}

int main(void)
{
    return TEST_RUN(T(a_chunk_says_what_its_choices_say),
                    T(each_chunk_is_read_anew_but_for_its_end),
                    T(the_first_choice_is_the_answer_and_calls_are_those_of_all),
                    T(usage_and_nvext_are_the_last_that_were_told));
}
