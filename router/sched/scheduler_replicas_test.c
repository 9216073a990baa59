/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three replicas route one burst over the same workers and hear of each other late: a simulation of
 * events in virtual time, the same on every machine.
 */
#include "router/sched/scheduler.h"
#include "lib/base/test.h"

#include <math.h>

#include "router/sched/sched_test.h"
#include "router/sched/sequences.h"

enum { BS = 16, REPLICAS = 3, WORKERS_MAX = 64, REQUESTS_MAX = 4096, BLOCKS = 64 };
enum { WINDOW_US = 100000 };

struct scenario {
    const char *name;
    uint32_t workers, requests;
    uint32_t length_us;            /* over which they come */
    uint32_t delay_min, delay_max; /* of the news, us */
    uint32_t isl_min, isl_max;     /* tokens */
    uint32_t head_start;           /* requests that every worker but the first already runs */
    enum { LONE, UNAWARE, AWARE } routers; /* one; three that do not count each other; that do */
};

/* --- the world ------------------------------------------------------------------------------- */

enum event_kind { ARRIVE, HEAR, PREFILLED, HEAR_PREFILLED };

struct event {
    uint64_t at_us;
    uint32_t serial, request, replica;
    enum event_kind kind;
};

struct request {
    uint64_t sequence[BLOCKS];
    uint32_t isl, n_blocks, replica;
    uint64_t worker, at_us;
    struct booking *bookings[REPLICAS];
};

struct world {
    const struct scenario *sc;
    struct scheduler *replicas[REPLICAS];
    struct request *requests;
    struct event *events; /* heap by time */
    size_t n_events, serial;
    uint64_t busy_until[WORKERS_MAX + 1]; /* prefill of each worker, us */
    uint64_t random;
};

static uint64_t draw(struct world *w)
{
    uint64_t z = w->random += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint32_t draw_between(struct world *w, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(draw(w) % (high - low + 1));
}

static bool sooner(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->serial < b->serial;
}

static void push(struct world *w, struct event e)
{
    size_t at = w->n_events++;

    e.serial = (uint32_t)w->serial++;
    for (; at > 0 && sooner(&e, &w->events[(at - 1) / 2]); at = (at - 1) / 2)
        w->events[at] = w->events[(at - 1) / 2];
    w->events[at] = e;
}

static struct event pop(struct world *w)
{
    struct event top = w->events[0], last = w->events[--w->n_events];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < w->n_events; at = child) {
        child += child + 1 < w->n_events && sooner(&w->events[child + 1], &w->events[child]);
        if (!sooner(&w->events[child], &last))
            break;
        w->events[at] = w->events[child];
    }
    w->events[at] = last;
    return top;
}

/* The news of an event reaches the other replicas, each after a time of its own. */
static void spread(struct world *w, const struct event *e, enum event_kind kind)
{
    for (uint32_t i = 0; i < REPLICAS; i++)
        if (i != w->requests[e->request].replica)
            push(w, (struct event){.at_us = e->at_us +
                                            draw_between(w, w->sc->delay_min, w->sc->delay_max),
                                   .request = e->request,
                                   .replica = i,
                                   .kind = kind});
}

static void arrive(struct world *w, const struct event *e)
{
    AUTO(route_decision_done) struct route_decision d = {0};
    struct request *rq = &w->requests[e->request];
    struct route_request q = {.id = STR("r"),
                              .local = rq->sequence,
                              .sequence = rq->sequence,
                              .n_blocks = rq->n_blocks,
                              .isl = rq->isl,
                              .overlap_weight = NAN,
                              .temperature = NAN,
                              .now_ns = e->at_us * 1000,
                              .random = draw(w)};
    uint64_t *busy;

    assert_int_equal(scheduler_route(w->replicas[rq->replica], &q, &d, &rq->bookings[rq->replica]),
                     0);
    rq->worker = d.candidates[d.chosen].worker.worker_id;
    rq->at_us = e->at_us;
    busy = &w->busy_until[rq->worker];
    *busy = MAX(*busy, e->at_us) + (uint64_t)rq->isl * 50; /* 20,000 tokens a second */
    push(w, (struct event){.at_us = *busy, .request = e->request, .kind = PREFILLED});
    spread(w, e, HEAR);
}

