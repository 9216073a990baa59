/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/dialect_chat.h"

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/base/test.h"

#define STREAM(continuous)                                                                         \
    ",\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_"              \
    "stats\":" continuous "}}"
#define USER(content) "\"messages\":[{\"role\":\"user\",\"content\":" content "}]"
#define PART(text) "{\"type\":\"text\",\"text\":\"" text "\"}"

struct chat_case {
    const char *body, *chat, *want;
};

static void check(void (*put)(struct buf *out, struct str body, struct str chat),
                  const struct chat_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        AUTO(json_free) struct json *got = NULL, *want = NULL;
        struct err why;

        put(&out, str_from(cases[i].body), str_from(cases[i].chat));
        assert_true(json_parse(&got, buf_str(&out), &why) >= 0);
        assert_true(json_parse(&want, str_from(cases[i].want), &why) >= 0);
        if (!json_equal(got, want))
            fail_msg("%s", buf_cstr(&out));
    }
}

static void responses_say_more_than_tokens_need(void **state)
{
    static const struct chat_case cases[] = {
        {"{\"store\":true,\"metadata\":{\"a\":\"b\"},\"top_logprobs\":2,\"truncation\":\"auto\"}",
         "{" USER("\"x\"") ",\"user\":\"u\",\"max_tokens\":5}",
         "{" USER("\"x\"") ",\"store\":true,\"metadata\":{\"a\":\"b\"},\"top_logprobs\":2,"
                           "\"max_completion_tokens\":5" STREAM("false")},
        {"{}", "{" USER("[" PART("a") "]") ",\"response_format\":{\"type\":\"text\"}}",
         "{" USER("\"a\"") STREAM("false")},
        {"{}", "{" USER("[" PART("a") "," PART("b") "]") "}",
         "{" USER("[" PART("a") "," PART("b") "]") STREAM("false")},
        {"{}", "{" USER("\"x\"") ",\"reasoning_effort\":\"low\"}",
         "{" USER("\"x\"") ",\"reasoning_effort\":\"low\",\"chat_template_args\":{"
                           "\"reasoning_effort\":\"low\",\"thinking\":true,\"enable_thinking\":"
                           "true,\"thinking_mode\":\"enabled\"}" STREAM("false")},
    };

    (void)state;
    check(responses_put_chat, cases, ARRAY_LEN(cases));
}

#define STOP_REASON ",\"nvext\":{\"extra_fields\":[\"stop_reason\"]}"

static void messages_ask_what_stopped_them(void **state)
{
    static const struct chat_case cases[] = {
        {"{}", "{" USER("[" PART("a") "," PART("b") "]") ",\"stop\":[]}",
         "{" USER("\"ab\"") STOP_REASON STREAM("true")},
        {"{\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}}",
         "{" USER("\"x\"") ",\"nvext\":{\"extra_fields\":[\"timing\"]}}",
         "{" USER("\"x\"") ",\"parallel_tool_calls\":false,\"nvext\":{\"extra_fields\":[\"timing\","
                           "\"stop_reason\"]}" STREAM("true")},
        {"{\"thinking\":{\"type\":\"enabled\"}}",
         "{" USER("\"x\"") ",\"chat_template_args\":{\"thinking\":true,\"enable_thinking\":true}}",
         "{" USER("\"x\"") ",\"chat_template_args\":{\"enable_thinking\":true}" STOP_REASON STREAM(
             "true")},
        {"{}", "{" USER("\"x\"") ",\"chat_template_args\":{\"thinking\":true}}",
         "{" USER("\"x\"") STOP_REASON STREAM("true")},
    };

    (void)state;
    check(messages_put_chat, cases, ARRAY_LEN(cases));
}

int main(void)
{
    return TEST_RUN(T(responses_say_more_than_tokens_need), T(messages_ask_what_stopped_them));
}
