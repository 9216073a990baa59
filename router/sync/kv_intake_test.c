/* SPDX-License-Identifier: Apache-2.0 */
/* Includes the file under test, to look at its counters. Messages come without a server; workers
 * cannot be asked, so that gaps stay. */
#include "router/sync/kv_intake.c"

#include "lib/base/test.h"
#include "router/sched/sched_test.h"

enum { WORKER = 7 };

struct bench {
    struct metric_registry *metrics;
    struct scheduler *scheduler;
    struct kv_intake *k;
    uint64_t sent_ms;
    struct loop *loop;
};

static int setup(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct kv_intake_conf conf = {.ns = "n", .component = "c"};
    struct err e;

    assert_int_equal(log_setup("off", false, NULL), 0);
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    b->metrics = metric_registry_new();
    b->scheduler = scheduler_new(4, &ROUTE_CONF_KV);
    assert_true(scheduler_put_worker(b->scheduler,
                                     &(struct worker_info){.worker_id = WORKER, .dp_size = 1}));
    conf.loop = b->loop;
    conf.scheduler = b->scheduler;
    conf.metrics = b->metrics;
    EXPECT_OK(kv_intake_start(&b->k, &conf, &e), &e);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    kv_intake_free(b->k);
    scheduler_free(b->scheduler);
    loop_free(b->loop);
    metric_registry_free(b->metrics);
    free(b);
    return 0;
}

static void hear_payload(struct bench *b, struct str payload, uint64_t sent_ms)
{
    on_envelope(b->k, &(struct event_envelope){.publisher_id = WORKER,
                                               .published_at = sent_ms,
                                               .topic = STR("kv-events"),
                                               .payload = payload});
}

static void deliver_sent(struct bench *b, const struct kv_event *ev, uint64_t sent_ms)
{
    AUTO(buf_done) struct buf payload = BUF_NULL;

    kv_event_put(&payload, ev);
    hear_payload(b, buf_str(&payload), sent_ms);
}

/* Each is sent after the one before. */
static void deliver(struct bench *b, const struct kv_event *ev)
{
    deliver_sent(b, ev, ++b->sent_ms);
}

static int problem(const struct bench *b, enum problem p)
{
    return (int)metric_value(b->k->problems[p]);
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
    assert_int_equal(problem(b, GAP), 0);
}

static void what_was_seen_before_is_dropped(void **state)
{
    struct bench *b = *state;
    struct kv_event first = stored(0, NULL, C, 1), ev = stored(1, NULL, AB, 2);
    uint64_t gone[] = {3};
    struct kv_event removed = {
        .worker_id = WORKER, .event_id = 2, .kind = KV_REMOVED, .removed = gone, .n_removed = 1};

    deliver(b, &first);
    deliver(b, &ev);
    deliver(b, &removed);
    for (int i = 0; i < 3; i++)
        deliver_sent(b, &first, 1); /* as it was sent then */
    assert_int_equal(held(b), 2);
    assert_true(metric_value(b->k->filtered[KV_FILTER_DUPLICATE]) == 3);
    assert_int_equal(problem(b, GAP), 0);
}

static void gaps_and_orphans_are_counted(void **state)
{
    struct bench *b = *state;
    uint64_t unknown = 99;
    struct kv_event ev = stored(0, NULL, AB, 2);

    deliver(b, &ev);
    ev = stored(5, NULL, C, 1);
    deliver(b, &ev);
    assert_int_equal(problem(b, GAP), 1);
    assert_int_equal(held(b), 3);
    ev = stored(6, &unknown, C, 1);
    deliver(b, &ev);
    assert_int_equal(problem(b, ORPHAN), 1);
    assert_int_equal(held(b), 3);
    assert_true(metric_value(b->k->applied[KV_STORED][KV_APPLIED_NO_PARENT]) == 1);
}

static double known(const struct bench *b)
{
    return metric_value(b->k->known);
}

/* Not those that add a block, nor those of other tiers, nor those that were not taken. */
static void stores_of_nothing_new_are_counted(void **state)
{
    struct bench *b = *state;
    uint64_t unknown = 99;
    struct kv_event ev = stored(0, NULL, AB, 1);

    deliver(b, &ev);
    ev = stored(1, NULL, AB, 2);
    deliver(b, &ev);
    assert_true(known(b) == 0);
    ev = stored(2, NULL, AB, 2);
    deliver(b, &ev);
    assert_true(known(b) == 1);
    ev = stored(3, NULL, AB, 2);
    ev.tier = KV_TIER_HOST;
    deliver(b, &ev);
    ev = stored(4, &unknown, AB, 2);
    deliver(b, &ev);
    assert_true(known(b) == 1);
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
    assert_int_equal(problem(b, RESTART), 1);
}

