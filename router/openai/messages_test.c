/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/messages.h"

#include "lib/base/err.h"
#include "lib/base/test.h"

static bool parse(const char *members, struct arena *a, struct openai_request *r,
                  struct messages_facts *facts, struct api_error *e)
{
    AUTO(mem_free) char *body = xasprintf("{\"model\":\"m\",\"max_tokens\":5,%s}", members);

    facts->strips_preamble = true;
    return messages_request_parse(str_from(arena_strdup(a, str_from(body))), a, r, facts, e);
}

#define SAID(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define BLOCKS(role, ...) "{\"role\":\"" role "\",\"content\":[" __VA_ARGS__ "]}"
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define THOUGHT(text) "{\"type\":\"thinking\",\"thinking\":\"" text "\"}"
#define USE(id) "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":{\"x\": 1}}"
#define CALL(id)                                                                                   \
    "{\"id\":\"" id                                                                                \
    "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}"

#define IMAGE                                                                                      \
    "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":"   \
    "\"aGk=\"}}"
#define SHOWN "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,aGk=\"}}"

static void requests_become_chats(void **state)
{
    static const struct {
        const char *members, *messages;
        uint64_t estimate;
    } cases[] = {
        {"\"messages\":[" SAID("user", "x") "]", "[" SAID("user", "x") "]", 1},
        {"\"system\":\"x-anthropic-billing-header: a\\nbe\",\"messages\":[" SAID("user", "x") "]",
         "[" SAID("system", "be") "," SAID("user", "x") "]", 2},
        {"\"system\":[" TEXT("a") "," TEXT("b") "],\"messages\":[" SAID("user", "x") "]",
         "[" SAID("system", "a\\nb") "," SAID("user", "x") "]", 2},
        {"\"messages\":[" BLOCKS("assistant", THOUGHT("a") "," THOUGHT("b") "," TEXT("y")) "]",
         "[{\"role\":\"assistant\",\"reasoning_content\":\"a\\nb\",\"content\":\"y\"}]", 4},
        {"\"messages\":[" BLOCKS("assistant",
                                 THOUGHT("a") "," USE("1") "," THOUGHT("b") "," USE("2")) "]",
         "[{\"role\":\"assistant\",\"reasoning_content\":[\"a\",\"b\",\"\"],\"tool_calls\":[" CALL(
             "1") "," CALL("2") "]}]",
         9},
        {"\"messages\":[" BLOCKS("assistant", USE("1") "," THOUGHT("a")) "]",
         "[{\"role\":\"assistant\",\"reasoning_content\":[\"\",\"a\"],\"tool_calls\":[" CALL(
             "1") "]}]",
         6},
        {"\"messages\":[" BLOCKS("assistant", THOUGHT("") "," USE("1")) "]",
         "[{\"role\":\"assistant\",\"tool_calls\":[" CALL("1") "]}]", 5},
        {"\"messages\":[" BLOCKS(
             "user", TEXT("a") ",{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":"
                               "[" TEXT("r") "," TEXT("s") "]}," TEXT("b") "," TEXT("c")) "]",
         "[" SAID(
             "user",
             "a") ",{\"role\":\"tool\",\"content\":\"rs\",\"tool_call_id\":\"1\"}," SAID("user",
                                                                                         "bc") "]",
         3},
        {"\"messages\":[" BLOCKS("user", TEXT("a") "," IMAGE "," TEXT("b")) "," BLOCKS(
             "assistant",
             IMAGE "," TEXT("y") ",{\"type\":\"web_search_tool_result\"}") "," BLOCKS("system",
                                                                                      IMAGE) "]",
         "[" BLOCKS("user", TEXT("a") "," SHOWN "," TEXT("b")) "," SAID("assistant", "y") "," SAID(
             "system", "") "]",
         263},
        {"\"messages\":[" BLOCKS("user",
                                 "{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":"
                                 "[" TEXT("r") "," IMAGE "]}") "]",
         "[{\"role\":\"tool\",\"content\":[" TEXT("r") "," SHOWN "],\"tool_call_id\":\"1\"}]", 87},
        {"\"messages\":[" BLOCKS("assistant",
                                 "{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\"}") "]",
         "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]",
         3},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        AUTO(json_free) struct json *want = NULL;
        struct messages_facts facts;
        struct openai_request r;
        struct api_error e;
        struct err why;

        if (!parse(cases[i].members, a, &r, &facts, &e))
            fail_msg("%zu: %s", i, e.text);
        assert_true(json_parse(&want, str_from(cases[i].messages), &why) >= 0);
        assert_true(json_equal(r.messages, want));
        assert_int_equal(facts.estimate, cases[i].estimate);
        openai_request_done(&r);
    }
}