static void hear(struct world *w, const struct event *e)
{
    struct request *rq = &w->requests[e->request];
    const struct route_booked b = {.id = STR("r"),
                                   .worker = {rq->worker, 0},
                                   .sequence = rq->sequence,
                                   .n_blocks = rq->n_blocks,
                                   .isl = rq->isl,
                                   .prefill_tokens = rq->isl};

    rq->bookings[e->replica] = scheduler_book_remote(w->replicas[e->replica], &b, e->at_us * 1000);
    assert_non_null(rq->bookings[e->replica]);
}

static void happen(struct world *w, const struct event *e)
{
    struct request *rq = &w->requests[e->request];

    switch (e->kind) {
    case ARRIVE:
        arrive(w, e);
        break;
    case HEAR:
        hear(w, e);
        break;
    case PREFILLED:
        booking_first_token(rq->bookings[rq->replica], e->at_us * 1000);
        spread(w, e, HEAR_PREFILLED);
        break;
    case HEAR_PREFILLED: /* news may overtake each other here; the transport keeps their order */
        if (rq->bookings[e->replica])
            booking_first_token(rq->bookings[e->replica], e->at_us * 1000);
        break;
    }
}

/* --- one run --------------------------------------------------------------------------------- */

static void make_request(struct world *w, uint32_t i)
{
    struct request *rq = &w->requests[i];

    rq->isl = draw_between(w, w->sc->isl_min, w->sc->isl_max);
    rq->n_blocks = rq->isl / BS;
    rq->replica = w->sc->routers == LONE ? 0 : draw_between(w, 0, REPLICAS - 1);
    for (uint32_t k = 0; k < rq->n_blocks; k++)
        rq->sequence[k] = draw(w);
}

static void fill_workers(struct world *w, struct booking **others, size_t *n)
{
    for (uint32_t r = 0; r < REPLICAS; r++)
        for (uint32_t id = 2; id <= w->sc->workers; id++)
            for (uint32_t i = 0; i < w->sc->head_start; i++) {
                const struct route_booked b = {.id = STR("o"),
                                               .worker = {id, 0},
                                               .isl = w->sc->isl_max,
                                               .prefill_tokens = w->sc->isl_max};

                others[(*n)++] = scheduler_book_remote(w->replicas[r], &b, 0);
            }
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = ((const struct request *)a)->at_us, y = ((const struct request *)b)->at_us;

    return x < y ? -1 : x > y;
}

/* Largest share of a worker in any window that lies within the burst, in fair shares. */
static double largest_share(struct request *rq, const struct scenario *sc)
{
    double largest = 0;

    qsort(rq, sc->requests, sizeof(*rq), by_time);
    for (size_t first = 0; first < sc->requests; first++) {
        uint32_t counts[WORKERS_MAX + 1] = {0}, most = 0, n = 0;

        if (first > 0 && rq[first].at_us + WINDOW_US > sc->length_us)
            break;
        for (size_t i = first; i < sc->requests && rq[i].at_us < rq[first].at_us + WINDOW_US; i++) {
            n++;
            most = MAX(most, ++counts[rq[i].worker]);
        }
        largest = fmax(largest, (double)most * sc->workers / n);
    }
    return largest;
}

static double simulate(const struct scenario *sc, uint64_t seed)
{
    struct world w = {.sc = sc, .random = seed};
    struct booking **others = xcalloc((size_t)REPLICAS * WORKERS_MAX * 16, sizeof(*others));
    size_t n_others = 0;
    double largest;

    w.requests = xcalloc(sc->requests, sizeof(*w.requests));
    w.events = xcalloc((size_t)sc->requests * 8, sizeof(*w.events));
    for (uint32_t r = 0; r < REPLICAS; r++) {
        w.replicas[r] = scheduler_new(BS, &ROUTE_CONF_KV);
        scheduler_set_replicas(w.replicas[r], 1);
        for (uint64_t id = 1; id <= sc->workers; id++)
            assert_true(scheduler_put_worker(w.replicas[r],
                                             &(struct worker_info){.worker_id = id, .dp_size = 1}));
    }
    fill_workers(&w, others, &n_others);
    for (uint32_t r = 0; r < REPLICAS; r++)
        scheduler_set_replicas(w.replicas[r], sc->routers == AWARE ? REPLICAS : 1);
    for (uint32_t i = 0; i < sc->requests; i++) {
        make_request(&w, i);
        push(&w, (struct event){.at_us = draw_between(&w, 0, sc->length_us - 1),
                                .request = i,
                                .kind = ARRIVE});
    }
    while (w.n_events) {
        struct event e = pop(&w);

        happen(&w, &e);
    }
    for (uint32_t i = 0; i < sc->requests; i++)
        for (uint32_t r = 0; r < REPLICAS; r++)
            (void)booking_end(w.requests[i].bookings[r], 0, false);
    largest = largest_share(w.requests, sc);
    while (n_others)
        (void)booking_end(others[--n_others], 0, false);
    for (uint32_t r = 0; r < REPLICAS; r++)
        scheduler_free(w.replicas[r]);
    free(others);
    free(w.requests);
    free(w.events);
    return largest;
}

