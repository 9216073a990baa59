/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/bench_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench/load/bench_conf.h"
#include "bench/load/replay.h"
#include "bench/load/score.h"
#include "bench/load/talk.h"
#include "lib/base/json_tree.h"
#include "lib/net/file.h"
#include "lib/net/http_client.h"

enum { PROGRESS_MS = 5000, RESULT_MAX = 1 << 20 };

struct bench_run {
    struct loop *loop;
    const struct bench_conf *conf;
    struct http_client *http;
    struct score *score;
    struct talk *talk;
    struct replay *replay;
    struct timer *progress, *limit;
    FILE *timeline, *trace;
    bool interrupted;
    char *why; /* the trace is at fault */
};

static void on_done(void *arg)
{
    struct bench_run *b = arg;

    loop_stop(b->loop);
}

static void on_replayed(void *arg, const char *why)
{
    struct bench_run *b = arg;

    b->why = why ? xstrdup(why) : NULL;
    loop_stop(b->loop);
}

static size_t running(const struct bench_run *b)
{
    return b->talk ? talk_running(b->talk) : replay_running(b->replay);
}

static void on_progress(void *arg)
{
    const struct bench_run *b = arg;
    const struct score *s = b->score;
    double hit = score_hit_rate(s);
    char rate[16] = "-";

    if (hit >= 0)
        (void)snprintf(rate, sizeof(rate), "%.1f%%", hit * 100);
    (void)fprintf(stderr,
                  "%s%s%4.0f s: %" PRIu64 " requests, %" PRIu64 " failed, %zu under way, "
                  "TTFT p50 %.0f ms p95 %.0f ms, hits %s\n",
                  b->conf->label ? b->conf->label : "", b->conf->label ? ": " : "",
                  (double)(clock_now_ns() - s->start_ns) / 1e9, s->n_requests, score_failures(s),
                  running(b), latency_quantile_ms(&s->ttft, .5), latency_quantile_ms(&s->ttft, .95),
                  rate);
}

static void stop_beginning(struct bench_run *b)
{
    if (b->talk)
        talk_stop(b->talk);
    else
        replay_stop(b->replay);
}

static void on_limit(void *arg)
{
    stop_beginning(arg);
}

void bench_run_interrupt(struct bench_run *b)
{
    if (b->interrupted)
        loop_stop(b->loop);
    else
        (void)fprintf(stderr, "stopping; again to cut what runs\n");
    b->interrupted = true;
    stop_beginning(b);
}

/* --- start ------------------------------------------------------------------------------------ */

static void start_talk(struct bench_run *b)
{
    const struct bench_conf *c = b->conf;
    const struct talk_conf conf = {
        .http = b->http,
        .url = c->url,
        .model = c->model,
        .concurrency = c->concurrency,
        .conversations = c->conversations,
        .n_starters = c->n_starters,
        .starter_tokens = c->starter_tokens,
        .turns_min = c->turns_min,
        .turns_max = c->turns_max,
        .output_min = c->output_min,
        .output_max = c->output_max,
        .question_tokens = c->question_tokens,
        .think_ms = c->think_ms,
        .timeout_ms = c->timeout_ms,
        .seed = c->seed,
        .starter_seed = c->starter_seed,
        .tokens_per_word = c->tokens_per_word,
        .ignore_eos = c->ignore_eos,
        .want_worker = c->worker_ids,
        .done = on_done,
        .arg = b,
    };

    b->talk = talk_start(b->loop, &conf, b->score);
}

static int start_replay(struct bench_run *b, struct err *e)
{
    const struct bench_conf *c = b->conf;
    struct replay_conf conf = {
        .http = b->http,
        .url = c->url,
        .model = c->model,
        .speed = c->speed,
        .requests_max = c->requests_max,
        .in_flight_max = c->in_flight_max,
        .input_max = c->input_max,
        .token_first = (uint32_t)c->token_first,
        .token_last = (uint32_t)c->token_last,
        .timeout_ms = c->timeout_ms,
        .ignore_eos = c->ignore_eos,
        .want_worker = c->worker_ids,
        .done = on_replayed,
        .arg = b,
    };

    if (strcmp(c->file, "-") == 0) {
        conf.file = stdin;
    } else {
        b->trace = fopen(c->file, "re");
        if (!b->trace)
            return err_errno(e, -errno, "open '%s'", c->file);
        conf.file = b->trace;
    }
    b->replay = replay_start(b->loop, &conf, b->score);
    return 0;
}