#define WRONG "Failed to deserialize the JSON body into the target type: "

static void what_is_no_request_is_refused(void **state)
{
    static const struct {
        const char *members, *text;
    } cases[] = {
        {"\"messages\":[]", "messages: field required"},
        {"\"messages\":[" BLOCKS("user", "") "]",
         "messages[0].content: must contain at least one content block"},
        {"\"messages\":[" SAID("user", "x") "," BLOCKS("user", TEXT("x") ",{\"type\":\"foo\"}") "]",
         "messages[1].content[1]: content block type \"foo\" is not supported"},
        {"\"messages\":[" BLOCKS("user", USE("1")) "]", "Messages array cannot be empty"},
        {"\"messages\":[" SAID("user", "x") "],\"tools\":[{\"name\":\"f\"}]",
         "tools[0].input_schema: field required for client tools"},
        {"\"messages\":[" SAID("user", "x") "],\"tools\":[{\"type\":\"bash\",\"name\":\"f\"}]",
         "tools[0]: server tool type \"bash\" is not supported"},
        {"\"messages\":[" BLOCKS("user",
                                 "{\"type\":\"image\",\"source\":{\"type\":\"url\",\"media_type\":"
                                 "\"\",\"data\":\"\"}}") "]",
         "unsupported image source type \"url\"; only base64 is supported"},
        {"\"messages\":[" SAID("user", "x") "],\"system\":\"a\",\"system\":\"a\"",
         WRONG "duplicate field `system`"},
        {"\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"content\":\"x\"}]",
         WRONG "duplicate field `content`"},
        {"\"messages\":[" SAID("user",
                               "x") "],\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":-1}",
         WRONG "thinking: expected a type, and a number of budget_tokens"},
        {"\"messages\":[" SAID("user", "x") "],\"stop_sequences\":\"x\"",
         WRONG "stop_sequences: expected an array"},
        {"\"messages\":[" SAID("user", "x") "],\"output_config\":{\"format\":{\"type\":\"text\"}}",
         WRONG "output_config: expected a format of the type json_schema"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        struct messages_facts facts;
        struct openai_request r;
        struct api_error e;

        assert_false(parse(cases[i].members, a, &r, &facts, &e));
        assert_int_equal(e.status, 400);
        assert_string_equal(e.text, cases[i].text);
        openai_request_done(&r);
    }
}

#define FUNCTION(arguments)                                                                        \
    "{\"index\":0,\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"  \
    "\"" arguments "\"}}"

/* Text without what is random. */
static void expect(struct buf *out, const char *want)
{
    AUTO(buf_done) struct buf got = BUF_NULL;
    struct str rest = buf_str(out);

    while (rest.len) {
        bool is_id = str_starts(rest, STR("msg_")) || str_starts(rest, STR("toolu_"));
        size_t n = is_id ? (rest.ptr[0] == 'm' ? 4 : 6) : 1;

        buf_put_str(&got, str_slice(rest.ptr, n));
        rest = str_skip(rest, is_id ? n + 32 : n);
    }
    assert_string_equal(buf_cstr(&got), want);
}

