/* SPDX-License-Identifier: Apache-2.0 */
/* Block hashes, stores and lookups: CPU per block, 64 workers, prompts that share prefixes. */
#include <string.h>

#include "lib/base/bench.h"
#include "lib/base/mem.h"
#include "router/kv/block_hash.h"
#include "router/kv/prefix_index.h"

enum {
    TOKENS = 4096,
    BLOCK = 16,
    BLOCKS = TOKENS / BLOCK,
    PROMPTS = 4000,
    WORKERS = 64,
    SHARED = 200
};

static uint64_t rng_state = 1;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return rng_state;
}

static void bench_hash(void)
{
    static uint32_t tokens[TOKENS];
    static uint64_t local[BLOCKS];
    uint64_t start;
    enum { ROUNDS = 2000 };

    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint32_t)rng();
    start = bench_cpu_ns();
    for (int i = 0; i < ROUNDS; i++) {
        tokens[0] = (uint32_t)i;
        (void)block_hash_local(tokens, TOKENS, BLOCK, local);
        block_hash_sequence(local, BLOCKS, local);
    }
    bench_report("hash.block", (double)(bench_cpu_ns() - start) / ROUNDS / BLOCKS, "ns", "lower");
}

/* A tenth of the prompts begin alike up to SHARED blocks: ten starters, as in a chat service. */
static void make_prompt(struct prefix_block *blocks, uint64_t *local, uint64_t n)
{
    uint64_t starter = n % 10;

    for (size_t i = 0; i < BLOCKS; i++)
        local[i] = i < SHARED ? starter * 1000003 + i : rng();
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = (struct prefix_block){
            i == 0 ? local[0] : block_hash_next(blocks[i - 1].external, local[i]), local[i]};
}

static void bench_index(void)
{
    struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    struct prefix_block *all = xcalloc((size_t)PROMPTS * BLOCKS, sizeof(*all));
    uint64_t *local = xcalloc((size_t)PROMPTS * BLOCKS, sizeof(*local));
    uint64_t *took = xcalloc(PROMPTS, sizeof(*took)), start;
    uint32_t scores[WORKERS];
    struct prefix_stats stats;

    for (size_t i = 0; i < PROMPTS; i++)
        make_prompt(all + i * BLOCKS, local + i * BLOCKS, rng());
    start = bench_cpu_ns();
    for (size_t i = 0; i < PROMPTS; i++)
        (void)!prefix_index_store(ix, (uint32_t)(i % WORKERS), NULL, all + i * BLOCKS, BLOCKS);
    bench_report("index.store", (double)PROMPTS * BLOCKS / ((double)(bench_cpu_ns() - start) / 1e9),
                 "blocks/s", "higher");
    stats = prefix_index_stats(ix);
    bench_report("index.bytes_per_block", (double)stats.bytes / (double)stats.entries, "bytes",
                 "lower");

    for (size_t i = 0; i < PROMPTS; i++) {
        uint64_t t = bench_thread_ns();

        (void)prefix_index_match(ix, local + i * BLOCKS, BLOCKS, scores, WORKERS);
        took[i] = bench_thread_ns() - t;
    }
    bench_report("index.match", (double)bench_percentile(took, PROMPTS, 0.5) / 1e3,
                 "us p50, 256 blocks", "lower");
    bench_report("index.match_p99", (double)bench_percentile(took, PROMPTS, 0.99) / 1e3, "us",
                 "lower");

    start = bench_cpu_ns();
    for (uint32_t w = 0; w < WORKERS; w++)
        prefix_index_clear(ix, w);
    bench_report("index.clear", (double)stats.entries / ((double)(bench_cpu_ns() - start) / 1e9),
                 "blocks/s", "higher");
    prefix_index_free(ix);
    free(all);
    free(local);
    free(took);
}

int main(void)
{
    bench_hash();
    bench_index();
    return 0;
}