enum { SEEDS = 10 };

static double worst_of(const struct scenario *sc)
{
    static const char *const words[] = {"one router", "three, unaware", "three, aware"};
    double worst = 0, sum = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        double one = simulate(sc, seed);

        worst = fmax(worst, one);
        sum += one;
    }
    printf("%-16s %2u workers, %-14s: worst %.2f, mean %.2f fair shares\n", sc->name, sc->workers,
           words[sc->routers], worst, sum / SEEDS);
    return worst;
}

static struct scenario burst_on(uint32_t workers)
{
    return (struct scenario){.name = "burst",
                             .workers = workers,
                             .requests = 300,
                             .length_us = WINDOW_US,
                             .delay_min = 2000,
                             .delay_max = 20000,
                             .isl_min = 512,
                             .isl_max = 512,
                             .routers = AWARE};
}

/* The rule: 300 requests in 100 ms, three replicas, at most 1.5 fair shares. */
static void a_burst_is_spread_over_equal_workers(void **state)
{
    (void)state;
    for (uint32_t workers = 8; workers <= WORKERS_MAX; workers *= 2) {
        struct scenario sc = burst_on(workers);

        assert_true(worst_of(&sc) <= 1.5);
        sc.name = "all news late";
        sc.delay_min = sc.delay_max;
        assert_true(worst_of(&sc) <= 1.5);
        sc.name = "all news quick";
        sc.delay_min = sc.delay_max = 2000;
        assert_true(worst_of(&sc) <= 1.5);
    }
}

static void without_the_term_it_is_not(void **state)
{
    struct scenario sc = burst_on(WORKERS_MAX);

    (void)state;
    sc.routers = UNAWARE;
    assert_true(worst_of(&sc) > 1.5);
}

/* One worker has just started: every replica sees that it has nothing to do. */
static void an_idle_worker_is_not_run_over(void **state)
{
    struct scenario sc = burst_on(WORKERS_MAX);
    double lone, unaware, aware;

    (void)state;
    sc.name = "one is idle";
    sc.head_start = 10;
    sc.routers = LONE;
    lone = worst_of(&sc);
    sc.routers = UNAWARE;
    unaware = worst_of(&sc);
    sc.routers = AWARE;
    aware = worst_of(&sc);
    assert_true(unaware > 1.4 * lone);
    assert_true(aware < 1.2 * lone);
}

/* A second of it, 20 % above what 64 workers can prefill: every window within. */
static struct scenario sustained_on(uint32_t workers)
{
    struct scenario sc = burst_on(workers);

    sc.name = "sustained";
    sc.requests = 3000;
    sc.length_us = 10 * WINDOW_US;
    return sc;
}

static void sustained_load_stays_near_one_router(void **state)
{
    (void)state;
    for (uint32_t workers = 8; workers <= WORKERS_MAX; workers *= 8) {
        struct scenario sc = sustained_on(workers);
        double lone;

        sc.routers = LONE;
        lone = worst_of(&sc);
        sc.routers = AWARE;
        assert_true(worst_of(&sc) <= fmax(1.5, 1.25 * lone));
    }
}

/* Why the rule is one of bursts: without a pause it holds for news that takes no time, and for no other. */
static void sustained_load_needs_news_that_takes_no_time(void **state)
{
    struct scenario sc = sustained_on(WORKERS_MAX);

    (void)state;
    sc.routers = UNAWARE;
    sc.delay_min = sc.delay_max = 0;
    assert_true(worst_of(&sc) <= 1.5);
    sc.delay_min = sc.delay_max = 100;
    assert_true(worst_of(&sc) > 1.5);
}

int main(void)
{
    return TEST_RUN(T(a_burst_is_spread_over_equal_workers), T(without_the_term_it_is_not),
                    T(an_idle_worker_is_not_run_over), T(sustained_load_stays_near_one_router),
                    T(sustained_load_needs_news_that_takes_no_time));
}
