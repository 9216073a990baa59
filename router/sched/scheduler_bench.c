/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole decision, hash to booking, for a 4,096-token prompt of 16-token blocks: 8, 64 and 1,000
 * workers of which each holds some starters, with 4 requests running on each; policy dynamo, and
 * every other way to choose among 1,000.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bench.h"
#include "router/kv/block_hash.h"
#include "router/sched/sched_test.h"
#include "router/sched/decision_replay.h"
#include "router/sched/decision_ring.h"
#include "router/sched/scheduler.h"
#include "router/sched/sequences.h"

enum {
    TOKENS = 4096,
    BLOCK = 16,
    BLOCKS = TOKENS / BLOCK,
    STARTERS = 10,
    DECISIONS = 2000,
    RUNNING = 4,
    RECORDS = 4096,
};

static void make_tokens(uint32_t *tokens, uint32_t starter, uint32_t own)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i < 3500 ? starter * 100000 + i : own * 7919 + i;
}

static struct booking *decide(struct scheduler *s, const uint32_t *tokens, uint64_t random,
                              struct route_decision *d)
{
    static uint64_t local[BLOCKS], sequence[BLOCKS];
    struct booking *b = NULL;
    struct route_request q = {.local = local,
                              .sequence = sequence,
                              .isl = TOKENS,
                              .overlap_weight = NAN,
                              .temperature = NAN,
                              .random = random};

    q.n_blocks = block_hash_prompt(BLOCK_HASH_SEED, tokens, TOKENS, BLOCK, local, sequence);
    if (scheduler_route(s, &q, d, &b) != 0)
        abort();
    return b;
}

static void warm(struct scheduler *s, uint64_t worker, uint32_t starter)
{
    uint32_t tokens[TOKENS];
    uint64_t local[BLOCKS], sequence[BLOCKS];
    struct prefix_block blocks[BLOCKS];

    make_tokens(tokens, starter, (uint32_t)worker);
    (void)block_hash_prompt(BLOCK_HASH_SEED, tokens, TOKENS, BLOCK, local, sequence);
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = (struct prefix_block){sequence[i], local[i]};
    if (scheduler_store(s, (struct worker_rank){worker, 0}, NULL, blocks, BLOCKS) != 0)
        abort();
}

/* What remembering adds to a decision, and what one shadow policy adds to that; ns. */
static uint64_t record(struct decision_ring *ring, const struct route_decision *d,
                       struct route_score *scratch, uint64_t *ret_shadow)
{
    static const struct route_request q = {.id = STR("7d7ba1fd-5773-4a0c-9041-998786342396")};
    static const struct decision_context context = {STR("example"), "decode", 1, 0, 0};
    uint64_t start = bench_thread_ns(), done;
    struct decision_record *rec = decision_ring_add(ring);

    decision_record_fill(rec, &q, d, 0, &context);
    decision_ring_added(ring);
    done = bench_thread_ns();
    (void)decision_shadow(rec, d, &POLICY_LEAST_LOADED, scratch);
    *ret_shadow = bench_thread_ns() - done;
    return done - start;
}

static void report(const char *prefix, const char *what, uint64_t n_workers, uint64_t *took,
                   double share)
{
    char name[80];

    (void)snprintf(name, sizeof(name), "%s.%s_us_%" PRIu64 "_workers", prefix, what, n_workers);
    bench_report(name, (double)bench_percentile(took, DECISIONS, share) / 1e3, "us", "lower");
}

/* A fleet in which rates were learned and @n_running requests run. */
static struct scheduler *make_fleet(const struct route_conf *conf, uint64_t n_workers,
                                    struct booking **running, size_t n_running,
                                    struct route_decision *d)
{
    struct scheduler *s = scheduler_new(BLOCK, conf);
    uint32_t tokens[TOKENS];

    for (uint64_t w = 1; w <= n_workers; w++) {
        (void)scheduler_put_worker(
            s, &(struct worker_info){.worker_id = w, .dp_size = 1, .max_num_seqs = 16});
        warm(s, w, (uint32_t)(w % STARTERS));
        warm(s, w, (uint32_t)(w * 7 % STARTERS));
    }
    for (size_t i = 0; i < n_running; i++) {
        make_tokens(tokens, (uint32_t)(i % STARTERS), (uint32_t)i);
        running[i] = decide(s, tokens, i << 40, d);
        booking_first_token(running[i], (i % 7 + 1) * 10000000);
    }
    return s;
}

/* @policy as in the configuration, or the name of a mode. */
static void bench(uint64_t n_workers, const char *policy, const char *prefix)
{
    struct route_conf conf = ROUTE_CONF_KV;
    struct route_decision d = {0};
    size_t n_running = (size_t)n_workers * RUNNING;
    struct booking **running = xcalloc(n_running, sizeof(struct booking *));
    struct scheduler *s;
    uint64_t took[DECISIONS], recorded[DECISIONS], shadowed[DECISIONS];
    uint32_t tokens[TOKENS];
    struct decision_ring *ring = decision_ring_new(RECORDS);
    struct route_score *scratch = xcalloc(n_workers, sizeof(*scratch));

    for (int i = 0; ROUTE_MODE_WORDS[i]; i++)
        if (strcmp(ROUTE_MODE_WORDS[i], policy) == 0)
            conf.mode = i;
    for (int i = 0; ROUTE_POLICY_WORDS[i]; i++)
        if (strcmp(ROUTE_POLICY_WORDS[i], policy) == 0)
            conf.policy = i;
    s = make_fleet(&conf, n_workers, running, n_running, &d);
    for (size_t i = 0; i < RECORDS; i++) /* the steady state: every page has been touched */
        (void)record(ring, &d, scratch, &shadowed[0]);
    for (size_t i = 0; i < DECISIONS; i++) {
        uint64_t start;
        struct booking *b;

        make_tokens(tokens, (uint32_t)(i % STARTERS), (uint32_t)(i + n_running));
        start = bench_thread_ns();
        b = decide(s, tokens, i << 40, &d);
        took[i] = bench_thread_ns() - start;
        recorded[i] = record(ring, &d, scratch, &shadowed[i]);
        (void)booking_end(running[i % n_running], 1000000000, true);
        running[i % n_running] = b;
    }
    report(prefix, "p99", n_workers, took, 0.99);
    report(prefix, "p50", n_workers, took, 0.5);
    report(prefix, "record_p50", n_workers, recorded, 0.5);
    report(prefix, "shadow_p50", n_workers, shadowed, 0.5);
    for (size_t i = 0; i < n_running; i++)
        (void)booking_end(running[i], 0, true);
    free(running);
    free(scratch);
    decision_ring_free(ring);
    route_decision_done(&d);
    scheduler_free(s);
}

int main(void)
{
    bench(8, "dynamo", "decision");
    bench(64, "dynamo", "decision");
    bench(1000, "dynamo", "decision");
    bench(1000, "dynamo-1.x", "decision.dynamo_1");
    bench(1000, "marginal", "decision.marginal");
    bench(1000, "round-robin", "decision.round_robin");
    bench(1000, "power-of-two", "decision.power_of_two");
    bench(1000, "least-loaded", "decision.least_loaded");
    return 0;
}
