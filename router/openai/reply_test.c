/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/reply.h"

#include "lib/base/test.h"

#define DS(word) "<\xef\xbd\x9ctool\xe2\x96\x81" word "\xef\xbd\x9c>"
#define DS_CALL(text)                                                                              \
    DS("call\xe2\x96\x81"                                                                          \
       "begin")                                                                                    \
    text DS("call\xe2\x96\x81"                                                                     \
            "end")
#define DS_CALLS(text)                                                                             \
    DS("calls\xe2\x96\x81"                                                                         \
       "begin")                                                                                    \
    text DS("calls\xe2\x96\x81"                                                                    \
            "end")
#define DS_SEP "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>"

/* Parts as a text: content as it is, thoughts in (), calls in {}. Neighbours of a kind are one. */
struct told {
    struct buf text;
    int kind;
};

static void close_part(struct told *t)
{
    if (t->kind == REPLY_THOUGHT)
        buf_put_char(&t->text, ')');
    t->kind = -1;
}

static void tell(void *arg, const struct reply_part *part)
{
    struct told *t = arg;

    if (part->kind == REPLY_CALL) {
        close_part(t);
        buf_printf(&t->text, "{%.*s %.*s}", STR_ARG(part->name), STR_ARG(part->text));
        return;
    }
    if ((int)part->kind != t->kind) {
        close_part(t);
        t->kind = part->kind;
        buf_put_cstr(&t->text, part->kind == REPLY_THOUGHT ? "(" : "");
    }
    buf_put_str(&t->text, part->text);
}

static void read_in_pieces(const struct reply_thoughts *thoughts, const struct reply_calls *calls,
                           struct str text, size_t piece, struct buf *ret)
{
    struct told t = {.kind = -1};
    AUTO(reply_free) struct reply *r = reply_new(thoughts, calls, STR("named"), tell, &t);

    for (; text.len; text = str_skip(text, piece))
        reply_push(r, str_head(text, piece));
    reply_end(r);
    close_part(&t);
    buf_put_str(ret, buf_str(&t.text));
    buf_done(&t.text);
}

/* However the text is cut. */
static void assert_reads(const struct reply_thoughts *thoughts, const struct reply_calls *calls,
                         const char *text, const char *want)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        AUTO(buf_done) struct buf got = BUF_NULL;

        read_in_pieces(thoughts, calls, str_from(text), piece, &got);
        if (strcmp(buf_cstr(&got), want) != 0)
            fail_msg("%s by %zu: \"%s\", not \"%s\"", text, piece, buf_cstr(&got), want);
    }
}

