/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations and replays against a server of our own that answers as it is told.
 */
#include "bench/load/replay.h"
#include "bench/load/talk.h"
#include "lib/base/test.h"

#include "lib/base/json_tree.h"
#include "lib/net/http_client.h"
#include "lib/net/http_server.h"
#include "lib/net/loop_test.h"

enum behaviour { ANSWER, ANSWER_500, CUT_OFF, ERROR_EVENT, NO_END, SILENCE };

struct rig {
    struct loop *loop;
    struct http_server *server;
    struct http_client *http;
    struct score *score;
    char *url;
    enum behaviour behaviour;
    size_t n_requests, n_messages_max;
    size_t turns[16];           /* requests by number of messages */
    struct buf last, first;     /* bodies */
    struct http_exchange *held; /* the latest without an answer */
    bool over;
    char *why;
};

static void on_gone(void *arg)
{
    ((struct rig *)arg)->held = NULL;
}

static void answer(struct http_exchange *x, const struct rig *rig)
{
    if (rig->behaviour == ANSWER_500) {
        http_respond(x, 500, "application/json", STR("{\"message\":\"no\"}"));
        return;
    }
    http_stream_begin(x, 200, "text/event-stream");
    http_stream_write(
        x, STR("data: {\"choices\":[{\"delta\":{\"content\":\"Aye\"},\"text\":\"\"}]}\n\n"));
    if (rig->behaviour == CUT_OFF) {
        http_stream_abort(x);
        return;
    }
    if (rig->behaviour == ERROR_EVENT)
        http_stream_write(x, STR("event: error\n: broken\n\n"));
    http_stream_write(x, STR("data: {\"choices\":[{\"delta\":{\"content\":\" sir\"},"
                             "\"finish_reason\":\"stop\"}]}\n\n"
                             "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,"
                             "\"completion_tokens\":2,\"prompt_tokens_details\":"
                             "{\"cached_tokens\":75}}}\n\n"));
    if (rig->behaviour != NO_END)
        http_stream_write(x, STR("data: [DONE]\n\n"));
    http_stream_end(x);
}

static void on_request(struct http_exchange *x, void *arg)
{
    AUTO(json_free) struct json *body = NULL;
    struct rig *rig = arg;
    size_t n;
    struct err e;

    EXPECT_OK(json_parse(&body, http_request(x)->body, &e), &e);
    n = json_len(json_get(body, "messages"));
    rig->turns[MIN(n, ARRAY_LEN(rig->turns) - 1)]++;
    rig->n_messages_max = MAX(rig->n_messages_max, n);
    buf_clear(&rig->last);
    buf_put_str(&rig->last, http_request(x)->body);
    if (rig->n_requests++ == 0)
        buf_put_str(&rig->first, http_request(x)->body);
    if (rig->behaviour == SILENCE) {
        rig->held = x;
        http_on_gone(x, on_gone, rig);
        return;
    }
    answer(x, rig);
}

static void rig_open(struct rig *rig, enum behaviour behaviour)
{
    static const struct http_route routes[] = {{"POST", "/v1/*", on_request, 0}};
    const struct http_server_conf server = {.host = "127.0.0.1",
                                            .connections_max = 64,
                                            .head_bytes = 16384,
                                            .body_bytes = 4 << 20,
                                            .idle_ms = 60000,
                                            .routes = routes,
                                            .n_routes = 1,
                                            .arg = rig};
    struct err e;

    *rig = (struct rig){.behaviour = behaviour};
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(http_server_start(&rig->server, rig->loop, &server, &e), &e);
    EXPECT_OK(http_client_new(&rig->http, rig->loop, &(struct http_client_conf){0}, &e), &e);
    rig->score = score_new(clock_now_ns(), NULL);
    rig->url = xasprintf("http://127.0.0.1:%u", http_server_port(rig->server));
}

static void rig_close(struct rig *rig)
{
    http_client_free(rig->http);
    http_server_free(rig->server);
    score_free(rig->score);
    buf_done(&rig->last);
    buf_done(&rig->first);
    free(rig->url);
    free(rig->why);
    loop_free(rig->loop);
}

