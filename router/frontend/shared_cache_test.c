/* SPDX-License-Identifier: Apache-2.0 */
/* What workers say of their cache, and when it is looked at; a publisher behind a real socket. */
#include "router/frontend/shared_cache.h"

#include "lib/base/log.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/zmq_link.h"
#include "router/discovery/card.h"
#include "router/sched/route_conf.h"
#include "router/wire/mooncake_event.h"

enum { BLOCK_SIZE = 4 };

/* The page of tokens 1, 2, 3, 4. */
#define PAGE "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"
static const uint32_t TOKENS[] = {1, 2, 3, 4, 5};

struct rig {
    struct loop *loop;
    struct zmq_context *zmq;
    struct zmq_link *pub;
    char *endpoint;
    int subscribers;
    struct shared_cache *cache;
    struct card_hicache says;
};

static void on_subscription(void *arg, const struct str *frames, size_t n)
{
    struct rig *g = arg;

    assert_int_equal(n, 1);
    g->subscribers += frames[0].ptr[0] ? 1 : -1;
}

static int set_up(void **state)
{
    struct rig *g = xcalloc(1, sizeof(*g));
    const struct zmq_link_conf conf = {
        .kind = ZMQ_KIND_XPUB, .received = on_subscription, .arg = g};
    uint16_t port;
    struct err e;

    assert_int_equal(log_setup("off", false, NULL), 0);
    EXPECT_OK(loop_new(&g->loop, &e), &e);
    EXPECT_OK(zmq_context_new(&g->zmq, g->loop, &e), &e);
    EXPECT_OK(zmq_link_new(&g->pub, g->zmq, &conf, &e), &e);
    EXPECT_OK(zmq_link_bind(g->pub, "tcp://127.0.0.1:*", &port, &e), &e);
    g->endpoint = xasprintf("tcp://127.0.0.1:%u", port);
    g->cache = shared_cache_new(g->loop, "m", BLOCK_SIZE, NULL);
    g->says = (struct card_hicache){.present = true,
                                    .is_mooncake = true,
                                    .page_size = BLOCK_SIZE,
                                    .tp_size = 1,
                                    .pp_size = 1,
                                    .events_endpoint = g->endpoint};
    *state = g;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *g = *state;

    shared_cache_free(g->cache);
    zmq_link_free(g->pub);
    zmq_context_free(g->zmq);
    loop_free(g->loop);
    free(g->endpoint);
    free(g);
    return 0;
}

static void store_page(struct rig *g, uint64_t sequence)
{
    AUTO(buf_done) struct buf batch = BUF_NULL, number = BUF_NULL;
    struct str frames[3] = {STR("")};
    uint64_t batches = shared_cache_stats(g->cache).events.batches;

    buf_put_u64be(&number, sequence);
    mooncake_batch_begin_put(&batch, 1, 2);
    mooncake_event_put(&batch,
                       &(struct mooncake_event){MOONCAKE_STORED, STR(PAGE "_0_k"), STR("")});
    mooncake_event_put(&batch,
                       &(struct mooncake_event){MOONCAKE_STORED, STR(PAGE "_0_v"), STR("")});
    mooncake_batch_end_put(&batch);
    frames[1] = buf_str(&number);
    frames[2] = buf_str(&batch);
    (void)zmq_link_send(g->pub, frames, 3);
    LOOP_UNTIL(g->loop, shared_cache_stats(g->cache).events.batches > batches);
}

/* Pages of the prompt that are there; -1 when nobody looks. */
static int found(struct rig *g)
{
    struct shared_hits h;

    return shared_cache_find(g->cache, TOKENS, ARRAY_LEN(TOKENS), &h) ? (int)shared_hits_from(&h, 0)
                                                                      : -1;
}

static void is_followed_while_it_is_on(void **state)
{
    struct rig *g = *state;

    shared_cache_put_worker(g->cache, 1, &g->says);
    assert_int_equal(found(g), -1);
    shared_cache_switch(g->cache, true);
    LOOP_UNTIL(g->loop, g->subscribers == 1);
    assert_int_equal(found(g), 0);
    store_page(g, 1);
    assert_int_equal(found(g), 1);
    shared_cache_switch(g->cache, true); /* a change of something else */
    assert_int_equal(found(g), 1);
    shared_cache_switch(g->cache, false);
    assert_int_equal(found(g), -1);
    assert_int_equal(shared_cache_stats(g->cache).objects, 0);
    LOOP_UNTIL(g->loop, g->subscribers == 0);
}

