/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat_gemma.h"

#include "lib/base/json_tree.h"
#include "lib/base/test.h"
#include "router/token/chat.h"

#define BLOCK                                                                                      \
    "{%- if message.get('reasoning') and loop.index0 > ns_turn.last_user_idx and "                 \
    "message.get('tool_calls') -%}\n        {{- '<|channel>thought\\n' + message['reasoning'] + "  \
    "'\\n<channel|>'}}\n    {%- endif -%}\n"
#define CALLS                                                                                      \
    "{%- for tool_call in message['tool_calls'] -%}\n"                                             \
    "                    {%- set function = tool_call['function'] -%}\n"                           \
    "    {{- '<|tool_call>call:' + function['name'] + '{' -}}\n"                                   \
    "                    {{- '}<tool_call|>' -}}\n                {%- endfor -%}\n"
#define SOURCE                                                                                     \
    "{%- for message in messages -%}" BLOCK "{%- if message['tool_calls'] -%}" CALLS               \
    "{%- endif -%}{{- message['content'] }};{% endfor %}"

static void assert_shows(const char *thoughts, const char *calls, const char *want)
{
    AUTO(json_free) struct json *config = json_new_object(), *messages = NULL;
    AUTO(mem_free)
    char *text = xasprintf("[{\"role\":\"assistant\",\"content\":\"c\",\"reasoning_content\":%s,"
                           "\"tool_calls\":[%s]}]",
                           thoughts, calls);
    AUTO(chat_free) struct chat *c = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    EXPECT_OK(json_parse(&messages, str_from(text), &e), &e);
    EXPECT_OK(chat_load(&c, config, STR(SOURCE), TEMPLATE_TRANSFORMERS, CHAT_OF_1, &e), &e);
    EXPECT_OK(chat_render(c, &(struct chat_input){.messages = messages}, &out, &e), &e);
    assert_string_equal(buf_cstr(&out), want);
}

static void test_thoughts_are_shown(void **state)
{
    static const char call[] =
        "{\"id\":\"i\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}";

    (void)state;
    assert_shows("\"R\"", "", "<|channel>thought\nR\n<channel|>c;");
    assert_shows("[\"a\",\"\",\"b\"]", "",
                 "<|channel>thought\na\n<channel|><|channel>thought\nb\n<channel|>c;");
    assert_shows("\"R\"", call,
                 "<|channel>thought\nR\n<channel|><|tool_call>call:f{}<tool_call|>c;");
    assert_shows("[\"\",\"R\"]", call,
                 "<|tool_call>call:f{}<tool_call|><|channel>thought\nR\n<channel|>c;");
    assert_shows("null", call, "<|tool_call>call:f{}<tool_call|>c;");
}

static void test_others_stay(void **state)
{
    static const char *const sources[] = {"", BLOCK, CALLS, BLOCK "'<|tool_call>call:'",
                                          SOURCE "{# reasoning_content #}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        chat_gemma_put(str_from(sources[i]), &out);
        assert_true(str_eq(buf_str(&out), str_from(sources[i])));
    }
}

int main(void)
{
    return TEST_RUN(T(test_thoughts_are_shown), T(test_others_stay));
}
