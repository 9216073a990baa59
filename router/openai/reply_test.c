/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/reply.h"

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
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
#define DSML                                                                                       \
    "\xef\xbd\x9c"                                                                                 \
    "DSML"                                                                                         \
    "\xef\xbd\x9c"
#define DS_SEP "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>"

/* Parts as a text: content as it is, thoughts in (), calls in {}. Neighbours of a kind are one. */
struct told {
    struct buf text;
    int kind;
};

/* What the cases' requests say of their tools. */
static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
    "\"x\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"},\"o\":{\"type\":\"object\"},"
    "\"any\":{},\"list\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}}}}]";

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
        buf_printf(&t->text, "{%.*s%s%.*s %.*s}", STR_ARG(part->name), part->id.len ? "#" : "",
                   STR_ARG(part->id), STR_ARG(part->text));
        buf_put_cstr(&t->text, part->more ? "+" : "");
        return;
    }
    if ((int)part->kind != t->kind) {
        close_part(t);
        t->kind = part->kind;
        buf_put_cstr(&t->text, part->kind == REPLY_THOUGHT ? "(" : "");
    }
    buf_put_str(&t->text, part->text);
}

static enum reply_asked asked;
static const char *prompt = "";

static void read_in_pieces(const struct reply_thoughts *thoughts, const struct reply_calls *calls,
                           struct str text, size_t piece, struct buf *ret)
{
    struct told t = {.kind = -1};
    AUTO(json_free) struct json *tools = NULL;
    AUTO(reply_free) struct reply *r = reply_new(thoughts, calls, STR("named"), tell, &t);
    struct err e;

