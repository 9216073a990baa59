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
#define PART(text) "{\"type\":\"input_text\",\"text\":\"" text "\"}"
#define IMAGE "{\"type\":\"input_image\",\"image_url\":\"a:i\"}"
#define OUTPUT(parts) "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":[" parts "]}"
#define TOLD(content) "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":" content "}"
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
        {"\"input\":[{\"role\":\"user\",\"content\":[" PART(
             "a") "," IMAGE "]},{\"type\":\"mcp_call\"},"
                  "{\"role\":\"assistant\",\"content\":[" PART(
                      "b") ",{\"type\":\"refusal\",\"refusal\":"
                           "\"c\"},{\"type\":\"input_file\"}]},{\"role\":\"system\",\"content\":[]}"
                           "]",
         "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
         "\"image_url\",\"image_url\":{\"url\":\"a:i\",\"detail\":\"auto\"}}]},{\"role\":"
         "\"assistant\","
         "\"content\":\"bc\"},{\"role\":\"system\",\"content\":\"\"}]"},
        {"\"input\":[" OUTPUT(PART("a") "," PART("b")) "," OUTPUT(IMAGE) "," OUTPUT("") "]",
         "[" TOLD("\"ab\"") "," TOLD("[{\"type\":\"image_url\",\"image_url\":{\"url\":\"a:i\","
                                     "\"detail\":\"auto\"}}]") "," TOLD("\"\"") "]"},
        {"\"input\":[{\"type\":\"reasoning\",\"summary\":[{\"text\":\"s\"}],\"content\":[{\"text\":"
         "\"a\"},{\"text\":\"b\"}]}," USER ",{\"type\":\"reasoning\",\"summary\":[]}]",
         "[{\"role\":\"assistant\",\"reasoning_content\":\"ab\"}," USER
         ",{\"role\":\"assistant\",\"content\":\"\"}]"},
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
        {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"file_id\":\"f\"}]}"
         "]",
         400},
        {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"a:"
         "b\","
         "\"detail\":\"x\"}]}]",
         400},
        {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\",\"file_id\":\"f\"}]}"
         "]",
         400},
        {"\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":[{\"type\":"
         "\"input_file\"}]}]",
         400},
        {"\"input\":[{\"type\":\"reasoning\",\"summary\":[{}]}]", 400},
        {"\"input\":[{\"type\":\"reasoning\",\"content\":5}]", 400},
        {"\"input\":[{\"type\":5,\"role\":\"user\",\"content\":\"x\"}]", 400},
        {"\"input\":\"x\",\"input\":\"x\"", 400},
        {"\"input\":\"x\",\"nvext\":{\"annotations\":[],\"annotations\":[]}", 400},
        {"\"input\":\"x\",\"instructions\":5", 400},
        {"\"input\":\"x\",\"text\":{\"format\":5}", 400},
        {"\"input\":\"x\",\"reasoning\":\"low\"", 400},
        {"\"input\":\"x\",\"max_output_tokens\":5.0", 400},
        {"\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"name\":\"f\"}]", 400},
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
    responses_put_end(
        &r, &out,
        &(struct dialect_end){.end = &(struct chunk_end){.finish = "tool_calls"}, .completed = 2});
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

static struct api_error failure(int status)
{
    struct api_error ret = {0};

    (void)api_fail(&ret, status, NULL, "out of \"memory\"");
    return ret;
}

/* Of an answer that said "a", called once and then failed with @end; the object it closes with. */
static struct json *failed(const char *const types[5], const struct dialect_end *end)
{
    AUTO(responses_done) struct responses r;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json *ret = NULL;
    const char *at;
    size_t opened;

    responses_init(&r, &ECHO, STR("m"), 1);
    responses_put_begin(&r, &out);
    responses_put_delta(&r, &out, &(struct chunk_delta){.text = STR("a")});
    responses_put_delta(&r, &out, &(struct chunk_delta){.calls_json = JSON_OF_CALL("1")});
    opened = out.len;
    responses_put_end(&r, &out, end);
    at = buf_cstr(&out) + opened;
    for (size_t i = 0; i < 5; i++)
        json_free(event(&at, types[i], (int64_t)(7 + i)));
    ret = event(&at, "response.failed", 12);
    assert_string_equal(at, "");
    return ret;
}

static const char *member(const struct json *last, const char *object, const char *key)
{
    return json_get_cstr(json_path(last, "response", object, NULL), key);
}

static const char *item_status(const struct json *last, size_t i)
{
    return json_get_cstr(json_at(json_path(last, "response", "output", NULL), i), "status");
}

static void a_stream_that_fails_closes_its_items_and_says_why(void **state)
{
    static const char *const types[] = {
        "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.function_call_arguments.done",
        "response.output_item.done",
    };
    static const struct {
        int status;
        const char *code;
    } cases[] = {{400, "invalid_prompt"},      {499, "invalid_prompt"}, {500, "server_error"},
                 {429, "rate_limit_exceeded"}, {503, "server_error"},   {529, "server_error"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct api_error e = failure(cases[i].status);
        AUTO(json_free)
        struct json *last = failed(types, &(struct dialect_end){.failed = &e, .completed = 2});

        assert_string_equal(json_get_cstr(json_get(last, "response"), "status"), "failed");
        assert_string_equal(member(last, "error", "code"), cases[i].code);
        assert_string_equal(member(last, "error", "message"), "out of \"memory\"");
        assert_string_equal(item_status(last, 0), "incomplete");
        assert_string_equal(item_status(last, 1), "completed");
        assert_true(json_is_null(json_path(last, "response", "completed_at", NULL)));
        assert_true(json_is_null(json_path(last, "response", "incomplete_details", NULL)));
        assert_true(json_is_null(json_path(last, "response", "usage", NULL)));
    }
}

/* Its items are as its end left them, calls first; and what it used is known. */
static void a_stream_may_fail_behind_its_end(void **state)
{
    static const char *const types[] = {
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    };
    static const struct {
        const char *finish, *said, *reason;
    } cases[] = {{"stop", "completed", NULL}, {"length", "incomplete", "max_output_tokens"}};
    struct usage u = {.prompt_tokens = 5, .completion_tokens = 6};
    struct api_error e = failure(500);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chunk_end how = {.finish = cases[i].finish};
        AUTO(json_free)
        struct json *last = failed(
            types, &(struct dialect_end){.end = &how, .usage = &u, .completed = 2, .failed = &e});
        const char *reason = member(last, "incomplete_details", "reason");
        int64_t total;

        assert_string_equal(json_get_cstr(json_get(last, "response"), "status"), "failed");
        assert_string_equal(item_status(last, 0), cases[i].said);
        assert_true(reason && cases[i].reason ? strcmp(reason, cases[i].reason) == 0
                                              : !reason && !cases[i].reason);
        assert_true(json_is_null(json_path(last, "response", "completed_at", NULL)));
        assert_true(
            json_get_i64(json_path(last, "response", "usage", NULL), "total_tokens", &total));
        assert_int_equal(total, 11);
    }
}

static void a_stream_that_fails_before_it_was_opened_is_opened(void **state)
{
    AUTO(responses_done) struct responses r;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct api_error e = failure(500);
    const char *at;

    (void)state;
    responses_init(&r, &ECHO, STR("m"), 1);
    responses_put_end(&r, &out, &(struct dialect_end){.failed = &e});
    at = buf_cstr(&out);
    json_free(event(&at, "response.created", 0));
    json_free(event(&at, "response.in_progress", 1));
    json_free(event(&at, "response.failed", 2));
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
        AUTO(chunk_done) struct chunk chunk;
        AUTO(buf_done) struct buf out = BUF_NULL;
        AUTO(json_free) struct json *body = NULL;
        const char *reason;
        struct err why;
        int64_t cached;

        responses_init(&r, &ECHO, STR("m"), 1);
        chunk_init(&chunk, API_CHAT, &CHUNKS_OF_1, STR("1"), STR("m"), 1);
        responses_put_body(
            &r, &out, &(struct chunk_delta){.text = STR("x")}, &chunk,
            &(struct dialect_end){.end = &(struct chunk_end){.finish = cases[i].finish},
                                  .usage = &u,
                                  .completed = 2});
        assert_true(json_parse(&body, buf_str(&out), &why) >= 0);
        assert_string_equal(json_get_cstr(body, "status"), cases[i].status);
        reason = json_get_cstr(json_get(body, "incomplete_details"), "reason");
        assert_true(reason ? strcmp(reason, cases[i].reason) == 0 : !cases[i].reason);
        assert_true(json_get_i64(json_path(body, "usage", "input_tokens_details", NULL),
                                 "cached_tokens", &cached));
        assert_int_equal(cached, 3);
        assert_null(json_get(body, "nvext"));
    }
}

static void bodies_tell_of_workers_and_times_when_asked(void **state)
{
    static const struct {
        bool worker;
        struct str timing;
        const char *want;
    } cases[] = {
        {true, STR_NULL, "{\"worker_id\":{\"prefill_worker_id\":3,\"decode_worker_id\":4}}"},
        {false, STR("{\"ttft_ms\":1}"), "{\"timing\":{\"ttft_ms\":1}}"},
        {true, STR("{\"ttft_ms\":1}"),
         "{\"worker_id\":{\"prefill_worker_id\":3,\"decode_worker_id\":4},\"timing\":{"
         "\"ttft_ms\":1}}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(responses_done) struct responses r;
        AUTO(chunk_done) struct chunk chunk;
        AUTO(buf_done) struct buf out = BUF_NULL;
        AUTO(json_free) struct json *body = NULL, *want = NULL;
        struct chunk_end how = {.finish = "stop", .timing_json = cases[i].timing};
        struct err why;

        responses_init(&r, &ECHO, STR("m"), 1);
        chunk_init(&chunk, API_CHAT, &CHUNKS_OF_1, STR("1"), STR("m"), 1);
        if (cases[i].worker)
            chunk_tell_workers(&chunk, &(struct chunk_workers){.prefill_id = 3, .decode_id = 4});
        responses_put_body(&r, &out, &(struct chunk_delta){.text = STR("x")}, &chunk,
                           &(struct dialect_end){.end = &how, .completed = 2});
        assert_true(json_parse(&body, buf_str(&out), &why) >= 0);
        assert_true(json_parse(&want, str_from(cases[i].want), &why) >= 0);
        assert_true(json_equal(json_get(body, "nvext"), want));
    }
}

int main(void)
{
    return TEST_RUN(T(requests_become_chats), T(a_full_request), T(what_is_refused),
                    T(a_stream_opens_its_items_as_they_come_and_closes_them_at_its_end),
                    T(a_stream_that_fails_closes_its_items_and_says_why),
                    T(a_stream_may_fail_behind_its_end),
                    T(a_stream_that_fails_before_it_was_opened_is_opened),
                    T(bodies_say_how_they_ended), T(bodies_tell_of_workers_and_times_when_asked));
}
