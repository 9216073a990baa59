/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/openai.h"

#include "lib/base/test.h"

#define CHAT(messages, more) "{\"model\":\"m\",\"messages\":[" messages "]" more "}"
#define OF(role, members) "{\"role\":\"" role "\"" members "}"
#define USER OF("user", ",\"content\":\"u\"")
#define CALL(members) OF("assistant", ",\"tool_calls\":[{\"id\":\"c\"," members "}]")
#define TOOL(members) CHAT(USER, ",\"tools\":[{\"type\":\"function\",\"function\":{" members "}}]")
#define SCHEMA(members)                                                                            \
    CHAT(USER, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{" members "}}")

/* @wrong is in what the client is told; NULL: it is a request. */
static void assert_checked_by(bool of_1, const char *body, const char *wrong)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    if (!openai_request_parse(API_CHAT, str_from(body), a, &r, &e))
        fail_msg("%s: %s", body, e.text);
    if (openai_check_strictly(&r, of_1, &e) != (wrong == NULL))
        fail_msg("%s: %s", body, wrong ? "taken" : e.text);
    if (wrong && (e.status != 400 || !strstr(e.text, wrong)))
        fail_msg("%s: %d %s", body, e.status, e.text);
    openai_request_done(&r);
}

static void assert_checked(const char *body, const char *wrong)
{
    assert_checked_by(true, body, wrong);
}