    assert_int_equal(json_parse(&tools, STR(TOOLS), &e), 0);
    reply_know_tools(r, tools);
    (void)reply_expect_thoughts(r, asked);
    if (reply_prompt_opens(thoughts, str_from(prompt)))
        reply_open_thoughts(r);
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
        {"qwen3", "x <think>a</think> y<think>b</think>", "x (a) y(b)"},
        {"qwen3", "hm</think>yes", "hmyes"},
        {"qwen3", "<thin", "<thin"},
        {"some new name", "<think>a</think>b", "(a)b"},
        {"DeepSeek_R1", "hm</think>yes", "(hm)yes"},
        {"deepseek_r1", "<think>hm</thin k></think>yes", "(hm</thin k>)yes"},
        {"kimi", "\xe2\x97\x81think\xe2\x96\xb7hm\xe2\x97\x81/think\xe2\x96\xb7yes", "(hm)yes"},
        {"mistral", "[THINK]hm[/THINK]yes", "(hm)yes"},
        {"granite", "Here is my thought process: a Here is my response: b", "( a ) b"},
        {"mistral", "no thoughts", "no thoughts"},
        {"nemotron_nano", "hm</think>yes", "(hm)yes"},
        {"minimax_m2", "hm</think>yes", "(hm)yes"},
        {"deepseek_r1", " <think>a</think>b<think>c", "(a)b(c)"},
        {"deepseek_r1", "x <think>a</think> y", "(x a) y"},
        {"granite", "Here's my thought process: a Here is my response: b", "( a ) b"},
        {"minimax_append_think", "a</think>b", "<think>a</think>b"},
        {"minimax_m3", "<mm:think>hm</mm:think>yes", "(hm)yes"},
        {"minimax_m3", "hm</mm:think>yes", "(hm)yes"},
        {"minimax-m3", "a<mm:think>b</mm:think>c", "a(b)c"},
        {"minimax_m3", "plain", "plain"},
        {"kimi_k3",
         "hm<|close|>think<|sep|><|open|>response<|sep|>yes<|close|>response<|sep|>"
         "<|close|>message<|sep|><|end_of_msg|>",
         "(hm)yes"},
        {"kimi-k3", "<|open|>think<|sep|>hm<|close|>think<|sep|>yes", "(hm)yes"},
        {"inkling",
         "<|content_thinking|>hm<|end_message|><|message_model|><|content_text|>yes"
         "<|end_message|>",
         "(hm)yes"},
        {"inkling", "plain", "plain"},
        {"muse", " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>yes<|eot|>",
         "(hm)yes"},
        {"muse_glimmer", "plain", "plain"},
        {"gemma4", "<|channel>thought\na<channel|>b", "<|channel>thought\na<channel|>b"},
        {"deepseek_v3", "a</think>b", "a</think>b"},
        {"nemotron_v3", "a<tool_call>b", "(a)<tool_call>b"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_reads(reply_find_thoughts(cases[i].name), NULL, cases[i].text, cases[i].want);
    assert_null(reply_find_thoughts(NULL));
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
         "{f {}}+{g {\"a\":1}}"},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "{f {}}"},
        {"hermes", "<tool_call>{oops</tool_call>, <tool", "<tool_call>{oops</tool_call>, <tool"},
        {"hermes", "<tool_call>{\"arguments\":{}}</tool_call>",
         "<tool_call>{\"arguments\":{}}</tool_call>"},
        {"nemotron_deci", "<TOOLCALL>[{\"name\":\"f\",\"arguments\":{\"x\":1}}]</TOOLCALL>",
         "{f {\"x\":1}}"},
        {"llama3_json", "<|python_tag|>{\"name\":\"f\",\"parameters\":{\"x\":1}}", "{f {\"x\":1}}"},
        {"llama3_json", "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\"}", "{f {}}+{g {}}"},
        {"llama3_json", "{\"answer\":42}", "{\"answer\":42}"},
        {"llama3_json", "Sure: {\"name\":\"f\"}", "Sure: {\"name\":\"f\"}"},
        {"mistral", "hi [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"x\":1}}]",
         "hi {f {\"x\":1}}"},
        {"mistral",
         "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"s\":\"]}\\\"\"}}] x [TOOL_CALLS] [] y",
         "{f {\"s\":\"]}\\\"\"}} x [TOOL_CALLS] [] y"},
        {"mistral", "[TOOL_CALLS][{\"name\":\"f\"}]\n[/TOOL_CALLS]x", "{f {}}x"},
        {"mistral", "[TOOL_CALLS][{\"name\":\"f\"}] [/TOOL", "{f {}}"},
        {"mistral", "[{\"name\": \"f\"}]", "{f {}}"},
        {"llama3_json", "<|python_tag|>{\"name\":\"f\"} so", "{f {}} so"},
        {"llama3_json", "{\"name\":\"f\"} ; <|python_tag|>{\"name\":\"g\"}",
         "{\"name\":\"f\"} ; <|python_tag|>{\"name\":\"g\"}"},
        {"llama3_json", "{\"answer\":42} is it", "{\"answer\":42} is it"},
        {"pythonic", "[f(s='a]\"')] so", "{f {\"s\":\"a]\\\"\"}} so"},
        {"pythonic", "[f(x=1", "[f(x=1"},
        {"phi4", "functools[{\"name\":\"f\"}]\nfunctools[{\"name\":\"g\"}]", "{f {}}\n{g {}}"},
        {"hermes", "\n{ \"name\":\"f\",\"arguments\":{\"x\":1}}\n", "{f {\"x\":1}}"},
        {"hermes", "{\"name\":\"f\"} so", "{\"name\":\"f\"} so"},
        {"hermes", "{\"names\":1}", "{\"names\":1}"},
        {"hermes", "{\"na", "{\"na"},
        {"hermes", "[", "["},
        {"hermes", "so {\"name\":\"f\"}", "so {\"name\":\"f\"}"},
        {"jamba", "[{\"name\":\"f\"},{\"name\":\"g\"}]", "{f {}}+{g {}}"},
        {"phi4", "functools[{\"name\":\"f\",\"arguments\":{\"x\":1}}]", "{f {\"x\":1}}"},
        {"jamba", "<tool_calls>[{\"name\":\"f\",\"arguments\":{\"x\":1}}]</tool_calls>",
         "{f {\"x\":1}}"},
        {"pythonic", "[f(x=1, y=\"a\\n'\", z=[1.5, True, None, {'k': (2,)}]), g()]",
         "{f {\"x\":1,\"y\":\"a\\n'\",\"z\":[1.5,true,null,{\"k\":[2]}]}}+{g {}}"},
        {"pythonic", "[1, 2] is a list", "[1, 2] is a list"},
        {"qwen3_coder",
         "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=s>\na b\n"
         "</parameter>\n</function>\n</tool_call>",
         "{f {\"x\":1,\"s\":\"a b\"}}"},
        {"deepseek_v3",
         DS_CALLS(DS_CALL("function" DS_SEP "f\n```json\n{\"x\": 1}\n```")
                      DS_CALL("function" DS_SEP "g\n```json\n{}\n```")),
         "{f {\"x\":1}}+{g {}}"},
        {"deepseek_v3_1", "hm " DS_CALLS(DS_CALL("f" DS_SEP "{\"x\": 1}")), "hm {f {\"x\":1}}"},
        {"deepseek_v3_1", DS_CALLS(DS_CALL("f" DS_SEP "{oops")),
         DS_CALLS(DS_CALL("f" DS_SEP "{oops"))},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_non_null(reply_find_calls(cases[i].name));
        assert_reads(NULL, reply_find_calls(cases[i].name), cases[i].text, cases[i].want);
    }
    assert_null(reply_find_calls("some new name"));
    assert_null(reply_find_calls(NULL));
}