static int open_timeline(struct bench_run *b, struct err *e)
{
    if (!b->conf->timeline)
        return 0;
    b->timeline = fopen(b->conf->timeline, "we");
    return b->timeline ? 0 : err_errno(e, -errno, "open '%s'", b->conf->timeline);
}

int bench_run_new(struct bench_run **ret, struct loop *l, const struct bench_conf *conf,
                  struct err *e)
{
    const struct http_client_conf http = {
        .connections_max =
            (long)(conf->command == BENCH_LOAD ? conf->concurrency : conf->in_flight_max)};
    AUTO(bench_run_free) struct bench_run *b = xcalloc(1, sizeof(*b));
    int r;

    b->loop = l;
    b->conf = conf;
    r = open_timeline(b, e);
    if (r == 0)
        r = http_client_new(&b->http, l, &http, e);
    if (r < 0)
        return r;
    b->score = score_new(clock_now_ns(), b->timeline);
    if (conf->command == BENCH_LOAD)
        start_talk(b);
    else
        r = start_replay(b, e);
    if (r < 0)
        return r;
    b->progress = timer_new(l, on_progress, b);
    timer_start_repeat(b->progress, PROGRESS_MS);
    b->limit = timer_new(l, on_limit, b);
    if (conf->duration_ms > 0)
        timer_start(b->limit, conf->duration_ms);
    *ret = TAKE(b);
    return 0;
}

struct bench_run *bench_run_free(struct bench_run *b)
{
    if (!b)
        return NULL;
    talk_free(b->talk);
    replay_free(b->replay);
    timer_free(b->progress);
    timer_free(b->limit);
    http_client_free(b->http);
    score_free(b->score);
    if (b->timeline)
        (void)fclose(b->timeline);
    if (b->trace)
        (void)fclose(b->trace);
    free(b->why);
    free(b);
    return NULL;
}

/* --- results ---------------------------------------------------------------------------------- */

static int write_json(const struct json *result, const char *path, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    FILE *f = fopen(path, "we");
    bool ok;

    if (!f)
        return err_errno(e, -errno, "open '%s'", path);
    json_print(result, &text);
    buf_put_char(&text, '\n');
    ok = fwrite(buf_data(&text), 1, text.len, f) == text.len;
    ok = fclose(f) == 0 && ok;
    return ok ? 0 : err_set(e, -EIO, "write '%s' failed", path);
}

/* Of a schedule that the server could not keep up with, or prompts that it need not see. */
static void add_replay_counts(const struct bench_run *b, struct json *result)
{
    if (!b->replay)
        return;
    (void)json_set_i64(result, "late", (int64_t)replay_late(b->replay));
    (void)json_set_i64(result, "left_out", (int64_t)replay_left_out(b->replay));
    printf("  %-20s %14" PRIu64 "\n", "sent late", replay_late(b->replay));
    printf("  %-20s %14" PRIu64 "\n", "left out", replay_left_out(b->replay));
}

int bench_run_report(struct bench_run *b, struct err *e)
{
    AUTO(json_free) struct json *result = NULL;

    score_stop(b->score, clock_now_ns());
    result = score_to_json(b->score, b->conf->label);
    score_print_table(stdout, (struct json *const[]){result}, 1);
    add_replay_counts(b, result);
    JSON_FOREACH (kind, json_get(result, "failures_by_kind")) {
        int64_t n = 0;

        (void)json_i64(kind, &n);
        printf("  failed: %-12s %14" PRId64 "\n", json_key(kind), n);
    }
    if (b->why)
        return err_set(e, -EINVAL, "'%s': %s", b->conf->file, b->why);
    if (b->timeline && (fflush(b->timeline) != 0 || ferror(b->timeline)))
        return err_set(e, -EIO, "write '%s' failed", b->conf->timeline);
    return b->conf->json ? write_json(result, b->conf->json, e) : 0;
}

static int read_result(const char *path, struct json **ret, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r = file_read(path, RESULT_MAX, &text, e);

    if (r < 0)
        return r;
    r = json_parse(ret, str_trim(buf_str(&text)), e);
    return r < 0 ? err_wrap(e, r, "'%s'", path) : 0;
}

int bench_compare(char *const *files, int n_files, struct err *e)
{
    size_t n = (size_t)n_files, i;
    AUTO(mem_free) struct json **runs = xcalloc(n, sizeof(struct json *));
    int r = 0;

    for (i = 0; i < n && r == 0; i++)
        r = read_result(files[i], &runs[i], e);
    if (r == 0)
        score_print_table(stdout, runs, n);
    for (i = 0; i < n; i++)
        json_free(runs[i]);
    return r;
}
