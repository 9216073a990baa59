/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small events with lookups going on, on one core (router/sync/kv_intake_bench takes them from the
 * wire); and a restart with 2.3 million blocks, in CPU time:
 * it is one thread, and the file is in memory.
 *
 *     restart_bench FOLDER        where the image is put; the current one by default
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bench.h"
#include "router/kv/index_image.h"
#include "router/kv/prefix_index.h"
#include "router/sync/index_file.h"

enum {
    EVENTS = 100000,
    EVENT_BLOCKS = 8,
    LOOKUP_EVERY = 10, /* events */
    PROMPT_BLOCKS = 256,
    WORKERS = 64,
    HELD = 190,   /* prompts of each worker: 2.3 million blocks */
    SINCE = 1000, /* events of each worker since the image */
};

/* Block @i of a prompt; a quarter of it is the same in all. */
static struct prefix_block block_of(uint64_t prompt, uint64_t i)
{
    uint64_t n = i < PROMPT_BLOCKS / 4 ? i : prompt * PROMPT_BLOCKS + i;

    return (struct prefix_block){(n + 1) * UINT64_C(0x9E3779B97F4A7C15),
                                 (n + 1) * UINT64_C(0xD6E8FEB86659FD93)};
}

/* One event of 8 blocks that go on where the prompt's last one ended. */
static void store_part(struct prefix_index *ix, uint32_t worker, uint64_t prompt, uint64_t from)
{
    struct prefix_block blocks[EVENT_BLOCKS];
    uint64_t parent = from ? block_of(prompt, from - 1).external : 0;

    for (uint64_t i = 0; i < EVENT_BLOCKS; i++)
        blocks[i] = block_of(prompt, from + i);
    if (prefix_index_store(ix, worker, from ? &parent : NULL, blocks, EVENT_BLOCKS) != 0)
        abort();
}

static void look_up(struct prefix_index *ix, uint64_t prompt)
{
    uint64_t local[PROMPT_BLOCKS];
    uint32_t scores[WORKERS];

    for (uint64_t i = 0; i < PROMPT_BLOCKS; i++)
        local[i] = block_of(prompt, i).local;
    (void)prefix_index_match(ix, local, PROMPT_BLOCKS, scores, WORKERS);
}

static void events_with_lookups(void)
{
    struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    const uint64_t of_prompt = PROMPT_BLOCKS / EVENT_BLOCKS;
    uint64_t start = bench_cpu_ns();

    for (uint64_t i = 0; i < EVENTS; i++) {
        uint64_t prompt = i / of_prompt;

        store_part(ix, (uint32_t)(prompt % WORKERS), prompt, i % of_prompt * EVENT_BLOCKS);
        if (i % LOOKUP_EVERY == 0)
            look_up(ix, prompt);
    }
    bench_report("index.events_per_s", EVENTS / ((double)(bench_cpu_ns() - start) / 1e9),
                 "events/CPU s", "higher");
    prefix_index_free(ix);
}

static void keep(struct prefix_index *ix, const char *path)
{
    const struct index_image_head head = {1, 16, STR("bench")};
    struct index_image_worker workers[WORKERS];
    const atomic_bool stop = false;
    struct index_draft d;
    struct err e;

    for (uint32_t w = 0; w < WORKERS; w++)
        workers[w] = (struct index_image_worker){.worker_id = w, .slot = w};
    if (index_draft_begin(&d, path, &head, &e) < 0 || index_draft_nodes(&d, ix, &stop, &e) < 0 ||
        index_draft_end(&d, workers, WORKERS, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    index_draft_done(&d);
}

static struct prefix_index *restored(const char *path)
{
    struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    uint32_t *slots = xcalloc(WORKER_SLOTS_MAX, sizeof(*slots));
    struct index_file f;
    struct err e;

    for (uint32_t i = 0; i < WORKER_SLOTS_MAX; i++)
        slots[i] = i;
    if (index_file_open(&f, path, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    if (index_image_restore(&f.image, ix, slots) < 0)
        abort();
    index_file_close(&f);
    free(slots);
    return ix;
}

/* Serving: the image is in the index. Complete: so is what each worker told of since. */
static void restart(const char *folder)
{
    struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    char *path = xasprintf("%s/restart_bench.index", folder);
    uint64_t prompt = 0, start;
    size_t n;

    for (; prompt < (uint64_t)WORKERS * HELD; prompt++)
        for (uint64_t from = 0; from < PROMPT_BLOCKS; from += EVENT_BLOCKS)
            store_part(ix, (uint32_t)(prompt % WORKERS), prompt, from);
    keep(ix, path);
    n = prefix_index_stats(ix).entries;
    prefix_index_free(ix);

    start = bench_cpu_ns();
    ix = restored(path);
    look_up(ix, 0);
    bench_report("index.restart_serving_s", (double)(bench_cpu_ns() - start) / 1e9, "CPU s",
                 "lower");
    if (prefix_index_stats(ix).entries != n)
        abort();
    for (uint64_t i = 0; i < (uint64_t)WORKERS * SINCE; i++) {
        uint64_t at = i % (PROMPT_BLOCKS / EVENT_BLOCKS);

        store_part(ix, (uint32_t)(prompt % WORKERS), prompt, at * EVENT_BLOCKS);
        prompt += at + 1 == PROMPT_BLOCKS / EVENT_BLOCKS;
    }
    bench_report("index.restart_complete_s", (double)(bench_cpu_ns() - start) / 1e9, "CPU s",
                 "lower");
    bench_report("index.restart_blocks", (double)n, "blocks", "higher");
    prefix_index_free(ix);
    (void)unlink(path);
    free(path);
}

int main(int argc, char **argv)
{
    events_with_lookups();
    restart(argc > 1 ? argv[1] : ".");
    return 0;
}
