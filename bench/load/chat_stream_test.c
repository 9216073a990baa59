/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/chat_stream.h"
#include "lib/base/test.h"

/* As the reference's frontend sends it. */
static const char CHAT[] =
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"He\",\"function_call\":"
    "null,\"tool_calls\":null,\"role\":\"assistant\",\"refusal\":null,\"reasoning_content\":null}}]"
    ","
    "\"created\":1,\"model\":\"m\",\"object\":\"chat.completion.chunk\",\"usage\":null,"
    "\"nvext\":{\"worker_id\":{\"decode_worker_id\":12068259693190267366}}}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"l\\\"lo\"}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":null},\"finish_reason\":\"length\"}],"
    "\"usage\":null}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":2,"
    "\"total_tokens\":42,\"prompt_tokens_details\":{\"audio_tokens\":null,\"cached_tokens\":32}}}"
    "\n\ndata: [DONE]\n\n";

static void an_answer_is_read_however_it_is_cut(void **state)
{
    (void)state;
    for (size_t step = 1; step < sizeof(CHAT); step = step * 2 + 1) {
        AUTO(chat_stream_free) struct chat_stream *s = chat_stream_new(true);
        size_t n = 0;

        for (size_t at = 0; at < sizeof(CHAT) - 1; at += step)
            n += chat_stream_feed(s, str_slice(CHAT + at, MIN(step, sizeof(CHAT) - 1 - at)));
        assert_int_equal(n, 2);
        assert_true(str_is(chat_stream_text(s), "Hel\"lo"));
        assert_true(chat_stream_done(s) && chat_stream_finished(s));
        assert_int_equal(chat_stream_fault(s), CHAT_FINE);
        assert_true(chat_stream_usage(s).known);
        assert_int_equal(chat_stream_usage(s).prompt_tokens, 40);
        assert_int_equal(chat_stream_usage(s).completion_tokens, 2);
        assert_int_equal(chat_stream_usage(s).cached_tokens, 32);
        assert_true(chat_stream_worker(s) == UINT64_C(12068259693190267366));
    }
}

static void faults_are_told_apart(void **state)
{
    static const struct {
        const char *bytes;
        enum chat_fault want;
        bool done, finished;
    } cases[] = {
        {"data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n", CHAT_FINE, false,
         true},
        {"data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\ndata: [DONE]\n\n",
         CHAT_FINE, true, false},
        {"event: error\n: it broke\n\ndata: [DONE]\n\n", CHAT_ERROR_EVENT, false, false},
        {"data: {\"error\":{\"message\":\"no\"}}\n\n", CHAT_ERROR_EVENT, false, false},
        {"data: {\"choices\":[],\"error\":null}\n\n", CHAT_FINE, false, false},
        {"data: {\"choices\":[\n\n", CHAT_MALFORMED, false, false},
        {"data: 5\n\n", CHAT_MALFORMED, false, false},
        {"data: {\"object\":\"x\"}\n\n", CHAT_MALFORMED, false, false},
        {": a comment\n\n", CHAT_FINE, false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(chat_stream_free) struct chat_stream *s = chat_stream_new(false);

        (void)chat_stream_feed(s, str_from(cases[i].bytes));
        if (chat_stream_fault(s) != cases[i].want || chat_stream_done(s) != cases[i].done ||
            chat_stream_finished(s) != cases[i].finished)
            fail_msg("case %zu: fault %d", i, chat_stream_fault(s));
        assert_int_equal(chat_stream_text(s).len, 0);
    }
}

int main(void)
{
    return TEST_RUN(T(an_answer_is_read_however_it_is_cut), T(faults_are_told_apart));
}
