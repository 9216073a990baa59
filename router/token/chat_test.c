/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat.h"

#include <errno.h>

#include "lib/base/json_tree.h"
#include "lib/base/test.h"

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static struct chat *load_as(enum template_style style, enum chat_release release,
                            const char *config, struct str file)
{
    AUTO(json_free) struct json *c = parse(config);
    struct chat *chat = NULL;
    struct err e;

    EXPECT_OK(chat_load(&chat, c, file, style, release, &e), &e);
    return chat;
}

static struct chat *load(const char *config, struct str file)
{
    return load_as(TEMPLATE_TRANSFORMERS, CHAT_AS_SENT, config, file);
}

static void assert_renders(const struct chat *c, const char *messages, const char *tools,
                           const char *args, const char *want)
{
    AUTO(json_free)
    struct json *m = parse(messages), *t = tools ? parse(tools) : NULL,
                *a = args ? parse(args) : NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct chat_input in = {.messages = m, .tools = t, .args = a};
    struct err e;

    EXPECT_OK(chat_render(c, &in, &out, &e), &e);
    assert_string_equal(buf_cstr(&out), want);
}

static void test_how_a_prompt_ends(void **state)
{
    AUTO(chat_free)
    struct chat *c =
        load("{\"chat_template\":\"{% for m in messages %}<{{ m.content }}>{% endfor %}"
             "{% if add_generation_prompt %}!{% endif %}\"}",
             STR_NULL);
    static const struct {
        enum chat_end end;
        const char *messages, *want;
    } cases[] = {
        {CHAT_ANSWER, "[{\"role\":\"user\",\"content\":\"a\"}]", "was <a>!"},
        {CHAT_MESSAGES, "[{\"role\":\"user\",\"content\":\"a\"}]", "was <a>"},
        {CHAT_CONTINUE,
         "[{\"role\":\"user\",\"content\":\"a\"},"
         "{\"role\":\"assistant\",\"content\":\" a b \"}]",
         "was <a>< a b "},
        {CHAT_CONTINUE, "[{\"role\":\"assistant\",\"content\":\"was\"}]", "was <was"},
        {CHAT_CONTINUE, "[{\"role\":\"assistant\",\"content\":null}]", NULL},
        {CHAT_CONTINUE, "[{\"role\":\"assistant\",\"content\":\" \"}]", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *m = parse(cases[i].messages);
        AUTO(buf_done) struct buf out = BUF_NULL;
        struct chat_input in = {.messages = m, .end = cases[i].end};
        struct err e;
        int r;

        buf_put_cstr(&out, "was ");
        r = chat_render(c, &in, &out, &e);
        assert_int_equal(r, cases[i].want ? 0 : -EINVAL);
        if (cases[i].want)
            assert_string_equal(buf_cstr(&out), cases[i].want);
    }
}

/* A template of several files says where it needs the others, and is not taken for an absent one. */
static void test_templates_of_several_files(void **state)
{
    static const char *const tags[] = {"include 'a'", "import 'a' as a", "from 'a' import b",
                                       "extends 'a'"};
    AUTO(json_free) struct json *config = parse("{}");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        AUTO(mem_free) char *source = xasprintf("x\n{%% %s %%}", tags[i]);
        struct chat *c = NULL;
        struct err e;
        int r = chat_load(&c, config, str_from(source), TEMPLATE_TRANSFORMERS, CHAT_OF_1, &e);

        if (r != -ENOTSUP || c || !strstr(e.text, "chat template: line 2: unsupported tag"))
            fail_msg("%s: %d %s", source, r, e.text);
    }
}

#define CONTENT "{\"chat_template\":\"{% for m in messages %}[{{ m.content }}]{% endfor %}\"}"

static void test_context(void **state)
{
    AUTO(chat_free)
    struct chat *c =
        load("{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"pad_token\":null,"
             "\"chat_template\":\"{{ bos_token }}{{ eos_token }}{{ unk_token }}"
             "{{ add_generation_prompt }}{{ tools is defined }}{{ x }}\"}",
             STR_NULL);

    (void)state;
    assert_renders(c, "[]", NULL, NULL, "<s></s>TrueFalse");
    assert_renders(c, "[]", "[]", "{\"x\":5,\"add_generation_prompt\":false,\"bos_token\":\"B\"}",
                   "B</s>FalseTrue5");
}

static void test_text_parts_are_joined(void **state)
{
    AUTO(chat_free) struct chat *c = load(CONTENT, STR_NULL);

    (void)state;
    assert_false(chat_wants_parts(c));
    assert_renders(c,
                   "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                   "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"c\"}]",
                   NULL, NULL, "[a\nb][c]");
}

