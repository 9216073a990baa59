/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_memory.h"
#include "lib/base/test.h"
#include "router/sync/kv_answer.h"

enum { WORKER = 7, RANK = 2 };

static void push(struct event_memory *m, struct kv_event ev)
{
    const struct kv_event *newest = event_memory_newest(m);

    ev.worker_id = WORKER;
    ev.dp_rank = RANK;
    ev.event_id = newest ? newest->event_id + 1 : 1;
    event_memory_push(m, &ev);
}

/* A block that the engine calls @hash, behind @parent (0: at the start). */
static void store(struct event_memory *m, enum kv_tier tier, uint64_t parent, uint64_t hash)
{
    const struct kv_block block = {hash, hash + 1000};

    push(m, (struct kv_event){.kind = KV_STORED,
                              .tier = tier,
                              .parent_hash = {parent != 0, parent},
                              .blocks = &block,
                              .n_blocks = 1});
}

struct held {
    uint64_t hashes[8];
    enum kv_tier tiers[8];
    size_t n;
};

static void note(void *arg, const struct kv_event *ev)
{
    struct held *h = arg;

    assert_true(ev->worker_id == WORKER && ev->dp_rank == RANK && ev->kind == KV_STORED);
    for (size_t i = 0; i < ev->n_blocks; i++) {
        assert_true(h->n < ARRAY_LEN(h->hashes));
        assert_true(ev->blocks[i].tokens_hash == ev->blocks[i].block_hash + 1000);
        h->hashes[h->n] = ev->blocks[i].block_hash;
        h->tiers[h->n++] = ev->tier;
    }
}

static struct held dump(struct event_memory *m, uint64_t newest)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(kv_event_reader_done) struct kv_event_reader reader = {0};
    const struct kv_query q = {.worker_id = WORKER};
    struct kv_answer answer;
    struct held h = {.n = 0};
    struct err e;

    event_memory_answer(m, &q, true, &out);
    EXPECT_OK(kv_answer_parse(buf_str(&out), &answer, &e), &e);
    assert_int_equal(answer.kind, KV_ANSWER_DUMP);
    assert_true(answer.newest.set && answer.newest.v == newest);
    EXPECT_OK(kv_events_parse(&reader, answer.events, note, &h, &e), &e);
    return h;
}

static void test_dump(void **state)
{
    AUTO(event_memory_free) struct event_memory *m = event_memory_new();
    const uint64_t gone = 3;
    struct held h;

    (void)state;
    assert_int_equal(dump(m, 0).n, 0);
    store(m, KV_TIER_DEVICE, 0, 1);
    store(m, KV_TIER_DEVICE, 1, 2);
    store(m, KV_TIER_DEVICE, 2, 3);
    store(m, KV_TIER_HOST, 2, 3);
    push(m, (struct kv_event){.kind = KV_REMOVED, .removed = &gone, .n_removed = 1});
    h = dump(m, 5);
    assert_int_equal(h.n, 3);
    assert_true(h.hashes[0] == 1 && h.hashes[1] == 2 && h.tiers[1] == KV_TIER_DEVICE);
    assert_true(h.hashes[2] == 3 && h.tiers[2] == KV_TIER_HOST);
    push(m, (struct kv_event){.kind = KV_CLEARED, .tier = KV_TIER_DEVICE});
    assert_int_equal(dump(m, 6).n, 1);
    push(m, (struct kv_event){.kind = KV_CLEARED, .tier = KV_TIER_HOST});
    assert_int_equal(dump(m, 7).n, 0);
}

/* What the ring remembers is told as it was. */
static void test_events(void **state)
{
    AUTO(event_memory_free) struct event_memory *m = event_memory_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    const struct kv_query q = {.worker_id = WORKER, .start = {true, 2}};
    struct kv_answer answer;
    struct err e;

    (void)state;
    for (uint64_t hash = 1; hash <= 3; hash++)
        store(m, KV_TIER_DEVICE, hash - 1, hash);
    event_memory_answer(m, &q, true, &out);
    EXPECT_OK(kv_answer_parse(buf_str(&out), &answer, &e), &e);
    assert_int_equal(answer.kind, KV_ANSWER_EVENTS);
    assert_true(answer.newest.set && answer.newest.v == 3);
}

static void note_rank(void *arg, const struct kv_event *ev)
{
    uint64_t *seen = arg;

    assert_int_equal(ev->worker_id, WORKER);
    for (size_t i = 0; i < ev->n_blocks; i++)
        seen[ev->dp_rank] = 10 * seen[ev->dp_rank] + ev->blocks[i].block_hash;
}

static void test_all_ranks_in_one(void **state)
{
    struct event_memory *ranks[3];
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(kv_event_reader_done) struct kv_event_reader reader = {0};
    struct kv_answer answer;
    uint64_t seen[ARRAY_LEN(ranks)] = {0};
    struct err e;

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(ranks); i++) {
        const struct kv_block block = {i + 1, 1000};

        ranks[i] = event_memory_new();
        if (i == 1)
            continue; /* nothing was told of it */
        event_memory_push(ranks[i], &(struct kv_event){.worker_id = WORKER,
                                                       .dp_rank = i,
                                                       .event_id = 1,
                                                       .kind = KV_STORED,
                                                       .tier = KV_TIER_DEVICE,
                                                       .blocks = &block,
                                                       .n_blocks = 1});
    }
    event_memory_dump(ranks, ARRAY_LEN(ranks), &out);
    EXPECT_OK(kv_answer_parse(buf_str(&out), &answer, &e), &e);
    assert_int_equal(answer.kind, KV_ANSWER_DUMP);
    assert_false(answer.newest.set);
    EXPECT_OK(kv_events_parse(&reader, answer.events, note_rank, seen, &e), &e);
    assert_true(seen[0] == 1 && seen[1] == 0 && seen[2] == 3);
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++)
        event_memory_free(ranks[i]);
}

int main(void)
{
    return TEST_RUN(T(test_dump), T(test_events), T(test_all_ranks_in_one));
}