static void on_talked(void *arg)
{
    ((struct rig *)arg)->over = true;
}

static struct talk_conf talk_conf_of(struct rig *rig)
{
    return (struct talk_conf){.http = rig->http,
                              .url = rig->url,
                              .model = "m",
                              .concurrency = 4,
                              .conversations = 10,
                              .n_starters = 3,
                              .starter_tokens = 200,
                              .turns_min = 3,
                              .turns_max = 5,
                              .output_min = 5,
                              .output_max = 9,
                              .question_tokens = 20,
                              .timeout_ms = rig->behaviour == SILENCE ? 300 : 60000,
                              .seed = 7,
                              .starter_seed = 1,
                              .tokens_per_word = 1,
                              .done = on_talked,
                              .arg = rig};
}

static void conversations_send_their_history_again(void **state)
{
    AUTO(json_free) struct json *body = NULL;
    struct talk *talk;
    struct talk_conf conf;
    struct rig rig;
    const struct json *messages;
    int64_t max_tokens = 0;
    struct err e;

    (void)state;
    rig_open(&rig, ANSWER);
    conf = talk_conf_of(&rig);
    talk = talk_start(rig.loop, &conf, rig.score);
    LOOP_UNTIL(rig.loop, rig.over);
    assert_int_equal(rig.turns[1], 10);
    assert_int_equal(rig.turns[3], 10);
    assert_int_equal(rig.turns[5], 10);
    assert_true(rig.turns[7] <= 10 && rig.turns[9] <= rig.turns[7] && rig.turns[11] == 0);
    assert_int_equal(rig.score->n_requests, rig.n_requests);
    assert_int_equal(score_failures(rig.score), 0);
    assert_float_equal(score_hit_rate(rig.score), 0.75, 1e-9);
    assert_int_equal(rig.score->output_tokens, 2 * rig.n_requests);
    assert_int_equal(rig.score->ttft.count, rig.n_requests);
    EXPECT_OK(json_parse(&body, buf_str(&rig.last), &e), &e);
    messages = json_get(body, "messages");
    assert_string_equal(json_get_cstr(json_at(messages, 1), "role"), "assistant");
    assert_string_equal(json_get_cstr(json_at(messages, 1), "content"), "Aye sir");
    assert_string_equal(json_get_cstr(json_at(messages, 2), "role"), "user");
    assert_true(json_get_i64(body, "max_tokens", &max_tokens));
    assert_true(max_tokens >= 5 && max_tokens <= 9);
    talk_free(talk);
    rig_close(&rig);
}

static void equal_seeds_ask_the_same(void **state)
{
    struct buf first[2] = {BUF_NULL, BUF_NULL};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct talk *talk;
        struct talk_conf conf;
        struct rig rig;

        rig_open(&rig, ANSWER);
        conf = talk_conf_of(&rig);
        conf.concurrency = 1;
        conf.conversations = 1;
        talk = talk_start(rig.loop, &conf, rig.score);
        LOOP_UNTIL(rig.loop, rig.over);
        buf_put_str(&first[i], buf_str(&rig.last));
        talk_free(talk);
        rig_close(&rig);
    }
    assert_true(str_eq(buf_str(&first[0]), buf_str(&first[1])));
    buf_done(&first[0]);
    buf_done(&first[1]);
}

static void every_failure_has_its_kind_and_none_hangs(void **state)
{
    static const struct {
        enum behaviour behaviour;
        enum load_outcome want;
    } cases[] = {{ANSWER_500, LOAD_SERVER},
                 {CUT_OFF, LOAD_BROKEN},
                 {ERROR_EVENT, LOAD_ERROR_EVENT},
                 {NO_END, LOAD_BROKEN},
                 {SILENCE, LOAD_TIMEOUT}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct talk *talk;
        struct talk_conf conf;
        struct rig rig;

        rig_open(&rig, cases[i].behaviour);
        conf = talk_conf_of(&rig);
        conf.concurrency = 1;
        conf.conversations = 2;
        talk = talk_start(rig.loop, &conf, rig.score);
        LOOP_UNTIL(rig.loop, rig.over);
        assert_int_equal(rig.score->n_requests, 2);
        assert_int_equal(rig.score->by_outcome[cases[i].want], 2);
        talk_free(talk);
        rig_close(&rig);
    }
}