static void test_thoughts(void **state)
{
    static const struct {
        const char *name, *text, *want;
    } cases[] = {
        {"qwen3", "<think>hm</think>\n\nyes", "(hm)\n\nyes"},
        {"qwen3", "\n<think>hm", "(hm)"},
        {"qwen3", "yes <think>no</think>", "yes <think>no</think>"},
        {"qwen3", "<thin", "<thin"},
        {"some new name", "<think>a</think>b", "(a)b"},
        {"DeepSeek_R1", "hm</think>yes", "(hm)yes"},
        {"deepseek_r1", "<think>hm</thin k></think>yes", "(hm</thin k>)yes"},
        {"kimi", "\xe2\x97\x81think\xe2\x96\xb7hm\xe2\x97\x81/think\xe2\x96\xb7yes", "(hm)yes"},
        {"mistral", "[THINK]hm[/THINK]yes", "(hm)yes"},
        {"granite", "Here is my thought process: a Here is my response: b", "( a ) b"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_reads(reply_find_thoughts(cases[i].name), NULL, cases[i].text, cases[i].want);
    assert_null(reply_find_thoughts(NULL));
    assert_null(reply_find_thoughts("gpt_oss"));
}

/* The forms that wire.md §8.9 lists as read by the reference, and some that it leaves as they are. */
static void test_calls(void **state)
{
    static const struct {
        const char *name, *text, *want;
    } cases[] = {
        {"hermes", "hi <tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\": 1}}\n</tool_call> bye",
         "hi {f {\"x\": 1}} bye"},
        {"hermes",
         "<tool_call>[{\"name\":\"f\"},{\"name\":\"g\",\"arguments\":\"{\\\"a\\\":1}\"}]"
         "</tool_call>",
         "{f {}}{g {\"a\":1}}"},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "{f {}}"},
        {"hermes", "<tool_call>{oops</tool_call>, <tool", "<tool_call>{oops</tool_call>, <tool"},
        {"hermes", "<tool_call>{\"arguments\":{}}</tool_call>",
         "<tool_call>{\"arguments\":{}}</tool_call>"},
        {"nemotron_deci", "<TOOLCALL>[{\"name\":\"f\",\"arguments\":{\"x\":1}}]</TOOLCALL>",
         "{f {\"x\":1}}"},
        {"llama3_json", "<|python_tag|>{\"name\":\"f\",\"parameters\":{\"x\":1}}", "{f {\"x\":1}}"},
        {"llama3_json", "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\"}", "{f {}}{g {}}"},
        {"llama3_json", "{\"answer\":42}", "{\"answer\":42}"},
        {"llama3_json", "Sure: {\"name\":\"f\"}", "Sure: {\"name\":\"f\"}"},
        {"mistral", "hi [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"x\":1}}]",
         "hi {f {\"x\":1}}"},
        {"phi4", "functools[{\"name\":\"f\",\"arguments\":{\"x\":1}}]", "{f {\"x\":1}}"},
        {"jamba", "<tool_calls>[{\"name\":\"f\",\"arguments\":{\"x\":1}}]</tool_calls>",
         "{f {\"x\":1}}"},
        {"pythonic", "[f(x=1, y=\"a\\n'\", z=[1.5, True, None, {'k': (2,)}]), g()]",
         "{f {\"x\":1,\"y\":\"a\\n'\",\"z\":[1.5,true,null,{\"k\":[2]}]}}{g {}}"},
        {"pythonic", "[1, 2] is a list", "[1, 2] is a list"},
        {"qwen3_coder",
         "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=s>\na b\n"
         "</parameter>\n</function>\n</tool_call>",
         "{f {\"x\":1,\"s\":\"a b\"}}"},
        {"deepseek_v3",
         DS_CALLS(DS_CALL("function" DS_SEP "f\n```json\n{\"x\": 1}\n```")
                      DS_CALL("function" DS_SEP "g\n```json\n{}\n```")),
         "{f {\"x\": 1}}{g {}}"},
        {"deepseek_v3_1", "hm " DS_CALLS(DS_CALL("f" DS_SEP "{\"x\": 1}")), "hm {f {\"x\": 1}}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_non_null(reply_find_calls(cases[i].name));
        assert_reads(NULL, reply_find_calls(cases[i].name), cases[i].text, cases[i].want);
    }
    assert_null(reply_find_calls("harmony"));
    assert_null(reply_find_calls(NULL));
}

static void test_both(void **state)
{
    (void)state;
    assert_reads(reply_find_thoughts("qwen3"), reply_find_calls("hermes"),
                 "<think>a <tool_call> b</think>c<tool_call>{\"name\":\"f\"}</tool_call>",
                 "(a <tool_call> b)c{f {}}");
}

static void test_forced(void **state)
{
    (void)state;
    assert_reads(NULL, &REPLY_ANSWER_IS_CALLS, " [{\"name\":\"f\",\"parameters\":{\"x\":1}}]",
                 "{f {\"x\":1}}");
    assert_reads(NULL, &REPLY_ANSWER_IS_ARGUMENTS, "{\"x\":1}", "{named {\"x\":1}}");
    assert_reads(NULL, &REPLY_ANSWER_IS_ARGUMENTS, "sorry", "sorry");
}

int main(void)
{
    return TEST_RUN(T(test_thoughts), T(test_calls), T(test_both), T(test_forced));
}