static void what_is_a_message(void **state)
{
    static const struct {
        const char *messages, *wrong;
    } cases[] = {
        {CHAT(USER, ""), NULL},
        {CHAT(OF("user", ",\"content\":null"), ""), "messages[0].content: expected"},
        {CHAT(USER "," OF("alien", ",\"content\":\"x\""), ""), "messages[1].role: expected"},
        {CHAT(OF("user", ",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\","
                         "\"image_url\":{\"url\":\"a:u\"}}]"),
              ""),
         NULL},
        {CHAT(OF("user", ",\"content\":[{\"type\":\"file\"}]"), ""), "content: expected parts"},
        {CHAT(OF("system",
                 ",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"a:u\"}}]"),
              ""),
         "content: expected parts"},
        {CHAT(OF("user", ",\"content\":\"u\",\"name\":5"), ""), "name: expected a string"},
        {CHAT(OF("tool", ",\"content\":\"u\""), ""), "tool_call_id: expected a string"},
        {CHAT(OF("function", ",\"name\":\"f\""), ""), NULL},
        {CHAT(OF("function", ",\"name\":\"f\",\"content\":[]"), ""), "content: expected a string"},
        {CHAT(OF("assistant", ",\"reasoning_content\":[\"a\",\"b\"],\"refusal\":null"), ""), NULL},
        {CHAT(OF("assistant", ",\"reasoning_content\":[5]"), ""), "reasoning_content: expected"},
        {CHAT(OF("assistant", ",\"reasoning_content\":\"a\",\"reasoning\":\"b\""), ""),
         "reasoning: expected nothing"},
        {CHAT(OF("assistant", ",\"partial\":false"), ""), NULL},
        {CHAT(OF("assistant", ",\"partial\":true"), ""), "partial: expected"},
        {CHAT(OF("system", ",\"content\":\"s\",\"tools\":[]"), ""), NULL},
        {CHAT(OF("system", ",\"content\":\"s\",\"tools\":[{}]"), ""), "tools: expected none"},
        {CHAT(OF("user", ",\"content\":\"s\",\"tools\":[]"), ""), "tools: expected nothing"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_checked(cases[i].messages, cases[i].wrong);
}

static void what_may_not_come_twice(void **state)
{
    static const char *const cases[] = {
        CHAT(OF("user", ",\"content\":\"u\",\"content\":\"u\""), ""),
        CHAT(OF("user", ",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"text\":\"a\"}]"), ""),
        CHAT(OF("user",
                ",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"a:b\",\"url\":"
                "\"a:b\"}}]"),
             ""),
        CHAT(CALL("\"type\":\"function\",\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":"
                  "\"{}\"}"),
             ""),
        CHAT(CALL("\"type\":\"function\",\"function\":{\"name\":\"f\",\"name\":\"f\",\"arguments\":"
                  "\"{}\"}"),
             ""),
        TOOL("\"name\":\"f\",\"name\":\"f\""),
        CHAT(USER, ",\"response_format\":{\"type\":\"text\",\"type\":\"text\"}"),
        SCHEMA("\"name\":\"n\",\"name\":\"n\",\"schema\":{}"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_checked_by(true, cases[i], "duplicate field");
        assert_checked_by(false, cases[i], "duplicate field");
    }
    assert_checked(CHAT(OF("user", ",\"content\":\"u\",\"x\":1,\"x\":1"), ""), NULL);
    assert_checked(TOOL("\"name\":\"f\",\"parameters\":{\"type\":1,\"type\":2}"), NULL);
}

static void what_is_a_call(void **state)
{
    (void)state;
    assert_checked(CHAT(CALL("\"function\":{\"name\":\"f\",\"arguments\":\"\"}"), ""), NULL);
    assert_checked(CHAT(CALL("\"function\":{\"name\":\"f\",\"arguments\":{}}"), ""), NULL);
    assert_checked(
        CHAT(
            CALL(
                "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":18446744073709551615}\"}"),
            ""),
        NULL);
    assert_checked(CHAT(CALL("\"function\":{\"name\":\"f\",\"arguments\":\"[]\"}"), ""),
                   "arguments that are a JSON object");
    assert_checked(CHAT(CALL("\"function\":{\"arguments\":\"{}\"}"), ""), "the name of a function");
    assert_checked(CHAT(CALL("\"type\":\"x\""), ""), "the type function");
    assert_checked(CHAT(OF("assistant", ",\"tool_calls\":{}"), ""),
                   "tool_calls: expected an array");
}

static void what_is_a_tool(void **state)
{
    (void)state;
    assert_checked(TOOL("\"name\":\"a-b_1\",\"parameters\":{\"maximum\":9223372036854775807}"),
                   NULL);
    assert_checked(TOOL("\"name\":\"a b\""), "invalid name");
    assert_checked(TOOL("\"name\":\"a\",\"parameters\":[]"),
                   "tools[0].parameters: expected an object");
    assert_checked(TOOL("\"name\":\"a\",\"strict\":1"), "strict: expected a boolean");
    assert_checked(CHAT(USER, ",\"tools\":[{\"function\":{\"name\":\"a\"}}]"),
                   "type: expected function");
}

static void what_is_a_schema(void **state)
{
    (void)state;
    assert_checked(SCHEMA("\"name\":\"n\",\"schema\":{},\"strict\":null"), NULL);
    assert_checked(SCHEMA("\"name\":\"n\",\"schema\":null"), "schema: expected an object");
    assert_checked(SCHEMA("\"name\":\"\",\"schema\":{}"), "must not be empty");
}

/* Which knows fewer members, and looks at those alone. */
static void what_0_9_0_looks_at(void **state)
{
    static const struct {
        const char *body, *wrong;
    } cases[] = {
        {CHAT(OF("user", ",\"content\":\"u\",\"tools\":5,\"partial\":5"), ""), NULL},
        {CHAT(OF("system", ",\"content\":\"u\",\"tools\":5"), ""), NULL},
        {CHAT(OF("assistant", ",\"reasoning\":5,\"reasoning_content\":5"), ""), NULL},
        {CHAT(OF("user", ",\"content\":null"), ""), "content: expected"},
        {CHAT(OF("user", ",\"content\":\"u\",\"name\":5"), ""), "name: expected a string"},
        {CHAT(OF("tool", ",\"tool_call_id\":\"c\",\"content\":[{\"type\":\"image_url\","
                         "\"image_url\":{\"url\":\"a:u\"}}]"),
              ""),
         "content: expected parts"},
        {CHAT(CALL("\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"[\"}"), ""),
         NULL},
        {CHAT(CALL("\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}"), ""),
         "arguments"},
        {CHAT(CALL("\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}"), ""), "the type function"},
        {TOOL("\"name\":\"a b\",\"parameters\":[]"), NULL},
        {TOOL("\"name\":\"0123456789012345678901234567890123456789012345678901234567890123\""),
         NULL},
        {TOOL("\"name\":\"01234567890123456789012345678901234567890123456789012345678901234\""),
         "invalid name"},
        {SCHEMA("\"name\":\"n\",\"schema\":5"), NULL},
        {SCHEMA("\"name\":\"n\",\"schema\":null"), "schema: expected an object"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_checked_by(false, cases[i].body, cases[i].wrong);
}

int main(void)
{
    return TEST_RUN(T(what_is_a_message), T(what_may_not_come_twice), T(what_is_a_call),
                    T(what_is_a_tool), T(what_is_a_schema), T(what_0_9_0_looks_at));
}
