/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/chunk.h"
#include "lib/base/test.h"

/* Captured from the reference: data/wire/0.9.0/file-nats-kv/http. */
static void chat_chunks_are_those_of_the_reference(void **state)
{
    AUTO(chunk_done) struct chunk c;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct usage u = {.prompt_tokens = 85, .completion_tokens = 6};

    (void)state;
    chunk_init(&c, API_CHAT, &CHUNKS_OF_0_9, STR("7cf497bc-bc93-4c9c-baa4-ab37ea4e2806"),
               STR("tinyllama-chat"), 1795252380);
    chunk_put_text(&c, &out, STR(" who"), NULL);
    chunk_put_end(&c, &out, &(struct chunk_delta){.text = STR_NULL},
                  &(struct chunk_end){.finish = "length"}, NULL);
    chunk_put_usage(&c, &out, &u);
    chunk_put_done(&out);
    assert_string_equal(
        buf_cstr(&out),
        "data: "
        "{\"id\":\"chatcmpl-7cf497bc-bc93-4c9c-baa4-ab37ea4e2806\",\"choices\":[{\"index\":0,"
        "\"delta\":{\"content\":\" "
        "who\",\"function_call\":null,\"tool_calls\":null,\"role\":\"assistant\",\"refusal\":null,"
        "\"reasoning_content\":null}}],\"created\":1795252380,\"model\":\"tinyllama-chat\","
        "\"service_tier\":null,\"system_fingerprint\":null,\"object\":\"chat.completion.chunk\","
        "\"usage\":null}\n\n"
        "data: "
        "{\"id\":\"chatcmpl-7cf497bc-bc93-4c9c-baa4-ab37ea4e2806\",\"choices\":[{\"index\":0,"
        "\"delta\":{\"content\":null,\"function_call\":null,\"tool_calls\":null,\"role\":"
        "\"assistant\",\"refusal\":null,\"reasoning_content\":null},\"finish_reason\":\"length\"}],"
        "\"created\":1795252380,\"model\":\"tinyllama-chat\",\"service_tier\":null,\"system_"
        "fingerprint\":null,\"object\":\"chat.completion.chunk\",\"usage\":null}\n\n"
        "data: "
        "{\"id\":\"chatcmpl-7cf497bc-bc93-4c9c-baa4-ab37ea4e2806\",\"choices\":[],\"created\":"
        "1795252380,\"model\":\"tinyllama-chat\",\"service_tier\":null,\"system_fingerprint\":null,"
        "\"object\":\"chat.completion.chunk\",\"usage\":{\"prompt_tokens\":85,\"completion_"
        "tokens\":6,\"total_tokens\":91}}\n\n"
        "data: [DONE]\n\n");
}

static void folded_answers_are_those_of_the_reference(void **state)
{
    AUTO(chunk_done) struct chunk c;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct usage u = {.prompt_tokens = 18, .completion_tokens = 4};

    (void)state;
    chunk_init(&c, API_CHAT, &CHUNKS_OF_0_9, STR("71661000-1b54-46d7-ba19-eed09b77e827"),
               STR("tinyllama-chat"), 1795252381);
    chunk_put_folded(&c, &out, &(struct chunk_delta){.text = STR("ets acc Comm line")},
                     &(struct chunk_end){.finish = "length"}, &u);
    assert_string_equal(
        buf_cstr(&out),
        "{\"id\":\"chatcmpl-71661000-1b54-46d7-ba19-eed09b77e827\",\"choices\":[{\"index\":0,"
        "\"message\":{\"content\":\"ets acc Comm "
        "line\",\"role\":\"assistant\",\"reasoning_content\":null},\"finish_reason\":\"length\"}],"
        "\"created\":1795252381,\"model\":\"tinyllama-chat\",\"object\":\"chat.completion\","
        "\"usage\":{\"prompt_tokens\":18,\"completion_tokens\":4,\"total_tokens\":22}}");
}