static void a_body_tells_thoughts_calls_and_text(void **state)
{
    static const struct usage usage = {.prompt_tokens = 5,
                                       .completion_tokens = 3,
                                       .prompt_details_json = STR("{\"cached_tokens\":2}")};
    AUTO(chunk_done) struct chunk chunk;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct messages *m = messages_new(STR("m"), 1);

    (void)state;
    chunk_init(&chunk, API_CHAT, &CHUNKS_OF_1, STR("x"), STR("m"), 1);
    MESSAGES.put_body(
        m, &out,
        &(struct chunk_delta){.text = STR("t"),
                              .reasoning = STR("h"),
                              .calls_json = STR(FUNCTION("{\\\"x\\\":1}") "," FUNCTION("[1]"))},
        &chunk,
        &(struct dialect_end){.end = &(struct chunk_end){.finish = "tool_calls"}, .usage = &usage});
    expect(&out, "{\"id\":\"msg_\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[{"
                 "\"type\":\"thinking\",\"thinking\":\"h\",\"signature\":\"\"},{\"type\":\"tool_"
                 "use\",\"id\":\"toolu_\",\"name\":\"f\",\"input\":{\"x\":1}},{\"type\":\"tool_"
                 "use\",\"id\":\"toolu_\",\"name\":\"f\",\"input\":{}},{\"type\":\"text\","
                 "\"text\":\"t\"}],\"model\":\"m\",\"stop_reason\":\"tool_use\",\"stop_sequence\":"
                 "null,\"usage\":{\"input_tokens\":3,\"output_tokens\":3,\"cache_creation_input_"
                 "tokens\":0,\"cache_read_input_tokens\":2}}");
    MESSAGES.free(m);
}

#define USAGE(n)                                                                                   \
    "\"usage\":{\"input_tokens\":0,\"output_tokens\":" n ",\"cache_creation_input_tokens\":0"
#define EVENT(type, members) "event: " type "\ndata: {\"type\":\"" type "\"" members "}\n\n"
#define START                                                                                      \
    EVENT("message_start",                                                                         \
          ",\"message\":{\"id\":\"msg_\",\"type\":\"message\",\"role\":\"assistant\",\"content\":" \
          "[],\"model\":\"m\",\"stop_reason\":null,\"stop_sequence\":null," USAGE("0") "}}")

static void one_block_of_a_stream_is_open_at_a_time(void **state)
{
    static const struct usage usage = {.completion_tokens = 1};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct messages *m = messages_new(STR("m"), 0);

    (void)state;
    MESSAGES.put_begin(m, &out);
    MESSAGES.put_begin(m, &out); /* another worker goes on, before the first one's first token */
    MESSAGES.put_delta(m, &out, &(struct chunk_delta){.reasoning = STR("h"), .text = STR("t")},
                       &usage);
    MESSAGES.put_delta(m, &out, &(struct chunk_delta){.calls_json = STR(FUNCTION("{}"))}, &usage);
    MESSAGES.put_end(
        m, &out,
        &(struct dialect_end){
            .end = &(struct chunk_end){.finish = "stop", .stop_reason_json = STR("\"zz\"")},
            .usage = &usage});
#define DELTA(i, members)                                                                          \
    EVENT("content_block_delta",                                                                   \
          ",\"index\":" i ",\"delta\":{" members "}," USAGE("1") ",\"total_tokens\":1}")
#define STOP(i) EVENT("content_block_stop", ",\"index\":" i)
    expect(&out,
           START EVENT("content_block_start",
                       ",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\","
                       "\"signature\":\"\"}") DELTA("0", "\"type\":\"thinking_delta\","
                                                         "\"thinking\":\"h\"")
               DELTA("0", "\"type\":\"signature_delta\",\"signature\":\"erased\"") STOP("0") EVENT(
                   "content_block_start",
                   ",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}")
                   DELTA("1", "\"type\":\"text_delta\",\"text\":\"t\"") STOP("1") EVENT(
                       "content_block_start",
                       ",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_"
                       "\",\"name\":\"f\",\"input\":{}}")
                       DELTA("2", "\"type\":\"input_json_delta\",\"partial_json\":\"{}\"") STOP("2")
                           EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"stop_sequence\","
                                                  "\"stop_sequence\":\"zz\"}," USAGE("1") "}")
                               EVENT("message_stop", ""));
    MESSAGES.free(m);
}

static void a_stream_that_fails_says_so(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct messages *m = messages_new(STR("m"), 0);
    struct api_error e;

    (void)state;
    (void)api_fail(&e, 503, NULL, "gone");
    MESSAGES.put_end(m, &out, &(struct dialect_end){.failed = &e});
    expect(&out, START "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_"
                       "error\",\"message\":\"gone\"}}\n\n");
    MESSAGES.free(m);
}

int main(void)
{
    return TEST_RUN(T(requests_become_chats), T(what_is_no_request_is_refused),
                    T(a_body_tells_thoughts_calls_and_text),
                    T(one_block_of_a_stream_is_open_at_a_time), T(a_stream_that_fails_says_so));
}
