/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat_messages.h"

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/base/test.h"
#include "router/token/chat.h"

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static struct chat *load(enum chat_release release, const char *source)
{
    AUTO(json_free) struct json *config = parse("{\"bos_token\":\"<s>\",\"pad_token\":\"P\"}");
    enum template_style style =
        release == CHAT_OF_0_9 ? TEMPLATE_DYNAMO_0_9 : TEMPLATE_TRANSFORMERS;
    struct chat *c = NULL;
    struct err e;

    EXPECT_OK(chat_load(&c, config, str_from(source), style, release, &e), &e);
    return c;
}

static void assert_renders(const char *source, enum chat_release release, struct chat_input in,
                           const char *messages, const char *want)
{
    AUTO(chat_free) struct chat *c = load(release, source);
    AUTO(json_free) struct json *m = parse(messages);
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    in.messages = m;
    EXPECT_OK(chat_render(c, &in, &out, &e), &e);
    assert_string_equal(buf_cstr(&out), want);
}

#define NO_INPUT ((struct chat_input){.messages = NULL})
#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define ASSISTANT(members) "[{\"role\":\"assistant\"," members "}]"

static void test_thoughts_in_the_content(void **state)
{
    static const struct {
        const char *messages, *want;
    } cases[] = {
        {ASSISTANT("\"content\":\"c\",\"reasoning_content\":\"R\""), "<think>R</think>c"},
        {ASSISTANT("\"content\":\"c\",\"reasoning\":\" R\\n\""), "<think> R\n</think>c"},
        {ASSISTANT("\"content\":null,\"reasoning_content\":\"R\""), "<think>R</think>"},
        {ASSISTANT("\"reasoning_content\":[\"a\",\"\",\"b\"]"), "<think>a</think><think>b</think>"},
        {ASSISTANT("\"content\":\"c\",\"reasoning_content\":[\"\"]"), "c"},
        {ASSISTANT("\"content\":\"c\",\"reasoning_content\":5"), "c"},
        {ASSISTANT("\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
                   "\"b\"}],\"reasoning_content\":\"R\""),
         "<think>R</think>a\nb"},
        {"[{\"role\":\"user\",\"content\":\"u\",\"reasoning_content\":\"R\"}]", "u"},
    };
    static const char source[] = EACH("{{ m.content }}");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_renders(source, CHAT_OF_1, NO_INPUT, cases[i].messages, cases[i].want);
    assert_renders(source, CHAT_OF_0_9, NO_INPUT, cases[0].messages, "c");
    assert_renders(source, CHAT_AS_SENT, NO_INPUT, cases[0].messages, "c");
    assert_renders(EACH("{% for p in m.content %}{{ p.text }};{% endfor %}"), CHAT_OF_1, NO_INPUT,
                   cases[0].messages, "<think>R</think>;c;");
}

static void test_templates_that_read_thoughts(void **state)
{
    static const char text[] = EACH("{% if m.reasoning_content is string %}"
                                    "[{{ m.reasoning_content }}]{% endif %}{{ m.content }}");
    static const char each[] =
        EACH("{% for r in m.reasoning_content %}[{{ r }}]{% endfor %}{{ m.content }}");
    static const char thoughts[] =
        ASSISTANT("\"content\":\"c\",\"reasoning_content\":[\"a\",\"\",\"b\"]");
    static const char one[] = ASSISTANT("\"content\":\"c\",\"reasoning_content\":\"R\"");

    (void)state;
    assert_renders(text, CHAT_OF_1, NO_INPUT, one, "[R]c");
    assert_renders(text, CHAT_OF_1, NO_INPUT, thoughts, "[a\nb]c");
    assert_renders(text, CHAT_AS_SENT, NO_INPUT, thoughts, "c");
    assert_renders(text, CHAT_OF_0_9, NO_INPUT, one, "c");
    assert_renders(each, CHAT_OF_1, NO_INPUT, thoughts, "[a][][b]c");
}

static void test_what_is_not_known_is_not_shown(void **state)
{
    static const char dump[] = "{{ messages | tojson }}";
    static const char sent[] =
        ASSISTANT("\"x\":1,\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\","
                  "\"name\":\"f\",\"y\":2},\"id\":\"i\"}],\"reasoning_content\":\"R\","
                  "\"name\":null,\"refusal\":\"no\",\"content\":\"c\"");

    (void)state;
    assert_renders(dump, CHAT_OF_1, NO_INPUT, sent,
                   "[{\"role\": \"assistant\", \"content\": \"<think>R</think>c\", \"tool_calls\": "
                   "[{\"id\": \"i\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
                   "\"arguments\": {}}}], \"refusal\": \"no\"}]");
    assert_renders("{# reasoning_content #}{{ messages | tojson }}", CHAT_OF_1, NO_INPUT, sent,
                   "[{\"role\": \"assistant\", \"content\": \"c\", \"reasoning_content\": \"R\", "
                   "\"refusal\": \"no\", \"tool_calls\": [{\"id\": \"i\", \"type\": \"function\", "
                   "\"function\": {\"name\": \"f\", \"arguments\": {}}}]}]");
    assert_renders(dump, CHAT_OF_0_9, NO_INPUT, ASSISTANT("\"content\":null,\"reasoning\":\"R\""),
                   "[{\"role\":\"assistant\"}]");
    assert_renders(dump, CHAT_OF_1, NO_INPUT,
                   "[{\"name\":\"f\",\"content\":null,\"role\":\"function\"},"
                   "{\"role\":\"critic\",\"x\":1},{\"role\":\"user\",\"content\":[]}]",
                   "[{\"role\": \"function\", \"content\": null, \"name\": \"f\"}, {\"role\": "
                   "\"critic\", \"x\": 1}, {\"role\": \"user\", \"content\": []}]");
}

