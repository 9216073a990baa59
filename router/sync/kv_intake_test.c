/* SPDX-License-Identifier: Apache-2.0 */
/* Includes the file under test: messages are handed to its subscription callback without a server.
 */
#include "router/sync/kv_intake.c"

#include "lib/base/test.h"

#include <math.h>

static const struct route_conf KV = {
    .mode = ROUTE_KV,
    .overlap_weight = 1,
    .use_kv_events = true,
    .ttl_ms = 1000,
    .max_tree_size = 100,
    .prune_target_ratio = 0.8,
    .track_active_blocks = true,
    .assume_kv_reuse = true,
    .busy_decode_blocks = NAN,
    .busy_prefill_tokens = NAN,
};
enum { WORKER = 7 };

struct bench {
    struct metric_registry *metrics;
    struct scheduler *scheduler;
    struct kv_intake *k;
    size_t gaps;
};

static void on_gap(void *arg, uint64_t worker_id, uint32_t dp_rank)
{
    struct bench *b = arg;

    assert_int_equal(worker_id, WORKER);
    (void)dp_rank;
    b->gaps++;
}

static int setup(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));

    b->metrics = metric_registry_new();
    b->scheduler = scheduler_new(4, &KV);
    assert_true(scheduler_put_worker(b->scheduler,
                                     &(struct worker_info){.worker_id = WORKER, .dp_size = 1}));
    b->k = xcalloc(1, sizeof(*b->k));
    b->k->conf = (struct kv_intake_conf){.scheduler = b->scheduler,
                                         .metrics = b->metrics,
                                         .ns = "n",
                                         .component = "c",
                                         .gap = on_gap,
                                         .arg = b};
    init_metrics(b->k);
    assert_int_equal(log_setup("off", false, NULL), 0);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    kv_intake_free(b->k);
    scheduler_free(b->scheduler);
    metric_registry_free(b->metrics);
    free(b);
    return 0;
}

static void put_message(struct buf *out, const struct kv_event *ev)
{
    AUTO(buf_done) struct buf payload = BUF_NULL;

    kv_event_put(&payload, ev);
    event_envelope_put(out, &(struct event_envelope){.publisher_id = WORKER,
                                                     .topic = STR("kv-events"),
                                                     .payload = buf_str(&payload)});
}

static void deliver(struct bench *b, const struct kv_event *ev)
{
    AUTO(buf_done) struct buf message = BUF_NULL;

    put_message(&message, ev);
    on_kv_events(b->k, STR("subject"), buf_str(&message));
}

static struct kv_event stored(uint64_t id, const uint64_t *parent, const struct kv_block *blocks,
                              size_t n)
{
    struct kv_event ev = {
        .worker_id = WORKER, .event_id = id, .kind = KV_STORED, .blocks = blocks, .n_blocks = n};

    if (parent)
        ev.parent_hash = OPT_U64(*parent);
    return ev;
}

static size_t held(struct bench *b)
{
    return scheduler_index_stats(b->scheduler).entries;
}

static const struct kv_block AB[] = {{1, 10}, {2, 20}};
static const struct kv_block C[] = {{3, 30}};

static void events_build_the_index(void **state)
{
    struct bench *b = *state;
    uint64_t parent = 2, gone[] = {3};
    struct kv_event ev = stored(0, NULL, AB, 2);

    deliver(b, &ev);
    ev = stored(1, &parent, C, 1);
    deliver(b, &ev);
    assert_int_equal(held(b), 3);
    ev = (struct kv_event){
        .worker_id = WORKER, .event_id = 2, .kind = KV_REMOVED, .removed = gone, .n_removed = 1};
    deliver(b, &ev);
    assert_int_equal(held(b), 2);
    ev = (struct kv_event){.worker_id = WORKER, .event_id = 3, .kind = KV_CLEARED};
    deliver(b, &ev);
    assert_int_equal(held(b), 0);
    assert_int_equal(b->gaps, 0);
}

static void duplicates_and_late_events_are_harmless(void **state)
{
    struct bench *b = *state;
    struct kv_event ev = stored(5, NULL, AB, 2), late = stored(4, NULL, C, 1);

    for (int i = 0; i < 3; i++)
        deliver(b, &ev);
    assert_int_equal(held(b), 2);
    deliver(b, &late);
    assert_int_equal(held(b), 3);
    assert_int_equal(b->gaps, 0);
    ev = stored(6, NULL, AB, 2); /* follows 5, not 4 */
    deliver(b, &ev);
    assert_int_equal(b->gaps, 0);
}