static void a_server_that_is_not_there_is_a_failure_too(void **state)
{
    struct talk *talk;
    struct talk_conf conf;
    struct rig rig;

    (void)state;
    rig_open(&rig, ANSWER);
    rig.server = http_server_free(rig.server);
    conf = talk_conf_of(&rig);
    conf.concurrency = 1;
    conf.conversations = 1;
    talk = talk_start(rig.loop, &conf, rig.score);
    LOOP_UNTIL(rig.loop, rig.over);
    assert_int_equal(rig.score->by_outcome[LOAD_CONNECT], 1);
    talk_free(talk);
    rig_close(&rig);
}

static void stopping_waits_for_what_runs_and_begins_nothing(void **state)
{
    struct talk *talk;
    struct talk_conf conf;
    struct rig rig;

    (void)state;
    rig_open(&rig, SILENCE);
    conf = talk_conf_of(&rig);
    conf.concurrency = 1;
    conf.conversations = 0;
    conf.timeout_ms = 60000;
    talk = talk_start(rig.loop, &conf, rig.score);
    LOOP_UNTIL(rig.loop, rig.held);
    assert_int_equal(talk_running(talk), 1);
    talk_stop(talk);
    loop_run_once(rig.loop, 0);
    assert_false(rig.over);
    rig.behaviour = ANSWER;
    answer(rig.held, &rig);
    LOOP_UNTIL(rig.loop, rig.over);
    assert_int_equal(rig.n_requests, 1);
    talk_free(talk);

    /* Cutting: a call under way gets no answer any more, and nothing is left behind. */
    rig.behaviour = SILENCE;
    rig.held = NULL;
    talk = talk_start(rig.loop, &conf, rig.score);
    LOOP_UNTIL(rig.loop, rig.held);
    talk_free(talk);
    LOOP_UNTIL(rig.loop, !rig.held);
    rig_close(&rig);
}

/* --- replay ----------------------------------------------------------------------------------- */

static void on_replayed(void *arg, const char *why)
{
    struct rig *rig = arg;

    rig->over = true;
    rig->why = why ? xstrdup(why) : NULL;
}

static FILE *trace_of(const char *text)
{
    FILE *f = tmpfile();

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    rewind(f);
    return f;
}

static struct replay *replay_of(struct rig *rig, FILE *file, double speed)
{
    const struct replay_conf conf = {.http = rig->http,
                                     .url = rig->url,
                                     .model = "m",
                                     .file = file,
                                     .speed = speed,
                                     .in_flight_max = 8,
                                     .input_max = 1000,
                                     .token_first = 300,
                                     .token_last = 400,
                                     .timeout_ms = 60000,
                                     .done = on_replayed,
                                     .arg = rig};

    return replay_start(rig->loop, &conf, rig->score);
}

static void a_trace_is_sent_on_its_schedule(void **state)
{
    FILE *f =
        trace_of("{\"timestamp\":0,\"input_length\":600,\"output_length\":5,\"hash_ids\":[0,1]}\n"
                 "\n"
                 "{\"timestamp\":0,\"input_length\":5000,\"output_length\":5,\"hash_ids\":[]}\n"
                 "{\"timestamp\":1000,\"input_length\":10,\"output_length\":7,\"hash_ids\":[0]}");
    AUTO(json_free) struct json *body = NULL;
    struct replay *replay;
    struct rig rig;
    uint64_t start = clock_now_ns();
    int64_t n = 0;
    struct err e;

    (void)state;
    rig_open(&rig, ANSWER);
    replay = replay_of(&rig, f, 10);
    LOOP_UNTIL(rig.loop, rig.over);
    assert_null(rig.why);
    assert_true(clock_now_ns() - start >= 100000000);
    assert_int_equal(rig.n_requests, 2);
    assert_int_equal(replay_left_out(replay), 1);
    assert_int_equal(score_failures(rig.score), 0);
    EXPECT_OK(json_parse(&body, buf_str(&rig.last), &e), &e);
    assert_int_equal(json_len(json_get(body, "prompt")), 10);
    assert_true(json_get_i64(body, "max_tokens", &n));
    assert_int_equal(n, 7);
    replay_free(replay);
    (void)fclose(f);
    rig_close(&rig);
}

