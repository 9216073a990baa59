/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/score.h"

#include <inttypes.h>

#include "lib/base/json_tree.h"

struct score *score_new(uint64_t now_ns, FILE *timeline)
{
    struct score *s = xcalloc(1, sizeof(*s));

    s->start_ns = s->end_ns = now_ns;
    s->timeline = timeline;
    return s;
}

struct score *score_free(struct score *s)
{
    free(s);
    return NULL;
}

/* --- adding ----------------------------------------------------------------------------------- */

static double ms_since(const struct score *s, uint64_t ns)
{
    return ns > s->start_ns ? (double)(ns - s->start_ns) / 1e6 : 0;
}

static void put_timeline(const struct score *s, const struct load_result *r)
{
    uint64_t wall_ms = clock_wall_ms() - (clock_now_ns() - r->start_ns) / 1000000;

    (void)fprintf(
        s->timeline,
        "{\"start_ms\":%.3f,\"ttft_ms\":%.3f,\"end_ms\":%.3f,\"wall_ms\":%" PRIu64
        ",\"outcome\":\"%s\",\"status\":%d,\"prompt_tokens\":%" PRIu64 ",\"cached_tokens\":%" PRIu64
        ",\"output_tokens\":%" PRIu64 ",\"worker\":%" PRIu64 "}\n",
        ms_since(s, r->start_ns), r->first_ns ? (double)(r->first_ns - r->start_ns) / 1e6 : -1,
        ms_since(s, r->end_ns), wall_ms, load_outcome_name(r->outcome), r->status,
        r->usage.prompt_tokens, r->usage.cached_tokens, r->usage.completion_tokens, r->worker);
}

static void add_usage(struct score *s, const struct chat_usage *u)
{
    if (!u->known)
        return;
    s->prompt_tokens += u->prompt_tokens;
    s->cached_tokens += u->cached_tokens;
    if (s->n_usage++ < SCORE_FIRST) {
        s->first_prompt_tokens += u->prompt_tokens;
        s->first_cached_tokens += u->cached_tokens;
    }
}

void score_add(struct score *s, const struct load_result *r)
{
    uint64_t tokens = r->usage.known ? r->usage.completion_tokens : r->n_chunks;

    s->n_requests++;
    s->by_outcome[r->outcome]++;
    s->end_ns = MAX(s->end_ns, r->end_ns);
    s->output_tokens += tokens;
    add_usage(s, &r->usage);
    if (s->timeline)
        put_timeline(s, r);
    if (r->outcome != LOAD_OK)
        return;
    latency_add(&s->e2e, r->end_ns - r->start_ns);
    if (r->first_ns)
        latency_add(&s->ttft, r->first_ns - r->start_ns);
    if (r->first_ns && tokens > 1)
        latency_add(&s->tpot, (r->end_ns - r->first_ns) / (tokens - 1));
}

void score_stop(struct score *s, uint64_t now_ns)
{
    s->end_ns = MAX(s->end_ns, now_ns);
}

uint64_t score_failures(const struct score *s)
{
    return s->n_requests - s->by_outcome[LOAD_OK];
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : -1;
}

