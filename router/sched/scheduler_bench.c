/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole decision, hash to booking, for a 4,096-token prompt of 16-token blocks: 8, 64 and 1,000
 * workers of which each holds some starters, with 4 requests running on each.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "lib/base/bench.h"
#include "router/kv/block_hash.h"
#include "router/sched/scheduler.h"
#include "router/sched/sequences.h"

enum {
    TOKENS = 4096,
    BLOCK = 16,
    BLOCKS = TOKENS / BLOCK,
    STARTERS = 10,
    DECISIONS = 2000,
    RUNNING = 4
};

static const struct route_conf CONF = {
    .mode = ROUTE_KV,
    .overlap_weight = 1,
    .use_kv_events = true,
    .ttl_ms = 1000,
    .max_tree_size = 1,
    .prune_target_ratio = 0.8,
    .track_active_blocks = true,
    .assume_kv_reuse = true,
    .busy_decode_blocks = NAN,
    .busy_prefill_tokens = NAN,
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

    q.n_blocks = block_hash_local(tokens, TOKENS, BLOCK, local);
    block_hash_sequence(local, q.n_blocks, sequence);
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
    (void)block_hash_local(tokens, TOKENS, BLOCK, local);
    block_hash_sequence(local, BLOCKS, sequence);
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = (struct prefix_block){sequence[i], local[i]};
    if (scheduler_store(s, (struct worker_rank){worker, 0}, NULL, blocks, BLOCKS) != 0)
        abort();
}

static void bench(uint64_t n_workers)
{
    struct scheduler *s = scheduler_new(BLOCK, &CONF);
    struct route_decision d = {0};
    size_t n_running = (size_t)n_workers * RUNNING;
    struct booking **running = xcalloc(n_running, sizeof(struct booking *));
    uint64_t took[DECISIONS];
    uint32_t tokens[TOKENS];
    char name[48];

    for (uint64_t w = 1; w <= n_workers; w++) {
        (void)scheduler_put_worker(s, &(struct worker_info){.worker_id = w, .dp_size = 1});
        warm(s, w, (uint32_t)(w % STARTERS));
        warm(s, w, (uint32_t)(w * 7 % STARTERS));
    }
    for (size_t i = 0; i < n_running; i++) {
        make_tokens(tokens, (uint32_t)(i % STARTERS), (uint32_t)i);
        running[i] = decide(s, tokens, i << 40, &d);
    }
    for (size_t i = 0; i < DECISIONS; i++) {
        uint64_t start;
        struct booking *b;

        make_tokens(tokens, (uint32_t)(i % STARTERS), (uint32_t)(i + n_running));
        start = bench_thread_ns();
        b = decide(s, tokens, i << 40, &d);
        took[i] = bench_thread_ns() - start;
        (void)booking_release(running[i % n_running]);
        running[i % n_running] = b;
    }
    (void)snprintf(name, sizeof(name), "decision.p99_us_%" PRIu64 "_workers", n_workers);
    bench_report(name, (double)bench_percentile(took, DECISIONS, 0.99) / 1e3, "us", "lower");
    (void)snprintf(name, sizeof(name), "decision.p50_us_%" PRIu64 "_workers", n_workers);
    bench_report(name, (double)bench_percentile(took, DECISIONS, 0.5) / 1e3, "us", "lower");
    for (size_t i = 0; i < n_running; i++)
        (void)booking_release(running[i]);
    free(running);
    route_decision_done(&d);
    scheduler_free(s);
}

int main(void)
{
    bench(8);
    bench(64);
    bench(1000);
    return 0;
}
