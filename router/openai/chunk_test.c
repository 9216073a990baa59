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
    chunk_init(&c, API_CHAT, STR("7cf497bc-bc93-4c9c-baa4-ab37ea4e2806"), STR("tinyllama-chat"),
               1795252380);
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
    chunk_init(&c, API_CHAT, STR("71661000-1b54-46d7-ba19-eed09b77e827"), STR("tinyllama-chat"),
               1795252381);
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

static void completions_chunks_and_escapes(void **state)
{
    AUTO(chunk_done) struct chunk c;
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    chunk_init(&c, API_COMPLETIONS, STR("x"), STR("m"), 1);
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
        "{\"id\":\"cmpl-x\",\"choices\":[{\"text\":\"b\",\"index\":0,\"finish_reason\":\"stop\","
        "\"stop_reason\":\"END\"}],\"created\":1,\"model\":\"m\",\"system_fingerprint\":null,"
        "\"object\":\"text_completion\",\"usage\":null}\n\n");
}

static void usage_tells_what_was_thought(void **state)
{
    static const struct {
        struct usage usage;
        const char *want;
    } cases[] = {
        {{5, 2, STR_NULL, OPT_U64(0), STR_NULL},
         "\"total_tokens\":7,\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n\n"},
        {{5, 2, STR("{\"cached_tokens\":3}"), OPT_U64(1), STR("\"audio_tokens\":4")},
         "\"prompt_tokens_details\":{\"cached_tokens\":3},\"completion_tokens_details\":{"
         "\"audio_tokens\":4,\"reasoning_tokens\":1}}}\n\n"},
        {{5, 2, STR_NULL, {0}, STR_NULL}, "\"total_tokens\":7}}\n\n"},
    };
    AUTO(chunk_done) struct chunk c;

    (void)state;
    chunk_init(&c, API_CHAT, STR("x"), STR("m"), 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

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
    chunk_init(&c, API_COMPLETIONS, STR("x"), STR("m"), 1);
    chunk_tell_workers(&c, 7, 8);
    chunk_tell_tokens(&c, ids, 2);
    chunk_put_folded(&c, &out, &(struct chunk_delta){.text = STR("a")},
                     &(struct chunk_end){.finish = "stop", .timing_json = STR("{\"t\":1}")}, NULL);
    assert_true(str_ends(
        buf_str(&out),
        STR("\"usage\":null,\"nvext\":{\"worker_id\":{\"prefill_worker_id\":7,"
            "\"decode_worker_id\":8},\"token_ids\":[1,4294967295],\"timing\":{\"t\":1}}}")));
}

static void an_error_of_several_lines_stays_one_event(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    chunk_put_error(&out, 500, STR("first\nsecond"));
    assert_true(str_starts(
        buf_str(&out),
        STR("event: error\n: first\n: second\ndata: {\"error\":{\"message\":\"first\\nsecond\"")));
    assert_true(str_ends(buf_str(&out), STR("}\n\n")));
}

int main(void)
{
    return TEST_RUN(T(chat_chunks_are_those_of_the_reference),
                    T(folded_answers_are_those_of_the_reference), T(completions_chunks_and_escapes),
                    T(usage_tells_what_was_thought), T(nvext_tells_workers_and_tokens),
                    T(an_error_of_several_lines_stays_one_event));
}