double score_hit_rate(const struct score *s)
{
    return share(s->cached_tokens, s->prompt_tokens);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void set_f64(struct json *o, const char *key, double v)
{
    (void)json_set(o, key, json_new_f64(v));
}

static void set_share(struct json *o, const char *key, double v)
{
    (void)json_set(o, key, v < 0 ? json_new_null() : json_new_f64(v));
}

static void set_latency(struct json *o, const char *key, const struct latency *l)
{
    struct json *d = json_set(o, key, json_new_object());

    set_f64(d, "p50", latency_quantile_ms(l, .5));
    set_f64(d, "p90", latency_quantile_ms(l, .9));
    set_f64(d, "p95", latency_quantile_ms(l, .95));
    set_f64(d, "p99", latency_quantile_ms(l, .99));
    set_f64(d, "mean", latency_mean_ms(l));
    set_f64(d, "max", (double)l->max_ns / 1e6);
}

struct json *score_to_json(const struct score *s, const char *label)
{
    struct json *o = json_new_object(), *kinds;
    double seconds = (double)(s->end_ns - s->start_ns) / 1e9;

    (void)json_set_cstr(o, "label", label ? label : "");
    (void)json_set_i64(o, "requests", (int64_t)s->n_requests);
    (void)json_set_i64(o, "failures", (int64_t)score_failures(s));
    kinds = json_set(o, "failures_by_kind", json_new_object());
    for (int i = LOAD_OK + 1; i < LOAD_OUTCOMES; i++)
        if (s->by_outcome[i])
            (void)json_set_i64(kinds, load_outcome_name((enum load_outcome)i),
                               (int64_t)s->by_outcome[i]);
    set_f64(o, "duration_s", seconds);
    set_latency(o, "ttft_ms", &s->ttft);
    set_latency(o, "itl_ms", &s->gaps);
    set_latency(o, "tpot_ms", &s->tpot);
    set_latency(o, "e2e_ms", &s->e2e);
    set_share(o, "hit_rate", score_hit_rate(s));
    set_share(o, "first_requests_hit_rate", share(s->first_cached_tokens, s->first_prompt_tokens));
    (void)json_set_i64(o, "prompt_tokens", (int64_t)s->prompt_tokens);
    (void)json_set_i64(o, "cached_tokens", (int64_t)s->cached_tokens);
    (void)json_set_i64(o, "output_tokens", (int64_t)s->output_tokens);
    set_f64(o, "output_tokens_per_s", seconds > 0 ? (double)s->output_tokens / seconds : 0);
    set_f64(o, "requests_per_s", seconds > 0 ? (double)s->n_requests / seconds : 0);
    return o;
}

/* --- table ------------------------------------------------------------------------------------ */

static const struct row {
    const char *title, *key, *inner;
    int digits;
    double scale;
} ROWS[] = {
    {"requests", "requests", NULL, 0, 1},
    {"failures", "failures", NULL, 0, 1},
    {"TTFT p50 (ms)", "ttft_ms", "p50", 1, 1},
    {"TTFT p95 (ms)", "ttft_ms", "p95", 1, 1},
    {"TTFT p99 (ms)", "ttft_ms", "p99", 1, 1},
    {"TTFT mean (ms)", "ttft_ms", "mean", 1, 1},
    {"ITL p50 (ms)", "itl_ms", "p50", 2, 1},
    {"ITL p95 (ms)", "itl_ms", "p95", 2, 1},
    {"E2E p50 (ms)", "e2e_ms", "p50", 0, 1},
    {"E2E p95 (ms)", "e2e_ms", "p95", 0, 1},
    {"cache hit rate (%)", "hit_rate", NULL, 1, 100},
    {"  first 100 (%)", "first_requests_hit_rate", NULL, 1, 100},
    {"output tokens/s", "output_tokens_per_s", NULL, 0, 1},
    {"requests/s", "requests_per_s", NULL, 2, 1},
    {"duration (s)", "duration_s", NULL, 1, 1},
};

static bool value_of(const struct json *run, const struct row *row, double *ret)
{
    const struct json *v = json_get(run, row->key);

    return json_f64(row->inner ? json_get(v, row->inner) : v, ret);
}

static void print_row(FILE *out, const struct row *row, struct json *const *runs, size_t n_runs)
{
    double v[2] = {0};
    bool known = true;

    (void)fprintf(out, "  %-20s", row->title);
    for (size_t i = 0; i < n_runs; i++) {
        char cell[32] = "-";
        double x;

        if (value_of(runs[i], row, &x)) {
            (void)snprintf(cell, sizeof(cell), "%.*f", row->digits, x * row->scale);
            v[MIN(i, 1u)] = x;
        } else {
            known = false;
        }
        (void)fprintf(out, " %14s", cell);
    }
    if (n_runs == 2 && known && v[0] > 0)
        (void)fprintf(out, " %+11.1f%%", (v[1] / v[0] - 1) * 100);
    (void)fputc('\n', out);
}

void score_print_table(FILE *out, struct json *const *runs, size_t n_runs)
{
    (void)fprintf(out, "  %-20s", "");
    for (size_t i = 0; i < n_runs; i++) {
        const char *label = json_get_cstr(runs[i], "label");

        (void)fprintf(out, " %14.14s", label && *label ? label : "run");
    }
    (void)fprintf(out, "%s\n", n_runs == 2 ? "   difference" : "");
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        print_row(out, &ROWS[i], runs, n_runs);
}
