/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's half of the C interface, heard over ZeroMQ by a subscriber that discovery led to it.
 */
#include "router/epp/llm_engine.h"
#include "router/epp/llm_folder_test.h"

#include "router/discovery/event_channels.h"
#include "router/discovery/instances.h"
#include "router/kv/block_hash.h"
#include "router/wire/event_bus.h"

#include <time.h>

enum { HEARD_MAX = 16, BLOCKS_MAX = 4, GREETING = 1000 };

struct heard {
    uint64_t worker_id, event_id;
    enum kv_event_kind kind;
    struct opt_u64 parent;
    size_t n;
    uint64_t hashes[BLOCKS_MAX], tokens[BLOCKS_MAX];
};

/* Its loop is the folder's. */
struct rig {
    struct folder folder;
    struct store *store;
    struct instances *instances;
    struct event_bus *bus;
    struct event_subscription *subscription;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool joined, greeted;
    size_t n;
    struct heard heard[HEARD_MAX];
};

/* --- the subscriber ---------------------------------------------------------------------------- */

static void note_event(void *arg, const struct kv_event *ev)
{
    struct rig *rig = arg;
    struct heard *h = &rig->heard[rig->n];

    rig->greeted = true;
    if (rig->n == HEARD_MAX || ev->event_id == GREETING)
        return;
    *h = (struct heard){.worker_id = ev->worker_id,
                        .event_id = ev->event_id,
                        .kind = ev->kind,
                        .parent = ev->parent_hash,
                        .n = ev->kind == KV_STORED ? ev->n_blocks : ev->n_removed};
    for (size_t i = 0; i < MIN(h->n, (size_t)BLOCKS_MAX); i++) {
        h->hashes[i] = ev->kind == KV_STORED ? ev->blocks[i].block_hash : ev->removed[i];
        h->tokens[i] = ev->kind == KV_STORED ? ev->blocks[i].tokens_hash : 0;
    }
    rig->n++;
}

static void on_event(void *arg, const struct event_envelope *ev)
{
    AUTO(kv_event_reader_done) struct kv_event_reader reader = {.blocks = NULL};
    struct rig *rig = arg;
    struct err e;

    (void)pthread_mutex_lock(&rig->lock);
    if (kv_events_decode(&reader, ev->payload, note_event, rig, &e) == 0)
        (void)pthread_cond_broadcast(&rig->changed);
    (void)pthread_mutex_unlock(&rig->lock);
}

static void on_joined(void *arg, uint64_t publisher_id)
{
    struct rig *rig = arg;

    (void)publisher_id;
    (void)pthread_mutex_lock(&rig->lock);
    rig->joined = true;
    (void)pthread_cond_broadcast(&rig->changed);
    (void)pthread_mutex_unlock(&rig->lock);
}

static void on_instances(void *arg, const struct instances_event *ev)
{
    struct rig *rig = arg;

    if (ev->channel)
        event_channel_follow(rig->bus, ev->channel, ev->change == CHANNEL_ADDED);
}

static void hear(struct folder *f, void *arg)
{
    struct rig *rig = arg;
    const struct event_bus_conf bus = {.loop = f->loop};
    const struct instances_conf found = {.event = on_instances, .arg = rig};
    const struct event_topic topic = {"graph-1234", "backend", NULL, TOPIC_KV_EVENTS};
    const struct event_handlers handlers = {.event = on_event, .joined = on_joined, .arg = rig};
    struct err e;

    EXPECT_OK(event_bus_new(&rig->bus, &bus, &e), &e);
    EXPECT_OK(store_file_new(&rig->store, f->loop, f->root, &e), &e);
    EXPECT_OK(instances_new(&rig->instances, f->loop, rig->store, &found, &e), &e);
    EXPECT_OK(event_bus_subscribe(&rig->subscription, rig->bus, &topic, &handlers, &e), &e);
}

static void stop_hearing(struct folder *f, void *arg)
{
    struct rig *rig = arg;

    (void)f;
    instances_free(rig->instances);
    store_free(rig->store);
    event_subscription_free(rig->subscription);
    event_bus_free(rig->bus);
}