/* Arguments between marks: values are what the schema says. */
static void test_marked_calls(void **state)
{
    static const struct {
        const char *name, *text, *want;
    } cases[] = {
        {"deepseek_v3_2",
         "hm<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
         "parameter name=\"x\" string=\"false\">[1, 2.0]</" DSML "parameter>\n<" DSML
         "parameter name=\"s\" string=\"true\"> 12\n</" DSML "parameter>\n</" DSML "invoke>\n<" DSML
         "invoke name=\"g\">\n</" DSML "invoke>\n</" DSML "function_calls>bye",
         "hm{f {\"x\":[1,2.0],\"s\":\"12\"}}+{g {}}bye"},
        {"deepseek_v4",
         "<" DSML "tool_calls><" DSML "invoke name=\"f\"></" DSML "invoke></" DSML "tool_calls>",
         "{f {}}"},
        {"minimax_m2",
         "hm<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"x\">1</parameter>\n"
         "<parameter name=\"s\">\n12 </parameter><parameter name='o'>{\"a\": 1}</parameter>"
         "<parameter name=any>true</parameter><parameter name=\"new\">3</parameter>\n</invoke>\n"
         "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>bye",
         "hm{f {\"x\":1,\"s\":\"12\",\"o\":{\"a\":1},\"any\":true,\"new\":\"3\"}}+{g {}}bye"},
        {"minimax_m2", "<minimax:tool_call>oops</minimax:tool_call>",
         "<minimax:tool_call>oops</minimax:tool_call>"},
        {"qwen3_coder",
         "<tool_call><function=f><parameter=x>\"1\"</parameter><parameter=s>1</parameter>"
         "<parameter=o>{oops</parameter></function></tool_call>",
         "{f {\"x\":\"\\\"1\\\"\",\"s\":\"1\",\"o\":\"{oops\"}}"},
        {"glm45",
         "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value> 1 </arg_value>\n<arg_key>s</arg_key>\n"
         "<arg_value>1</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
         "{f {\"x\":1,\"s\":\"1\"}}\n{g {}}"},
        {"glm47", "<tool_call>{\"no\":1}</tool_call>", "<tool_call>{\"no\":1}</tool_call>"},
        {"kimi_k2",
         "hm<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
         "<|tool_call_argument_begin|>{\"x\": 1}<|tool_call_end|><|tool_call_begin|> g:1 "
         "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>bye",
         "hm{f#functions.f:0 {\"x\":1}}+{g#g:1 {}}bye"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_non_null(reply_find_calls(cases[i].name));
        assert_reads(NULL, reply_find_calls(cases[i].name), cases[i].text, cases[i].want);
    }
}

#define M3 "]<]minimax[>["
#define QUOTE "<|\"|>"
#define TO_K3_F "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>"
#define K3_ARGUMENT(attributes, value)                                                             \
    "<|open|>argument " attributes "<|sep|>" value "<|close|>argument<|sep|>"
#define K3_END "<|close|>call<|sep|><|close|>tools<|sep|>"
#define V41(text) "<" DSML " calls>" text "</" DSML " calls>"

static void test_calls_of_newer_models(void **state)
{
    static const struct {
        const char *name, *text, *want;
    } cases[] = {
        {"qwen3", "<tool_call><function=f><parameter=x>1</parameter></function></tool_call>",
         "{f {\"x\":1}}"},
        {"deepseek_v41",
         "hm" V41("<" DSML " invoke name=\"f\"><" DSML
                  " parameter name=\"x\" string=\"false\">[1, 2]</" DSML " parameter><" DSML
                  " parameter name=\"s\" string=\"true\"> a</" DSML " parameter></" DSML
                  " invoke><" DSML " invoke name=\"g\">{\"x\": 1}</" DSML " invoke>") "bye",
         "hm{f {\"x\":[1,2],\"s\":\" a\"}}+{g {\"x\":1}}bye"},
        {"deepseek_v41",
         V41("<" DSML " invoke name=\"f\"><" DSML " parameter name=\"x\" string=\"false\">zz</" DSML
             " parameter></" DSML " invoke>"),
         V41("<" DSML " invoke name=\"f\"><" DSML " parameter name=\"x\" string=\"false\">zz</" DSML
             " parameter></" DSML " invoke>")},
        {"gemma4",
         "hi <|tool_call>call:f{x:1, s:" QUOTE "a <tool_call|> b" QUOTE
         ",o:{a:[1,-2.5,true,NONE],b:" QUOTE QUOTE "},e:}<tool_call|><|tool_call>call:g{}"
         "<tool_call|>bye",
         "hi {f {\"x\":1,\"s\":\"a <tool_call|> b\",\"o\":{\"a\":[1,-2.5,true,null],\"b\":\"\"},"
         "\"e\":\"\"}}{g {}}bye"},
        {"gemma-4", "<|tool_call>call:f{x:oops}<tool_call|>",
         "<|tool_call>call:f{x:oops}<tool_call|>"},
        {"gemma4", "<|tool_call>call:f{x:" QUOTE "1", "<|tool_call>call:f{x:" QUOTE "1"},
        {"minimax_m3",
         "hm" M3 "<tool_call>\n" M3 "<invoke name=\"f\">" M3 "<x>1" M3 "</x>" M3 "<s>a &lt; b" M3
         "</s>" M3 "<o>\n" M3 "<k>1" M3 "</k>" M3 "<l>" M3 "<item>p" M3 "</item>" M3 "<item>q" M3
         "</item>" M3 "</l>" M3 "</o>" M3 "</invoke>" M3 "<invoke name=\"g\">" M3 "</invoke>\n" M3
         "</tool_call>bye",
         "hm{f {\"x\":1,\"s\":\"a < b\",\"o\":{\"k\":\"1\",\"l\":{\"item\":[\"p\",\"q\"]}}}}+"
         "{g {}}bye"},
        {"minimax_m3_nom",
         M3 "<tool_call>" M3 "<invoke name=\"f\">" M3 "<a>1" M3 "</a>" M3 "<new>3" M3 "</new>" M3
            "<a>2" M3 "</a>" M3 "<list>" M3 "<item>1" M3 "</item>" M3 "<item>2" M3 "</item>" M3
            "</list>" M3 "</invoke>" M3 "</tool_call>",
         "{f {\"a\":[\"1\",\"2\"],\"new\":\"3\",\"list\":[1,2]}}"},
        {"minimax-m3", M3 "<tool_call>oops" M3 "</tool_call>",
         M3 "<tool_call>oops" M3 "</tool_call>"},
        {"kimi_k3",
         "<|open|>response<|sep|>hi<|close|>response<|sep|>" TO_K3_F K3_ARGUMENT(
             "key=\"x\" type=\"number\"", "1") K3_ARGUMENT("key=\"s\" type=\"string\"", " 2") K3_END
         "<|close|>message<|sep|><|end_of_msg|>",
         "hi{f {\"x\":1,\"s\":\" 2\"}}"},
        {"kimi-k3",
         TO_K3_F "<|open|>json type=\"object\"<|sep|>{\"x\": 1}<|close|>json<|sep|>" K3_END,
         "{f {\"x\":1}}"},
        {"inkling",
         "f<|content_invoke_tool_json|>{\"name\":\"f\",\"args\":{\"x\": \"<|end_message|>\\\"\"}}"
         "<|end_message|><|message_model|>g<|content_invoke_tool_json|>{\"name\":\"g\"}"
         "<|end_message|><|message_model|><|content_text|>bye<|end_message|>",
         "{f {\"x\": \"<|end_message|>\\\"\"}}{g {}}bye"},
        {"inkling", "plain", "plain"},
        {"muse",
         " to=self<|message|>hm<|eom|><|start|>assistant to=f<|message|><atem:function_calls>"
         "<atem:invoke name=\"f\">\n<atem:parameter name=\"x\">1</atem:parameter>"
         "<atem:parameter name=\"s\"> a</atem:parameter></atem:invoke><atem:invoke name=\"g\">"
         "</atem:invoke></atem:function_calls><|eom|><|start|>assistant "
         "to=user<|message|>bye<|eot|>",
         "(hm){f {\"x\":1,\"s\":\" a\"}}+{g {}}bye"},
        {"muse_glimmer", " to=f<|message|>oops<|eom|>", " to=f<|message|>oops<|eom|>"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_non_null(reply_find_calls(cases[i].name));
        assert_reads(NULL, reply_find_calls(cases[i].name), cases[i].text, cases[i].want);
    }
}

static void test_thoughts_and_calls_of_newer_models(void **state)
{
    (void)state;
    assert_reads(reply_find_thoughts("minimax_m3"), reply_find_calls("minimax_m3"),
                 "hm" M3 "<tool_call>" M3 "<invoke name=f>" M3 "</invoke>" M3 "</tool_call>",
                 "(hm){f {}}");
    assert_reads(reply_find_thoughts("kimi_k3"), reply_find_calls("kimi_k3"), "hm" TO_K3_F K3_END,
                 "(hm){f {}}");
    assert_reads(reply_find_thoughts("inkling"), reply_find_calls("inkling"),
                 "<|content_thinking|>hm<|end_message|><|message_model|>f"
                 "<|content_invoke_tool_json|>{\"name\":\"f\"}<|end_message|>",
                 "(hm){f {}}");
}

static void test_both(void **state)
{
    (void)state;
    /* What a call says is no thought. */
    assert_reads(reply_find_thoughts("qwen3"), reply_find_calls("hermes"),
                 "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"<think>\"}}</tool_call>",
                 "{f {\"s\":\"<think>\"}}");
    assert_reads(reply_find_thoughts("qwen3"), reply_find_calls("hermes"),
                 "<think>a <tool_call> b</think>c<tool_call>{\"name\":\"f\"}</tool_call>",
                 "(a <tool_call> b)c{f {}}");
}

#define ANALYSIS "<|channel|>analysis<|message|>hm"
#define TO_F "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
#define NEXT "<|end|><|start|>assistant"

static void test_harmony(void **state)
{
    static const struct {
        bool thoughts, calls;
        const char *text, *want;
    } cases[] = {
        {true, true, ANALYSIS NEXT "<|channel|>final<|message|>yes<|return|>", "(hm)yes"},
        {true, true, ANALYSIS NEXT TO_F "{\"x\": 1}<|call|>", "(hm){f {\"x\":1}}"},
        {true, true, TO_F "{\"x\": 1}", "{f {\"x\":1}}"}, /* the token that ends it is not told */
        {true, true, TO_F "oops<|call|>", "{f oops}"},
        {true, true, TO_F "{\"x\": 1", TO_F "{\"x\": 1"},
        {true, true, TO_F "{}<|call|><|start|>assistant" TO_F "{}<|call|>bye", "{f {}}{f {}}"},
        {true, true, " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "{f {}}"},
        {true, true, "<|channel|>commentary<|message|>first" NEXT TO_F "{}<|call|>", "first{f {}}"},
        {true, false, ANALYSIS NEXT TO_F "{}<|call|>", "(hm)" TO_F "{}<|call|>"},
        {false, true, ANALYSIS NEXT "<|channel|>final<|message|>yes", "yes"},
        {true, true, ANALYSIS, "(hm)"},
        {true, true, "no <|marks here", "no <|marks here"},
        {true, true, ANALYSIS "<|start|>assistant<|channel|>fin", "(hm)"},
        {true, true, "<|chan", "<|chan"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_reads(cases[i].thoughts ? reply_find_thoughts("gpt_oss") : NULL,
                     cases[i].calls ? reply_find_calls("harmony") : NULL, cases[i].text,
                     cases[i].want);
}

static void test_calls_that_end_thoughts(void **state)
{
    const char *call = "<minimax:tool_call><invoke name=\"f\"></invoke></minimax:tool_call>";
    char text[256];

    (void)state;
    (void)snprintf(text, sizeof(text), "hm<%s", call);
    assert_reads(reply_find_thoughts("minimax_m2"), reply_find_calls("minimax_m2"), text,
                 "(hm<){f {}}");
    assert_reads(reply_find_thoughts("minimax_m2"), reply_find_calls("minimax_m2"), call, "{f {}}");
}

/* What 1.6.1 makes of a text when the request asks for thoughts, or for none. */
static void test_thoughts_asked_for(void **state)
{
    static const struct {
        const char *name;
        enum reply_asked asked;
        const char *text, *want;
    } cases[] = {
        {"deepseek_v3", REPLY_ASKED, "a</think>b", "(a)b"},
        {"deepseek_v3_1", REPLY_ASKED_EFFORT, "a</think>b", "(a)b"},
        {"deepseek_v3", REPLY_ASKED_NONE, "a</think>b", "a</think>b"},
        {"deepseek_r1", REPLY_ASKED_NONE, "<think>a</think>b", "<think>a</think>b"},
        {"deepseek_v4", REPLY_ASKED_NONE, "a</think>b", "a</think>b"},
        {"deepseek_v4", REPLY_ASKED, "a</think>b", "ab"},
        {"qwen3", REPLY_ASKED_NONE, "<think>a</think>b", "(a)b"},
        {"gemma4", REPLY_ASKED, "<|channel>thought\na<channel|>b<|channel>c<channel|>d",
         "(a)b(c)d"},
        {"gemma-4", REPLY_ASKED_EFFORT, "hm<channel|>b", "hmb"},
        {"gemma4", REPLY_ASKED, "<|channel>thou", ""},
        {"mistral", REPLY_ASKED_EFFORT, "hm[/THINK]yes", "(hm)yes"},
        {"mistral", REPLY_ASKED, "hm", "hm"},
        {"minimax_m3", REPLY_ASKED_NONE, "hm</mm:think>yes", "hm</mm:think>yes"},
        /* the mark that begins them is text within them, but for the first and in some models' */
        {"qwen3", REPLY_ASKED, "<think>a<think>b</think>c<think>d<think></think>e",
         "(a<think>b)c(d<think>)e"},
        {"deepseek_r1", REPLY_ASKED, "a<think>b<think>c</think>d", "(ab<think>c)d"},
        {"nemotron3", REPLY_ASKED, "<think>a<think>b</think>c", "(ab)c"},
        {"kimi_k3", REPLY_ASKED, "<|open|>think<|sep|>a<|open|>response<|sep|>b", "(a)b"},
        {"inkling", REPLY_ASKED, "a<|message_model|><|content_text|>b", "ab"},
        {"step3", REPLY_ASKED_NONE, "a</think>b", "(a)b"},
        {"deepseek_r1", REPLY_MODE_CHAT, "a</think>b", "a</think>b"},
        {"qwen3", REPLY_MODE_CHAT, "<think>a</think>b", "(a)b"},
        {"deepseek_v3", REPLY_MODE_THINKING, "a</think>b", "(a)b"},
        {"gemma4", REPLY_MODE_THINKING, "<|channel>thought\na<channel|>b",
         "<|channel>thought\na<channel|>b"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        asked = cases[i].asked;
        assert_reads(reply_find_thoughts(cases[i].name), NULL, cases[i].text, cases[i].want);
    }
    asked = REPLY_ASKED_NOTHING;
}

static void test_thoughts_that_the_prompt_opens(void **state)
{
    static const struct {
        const char *name, *prompt, *text, *want;
        enum reply_asked asked;
    } cases[] = {
        {"qwen3", "<a><think>\n", "a</think>b", "(a)b", REPLY_ASKED_NOTHING},
        {"qwen3", "<think>", "\n\na", "(\n\na)", REPLY_ASKED_NONE},
        {"qwen3", "<think>", "<think>a</think>b<think>c</think>d", "(<think>a)b(c)d", REPLY_ASKED},
        {"qwen3", "<think>x", "a</think>b", "ab", REPLY_ASKED_NOTHING},
        {"qwen3", "<think>\n\n</think>\n\n", "a", "a", REPLY_ASKED_NOTHING},
        {"qwen3", "think>", "a", "a", REPLY_ASKED_NOTHING},
        {"some other", "<think>", "a</think>b", "(a)b", REPLY_ASKED_NOTHING},
        {"deepseek_r1", "<think>", "a<think>b</think>c", "(a<think>b)c", REPLY_ASKED_NOTHING},
        {"deepseek_r1", "<think>", "a</think>b", "a</think>b", REPLY_ASKED_NONE},
        {"deepseek_v3", "<think>", "a</think>b", "a</think>b", REPLY_ASKED_NOTHING},
        {"nemotron_v3", "<think>", "<think>a<tool_call>b", "(a)<tool_call>b", REPLY_ASKED_NOTHING},
        {"kimi", "<think>", "a</think>b", "(a</think>b)", REPLY_ASKED_NOTHING},
        {"minimax_m3", "<mm:think>", "a</mm:think>b", "(a)b", REPLY_ASKED_NOTHING},
        {"minimax_m3", "<mm:think>", "a", "(a)", REPLY_ASKED_NOTHING},
        {"minimax_m3", "<think>", "a", "a", REPLY_ASKED_NOTHING},
        {"kimi_k3", "<|open|>think<|sep|>", "a", "(a)", REPLY_ASKED_NOTHING},
        {"mistral", "[THINK]", "a", "a", REPLY_ASKED_NOTHING},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        asked = cases[i].asked;
        prompt = cases[i].prompt;
        assert_reads(reply_find_thoughts(cases[i].name), NULL, cases[i].text, cases[i].want);
    }
    asked = REPLY_ASKED_NOTHING;
    prompt = "";
    assert_false(reply_prompt_opens(NULL, STR("<think>")));
}

static void test_no_thoughts_expected(void **state)
{
    struct told t = {.kind = -1};
    AUTO(reply_free)
    struct reply *r = reply_new(reply_find_thoughts("deepseek_r1"), NULL, STR_NULL, tell, &t);

    (void)state;
    assert_false(reply_expect_thoughts(r, REPLY_ASKED_NONE));
    reply_push(r, STR("yes"));
    reply_end(r);
    assert_string_equal(buf_cstr(&t.text), "yes");
    buf_done(&t.text);
}

static void test_forced(void **state)
{
    (void)state;
    assert_reads(NULL, &REPLY_ANSWER_IS_CALLS, " [{\"name\":\"f\",\"parameters\":{\"x\":1}}]",
                 "{f {\"x\":1}}");
    assert_reads(NULL, &REPLY_ANSWER_IS_ARGUMENTS, "{\"x\":1}", "{named {\"x\":1}}");
    assert_reads(NULL, &REPLY_ANSWER_IS_ARGUMENTS, "sorry", "sorry");
}

static void ignore_part(void *arg, const struct reply_part *part)
{
    (void)arg;
    (void)part;
}

/* Which pieces of an answer count as thoughts, one letter each: those of 1.6.1. */
static void test_pieces_that_are_thoughts(void **state)
{
    static const struct {
        const char *thoughts, *pieces[6], *want, *calls;
    } cases[] = {
        {"qwen3", {"<think>", "hm", "", "so</think>", "yes", ""}, "-ttt--", NULL},
        {"qwen3", {"<think>", "b", "</think>", "z", "", ""}, "-tt---", NULL},
        {"qwen3", {"<th", "ink>a", "b</thi", "nk>c", "d", ""}, "-tt---", NULL},
        {"qwen3", {"hm", "so</think>yes", "a", "", "", ""}, "------", NULL},
        {"deepseek_r1", {"hm ", "so</think>yes", "a", "", "", ""}, "tt----", NULL},
        {"gpt_oss",
         {"<|channel|>analysis<|message|>", "hm", "<|end|>",
          "<|start|>assistant<|channel|>final<|message|>", "yes", ""},
         "-ttt--",
         NULL},
        {"qwen3",
         {"<think>a</think>", "<tool_call>{\"name\":\"f\"}</tool_call>", "", "", "", ""},
         "t-----",
         "hermes"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(reply_free)
        struct reply *r = reply_new(reply_find_thoughts(cases[i].thoughts),
                                    reply_find_calls(cases[i].calls), STR_NULL, ignore_part, NULL);
        char got[7] = "";

        for (size_t k = 0; k < 6; k++)
            got[k] = reply_push(r, str_from(cases[i].pieces[k])) ? 't' : '-';
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("case %zu: %s, not %s", i, got, cases[i].want);
    }
}

/* Which parsers need the text of special tokens, by their names; none of either is none. */
static void test_special_tokens(void **state)
{
    (void)state;
    assert_false(reply_reads_special(NULL, NULL));
    assert_false(reply_reads_special("qwen3", "hermes"));
    assert_false(reply_reads_special("some_new", "some_new"));
    assert_true(reply_reads_special("gemma4", NULL));
    assert_true(reply_reads_special(NULL, "Kimi_K2"));
    assert_true(reply_reads_special("qwen3", "harmony"));
    assert_false(reply_reads_special("kimi_k2", NULL)); /* its thoughts are in <think> */
}

int main(void)
{
    return TEST_RUN(T(test_thoughts), T(test_calls), T(test_marked_calls), T(test_both),
                    T(test_harmony), T(test_calls_that_end_thoughts), T(test_no_thoughts_expected),
                    T(test_thoughts_asked_for), T(test_calls_of_newer_models),
                    T(test_thoughts_and_calls_of_newer_models), T(test_pieces_that_are_thoughts),
                    T(test_forced), T(test_special_tokens), T(test_thoughts_that_the_prompt_opens));
}