/* Captured from the reference: data/wire/1.x/file-nats-kv/http. */
static void chat_chunks_are_those_of_1_6_1(void **state)
{
    static const char head[] = "data: {\"id\":\"chatcmpl-x\",\"choices\":[";
    static const char tail[] =
        "],\"created\":1,\"model\":\"m\",\"object\":\"chat.completion.chunk\"";
    struct usage u = {.prompt_tokens = 5,
                      .completion_tokens = 6,
                      .prompt_details_json = STR("{\"audio_tokens\":null,\"cached_tokens\": 3}")};
    const struct {
        struct chunk_delta delta;
        const char *finish;
        const char *choice; /* NULL = no chunk */
    } cases[] = {
        {{.text = STR("test")},
         NULL,
         "{\"content\":\"test\",\"role\":\"assistant\"},\"finish_reason\":null,\"logprobs\":null"},
        {{.text = STR("")}, NULL, NULL},
        {{.text = STR_NULL}, NULL, NULL},
        {{.text = STR("a"), .reasoning = STR("b"), .logprobs_json = STR("{}")},
         NULL,
         "{\"content\":\"a\",\"reasoning_content\":\"b\"},\"finish_reason\":null,\"logprobs\":{}"},
        {{.text = STR(""), .calls_json = STR("{}")},
         NULL,
         "{\"content\":\"\",\"tool_calls\":[{}]},\"finish_reason\":null,\"logprobs\":null"},
        {{.text = STR_NULL}, "stop", "{},\"finish_reason\":\"stop\",\"logprobs\":null"},
    };
    AUTO(chunk_done) struct chunk c;
    AUTO(buf_done) struct buf out = BUF_NULL, want = BUF_NULL;

    (void)state;
    chunk_init(&c, API_CHAT, &CHUNKS_OF_1, STR("x"), STR("m"), 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chunk_end end = {.finish = cases[i].finish, .stop_reason_json = STR("5")};

        if (end.finish)
            chunk_put_end(&c, &out, &cases[i].delta, &end, NULL);
        else
            chunk_put_delta(&c, &out, &cases[i].delta, NULL);
        if (cases[i].choice)
            buf_printf(&want, "%s{\"index\":0,\"delta\":%s}%s}\n\n", head, cases[i].choice, tail);
    }
    chunk_put_usage(&c, &out, &u);
    buf_printf(&want,
               "%s%s,\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6,\"total_tokens\":11,"
               "\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n",
               head, tail);
    chunk_put_error(&CHUNKS_OF_1, &out, 500, STR("a\nb"));
    buf_put_cstr(
        &want,
        "data: "
        "{\"error\":{\"message\":\"a\\nb\",\"type\":\"internal_server_error\",\"code\":500}}\n\n");
    assert_string_equal(buf_cstr(&out), buf_cstr(&want));
}

static void folded_answers_are_those_of_1_6_1(void **state)
{
    AUTO(chunk_done) struct chunk c;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct usage u = {.prompt_tokens = 18, .completion_tokens = 4};

    (void)state;
    chunk_init(&c, API_CHAT, &CHUNKS_OF_1, STR("x"), STR("m"), 1);
    chunk_put_folded(&c, &out, &(struct chunk_delta){.text = STR(" bel")},
                     &(struct chunk_end){.finish = "length"}, &u);
    assert_string_equal(
        buf_cstr(&out),
        "{\"id\":\"chatcmpl-x\",\"choices\":[{\"index\":0,\"message\":{\"content\":\" "
        "bel\",\"refusal\":"
        "null,\"role\":\"assistant\"},\"finish_reason\":\"length\",\"logprobs\":null}],\"created\":"
        "1,"
        "\"model\":\"m\",\"object\":\"chat.completion\",\"usage\":{\"prompt_tokens\":18,"
        "\"completion_tokens\":4,\"total_tokens\":22}}");
}