static void rig_up(struct rig *rig, bool with_workers)
{
    *rig = (struct rig){.n = 0};
    (void)pthread_mutex_init(&rig->lock, NULL);
    (void)pthread_cond_init(&rig->changed, NULL);
    set("DYN_EVENT_PLANE", "zmq");
    set("COMMUTATOR_WORKER_ID", "4711");
    rig->folder =
        (struct folder){.empty = !with_workers, .begin = hear, .end = stop_hearing, .arg = rig};
    workers_start(&rig->folder, false);
}

static void rig_down(struct rig *rig)
{
    workers_stop(&rig->folder);
    (void)pthread_cond_destroy(&rig->changed);
    (void)pthread_mutex_destroy(&rig->lock);
}

static void wait_until_joined(struct rig *rig)
{
    (void)pthread_mutex_lock(&rig->lock);
    while (!rig->joined)
        (void)pthread_cond_wait(&rig->changed, &rig->lock);
    (void)pthread_mutex_unlock(&rig->lock);
}

/* ZeroMQ drops what is sent before it knows who subscribes, so it is told until somebody hears it. */
static void wait_until_heard(struct rig *rig)
{
    const uint64_t block = 1;
    struct timespec until;

    (void)pthread_mutex_lock(&rig->lock);
    while (!rig->greeted) {
        (void)pthread_mutex_unlock(&rig->lock);
        assert_int_equal(dynamo_kv_event_publish_removed(GREETING, &block, 1), DYNAMO_LLM_OK);
        (void)pthread_mutex_lock(&rig->lock);
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += (until.tv_nsec + 20000000) / 1000000000;
        until.tv_nsec = (until.tv_nsec + 20000000) % 1000000000;
        if (!rig->greeted)
            (void)pthread_cond_timedwait(&rig->changed, &rig->lock, &until);
    }
    (void)pthread_mutex_unlock(&rig->lock);
}

static struct heard next(struct rig *rig, size_t i)
{
    struct heard h;

    (void)pthread_mutex_lock(&rig->lock);
    while (rig->n <= i)
        (void)pthread_cond_wait(&rig->changed, &rig->lock);
    h = rig->heard[i];
    (void)pthread_mutex_unlock(&rig->lock);
    return h;
}

/* --- tests ------------------------------------------------------------------------------------- */

static void expect_stored(const struct heard *h, const uint32_t *tokens, uint64_t seed)
{
    uint64_t local[2];

    assert_int_equal(block_hash_local_seeded(seed, tokens, 2 * BLOCK, BLOCK, local), 2);
    assert_true(h->kind == KV_STORED && h->worker_id == 4711 && h->n == 2);
    assert_true(h->hashes[0] == 11 && h->hashes[1] == 12);
    assert_true(h->tokens[0] == local[0] && h->tokens[1] == local[1]);
}

static void test_events(void **state)
{
    const uint64_t ids[] = {11, 12, 13}, parent = 10;
    const size_t sizes[] = {BLOCK, BLOCK, BLOCK - 1};
    uint32_t tokens[3 * BLOCK];
    struct heard h;
    struct rig rig;

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(tokens); i++)
        tokens[i] = i * 7;
    rig_up(&rig, true);
    assert_int_equal(dynamo_llm_init("graph-1234", "", BLOCK), DYNAMO_LLM_OK);
    wait_until_heard(&rig);
    assert_int_equal(dynamo_kv_event_publish_stored(5, tokens, sizes, ids, 2, NULL, NULL),
                     DYNAMO_LLM_OK);
    assert_int_equal(dynamo_kv_event_publish_stored(6, tokens, sizes, ids, 3, &parent, "lora-a"),
                     DYNAMO_LLM_OK);
    assert_int_equal(dynamo_kv_event_publish_removed(7, ids, 3), DYNAMO_LLM_OK);
    h = next(&rig, 0);
    assert_true(h.event_id == 5 && !h.parent.set);
    expect_stored(&h, tokens, BLOCK_HASH_SEED);
    h = next(&rig, 1); /* the third block is not whole */
    assert_true(h.event_id == 6 && h.parent.set && h.parent.v == 10);
    expect_stored(&h, tokens, block_hash_seed(STR("lora-a"), STR_NULL));
    h = next(&rig, 2);
    assert_true(h.event_id == 7 && h.kind == KV_REMOVED && h.n == 3 && h.hashes[2] == 13);
    assert_int_equal(dynamo_llm_shutdown(), DYNAMO_LLM_OK);
    rig_down(&rig);
}

