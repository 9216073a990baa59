/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events as they come from the wire, envelope and all, into index and signal health: 64 workers,
 * 8 blocks an event, every fourth removes eight, while prompts of 256 blocks are looked up, one per
 * 100 events.
 */
#include "router/sync/kv_intake.h"

#include <math.h>
#include <string.h>

#include "lib/base/bench.h"
#include "lib/base/log.h"
#include "router/sched/sched_test.h"
#include "router/sched/scheduler.h"
#include "router/wire/kv_event.h"

enum {
    WORKERS = 64,
    BLOCKS = 8,
    CHAIN = 32, /* events that extend one prompt */
    BATCH = 10000,
    BATCHES = 30,
    EVENTS_PER_LOOKUP = 100,
    PROMPT = BLOCKS * CHAIN,
};

/* What one worker has told so far. */
struct teller {
    uint64_t next_id, stored, removed; /* events */
};

static uint64_t local_of(uint64_t stored, size_t i)
{
    /* Every worker has the same prompts: their blocks meet in the index. */
    return (stored / CHAIN << 20 | (stored % CHAIN * BLOCKS + i)) * UINT64_C(0x9E3779B97F4A7C15);
}

static uint64_t name_of(uint64_t worker, uint64_t stored, size_t i)
{
    return local_of(stored, i) ^ worker * UINT64_C(0xD6E8FEB86659FD93);
}

static void put_event(struct buf *out, struct teller *t, uint64_t worker)
{
    AUTO(buf_done) struct buf payload = BUF_NULL;
    struct kv_block blocks[BLOCKS];
    uint64_t gone[BLOCKS];
    struct kv_event ev = {.worker_id = worker, .event_id = t->next_id++};

    if (ev.event_id % 4 == 3 &&
        t->stored >= t->removed + CHAIN) { /* the oldest prompt, backwards */
        uint64_t chain = t->removed / CHAIN * CHAIN, at = CHAIN - 1 - t->removed % CHAIN;

        for (size_t i = 0; i < BLOCKS; i++)
            gone[i] = name_of(worker, chain + at, BLOCKS - 1 - i);
        t->removed++;
        ev.kind = KV_REMOVED;
        ev.removed = gone;
        ev.n_removed = BLOCKS;
    } else {
        for (size_t i = 0; i < BLOCKS; i++)
            blocks[i] = (struct kv_block){name_of(worker, t->stored, i), local_of(t->stored, i)};
        ev.kind = KV_STORED;
        ev.blocks = blocks;
        ev.n_blocks = BLOCKS;
        if (t->stored % CHAIN)
            ev.parent_hash = OPT_U64(name_of(worker, t->stored - 1, BLOCKS - 1));
        t->stored++;
    }
    kv_event_put(&payload, &ev);
    event_envelope_put(out, &(struct event_envelope){.publisher_id = worker,
                                                     .sequence = ev.event_id,
                                                     .published_at = 1 + ev.event_id,
                                                     .topic = STR("kv-events"),
                                                     .payload = buf_str(&payload)});
}

struct hearing {
    struct kv_intake *k;
    uint64_t sent_ms;
};

static void on_event(void *arg, const struct kv_event *ev)
{
    const struct hearing *h = arg;

    kv_intake_event(h->k, ev, h->sent_ms);
}

static void hear(struct kv_intake *k, struct kv_event_reader *reader, struct str message)
{
    struct event_envelope envelope;
    struct hearing h = {.k = k};
    struct err e;

    if (event_envelope_decode(message, &envelope, &e) < 0)
        abort();
    h.sent_ms = envelope.published_at;
    if (kv_events_decode(reader, envelope.payload, on_event, &h, &e) < 0)
        abort();
}

static void look_up(struct scheduler *s, uint64_t prompt, struct route_decision *d)
{
    static uint64_t local[PROMPT];
    struct route_request q = {.local = local,
                              .sequence = local,
                              .n_blocks = PROMPT,
                              .isl = PROMPT * 16,
                              .overlap_weight = NAN,
                              .temperature = NAN,
                              .query_only = true};
    struct booking *none;

    for (size_t i = 0; i < PROMPT; i++)
        local[i] = local_of(prompt * CHAIN + i / BLOCKS, i % BLOCKS);
    if (scheduler_route(s, &q, d, &none) != 0)
        abort();
}

/* ns for the batch. */
static uint64_t run_batch(struct scheduler *s, struct kv_intake *k, struct teller *tellers)
{
    static struct buf messages[BATCH];
    AUTO(kv_event_reader_done) struct kv_event_reader reader = {0};
    AUTO(route_decision_done) struct route_decision d = {0};
    uint64_t start;

    for (size_t i = 0; i < BATCH; i++) {
        buf_clear(&messages[i]);
        put_event(&messages[i], &tellers[i % WORKERS], 1 + i % WORKERS);
    }
    start = bench_cpu_ns();
    for (size_t i = 0; i < BATCH; i++) {
        hear(k, &reader, buf_str(&messages[i]));
        if (i % EVENTS_PER_LOOKUP == 0)
            look_up(s, tellers[0].stored / CHAIN - i % 2, &d);
    }
    return bench_cpu_ns() - start;
}

int main(void)
{
    struct kv_intake_conf conf = {.ns = "n", .component = "c", .endpoint = "generate"};
    struct teller tellers[WORKERS] = {{0}};
    struct kv_intake *k;
    uint64_t took = 0, blocks = 0;
    struct err e;

    (void)!log_setup("off", false, NULL);
    conf.scheduler = scheduler_new(16, &ROUTE_CONF_KV);
    conf.metrics = metric_registry_new();
    if (loop_new(&conf.loop, &e) < 0 || kv_intake_start(&k, &conf, &e) < 0)
        return 1;
    for (uint64_t w = 1; w <= WORKERS; w++)
        (void)scheduler_put_worker(conf.scheduler,
                                   &(struct worker_info){.worker_id = w, .dp_size = 1});
    for (size_t i = 0; i < BATCHES; i++)
        took += run_batch(conf.scheduler, k, tellers);
    for (size_t w = 0; w < WORKERS; w++)
        blocks += (tellers[w].stored - tellers[w].removed) * BLOCKS;
    /* Whatever came was taken. */
    if (scheduler_index_stats(conf.scheduler).orphans ||
        scheduler_index_stats(conf.scheduler).entries != blocks)
        return 1;
    bench_report("events.per_s_one_core", (double)BATCH * BATCHES / ((double)took / 1e9),
                 "events/s", "higher");
    return 0;
}