static void a_gap_and_an_orphan_ask_for_recovery(void **state)
{
    struct bench *b = *state;
    uint64_t unknown = 99;
    struct kv_event ev = stored(0, NULL, AB, 2);

    deliver(b, &ev);
    ev = stored(5, NULL, C, 1);
    deliver(b, &ev);
    assert_int_equal(b->gaps, 1);
    assert_int_equal(held(b), 3);
    ev = stored(6, &unknown, C, 1);
    deliver(b, &ev);
    assert_int_equal(b->gaps, 2);
    assert_int_equal(held(b), 3);
    assert_true(metric_value(b->k->applied[KV_STORED][PARENT_NOT_FOUND]) == 1);
}

static void a_restarted_engine_starts_empty(void **state)
{
    struct bench *b = *state;
    struct kv_event ev = stored(0, NULL, AB, 2);

    deliver(b, &ev);
    ev = stored(9, NULL, C, 1);
    deliver(b, &ev);
    ev = stored(0, NULL, C, 1);
    deliver(b, &ev);
    assert_int_equal(held(b), 1);
}

static void other_tiers_are_not_indexed(void **state)
{
    struct bench *b = *state;
    struct kv_event ev = stored(0, NULL, AB, 2);
    AUTO(buf_done) struct buf json = BUF_NULL;

    (void)ev;
    buf_put_cstr(
        &json,
        "[{\"worker_id\":7,\"storage_tier\":\"host_pinned\",\"event\":{\"event_id\":0,\"data\":"
        "{\"stored\":{\"parent_hash\":null,\"blocks\":[{\"block_hash\":1,\"tokens_hash\":2}]}}}}]");
    EXPECT_OK(kv_intake_apply_dump(b->k, buf_str(&json), &(struct err){""}), &(struct err){"dump"});
    assert_int_equal(held(b), 0);
    assert_true(metric_value(b->k->other_tier) == 1);
}

static void a_dump_fills_the_index(void **state)
{
    struct bench *b = *state;
    struct err e;

    EXPECT_OK(kv_intake_apply_dump(
                  b->k,
                  STR("{\"TreeDump\":[{\"worker_id\":7,\"event\":{\"event_id\":0,\"data\":{"
                      "\"stored\":{\"parent_hash\":null,"
                      "\"blocks\":[{\"block_hash\":1,\"tokens_hash\":10}]}},\"dp_rank\":0}},"
                      "{\"worker_id\":7,\"event\":{\"event_id\":1,\"data\":{\"stored\":{\"parent_"
                      "hash\":1,"
                      "\"blocks\":[{\"block_hash\":2,\"tokens_hash\":20}]}},\"dp_rank\":0}}]}"),
                  &e),
              &e);
    assert_int_equal(held(b), 2);
    assert_int_equal(b->gaps, 0);
}

/* Every prefix of a good message, and the message with each byte changed: counted, never more. */
static void broken_messages_are_counted_and_dropped(void **state)
{
    struct bench *b = *state;
    struct kv_event ev = stored(0, NULL, AB, 2);
    AUTO(buf_done) struct buf message = BUF_NULL;

    put_message(&message, &ev);
    for (size_t n = 0; n < message.len; n++)
        on_kv_events(b->k, STR("s"), str_head(buf_str(&message), n));
    assert_true(metric_value(b->k->bad) == (double)message.len);
    for (size_t i = 0; i < message.len; i++) {
        buf_data(&message)[i] ^= 0x55;
        on_kv_events(b->k, STR("s"), buf_str(&message));
        buf_data(&message)[i] ^= 0x55;
    }
    on_load(b->k, STR("s"), STR("\x93\x01"));
    on_kv_events(b->k, STR("s"), buf_str(&message));
    assert_true(held(b) >= 2);
}

#define WITH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    return TEST_RUN(WITH(events_build_the_index), WITH(duplicates_and_late_events_are_harmless),
                    WITH(a_gap_and_an_orphan_ask_for_recovery),
                    WITH(a_restarted_engine_starts_empty), WITH(other_tiers_are_not_indexed),
                    WITH(a_dump_fills_the_index), WITH(broken_messages_are_counted_and_dropped));
}