static void test_media_parts_lose_their_data(void **state)
{
    AUTO(chat_free)
    struct chat *c =
        load("{\"chat_template\":\"{% for m in messages %}{{ m.content | tojson }}{% endfor %}\"}",
             STR_NULL);

    (void)state;
    assert_renders(c,
                   "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
                   "{\"url\":\"u\"}},{\"type\":\"text\",\"text\":\"b\"}]}]",
                   NULL, NULL, "[{\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"b\"}]");
}

static void test_templates_that_want_parts(void **state)
{
    AUTO(chat_free)
    struct chat *c =
        load("{\"chat_template\":\"{% for m in messages %}{% for p in m.content %}"
             "{% if p.type == 'text' %}<{{ p.text }}>{% endif %}{% endfor %}{% endfor %}\"}",
             STR_NULL);

    (void)state;
    assert_true(chat_wants_parts(c));
    assert_renders(c, "[{\"role\":\"user\",\"content\":\"hi\"}]", NULL, NULL, "<hi>");
    assert_renders(c,
                   "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                   "{\"type\":\"text\",\"text\":\"b\"}]}]",
                   NULL, NULL, "<a><b>");
}

static void test_tool_arguments_become_objects(void **state)
{
    AUTO(chat_free)
    struct chat *c =
        load("{\"chat_template\":\"{{ messages[0].tool_calls[0].function.arguments.x }}"
             "{{ tools[0].function.parameters | tojson }}\"}",
             STR_NULL);

    (void)state;
    assert_renders(c,
                   "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                   "\"arguments\":\"{\\\"x\\\": 5}\"}}]}]",
                   "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]",
                   NULL, "5{\"type\": \"object\", \"properties\": {}}");
}

static void test_named_templates(void **state)
{
    static const char *const configs[] = {
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},"
        "{\"name\":\"tool_use\",\"template\":\"T\"},{\"name\":\"rag\",\"template\":\"{{\"}]}",
        "{\"chat_template\":[{\"default\":\"D\"},{\"tool_use\":\"T\"}]}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        AUTO(chat_free) struct chat *c = load(configs[i], STR_NULL);

        assert_renders(c, "[]", NULL, NULL, "D");
        assert_renders(c, "[]", "[]", NULL, "D");
        assert_renders(c, "[]", "[{\"type\":\"function\"}]", NULL, "T");
    }
}

static void test_newlines_of_a_file(void **state)
{
    const struct str file = STR("a\n{{ 1 }}\nb\n");
    AUTO(chat_free)
    struct chat *old = load_as(TEMPLATE_DYNAMO_0_9, CHAT_OF_0_9, CONTENT, file),
                *c = load(CONTENT, file);

    (void)state;
    assert_renders(old, "[]", NULL, NULL, "a1b");
    assert_renders(c, "[]", NULL, NULL, "a\n1\nb");
}

static void test_errors(void **state)
{
    AUTO(chat_free) struct chat *c = load(CONTENT, STR_NULL);
    AUTO(json_free)
    struct json *none = parse("{}"), *bad = parse("{\"chat_template\":\"{{\"}"),
                *text = parse("\"x\""), *odd = parse("[{},5]"), *ok = parse("[]");
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct chat *unset = NULL;
    struct chat_input in = {.messages = text};
    struct err e;

    (void)state;
    assert_int_equal(chat_load(&unset, none, STR_NULL, TEMPLATE_TRANSFORMERS, CHAT_OF_1, &e),
                     -ENOENT);
    assert_int_equal(chat_load(&unset, bad, STR_NULL, TEMPLATE_TRANSFORMERS, CHAT_OF_1, &e),
                     -EINVAL);
    assert_null(unset);
    assert_int_equal(chat_render(c, &in, &out, &e), -EINVAL);
    in.messages = odd;
    assert_int_equal(chat_render(c, &in, &out, &e), -EINVAL);
    assert_non_null(strstr(e.text, "messages[1]"));
    in = (struct chat_input){.messages = ok, .tools = text};
    assert_int_equal(chat_render(c, &in, &out, &e), -EINVAL);
}

static void test_example_model(void **state)
{
    AUTO(buf_done) struct buf config = BUF_NULL;
    AUTO(chat_free) struct chat *c = NULL;

    (void)state;
    assert_true(test_read_file("examples/model/tokenizer_config.json", &config));
    c = load(buf_cstr(&config), STR_NULL);
    assert_false(chat_wants_parts(c));
    assert_renders(c, "[{\"role\":\"user\",\"content\":\"Hi\"}]", NULL, NULL,
                   "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
                   "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

int main(void)
{
    return TEST_RUN(T(test_context), T(test_how_a_prompt_ends), T(test_text_parts_are_joined),
                    T(test_media_parts_lose_their_data), T(test_templates_that_want_parts),
                    T(test_tool_arguments_become_objects), T(test_named_templates),
                    T(test_newlines_of_a_file), T(test_templates_of_several_files), T(test_errors),
                    T(test_example_model));
}
