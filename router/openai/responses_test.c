/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/responses.h"
#include "lib/base/err.h"
#include "lib/base/test.h"

static bool parse(const char *members, struct arena *a, struct openai_request *r,
                  struct responses_echo *echo, struct api_error *e)
{
    AUTO(mem_free) char *body = xasprintf("{\"model\":\"m\",%s}", members);

    return responses_request_parse(str_from(arena_strdup(a, str_from(body))), a, r, echo, e);
}

static void requests_become_chats(void **state)
{
#define USER "{\"role\":\"user\",\"content\":\"x\"}"
#define CALL(id)                                                                                   \
    "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"f\",\"arguments\":\"{}\"}"
    static const struct {
        const char *members, *messages;
    } cases[] = {
        {"\"input\":\"x\"", "[" USER "]"},
        {"\"input\":\"x\",\"instructions\":\"be\"",
         "[{\"role\":\"system\",\"content\":\"be\"}," USER "]"},
        {"\"input\":[{\"role\":\"developer\",\"content\":\"x\"}," USER "]",
         "[{\"role\":\"system\",\"content\":\"x\"}," USER "]"},
        {"\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
         "\"text\":\"x\"}]}]",
         "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]"},
        {"\"input\":[" USER ",{\"type\":\"reasoning\",\"summary\":[{\"text\":\"a\"},{\"text\":"
         "\"b\"}]},{\"role\":\"assistant\",\"content\":\"y\"}," USER "]",
         "[" USER
         ",{\"role\":\"assistant\",\"reasoning_content\":\"a\\nb\",\"content\":\"y\"}," USER "]"},
        {"\"input\":[" USER "," CALL("1") "," CALL(
             "2") ",{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"r\"},{"
                  "\"type\":\"item_reference\",\"id\":\"i\"}]",
         "[" USER ",{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":\"2\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_"
         "id\":\"1\",\"content\":\"r\"}]"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        AUTO(json_free) struct json *want = NULL;
        struct responses_echo echo;
        struct openai_request r;
        struct api_error e;
        struct err why;

        assert_true(parse(cases[i].members, a, &r, &echo, &e));
        assert_true(json_parse(&want, str_from(cases[i].messages), &why) >= 0);
        assert_true(json_equal(r.messages, want));
        openai_request_done(&r);
    }
}

static void a_full_request(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct responses_echo echo;
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_true(parse("\"input\":\"x\",\"max_output_tokens\":7,\"temperature\":0.5,\"top_p\":0.5,"
                      "\"stream\":true,\"reasoning\":{\"effort\":\"low\"},\"metadata\":{\"a\":"
                      "\"b\"},\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],\"tool_choice\":{"
                      "\"type\":\"function\",\"name\":\"f\"},\"unheard_of\":1",
                      a, &r, &echo, &e));
    assert_true(r.stream && str_is(r.model, "m"));
    assert_int_equal(r.stop.max_tokens.v, 7);
    assert_true(r.sampling.temperature.v == 0.5 && r.sampling.top_p.v == 0.5);
    assert_true(str_is(r.reasoning_effort, "low") && str_is(r.named_tool, "f"));
    assert_string_equal(json_get_cstr(json_get(json_first(r.tools), "function"), "name"), "f");
    assert_true(str_is(echo.tools, "[{\"type\":\"function\",\"name\":\"f\",\"strict\":true}]"));
    assert_true(str_is(echo.metadata, "{\"a\":\"b\"}") && str_is(echo.temperature, "0.5"));
    assert_true(str_is(echo.instructions, "null") && str_is(echo.store, "false"));
    openai_request_done(&r);
}

static void what_is_refused(void **state)
{
    static const struct {
        const char *members;
        int status;
    } cases[] = {
        {"\"x\":1", 400},
        {"\"input\":5", 400},
        {"\"input\":[]", 400},
        {"\"input\":[5]", 400},
        {"\"input\":[{\"role\":\"alien\",\"content\":\"x\"}]", 400},
        {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]", 400},
        {"\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]", 400},
        {"\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"1\"}]", 400},
        {"\"input\":[{\"type\":\"unheard_of\"}]", 400},
        {"\"input\":\"x\",\"tools\":5", 400},
        {"\"input\":\"x\",\"tools\":[{\"type\":\"web_search\"}]", 400},
        {"\"input\":\"x\",\"tool_choice\":{\"type\":\"function\"}", 400},
        {"\"input\":\"x\",\"temperature\":3", 400},
        {"\"input\":\"x\",\"max_output_tokens\":0", 400},
        {"\"input\":\"x\",\"previous_response_id\":\"r\"", 501},
        {"\"input\":\"x\",\"prompt\":{\"id\":\"p\"}", 501},
        {"\"input\":\"x\",\"max_tool_calls\":3", 501},
        {"\"input\":\"x\",\"background\":true", 501},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        struct responses_echo echo;
        struct openai_request r;
        struct api_error e;

        assert_false(parse(cases[i].members, a, &r, &echo, &e));
        assert_int_equal(e.status, cases[i].status);
        openai_request_done(&r);
    }
}

#define JSON_OF_CALL(id)                                                                           \
    STR("{\"id\":\"" id                                                                            \
        "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}")
static const struct responses_echo ECHO = {
    .instructions = STR("null"),
    .max_output_tokens = STR("null"),
    .metadata = STR("{}"),
    .parallel_tool_calls = STR("true"),
    .prompt_cache_key = STR("null"),
    .reasoning = STR("null"),
    .safety_identifier = STR("null"),
    .service_tier = STR("\"auto\""),
    .store = STR("false"),
    .temperature = STR("1.0"),
    .text = STR("{}"),
    .tool_choice = STR("\"auto\""),
    .tools = STR("[]"),
    .top_p = STR("1.0"),
    .truncation = STR("\"disabled\""),
};

/* The next event's data, which must be of @type and have this number. */
static struct json *event(const char **at, const char *type, int64_t number)
{
    AUTO(mem_free) char *head = xasprintf("event: %s\ndata: ", type);
    const char *data = *at + strlen(head), *end = strstr(data, "\n\n");
    struct json *ret = NULL;
    struct err why;
    int64_t n;

    assert_memory_equal(*at, head, strlen(head));
    assert_non_null(end);
    assert_true(json_parse(&ret, str_slice(data, (size_t)(end - data)), &why) >= 0);
    assert_string_equal(json_get_cstr(ret, "type"), type);
    assert_true(json_get_i64(ret, "sequence_number", &n) && n == number);
    *at = end + 2;
    return ret;
}

static void a_stream_opens_its_items_as_they_come_and_closes_them_at_its_end(void **state)
{
    static const char *const types[] = {
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    };
    AUTO(responses_done) struct responses r;
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(json_free) struct json *last = NULL;
    const struct json *output;
    const char *at;

    (void)state;
    responses_init(&r, &ECHO, STR("m"), 1);
    responses_put_begin(&r, &out);
    responses_put_delta(&r, &out, &(struct chunk_delta){.calls_json = JSON_OF_CALL("1")});
    responses_put_delta(&r, &out, &(struct chunk_delta){.text = STR("\"and\"")});
    responses_put_delta(&r, &out, &(struct chunk_delta){.calls_json = JSON_OF_CALL("2")});
    responses_put_delta(&r, &out, &(struct chunk_delta){.text = STR("")});
    responses_put_end(&r, &out, &(struct chunk_end){.finish = "tool_calls"}, NULL, 2);
    at = buf_cstr(&out);
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        json_free(event(&at, types[i], (int64_t)i));
    last = event(&at, "response.completed", ARRAY_LEN(types));
    output = json_path(last, "response", "output", NULL);
    assert_int_equal(json_len(output), 3);
    assert_string_equal(json_get_cstr(json_at(output, 0), "call_id"), "1");
    assert_string_equal(json_get_cstr(json_first(json_get(json_at(output, 1), "content")), "text"),
                        "\"and\"");
    assert_string_equal(json_get_cstr(json_at(output, 2), "call_id"), "2");
    assert_string_equal(at, "");
}

static void bodies_say_how_they_ended(void **state)
{
    static const struct {
        const char *finish, *status, *reason;
    } cases[] = {{"stop", "completed", NULL},
                 {"length", "incomplete", "max_output_tokens"},
                 {"content_filter", "incomplete", "content_filter"}};
    struct usage u = {.prompt_tokens = 5,
                      .completion_tokens = 6,
                      .prompt_details_json = STR("{\"cached_tokens\":3}")};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(responses_done) struct responses r;
        AUTO(buf_done) struct buf out = BUF_NULL;
        AUTO(json_free) struct json *body = NULL;
        const char *reason;
        struct err why;
        int64_t cached;

        responses_init(&r, &ECHO, STR("m"), 1);
        responses_put_body(&r, &out, &(struct chunk_delta){.text = STR("x")},
                           &(struct chunk_end){.finish = cases[i].finish}, &u, 2);
        assert_true(json_parse(&body, buf_str(&out), &why) >= 0);
        assert_string_equal(json_get_cstr(body, "status"), cases[i].status);
        reason = json_get_cstr(json_get(body, "incomplete_details"), "reason");
        assert_true(reason ? strcmp(reason, cases[i].reason) == 0 : !cases[i].reason);
        assert_true(json_get_i64(json_path(body, "usage", "input_tokens_details", NULL),
                                 "cached_tokens", &cached));
        assert_int_equal(cached, 3);
    }
}

int main(void)
{
    return TEST_RUN(T(requests_become_chats), T(a_full_request), T(what_is_refused),
                    T(a_stream_opens_its_items_as_they_come_and_closes_them_at_its_end),
                    T(bodies_say_how_they_ended));
}