/* The reference's counter is of the device alone. */
static void other_tiers_are_indexed_beside_the_device(void **state)
{
    struct bench *b = *state;
    struct kv_event ev = stored(0, NULL, AB, 2);
    const struct tier_index *tiers = scheduler_tiers(b->k->conf.scheduler);

    deliver(b, &ev);
    ev.tier = KV_TIER_HOST;
    ev.event_id = 1;
    deliver(b, &ev);
    assert_int_equal(held(b), 2);
    assert_int_equal(tier_index_stats(tiers).blocks[TIER_HOST], 2);
    assert_true(metric_value(b->k->applied[KV_STORED][KV_APPLIED_OK]) == 1);
    ev = (struct kv_event){.worker_id = WORKER, .event_id = 2, .kind = KV_CLEARED};
    deliver(b, &ev);
    assert_int_equal(tier_index_stats(tiers).blocks[TIER_HOST], 0);
}

static void what_is_not_indexed_is_counted_by_reason(void **state)
{
    struct bench *b = *state;
    struct kv_event ev = stored(0, NULL, AB, 2);

    ev.tier = KV_TIER_UNKNOWN;
    kv_intake_event(b->k, &ev, 0);
    kv_intake_event(b->k, &ev, 0);
    ev.tier = KV_TIER_DEVICE;
    kv_intake_put_worker(b->k, &(struct kv_intake_worker){.worker_id = WORKER,
                                                          .address = "127.0.0.1:1/7/generate",
                                                          .dp_size = 1});
    ev.dp_rank = 1;
    kv_intake_event(b->k, &ev, 0);
    kv_intake_put_worker(b->k, &(struct kv_intake_worker){.worker_id = WORKER,
                                                          .address = "127.0.0.1:1/7/generate",
                                                          .dp_size = 1,
                                                          .block_size = 64});
    ev.dp_rank = 0;
    kv_intake_event(b->k, &ev, 0);
    assert_int_equal(held(b), 0);
    assert_true(metric_value(b->k->filtered[KV_FILTER_UNKNOWN_TIER]) == 2);
    assert_true(metric_value(b->k->filtered[KV_FILTER_UNKNOWN_RANK]) == 1);
    assert_true(metric_value(b->k->filtered[KV_FILTER_BLOCK_SIZE]) == 1);
}

/* Every prefix of a good message, and the message with each byte changed: counted, never more. */
static void broken_messages_are_counted_and_dropped(void **state)
{
    struct bench *b = *state;
    struct kv_event ev = stored(0, NULL, AB, 2);
    AUTO(buf_done) struct buf message = BUF_NULL;

    kv_event_put(&message, &ev);
    for (size_t n = 0; n < message.len; n++)
        hear_payload(b, str_head(buf_str(&message), n), 1);
    assert_true(metric_value(b->k->filtered[KV_FILTER_BAD]) == (double)message.len);
    for (size_t i = 0; i < message.len; i++) {
        buf_data(&message)[i] ^= 0x55;
        hear_payload(b, buf_str(&message), 1);
        buf_data(&message)[i] ^= 0x55;
    }
    on_load(b->k, &(struct event_envelope){.payload = STR("\x93\x01")});
    hear_payload(b, buf_str(&message), 1);
    assert_true(held(b) >= 2);
}

static void hear_load(struct bench *b, const struct active_load *load)
{
    AUTO(buf_done) struct buf payload = BUF_NULL;

    active_load_put(&payload, load);
    on_load(b->k, &(struct event_envelope){.payload = buf_str(&payload)});
}

static uint64_t decode_blocks(const struct bench *b)
{
    struct worker_load load;

    assert_true(scheduler_load(b->scheduler, 0, &load));
    return load.active_decode_blocks;
}

static void workers_tell_their_load_and_routers_do_not(void **state)
{
    struct bench *b = *state;

    hear_load(b, &(struct active_load){.worker_id = WORKER, .active_decode_blocks = OPT_U64(6)});
    assert_int_equal(decode_blocks(b), 6);
    hear_load(b, &(struct active_load){.worker_id = WORKER,
                                       .active_decode_blocks = OPT_U64(900),
                                       .active_prefill_tokens = OPT_U64(0)});
    assert_int_equal(decode_blocks(b), 6);
    hear_load(b, &(struct active_load){.worker_id = WORKER, .kv_used_blocks = OPT_U64(7)});
    assert_int_equal(decode_blocks(b), 7);
    hear_load(b, &(struct active_load){.worker_id = 999, .kv_used_blocks = OPT_U64(8)});
    assert_int_equal(decode_blocks(b), 7);
}

#define WITH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    return TEST_RUN(WITH(events_build_the_index), WITH(what_was_seen_before_is_dropped),
                    WITH(gaps_and_orphans_are_counted), WITH(stores_of_nothing_new_are_counted),
                    WITH(a_restarted_engine_starts_empty),
                    WITH(other_tiers_are_indexed_beside_the_device),
                    WITH(what_is_not_indexed_is_counted_by_reason),
                    WITH(broken_messages_are_counted_and_dropped),
                    WITH(workers_tell_their_load_and_routers_do_not));
}
