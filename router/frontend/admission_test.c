/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission to a pool of one worker, whose load is bookings as another router would tell them.
 */
#include "router/frontend/admission.h"
#include "lib/base/test.h"

#include <math.h>

#include "lib/base/log.h"
#include "router/frontend/pool.h"
#include "router/sched/sched_test.h"
#include "router/sched/sequences.h"

enum { WORKER = 7, BLOCK = 4 };

struct rig {
    struct loop *loop;
    struct metric_registry *metrics;
    struct admission_metrics families;
    struct admission_rules *rules;
    struct model_card card;
    struct pool *pool;
    struct booking *load;
};

struct client {
    struct admission_ticket ticket;
    struct rig *rig;
    struct booking *booking;
    size_t n_gone;
    struct pool *let_go_of; /* the last one to go drops the pool */
};

static const uint64_t HASHES[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static struct admission_rules *rules_of(const struct admission_options *o)
{
    struct admission_rules *rules;
    struct err e;

    EXPECT_OK(admission_rules_load(&rules, o, &e), &e);
    return rules;
}

static struct booking *book(struct rig *g, uint32_t tokens)
{
    const struct route_booked b = {
        .id = STR("x"), .worker = {WORKER, 0}, .isl = tokens, .prefill_tokens = tokens};
    struct booking *booking = scheduler_book_remote(g->pool->scheduler, &b, 1);

    assert_non_null(booking);
    return booking;
}

static struct rig *rig_new(double threshold, uint64_t max_requests)
{
    struct rig *g = xcalloc(1, sizeof(*g));
    struct served_model found = {.name = (char[]){"m"},
                                 .card = &g->card,
                                 .ns = (char[]){"n"},
                                 .component = (char[]){"c"},
                                 .endpoint = (char[]){"e"}};
    struct worker worker = {.id = WORKER, .card = &g->card, .address = (char[]){"127.0.0.1:1/7/e"}};
    struct err e;

    assert_int_equal(log_setup("off", false, NULL), 0);
    EXPECT_OK(loop_new(&g->loop, &e), &e);
    g->metrics = metric_registry_new();
    admission_metrics_init(&g->families, g->metrics, "t");
    g->rules = rules_of(&(struct admission_options){
        .threshold = threshold, .max_requests = max_requests, .patience_ms = 30000});
    g->card = (struct model_card){
        .kv_cache_block_size = BLOCK, .dp_size = 1, .max_num_batched_tokens = 100};
    g->pool = pool_new(g->loop, &found, 0, &ROUTE_CONF_KV);
    pool_admit(g->pool, &g->families, g->rules);
    pool_put_worker(g->pool, &worker);
    return g;
}

static void rig_free(struct rig *g)
{
    (void)booking_end(g->load, 1, false);
    pool_unref(g->pool);
    admission_rules_free(g->rules);
    loop_free(g->loop);
    metric_registry_free(g->metrics);
    free(g);
}

/* Routes and books, as a request does. */
static void on_go(void *arg)
{
    struct client *c = arg;

    c->n_gone++;
    if (c->let_go_of) {
        c->let_go_of = pool_unref(c->let_go_of);
        return;
    }
    c->booking = book(c->rig, c->ticket.q.isl);
}

static int enter(struct rig *g, struct client *c, uint32_t isl)
{
    struct admission_refusal refusal = {.limit = 0};
    int r;

    c->rig = g;
    c->ticket.go = on_go;
    c->ticket.arg = c;
    c->ticket.q = (struct route_request){.id = STR("x"),
                                         .local = HASHES,
                                         .sequence = HASHES,
                                         .n_blocks = MIN(isl / BLOCK, (uint32_t)8),
                                         .isl = isl,
                                         .overlap_weight = NAN,
                                         .temperature = NAN,
                                         .now_ns = 1,
                                         .random = 1};
    r = admission_enter(g->pool->admission, &c->ticket, &refusal);
    assert_int_equal(refusal.reason && refusal.limit, r == ADMISSION_REFUSED);
    return r;
}

static double pending(struct rig *g)
{
    return metric_value(metric_with(g->families.requests, "m", "decode", "default"));
}

static void turn(struct rig *g)
{
    for (int i = 0; i < 3; i++)
        loop_run_once(g->loop, 0);
}

static void without_threshold_everybody_goes(void **state)
{
    struct rig *g = rig_new(NAN, 0);
    struct client c = {.n_gone = 0};

    (void)state;
    g->load = book(g, 1000000);
    assert_int_equal(enter(g, &c, 10), 0);
    rig_free(g);
}

static void each_goes_as_soon_as_there_is_room_for_it(void **state)
{
    struct rig *g = rig_new(1, 0);
    struct client one = {.n_gone = 0}, two = {.n_gone = 0};

    (void)state;
    g->load = book(g, 101);
    assert_int_equal(enter(g, &one, 150), ADMISSION_WAITS);
    assert_int_equal(enter(g, &two, 10), ADMISSION_WAITS);
    turn(g);
    assert_int_equal(one.n_gone + two.n_gone, 0);
    assert_true(pending(g) == 2);
    booking_first_token(g->load, 2);
    turn(g);
    assert_true(one.n_gone == 1 && two.n_gone == 0); /* the first fills the worker again */
    one.booking = booking_end(one.booking, 3, false);
    turn(g);
    assert_int_equal(two.n_gone, 1);
    assert_true(pending(g) == 0);
    assert_true(metric_value(metric_with(g->families.wait, "m", "decode", "default")) == 2);
    two.booking = booking_end(two.booking, 4, false);
    rig_free(g);
}

static void who_leaves_is_not_called(void **state)
{
    struct rig *g = rig_new(0, 0);
    struct client one = {.n_gone = 0}, two = {.n_gone = 0};

    (void)state;
    g->load = book(g, 1);
    assert_int_equal(enter(g, &one, 10), ADMISSION_WAITS);
    assert_int_equal(enter(g, &two, 10), ADMISSION_WAITS);
    admission_leave(&one.ticket);
    admission_leave(&one.ticket);
    assert_true(pending(g) == 1);
    g->load = booking_end(g->load, 2, false);
    turn(g);
    assert_true(one.n_gone == 0 && two.n_gone == 1);
    two.booking = booking_end(two.booking, 4, false);
    rig_free(g);
}

static void a_full_queue_refuses_and_a_pin_passes(void **state)
{
    struct rig *g = rig_new(0, 1);
    struct client one = {.n_gone = 0}, two = {.n_gone = 0};

    (void)state;
    g->load = book(g, 1);
    assert_int_equal(enter(g, &one, 10), ADMISSION_WAITS);
    assert_int_equal(enter(g, &two, 10), ADMISSION_REFUSED);
    assert_true(metric_value(metric_with(g->families.refused, "m", "decode", "default",
                                         "request_limit")) == 1);
    two.ticket.q.pinned = true;
    assert_int_equal(
        admission_enter(g->pool->admission, &two.ticket, &(struct admission_refusal){.limit = 0}),
        0);
    admission_leave(&one.ticket);
    rig_free(g);
}

/* Nobody is left to wait for: the request goes and finds out. */
static void the_last_worker_that_leaves_lets_them_go(void **state)
{
    struct rig *g = rig_new(0, 0);
    struct client one = {.n_gone = 0};

    (void)state;
    g->load = book(g, 1);
    assert_int_equal(enter(g, &one, 10), ADMISSION_WAITS);
    one.let_go_of = pool_ref(g->pool);
    pool_remove_worker(g->pool, WORKER);
    turn(g);
    assert_int_equal(one.n_gone, 1);
    rig_free(g);
}

static void a_pool_lives_while_somebody_waits(void **state)
{
    struct rig *g = rig_new(0, 0);
    struct client leaves = {.n_gone = 0}, goes = {.n_gone = 0};
    struct pool *pool = g->pool;

    (void)state;
    g->load = book(g, 1);
    assert_int_equal(enter(g, &leaves, 10), ADMISSION_WAITS);
    assert_int_equal(enter(g, &goes, 10), ADMISSION_WAITS);
    goes.let_go_of = pool_ref(pool); /* so that it books nothing there */
    pool_unref(pool);
    admission_leave(&leaves.ticket);
    g->load = booking_end(g->load, 2, false);
    turn(g); /* the last one goes, and the pool with it */
    assert_int_equal(goes.n_gone, 1);
    g->pool = NULL;
    rig_free(g);
}

static void new_rules_apply_to_those_that_wait(void **state)
{
    struct rig *g = rig_new(0, 1);
    struct client one = {.n_gone = 0};
    struct admission_rules *old = g->rules;

    (void)state;
    g->load = book(g, 1);
    assert_int_equal(enter(g, &one, 10), ADMISSION_WAITS);
    g->rules = rules_of(&(struct admission_options){.threshold = 0, .order = ROUTE_QUEUE_WSPT});
    admission_configure(g->pool->admission, g->rules);
    admission_rules_free(old);
    turn(g);
    assert_true(one.n_gone == 0 && pending(g) == 1);
    old = g->rules;
    g->rules = rules_of(&(struct admission_options){.threshold = NAN});
    admission_configure(g->pool->admission, g->rules);
    admission_rules_free(old);
    turn(g);
    assert_true(one.n_gone == 1 && pending(g) == 0);
    one.booking = booking_end(one.booking, 4, false);
    rig_free(g);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    const struct admission_options o = {.threshold = NAN,
                                        .file = (char[]){"/nowhere/classes.yaml"}};
    struct admission_rules *rules;
    struct err e;

    (void)state;
    assert_true(admission_rules_load(&rules, &o, &e) < 0);
    assert_true(str_has(str_from(e.text), STR("--router-policy-config /nowhere/classes.yaml")));
}

int main(void)
{
    return TEST_RUN(
        T(without_threshold_everybody_goes), T(each_goes_as_soon_as_there_is_room_for_it),
        T(who_leaves_is_not_called), T(a_full_queue_refuses_and_a_pin_passes),
        T(the_last_worker_that_leaves_lets_them_go), T(a_pool_lives_while_somebody_waits),
        T(new_rules_apply_to_those_that_wait), T(a_file_that_is_not_there_is_named));
}