static void workers_must_agree(void **state)
{
    struct rig *g = *state;
    struct card_hicache other = g->says;

    shared_cache_switch(g->cache, true);
    assert_int_equal(found(g), -1); /* nobody says anything */
    shared_cache_put_worker(g->cache, 1, &g->says);
    LOOP_UNTIL(g->loop, g->subscribers == 1);
    store_page(g, 1);

    shared_cache_put_worker(g->cache, 2, &(struct card_hicache){.present = false});
    assert_int_equal(found(g), 1);
    other.is_mooncake = false;
    shared_cache_put_worker(g->cache, 2, &other);
    assert_int_equal(found(g), 1);
    other = g->says;
    other.events_endpoint = NULL;
    shared_cache_put_worker(g->cache, 2, &other);
    assert_int_equal(found(g), 1);

    other.events_endpoint = (char[]){"tcp://127.0.0.1:9"};
    shared_cache_put_worker(g->cache, 2, &other);
    assert_int_equal(found(g), -1);
    other = g->says;
    other.prefix = (char[]){"other"};
    shared_cache_put_worker(g->cache, 2, &other);
    assert_int_equal(found(g), -1);
    shared_cache_remove_worker(g->cache, 2);
    assert_int_equal(found(g), 0); /* what came meanwhile is not known */
}

/* Layouts that cannot be: nobody looks, and nothing breaks. */
static void odd_workers_are_left_alone(void **state)
{
    struct rig *g = *state;
    struct card_hicache odd = g->says;

    shared_cache_switch(g->cache, true);
    odd.page_size = 2 * BLOCK_SIZE;
    shared_cache_put_worker(g->cache, 1, &odd);
    assert_int_equal(found(g), -1);
    odd = g->says;
    odd.tp_size = odd.pp_size = UINT32_MAX;
    shared_cache_put_worker(g->cache, 1, &odd);
    assert_int_equal(found(g), -1);
    odd = g->says;
    odd.events_endpoint = NULL;
    shared_cache_put_worker(g->cache, 1, &odd);
    assert_int_equal(found(g), -1);
    assert_int_equal(shared_cache_take_errors(g->cache), 0);
    odd.events_endpoint = (char[]){"nonsense"};
    shared_cache_put_worker(g->cache, 1, &odd);
    assert_int_equal(found(g), -1);
    assert_int_equal(shared_cache_take_errors(g->cache), 1);
    assert_int_equal(shared_cache_take_errors(g->cache), 0);
}

static void a_given_endpoint_goes_first(void **state)
{
    struct rig *g = *state;
    struct card_hicache other = g->says;

    shared_cache_free(g->cache);
    g->cache = shared_cache_new(g->loop, "m", BLOCK_SIZE, g->endpoint);
    other.events_endpoint = (char[]){"tcp://127.0.0.1:9"};
    shared_cache_switch(g->cache, true);
    assert_int_equal(found(g), -1); /* the layout is the workers' */
    shared_cache_put_worker(g->cache, 1, &other);
    LOOP_UNTIL(g->loop, g->subscribers == 1);
    assert_int_equal(found(g), 0);
}

static void decisions_that_count_it_ask(void **state)
{
    struct rig *g = *state;
    const struct route_conf counts = {
        .mode = ROUTE_KV, .shared_cache = SHARED_CACHE_HICACHE, .overlap_credit = 1};
    struct route_conf others[4] = {counts, counts, counts, counts};
    struct shared_hits h;

    others[0].mode = ROUTE_RANDOM;
    others[1].shared_cache = SHARED_CACHE_NONE;
    others[2].overlap_credit = 0;
    others[3].load_aware = true;
    shared_cache_switch(g->cache, true);
    assert_null(shared_cache_ask(g->cache, &counts, TOKENS, ARRAY_LEN(TOKENS), &h));
    assert_true(shared_cache_is_asked(g->cache, &counts)); /* though nothing is there */
    shared_cache_put_worker(g->cache, 1, &g->says);
    assert_ptr_equal(shared_cache_ask(g->cache, &counts, TOKENS, ARRAY_LEN(TOKENS), &h), &h);
    assert_null(shared_cache_ask(g->cache, &counts, NULL, 0, &h));
    assert_null(shared_cache_ask(NULL, &counts, TOKENS, ARRAY_LEN(TOKENS), &h));
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_null(shared_cache_ask(g->cache, &others[i], TOKENS, ARRAY_LEN(TOKENS), &h));
}

#define E(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(E(is_followed_while_it_is_on), E(workers_must_agree),
                    E(odd_workers_are_left_alone), E(decisions_that_count_it_ask),
                    E(a_given_endpoint_goes_first));
}