static void test_life(void **state)
{
    const uint64_t id = 1;
    const size_t size = 1;
    struct rig rig;

    (void)state;
    rig_up(&rig, true);
    assert_int_equal(dynamo_llm_init(NULL, NULL, BLOCK), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_llm_init("", NULL, BLOCK), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_llm_init("graph", NULL, 0), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_kv_event_publish_removed(1, &id, 1), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_llm_init("graph", NULL, BLOCK), DYNAMO_LLM_OK);
    assert_int_equal(dynamo_llm_init("graph", "backend", BLOCK), DYNAMO_LLM_OK);
    assert_int_equal(dynamo_llm_init("other", NULL, BLOCK),
                     DYNAMO_LLM_OK); /* the first one stays */
    assert_int_equal(dynamo_llm_load_publisher_create(), DYNAMO_LLM_OK);
    assert_int_equal(dynamo_kv_event_publish_removed(1, &id, 1), DYNAMO_LLM_OK);
    assert_int_equal(dynamo_kv_event_publish_removed(2, NULL, 1), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_kv_event_publish_removed(2, &id, (size_t)1 << 40), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_kv_event_publish_stored(2, NULL, &size, &id, 1, NULL, NULL),
                     DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_llm_shutdown(), DYNAMO_LLM_OK);
    assert_int_equal(dynamo_kv_event_publish_removed(3, &id, 1), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_llm_shutdown(), DYNAMO_LLM_OK);
    set("COMMUTATOR_WORKER_ID", "many");
    assert_int_equal(dynamo_llm_init("graph", NULL, BLOCK), DYNAMO_LLM_ERR);
    rig_down(&rig);
}

static void *init(void *arg)
{
    (void)arg;
    return (void *)(uintptr_t)dynamo_llm_init("graph-1234", NULL, BLOCK);
}

/* There is no model, so the init waits until it is told not to. */
static void test_shutdown_ends_the_wait(void **state)
{
    pthread_t thread;
    struct rig rig;
    void *result;

    (void)state;
    rig_up(&rig, false);
    assert_int_equal(pthread_create(&thread, NULL, init, NULL), 0);
    wait_until_joined(&rig); /* its channel is announced */
    assert_int_equal(dynamo_llm_shutdown(), DYNAMO_LLM_OK);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((uintptr_t)result, DYNAMO_LLM_ERR);
    rig_down(&rig);
}

enum { TELLERS = 4, EVENTS = 50 };

/* Failures are counted: asserting is for the test's own thread. */
static void *tell(void *arg)
{
    unsigned *failures = arg;

    for (uint64_t i = 0; i < EVENTS; i++)
        *failures += dynamo_kv_event_publish_removed(i, &i, 1) != DYNAMO_LLM_OK;
    return NULL;
}

static void test_many_tellers(void **state)
{
    unsigned failures[TELLERS] = {0};
    pthread_t threads[TELLERS];
    struct rig rig;

    (void)state;
    rig_up(&rig, true);
    assert_int_equal(dynamo_llm_init("graph", NULL, BLOCK), DYNAMO_LLM_OK);
    for (int i = 0; i < TELLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, tell, &failures[i]), 0);
    for (int i = 0; i < TELLERS; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
    assert_int_equal(dynamo_llm_shutdown(), DYNAMO_LLM_OK);
    rig_down(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_shutdown_ends_the_wait), T(test_life), T(test_events),
                    T(test_many_tellers));
}