static void test_who_may_follow_whom(void **state)
{
#define SYSTEM_FIRST                                                                               \
    "{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"
#define ALTERNATE                                                                                  \
    "{% if not loop.first and m.role == 'user' and loop.previtem.role == 'user' %}{{ "             \
    "raise_exception('no') }}"                                                                     \
    "{% endif %}"
#define SAY "<{{ m.role }}>{{ m.content }}"
    static const char systems[] =
        "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"system\",\"content\":[{\"type\":"
        "\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"u\"},"
        "{\"role\":\"system\",\"content\":\"c\"},{\"role\":\"user\",\"content\":\"v\"}]";
    static const char users[] =
        "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"user\",\"content\":\"\"},"
        "{\"role\":\"user\",\"content\":\"v\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":\"w\"}]}]";

    (void)state;
    assert_renders(EACH(SAY), CHAT_OF_1, NO_INPUT, systems,
                   "<system>a<system>b<user>u<system>c<user>v");
    assert_renders(EACH(SYSTEM_FIRST SAY), CHAT_OF_1, NO_INPUT, systems,
                   "<system>a\nb<user>u<user>c<user>v");
    assert_renders(EACH(SYSTEM_FIRST ALTERNATE SAY), CHAT_OF_1, NO_INPUT, systems,
                   "<system>a\nb<user>u\n\nc\n\nv");
    assert_renders(EACH(ALTERNATE SAY), CHAT_OF_1, NO_INPUT, users, "<user>u\n\nv\nw");
}

static void test_arguments_of_calls(void **state)
{
    static const char prints[] =
        EACH("{% for c in m.tool_calls %}{% if c.function.arguments is string %}"
             "{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}"
             "{% endfor %}");
    static const char refuses[] =
        EACH("{% for c in m.tool_calls %}{% if c.function.arguments is string %}"
             "{{ raise_exception('no') }}{% endif %}{{ c.function.arguments | tojson }}"
             "{% endfor %}");
    static const char sent[] = ASSISTANT(
        "\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{\\\"b\\\":  1}\"}},{\"id\":\"j\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":{\"a\":  2}}}]");

    (void)state;
    assert_renders(prints, CHAT_OF_1, NO_INPUT, sent, "{\"b\":  1}{\"a\":2}");
    assert_renders(refuses, CHAT_OF_1, NO_INPUT, sent, "{\"b\": 1}{\"a\": 2}");
    assert_renders(prints, CHAT_AS_SENT, NO_INPUT, sent, "{\"b\": 1}{\"a\": 2}");
}

static void test_media_among_texts(void **state)
{
    static const char sent[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}},{\"type\":"
        "\"text\",\"text\":\"a\"},{\"type\":\"image_url\",\"image_url\":{}}]}]";

    (void)state;
    assert_renders(EACH("{{ m.content + '<|end|>' }}") "<|assistant|>", CHAT_OF_1, NO_INPUT, sent,
                   "<|image_1|>a<|image_2|><|end|><|assistant|>");
    assert_renders(EACH("{{ 'USER: ' + m.content }}") "ASSISTANT:", CHAT_OF_1, NO_INPUT, sent,
                   "USER: <image>a<image>ASSISTANT:");
    assert_renders(EACH("{{ m.content }}"), CHAT_OF_1, NO_INPUT, sent, "a");
    assert_renders(EACH("{{ m.content | tojson }}"), CHAT_OF_1, NO_INPUT, sent,
                   "[{\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
                   "\"image\"}]");
}

static void test_variables(void **state)
{
    static const char source[] =
        "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ tools is defined }}|{{ x }}|"
        "{{ add_generation_prompt }}|{{ messages | length }}";
    AUTO(json_free)
    struct json *args = parse("{\"bos_token\":\"B\",\"eos_token\":\"E\",\"tools\":1,\"x\":5,"
                              "\"add_generation_prompt\":false,\"messages\":[]}");
    struct chat_input in = {.args = args};

    (void)state;
    assert_renders(source, CHAT_OF_1, NO_INPUT, ASSISTANT("\"x\":1"), "<s>|None||True||True|1");
    assert_renders(source, CHAT_OF_1, in, ASSISTANT("\"x\":1"), "<s>|None||True|5|True|1");
    assert_renders(source, CHAT_OF_0_9, in, ASSISTANT("\"x\":1"), "<s>|none||true|5|true|1");
}

static void test_tools(void **state)
{
    static const char source[] = "{{ tools | tojson }}";
    AUTO(json_free)
    struct json *tools =
        parse("[{\"x\":1,\"function\":{\"strict\":true,\"parameters\":{\"z\":1},"
              "\"description\":null,\"name\":\"f\",\"y\":2},\"type\":\"function\"}]");
    struct chat_input in = {.tools = tools};

    (void)state;
    assert_renders(source, CHAT_OF_1, in, "[]",
                   "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
                   "{\"z\": 1, \"type\": \"object\", \"properties\": {}}, \"strict\": true, "
                   "\"description\": \"\"}}]");
    assert_renders(source, CHAT_OF_0_9, in, "[]",
                   "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{},\"type\":"
                   "\"object\",\"z\":1},\"strict\":true},\"type\":\"function\"}]");
    in.choice.nothing = true;
    assert_renders(source, CHAT_OF_1, in, "[]", "null");
    assert_renders("{{ tools | length }}", CHAT_OF_0_9, in, "[]", "1");
}

int main(void)
{
    return TEST_RUN(T(test_thoughts_in_the_content), T(test_templates_that_read_thoughts),
                    T(test_what_is_not_known_is_not_shown), T(test_who_may_follow_whom),
                    T(test_arguments_of_calls), T(test_media_among_texts), T(test_variables),
                    T(test_tools));
}