static void completions_chunks_and_escapes(void **state)
{
    AUTO(chunk_done) struct chunk c;
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    chunk_init(&c, API_COMPLETIONS, &CHUNKS_OF_0_9, STR("x"), STR("m"), 1);
    chunk_put_text(&c, &out, STR("a\"\n"), NULL);
    chunk_put_end(&c, &out, &(struct chunk_delta){.text = STR("b")},
                  &(struct chunk_end){.finish = "stop", .stop_reason_json = STR("\"END\"")}, NULL);
    assert_string_equal(
        buf_cstr(&out),
        "data: "
        "{\"id\":\"cmpl-x\",\"choices\":[{\"text\":\"a\\\"\\n\",\"index\":0}],\"created\":1,"
        "\"model\":\"m\",\"system_fingerprint\":null,\"object\":\"text_completion\",\"usage\":null}"
        "\n\n"
        "data: "
        "{\"id\":\"cmpl-x\",\"choices\":[{\"text\":\"b\",\"index\":0,\"finish_reason\":\"stop\""
        "}],\"created\":1,\"model\":\"m\",\"system_fingerprint\":null,"
        "\"object\":\"text_completion\",\"usage\":null}\n\n");
}

static void usage_tells_what_was_thought(void **state)
{
    static const struct str cached = STR("{\"cached_tokens\":3}");
    static const struct str audio = STR("{\"x\":1,\"audio_tokens\":4,\"reasoning_tokens\":9}");
    static const struct {
        enum api api;
        const struct chunk_style *style;
        struct usage usage;
        const char *want;
    } cases[] = {
        {API_CHAT,
         &CHUNKS_OF_1,
         {5, 2, STR_NULL, STR_NULL, OPT_U64(0)},
         "\"total_tokens\":7,\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n\n"},
        {API_CHAT,
         &CHUNKS_OF_1,
         {5, 2, cached, audio, OPT_U64(1)},
         "\"prompt_tokens_details\":{\"cached_tokens\":3},\"completion_tokens_details\":{"
         "\"audio_tokens\":4,\"reasoning_tokens\":1}}}\n\n"},
        {API_CHAT, &CHUNKS_OF_1, {5, 2, STR_NULL, STR_NULL, {0}}, "\"total_tokens\":7}}\n\n"},
        {API_CHAT,
         &CHUNKS_OF_0_9,
         {5, 2, cached, audio, OPT_U64(1)},
         ":7,\"prompt_tokens_details\":{\"audio_tokens\":null,\"cached_tokens\":3}}}\n\n"},
        {API_COMPLETIONS,
         &CHUNKS_OF_1,
         {5, 2, cached, audio, {0}},
         ":7,\"prompt_tokens_details\":{\"audio_tokens\":null,\"cached_tokens\":3},"
         "\"completion_tokens_details\":{\"accepted_prediction_tokens\":null,\"audio_tokens\":4,"
         "\"reasoning_tokens\":9,\"rejected_prediction_tokens\":null}}}\n\n"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(chunk_done) struct chunk c;
        AUTO(buf_done) struct buf out = BUF_NULL;

        chunk_init(&c, cases[i].api, cases[i].style, STR("x"), STR("m"), 1);
        chunk_put_usage(&c, &out, &cases[i].usage);
        if (!strstr(buf_cstr(&out), cases[i].want))
            fail_msg("%s", buf_cstr(&out));
    }
}

static void nvext_tells_workers_and_tokens(void **state)
{
    static const uint32_t ids[] = {1, 4294967295};
    AUTO(chunk_done) struct chunk c;
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    chunk_init(&c, API_COMPLETIONS, &CHUNKS_OF_0_9, STR("x"), STR("m"), 1);
    chunk_tell_workers(&c, &(struct chunk_workers){.prefill_id = 7, .decode_id = 8});
    chunk_tell_tokens(&c, ids, 2);
    chunk_put_folded(&c, &out, &(struct chunk_delta){.text = STR("a")},
                     &(struct chunk_end){.finish = "stop", .timing_json = STR("{\"t\":1}")}, NULL);
    assert_true(str_ends(
        buf_str(&out),
        STR("\"usage\":null,\"nvext\":{\"worker_id\":{\"prefill_worker_id\":7,"
            "\"decode_worker_id\":8},\"token_ids\":[1,4294967295],\"timing\":{\"t\":1}}}")));
    chunk_done(&c);
    buf_clear(&out);
    chunk_init(&c, API_CHAT, &CHUNKS_OF_1, STR("x"), STR("m"), 1);
    chunk_tell_workers(&c, &(struct chunk_workers){7, 8, true, 0, 3, false});
    chunk_put_text(&c, &out, STR("a"), NULL);
    assert_true(str_ends(
        buf_str(&out), STR(",\"nvext\":{\"worker_id\":{\"prefill_worker_id\":7,\"prefill_dp_rank\":"
                           "0,\"decode_worker_id\":8,\"decode_dp_rank\":3}}}\n\n")));
    buf_clear(&out);
    chunk_tell_workers(
        &c, &(struct chunk_workers){.prefill_id = 7, .has_ranks = true, .no_decode = true});
    chunk_put_text(&c, &out, STR("a"), NULL);
    assert_true(str_ends(buf_str(&out), STR(",\"nvext\":{\"worker_id\":{\"prefill_worker_id\":7,"
                                            "\"prefill_dp_rank\":0}}}\n\n")));
}

static void nvext_tells_ids_of_tokens(void **state)
{
    static const uint32_t ids[] = {300, 301, 302};
    const struct chunk_end end = {
        .finish = "stop", .timing_json = STR("{\"t\":1}"), .prompt_ids_json = STR("[7]")};
    AUTO(chunk_done) struct chunk c;
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    chunk_init(&c, API_COMPLETIONS, &CHUNKS_OF_1, STR("x"), STR("m"), 1);
    chunk_tell_ids(&c, ids, 1);
    chunk_tell_ids(&c, ids + 1, 2);
    chunk_put_folded(&c, &out, &(struct chunk_delta){.text = STR("a")}, &end, NULL);
    assert_true(str_ends(buf_str(&out), STR(",\"nvext\":{\"completion_token_ids\":[300,301,302],"
                                            "\"timing\":{\"t\":1},\"prompt_token_ids\":[7]}}")));
    buf_clear(&out);
    chunk_put_text(&c, &out, STR_NULL, NULL); /* tokens without text make a chunk */
    assert_true(
        str_ends(buf_str(&out), STR(",\"nvext\":{\"completion_token_ids\":[300,301,302]}}\n\n")));
    buf_clear(&out);
    chunk_put_text(&c, &out, STR_NULL, NULL); /* and none do not */
    assert_int_equal(out.len, 0);
    chunk_put_end(&c, &out, &(struct chunk_delta){.text = STR("")}, &end, NULL);
    assert_true(
        str_ends(buf_str(&out), STR(",\"nvext\":{\"timing\":{\"t\":1},\"completion_token_ids\":"
                                    "[],\"prompt_token_ids\":[7]}}\n\n")));
}

static void an_error_of_several_lines_stays_one_event(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    chunk_put_error(&CHUNKS_OF_0_9, &out, 500, STR("first\nsecond"));
    assert_true(str_starts(
        buf_str(&out),
        STR("event: error\n: first\n: second\ndata: {\"error\":{\"message\":\"first\\nsecond\"")));
    assert_true(str_ends(buf_str(&out), STR("}\n\n")));
}

int main(void)
{
    return TEST_RUN(T(chat_chunks_are_those_of_the_reference),
                    T(folded_answers_are_those_of_the_reference), T(completions_chunks_and_escapes),
                    T(chat_chunks_are_those_of_1_6_1), T(folded_answers_are_those_of_1_6_1),
                    T(usage_tells_what_was_thought), T(nvext_tells_workers_and_tokens),
                    T(nvext_tells_ids_of_tokens), T(an_error_of_several_lines_stays_one_event));
}