static void a_bad_line_ends_the_replay_with_its_number(void **state)
{
    FILE *f = trace_of("{\"timestamp\":0,\"input_length\":6,\"output_length\":5,\"hash_ids\":[0]}\n"
                       "not a line\n");
    struct replay *replay;
    struct rig rig;

    (void)state;
    rig_open(&rig, ANSWER);
    replay = replay_of(&rig, f, 1);
    LOOP_UNTIL(rig.loop, rig.over);
    assert_non_null(rig.why);
    assert_true(str_starts(str_from(rig.why), STR("line 2: ")));
    assert_int_equal(rig.n_requests, 1);
    replay_free(replay);
    (void)fclose(f);
    rig_close(&rig);
}

/* --- result ----------------------------------------------------------------------------------- */

static void the_result_has_the_documented_keys(void **state)
{
    static const char *const keys[] = {"label",
                                       "requests",
                                       "failures",
                                       "failures_by_kind",
                                       "duration_s",
                                       "ttft_ms",
                                       "itl_ms",
                                       "tpot_ms",
                                       "e2e_ms",
                                       "hit_rate",
                                       "first_requests_hit_rate",
                                       "output_tokens_per_s"};
    AUTO(score_free) struct score *s = score_new(0, NULL);
    AUTO(json_free) struct json *o = NULL;
    struct load_result r = {.start_ns = 1000000,
                            .first_ns = 11000000,
                            .end_ns = 31000000,
                            .usage = {true, 100, 11, 40},
                            .n_chunks = 11,
                            .status = 200};
    double v = 0;

    (void)state;
    for (int i = 0; i < 150; i++) {
        r.usage.cached_tokens = i < 100 ? 40 : 90;
        score_add(s, &r);
    }
    r.outcome = LOAD_CONNECT;
    r.usage.known = false;
    r.n_chunks = 0;
    score_add(s, &r);
    score_stop(s, UINT64_C(2000000000));
    o = score_to_json(s, "kv");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (!json_get(o, keys[i]))
            fail_msg("no %s", keys[i]);
    assert_true(json_f64(json_path(o, "ttft_ms", "p95", NULL), &v));
    assert_float_equal(v, 10, 0.05);
    assert_true(json_f64(json_path(o, "tpot_ms", "p50", NULL), &v));
    assert_float_equal(v, 2, 0.01);
    assert_true(json_get_f64(o, "first_requests_hit_rate", &v));
    assert_float_equal(v, 0.4, 1e-6);
    assert_true(json_get_f64(o, "hit_rate", &v));
    assert_float_equal(v, (40.0 * 100 + 90 * 50) / 15000, 1e-6);
    assert_true(json_get_f64(o, "output_tokens_per_s", &v));
    assert_float_equal(v, 825, 1e-6);
    assert_true(json_get_f64(o, "failures", &v));
    assert_float_equal(v, 1, 1e-9);
    assert_non_null(json_path(o, "failures_by_kind", "connect", NULL));
}

int main(void)
{
    return TEST_RUN(
        T(conversations_send_their_history_again), T(equal_seeds_ask_the_same),
        T(every_failure_has_its_kind_and_none_hangs),
        T(a_server_that_is_not_there_is_a_failure_too),
        T(stopping_waits_for_what_runs_and_begins_nothing), T(a_trace_is_sent_on_its_schedule),
        T(a_bad_line_ends_the_replay_with_its_number), T(the_result_has_the_documented_keys));
}
