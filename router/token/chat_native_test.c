/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat_native.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/base/test.h"
#include "router/token/chat.h"

static void test_which_models(void **state)
{
    static const struct {
        const char *type, *name;
        chat_native_fn want;
    } cases[] = {
        {"deepseek_v32", "m", deepseek_v32_put},
        {"DeepSeek_V3_2", "m", deepseek_v32_put},
        {"deepseek_v32", "DeepSeek-V3.2-Exp", NULL},
        {"deepseek_v4", "DeepSeek-V3.2", deepseek_v4_put},
        {"deepseek_v41", "m", deepseek_v41_put},
        {"deepseek_v3", "deepseek-v4", NULL},
        {"", "a-DeepSeek-v3.2", deepseek_v32_put},
        {"", "deepseek-v3.2-exp", NULL},
        {"", "DeepSeekV4", deepseek_v4_put},
        {"", "deepseek.v4-flash", deepseek_v4_put},
        {"", "deepseek_v4.1", deepseek_v41_put},
        {"", "deepseek-v4.10", deepseek_v4_put},
        {"", "deepseek--v4", NULL},
        {"", "deepseek-v40", NULL},
        {"", "a-deepseek-v4", NULL},
        {"", "deepseek", NULL},
        {"KIMI_K3", "m", kimi_k3_put},
        {"kimi-k3", "m", NULL},
        {"llama", "kimi-k3", NULL},
        {"", "a-Kimi-K3.x", kimi_k3_put},
        {"", "kimi_k3", kimi_k3_put},
        {"", "KimiK3", kimi_k3_put},
        {"", "kimi.k3", NULL},
        {"", "", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_true(chat_native_find(str_from(cases[i].type), str_from(cases[i].name), CHAT_OF_1) ==
                    cases[i].want);
}

static void test_which_models_in_0_9(void **state)
{
    static const struct {
        const char *type, *name;
        chat_native_fn want;
    } cases[] = {
        {"llama", "deepseek-v3.2", deepseek_v32_put},
        {"", "x-DeepSeekV3.2b", deepseek_v32_put},
        {"", "DeepSeek-v3.2-Expert", NULL},
        {"deepseek_v32", "m", NULL},
        {"", "deepseek_v3_2", NULL},
        {"deepseek_v4", "deepseek-v4", NULL},
        {"kimi_k3", "kimi-k3", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str type = str_from(cases[i].type), name = str_from(cases[i].name);

        assert_true(chat_native_find(type, name, CHAT_OF_0_9) == cases[i].want);
        assert_null(chat_native_find(type, name, CHAT_AS_SENT));
    }
}

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    if (text)
        EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

/* @want NULL: it is refused. */
static void assert_prompt(const char *type, const char *messages, const char *args,
                          const char *want)
{
    AUTO(json_free) struct json *m = parse(messages), *a = parse(args);
    const struct chat_model model = {.type = str_from(type)};
    AUTO(chat_free) struct chat *c = chat_load_native(&model, CHAT_OF_1);
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct chat_input in = {.messages = m, .args = a};
    struct err e;

    assert_non_null(c);
    if (want)
        EXPECT_OK(chat_render(c, &in, &out, &e), &e);
    else
        assert_int_equal(chat_render(c, &in, &out, &e), -EINVAL);
    assert_string_equal(buf_cstr(&out), want ? want : "");
}

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define CALLED                                                                                     \
    "{\"role\":\"assistant\",\"reasoning_content\":\"R\",\"tool_calls\":[{\"id\":\"a\","           \
    "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"n\\\":1.50,\\\"s\\\":\\\"x\\\"}\"}},"       \
    "{\"id\":\"b\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define BEGIN "<｜begin▁of▁sentence｜>"
#define END "<｜end▁of▁sentence｜>"
#define ASSISTANT "<｜Assistant｜>"
#define PARAMETERS(sep)                                                                            \
    "<｜DSML｜" sep "parameter name=\"n\" string=\"false\">1.5</｜DSML｜" sep "parameter>\n"       \
    "<｜DSML｜" sep "parameter name=\"s\" string=\"true\">x</｜DSML｜" sep "parameter>\n"

static void test_v32(void **state)
{
    static const char calls[] =
        "[" USER("u") "," CALLED "," RESULT("a", "1") "," RESULT("b", "2") "]";

    (void)state;
    assert_prompt("deepseek_v32", "[" USER("u") "]", NULL, BEGIN "<｜User｜>u" ASSISTANT "<think>");
    assert_prompt("deepseek_v32", "[" USER("u") "]", "{\"thinking\":false}",
                  BEGIN "<｜User｜>u" ASSISTANT "</think>");
    assert_prompt("deepseek_v32", calls, NULL,
                  BEGIN "<｜User｜>u" ASSISTANT "<think>R</think>\n\n<｜DSML｜function_calls>\n"
                        "<｜DSML｜invoke name=\"f\">\n" PARAMETERS(
                            "") "</｜DSML｜invoke>\n"
                                "<｜DSML｜invoke name=\"g\">\n\n</｜DSML｜invoke>\n"
                                "</｜DSML｜function_calls>" END
                                "\n\n<function_results>\n<result>1</result>\n"
                                "<result>2</result>\n</function_results>\n\n<think>");
    assert_prompt("deepseek_v32", "[{\"role\":\"developer\"}]", NULL, NULL);
    assert_prompt("deepseek_v32", "[{\"role\":\"function\",\"name\":\"f\"}]", NULL, NULL);
}

static void test_v4(void **state)
{
    /* results go to the places of results, in the order of the calls */
    static const char calls[] =
        "[" USER("u") "," CALLED "," RESULT("b", "2") "," USER("v") "," RESULT("a", "1") "]";
    static const char low[] = "{\"reasoning_effort\":\"low\",\"drop_thinking\":false}";

    (void)state;
    assert_prompt("deepseek_v4", calls, low,
                  BEGIN "<｜User｜>u" ASSISTANT "<think>R</think>\n\n<｜DSML｜tool_calls>\n"
                        "<｜DSML｜invoke name=\"f\">\n" PARAMETERS(
                            "") "</｜DSML｜invoke>\n"
                                "<｜DSML｜invoke name=\"g\">\n\n</｜DSML｜invoke>\n"
                                "</｜DSML｜tool_calls>" END
                                "<｜User｜><tool_result>1</tool_result>\n\nv\n\n"
                                "<tool_result>2</tool_result>" ASSISTANT "<think>");
    assert_prompt("deepseek_v4", "[{\"role\":\"developer\",\"content\":\"d\"}," USER("u") "]",
                  "{\"reasoning_effort\":\"low\"}", BEGIN "<｜User｜>u" ASSISTANT "<think>");
    assert_prompt("deepseek_v4", "[]", NULL, BEGIN);
}

static void test_v41(void **state)
{
    static const char image[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]";

    (void)state;
    assert_prompt("deepseek_v41", image, "{\"reasoning_effort\":7}",
                  BEGIN
                  "<｜System｜>Reasoning Effort: 7 (range 1-100, the higher the value, the "
                  "more thorough the reasoning)\n\n<｜User｜>a\n\n<｜deepseek_image｜>" ASSISTANT
                  "<think>");
    assert_prompt("deepseek_v41", "[" USER("u") "]", "{\"reasoning_effort\":\"none\"}",
                  BEGIN "<｜User｜>u" ASSISTANT "</think>");
    assert_prompt("deepseek_v41", "[" USER("u") "]", "{\"reasoning_effort\":101}", NULL);
    assert_prompt("deepseek_v41", "[" USER("<｜deepseek_image｜>") "]", NULL, NULL);
}

#define K3_END "<|close|>message<|sep|><|end_of_msg|>"
#define K3_OFF "{\"thinking\":false}"

static void test_kimi_k3(void **state)
{
    static const char head[] = "<|open|>message role=\"user\"<|sep|>u" K3_END
                               "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>";

    (void)state;
    assert_prompt("kimi_k3", "[" USER("u") "]", K3_OFF, head);
    assert_prompt("kimi_k3", "[" USER("u") "]", "{\"reasoning_effort\":\"medium\"}", NULL);
    assert_prompt("kimi_k3", "[" RESULT("a", "1") "]", NULL, NULL);
    assert_prompt("kimi_k3", "[{\"role\":\"function\",\"name\":\"f\"}]", NULL, NULL);
}

/* Every byte is in a piece, and marks are those that the prompt is made of, not those of a client. */
static void test_pieces(void **state)
{
    static const char user[] = "[" USER("<|open|>x<|sep|>") "]";
    const struct chat_model model = {.type = STR("kimi_k3")};
    AUTO(chat_free) struct chat *c = chat_load_native(&model, CHAT_OF_1);
    AUTO(json_free) struct json *m = parse(user), *a = parse(K3_OFF);
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(text_pieces_done) struct text_pieces pieces = {0};
    struct chat_input in = {.messages = m, .args = a, .pieces = &pieces};
    size_t n_marks = 0, at = 0;
    struct err e;

    (void)state;
    EXPECT_OK(chat_render(c, &in, &out, &e), &e);
    for (size_t i = 0; i < pieces.len; i++) {
        struct str piece = {buf_data(&out) + at, pieces.ptr[i].end - at};

        assert_true(piece.len > 0);
        n_marks += pieces.ptr[i].is_mark;
        if (str_eq(piece, STR("<|open|>x<|sep|>")))
            assert_false(pieces.ptr[i].is_mark);
        at = pieces.ptr[i].end;
    }
    assert_int_equal(at, out.len);
    assert_int_equal(n_marks, 9);
}

int main(void)
{
    return TEST_RUN(T(test_which_models), T(test_which_models_in_0_9), T(test_v32), T(test_v4),
                    T(test_v41), T(test_kimi_k3), T(test_pieces));
}
