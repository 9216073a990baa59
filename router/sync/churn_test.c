/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers whose events are lost, repeated and late, that clear their cache, restart, leave, come
 * back and change their ranks, while requests are routed to them: once the losses end, the index
 * holds what the workers hold, block for block, no booking is left, and memory is where it began.
 *
 * The truth is router/sim/block_cache. One seed, one course. COMMUTATOR_CHURN_EVENTS sets the number
 * of events.
 */
#include "lib/base/test.h"
#include "router/sched/sched_test.h"
#include "router/sched/scheduler.h"
#include "router/sched/sequences.h"
#include "router/sim/block_cache.h"
#include "router/sync/event_order.h"
#include "router/sync/event_queue.h"

enum {
    WORKERS = 64,
    RANKS = 4, /* at most, of one worker */
    CAPACITY = 192,
    RING = 128,   /* events that a rank remembers */
    BURST = 300,  /* events lost in a row, at most */
    YOUNG = 1200, /* an engine restarts after so many events: it then shows, whatever is lost */
    BLOCK_SIZE = 16,
    PROMPT_BLOCKS = 40,
    LATE = 8, /* messages under way at a time, of one rank */
    OPEN_REQUESTS = 200,
    EVENTS = TEST_STEPS(400000),
};

struct message {
    struct event_queue one;
    uint64_t sent_ms;
    unsigned later; /* so many messages of its rank come before it */
};

struct rank {
    struct world *w;
    struct worker_rank id;
    struct block_cache *cache;
    struct event_queue ring;
    uint64_t next_id;
    unsigned to_lose;
    struct message late[LATE];
    size_t n_late;
};

struct worker {
    uint64_t id;
    uint32_t n_ranks; /* 0: it is away */
    bool newer;       /* its dumps say how far they go */
    struct rank ranks[RANKS];
};

struct reply {
    uint64_t due_ms;
    struct event_question question;
    bool made; /* at the time of the question, else when it is due */
    bool is_dump, too_new;
    struct opt_u64 newest;
    struct event_queue events;
};

struct world {
    uint64_t random, now_ms, n_events, next_worker;
    bool lossy;
    struct event_order *order;
    struct scheduler *scheduler;
    struct worker workers[WORKERS];
    struct reply *replies;
    size_t n_replies, cap_replies;
    struct route_decision decision;
    struct booking *bookings[OPEN_REQUESTS];
    size_t notes[EVENT_GAVE_UP + 1], asked[EVENT_ASK_DUMP + 1], orphans, held_max;
};

static uint64_t draw(struct world *w, uint64_t below)
{
    uint64_t x = w->random += UINT64_C(0x9E3779B97F4A7C15);

    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (x ^ x >> 31) % below;
}

static bool one_in(struct world *w, uint64_t n)
{
    return w->lossy && draw(w, n) == 0;
}

/* --- the router's side ------------------------------------------------------------------------ */

static bool on_apply(void *arg, const struct kv_event *ev, bool live)
{
    struct world *w = arg;
    struct worker_rank id = {ev->worker_id, ev->dp_rank};
    int r = 0;

    if (ev->kind == KV_STORED)
        r = scheduler_store(w->scheduler, id, ev->parent_hash.set ? &ev->parent_hash.v : NULL,
                            (const struct prefix_block *)(const void *)ev->blocks, ev->n_blocks);
    else if (ev->kind == KV_REMOVED)
        (void)scheduler_remove(w->scheduler, id, ev->removed, ev->n_removed);
    else
        scheduler_clear(w->scheduler, id);
    w->orphans += live && r == PREFIX_NO_PARENT;
    return r != PREFIX_NO_PARENT;
}

static void on_clear(void *arg, struct worker_rank id)
{
    scheduler_clear(((struct world *)arg)->scheduler, id);
}

static void on_forget(void *arg, uint64_t worker_id)
{
    scheduler_remove_worker(((struct world *)arg)->scheduler, worker_id);
}

/* The worker may have answered already: what comes then must be refused. */
static void on_withdraw(void *arg, uint64_t question)
{
    (void)arg, (void)question;
}

static void on_note(void *arg, enum event_note what, struct worker_rank id, uint64_t first,
                    uint64_t last)
{
    (void)id, (void)first, (void)last;
    ((struct world *)arg)->notes[what]++;
}

/* --- events on their way ---------------------------------------------------------------------- */

static void deliver(struct world *w, const struct kv_event *ev, uint64_t sent_ms)
{
    struct event_order_stats s;

    event_order_live(w->order, ev, sent_ms, w->now_ms);
    s = event_order_stats(w->order);
    w->held_max = MAX(w->held_max, s.held_bytes);
    assert_true(s.held_bytes <= EVENT_HELD_BYTES_ALL && s.strangers <= EVENT_STRANGERS_MAX);
}

static void put_late(struct rank *rk, const struct kv_event *ev)
{
    struct message *m = &rk->late[rk->n_late];

    if (rk->n_late == LATE)
        return; /* lost, then */
    rk->n_late++;
    *m = (struct message){.sent_ms = rk->w->now_ms, .later = 1 + (unsigned)draw(rk->w, 6)};
    event_queue_put(&m->one, ev);
}

static void deliver_late(struct rank *rk, bool all)
{
    size_t kept = 0;

    for (size_t i = 0; i < rk->n_late; i++) {
        struct message *m = &rk->late[i];

        if (!all && --m->later > 0) {
            rk->late[kept++] = *m;
            continue;
        }
        deliver(rk->w, event_queue_head(&m->one), m->sent_ms);
        event_queue_done(&m->one);
    }
    rk->n_late = kept;
}

static void publish(struct rank *rk, const struct kv_event *ev)
{
    struct world *w = rk->w;

    w->n_events++;
    event_queue_put(&rk->ring, ev);
    if (rk->ring.n > RING)
        event_queue_drop_head(&rk->ring);
    if (one_in(w, 4000))
        rk->to_lose = (unsigned)draw(w, BURST);
    if (rk->to_lose > 0 && w->lossy) {
        rk->to_lose--;
        return;
    }
    if (one_in(w, 200))
        return;
    if (one_in(w, 100))
        put_late(rk, ev);
    else
        deliver(w, ev, w->now_ms);
    if (one_in(w, 100)) /* twice, perhaps out of order */
        put_late(rk, ev);
    deliver_late(rk, false);
}

/* --- workers ---------------------------------------------------------------------------------- */

static struct kv_event event_of(struct rank *rk, enum kv_event_kind kind)
{
    return (struct kv_event){.worker_id = rk->id.worker_id,
                             .dp_rank = rk->id.dp_rank,
                             .event_id = rk->next_id++,
                             .kind = kind};
}

static void on_cache_event(void *arg, const struct cache_event *ev)
{
    struct kv_event out = event_of(arg, ev->kind == CACHE_STORED ? KV_STORED : KV_REMOVED);

    _Static_assert(sizeof(struct cache_block) == sizeof(struct kv_block), "same layout");
    out.parent_hash = (struct opt_u64){ev->has_parent, ev->parent};
    out.blocks = (const struct kv_block *)(const void *)ev->blocks;
    out.n_blocks = ev->n_blocks;
    out.removed = ev->removed;
    out.n_removed = ev->n_removed;
    publish(arg, &out);
}

static void rank_start(struct rank *rk)
{
    block_cache_free(rk->cache);
    rk->cache = block_cache_new(CAPACITY, on_cache_event, rk);
}

static void rank_restart(struct rank *rk)
{
    rank_start(rk);
    event_queue_done(&rk->ring);
    rk->next_id = 0;
    rk->to_lose = 0;
}

static void rank_clear(struct rank *rk)
{
    struct kv_event ev = event_of(rk, KV_CLEARED);

    rank_start(rk);
    publish(rk, &ev);
}

static void rank_end(struct rank *rk)
{
    deliver_late(rk, true); /* after the router has heard that it left */
    rk->cache = block_cache_free(rk->cache);
    event_queue_done(&rk->ring);
    rk->next_id = 0;
}

static void worker_resize(struct world *w, struct worker *wk, uint32_t n_ranks)
{
    uint32_t before = wk->n_ranks;

    for (uint32_t i = before; i < n_ranks; i++) {
        wk->ranks[i] = (struct rank){.w = w, .id = {wk->id, i}};
        rank_start(&wk->ranks[i]);
    }
    wk->n_ranks = n_ranks;
    if (n_ranks > 0) {
        assert_true(scheduler_put_worker(
            w->scheduler, &(struct worker_info){.worker_id = wk->id, .dp_size = n_ranks}));
        event_order_put_worker(w->order, wk->id, 0, n_ranks, true, w->now_ms);
    } else {
        event_order_remove_worker(w->order, wk->id);
        scheduler_remove_worker(w->scheduler, wk->id);
    }
    for (uint32_t i = n_ranks; i < before; i++)
        rank_end(&wk->ranks[i]);
}

/* Most come back as somebody else, some under the id that they had. */
static void worker_toggle(struct world *w, struct worker *wk)
{
    if (wk->n_ranks > 0) {
        worker_resize(w, wk, 0);
        return;
    }
    if (!wk->id || draw(w, 4) > 0)
        wk->id = ++w->next_worker << 32 | 1;
    wk->newer = draw(w, 3) == 0;
    worker_resize(w, wk, 1 + (uint32_t)draw(w, RANKS));
}

static struct rank *rank_of(struct world *w, struct worker_rank id)
{
    for (size_t i = 0; i < WORKERS; i++)
        if (w->workers[i].id == id.worker_id && id.dp_rank < w->workers[i].n_ranks)
            return &w->workers[i].ranks[id.dp_rank];
    return NULL;
}

static bool is_newer(struct rank *rk)
{
    return CONTAINER_OF(rk - rk->id.dp_rank, struct worker, ranks[0])->newer;
}

/* --- recovery --------------------------------------------------------------------------------- */

struct dump {
    struct rank *rk;
    struct event_queue *out;
    uint64_t next_id;
};

static void dump_block(void *arg, const struct cache_block *block, const uint64_t *parent)
{
    struct dump *d = arg;
    const struct kv_block b = {block->hash, block->tokens_hash};
    const struct kv_event ev = {.worker_id = d->rk->id.worker_id,
                                .dp_rank = d->rk->id.dp_rank,
                                .event_id = d->next_id++,
                                .kind = KV_STORED,
                                .parent_hash = {parent != NULL, parent ? *parent : 0},
                                .blocks = &b,
                                .n_blocks = 1};

    event_queue_put(d->out, &ev);
}

/* As router/sync/event_ring answers. */
static void make_reply(struct world *w, struct reply *r)
{
    struct rank *rk = rank_of(w, r->question.worker);
    const struct event_question *q = &r->question;
    const struct kv_event *oldest = rk ? event_queue_head(&rk->ring) : NULL;

    r->made = true;
    if (!rk)
        return;
    r->newest = (struct opt_u64){rk->next_id > 0 && is_newer(rk), rk->next_id - 1};
    if (!q->first.set || !oldest || q->first.v < oldest->event_id) {
        r->is_dump = true;
        block_cache_each(rk->cache, dump_block, &(struct dump){rk, &r->events, 0});
    } else if (q->first.v >= rk->next_id) {
        r->too_new = true;
        r->newest = OPT_U64(rk->next_id - 1);
    } else {
        for (size_t i = 0; i < rk->ring.n; i++) {
            const struct kv_event *ev = rk->ring.events[rk->ring.first + i];

            if (ev->event_id >= q->first.v && (!q->last.set || ev->event_id <= q->last.v))
                event_queue_put(&r->events, ev);
        }
    }
}

static void give_reply(struct world *w, struct reply *r)
{
    bool half = one_in(w, 100);

    if (!r->made)
        make_reply(w, r);
    if (one_in(w, 20) || !rank_of(w, r->question.worker)) {
        event_order_answer_failed(w->order, r->question.number, false, w->now_ms);
    } else if (r->too_new) {
        event_order_answer_too_new(w->order, r->question.number, r->newest.v, w->now_ms);
    } else if (event_order_answer_begin(w->order, r->question.number, r->is_dump, r->newest)) {
        for (size_t i = 0; i < (half ? r->events.n / 2 : r->events.n); i++)
            event_order_answer_feed(w->order, r->events.events[r->events.first + i]);
        event_order_answer_end(w->order, !half, w->now_ms);
    }
    event_queue_done(&r->events);
}

static void ask(struct world *w, const struct event_question *q)
{
    struct reply r = {.question = *q};

    w->asked[q->kind]++;
    r.due_ms = w->now_ms + 1 + draw(w, draw(w, 50) ? 200 : 4000);
    if (draw(w, 2))
        make_reply(w, &r);
    if (w->n_replies == w->cap_replies) {
        w->cap_replies = w->cap_replies ? 2 * w->cap_replies : 16;
        w->replies = xreallocarray(w->replies, w->cap_replies, sizeof(*w->replies));
    }
    w->replies[w->n_replies++] = r;
}

static void recover(struct world *w)
{
    struct event_question q;

    for (size_t i = 0; i < w->n_replies;) {
        struct reply r = w->replies[i];

        if (r.due_ms > w->now_ms) {
            i++;
            continue;
        }
        w->replies[i] = w->replies[--w->n_replies];
        give_reply(w, &r);
    }
    while (event_order_next(w->order, w->now_ms, &q))
        ask(w, &q);
}

/* --- requests --------------------------------------------------------------------------------- */

struct prompt {
    uint64_t local[PROMPT_BLOCKS], sequence[PROMPT_BLOCKS];
    size_t n;
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ b * UINT64_C(0xD6E8FEB86659FD93)) * UINT64_C(0xFF51AFD7ED558CCD);

    return x ^ x >> 32;
}

/* Conversations: they share beginnings and fork every eight blocks. */
static void make_prompt(struct world *w, struct prompt *p)
{
    uint64_t path = 1 + draw(w, 100);

    p->n = 2 + (size_t)draw(w, PROMPT_BLOCKS - 1);
    for (size_t i = 0; i < p->n; i++) {
        if (i % 8 == 0)
            path = mix(path, 1 + draw(w, i ? 3 : 1));
        p->local[i] = mix(path, i + 1000);
        p->sequence[i] = i ? mix(p->sequence[i - 1], p->local[i]) : p->local[0];
    }
}

/* Engines name blocks as they like. */
static void compute(struct rank *rk, const struct prompt *p)
{
    struct cache_block chain[PROMPT_BLOCKS];
    size_t cached;

    for (size_t i = 0; i < p->n; i++)
        chain[i] = (struct cache_block){mix(p->sequence[i], rk->id.worker_id), p->local[i]};
    cached = block_cache_match(rk->cache, chain, p->n);
    block_cache_hold(rk->cache, chain, p->n);
    block_cache_computed(rk->cache, chain, cached, p->n);
    block_cache_release(rk->cache, chain, p->n);
    block_cache_flush(rk->cache);
}

static void request(struct world *w)
{
    size_t at = (size_t)draw(w, OPEN_REQUESTS);
    struct worker *wk = &w->workers[draw(w, WORKERS)];
    struct prompt p;
    struct route_request q = {.local = p.local,
                              .sequence = p.sequence,
                              .overlap_weight = NAN,
                              .temperature = NAN,
                              .now_ns = w->now_ms * 1000000,
                              .random = draw(w, UINT64_MAX)};

    make_prompt(w, &p);
    q.n_blocks = p.n;
    q.isl = (uint32_t)(p.n * BLOCK_SIZE + draw(w, BLOCK_SIZE));
    if (wk->n_ranks > 0 && draw(w, 8)) { /* the rest as the policy likes: it costs its time */
        q.pinned = true;
        q.pin = (struct worker_rank){wk->id, (uint32_t)draw(w, wk->n_ranks)};
    }
    w->bookings[at] = booking_end(w->bookings[at], w->now_ms * 1000000, true);
    if (scheduler_route(w->scheduler, &q, &w->decision, &w->bookings[at]) != 0)
        return;
    compute(rank_of(w, w->decision.candidates[w->decision.chosen].worker), &p);
    if (draw(w, 2))
        booking_first_token(w->bookings[at], w->now_ms * 1000000);
}

static void mishap(struct world *w)
{
    struct worker *wk = &w->workers[draw(w, WORKERS)];
    struct rank *rk = wk->n_ranks ? &wk->ranks[draw(w, wk->n_ranks)] : NULL;

    if (one_in(w, 4000) || (!rk && one_in(w, 100)))
        worker_toggle(w, wk);
    else if (rk && one_in(w, 4000))
        worker_resize(w, wk, 1 + (uint32_t)draw(w, RANKS));
    else if (rk && one_in(w, 1000))
        rank_clear(rk);
    else if (rk && rk->next_id > YOUNG && one_in(w, 200))
        rank_restart(rk);
}

/* --- the course ------------------------------------------------------------------------------- */

static void settle(struct world *w)
{
    struct event_order_stats s;
    unsigned rounds = 0;

    do {
        w->now_ms += 50;
        recover(w);
        s = event_order_stats(w->order);
        assert_true(++rounds < 100000);
    } while (s.waiting || s.asking || w->n_replies);
    assert_int_equal(s.held, 0);
    assert_int_equal(s.held_bytes, 0);
}

static void each_rank(struct world *w, void (*fn)(struct world *w, struct rank *rk))
{
    for (size_t i = 0; i < WORKERS; i++)
        for (uint32_t k = 0; k < w->workers[i].n_ranks; k++)
            fn(w, &w->workers[i].ranks[k]);
}

static void let_all_arrive(struct world *w, struct rank *rk)
{
    (void)w;
    deliver_late(rk, true);
}

static void take_block(void *arg, const struct cache_block *block, const uint64_t *parent)
{
    struct rank *rk = arg;

    (void)parent;
    assert_int_equal(scheduler_remove(rk->w->scheduler, rk->id, &block->hash, 1), 0);
}

/* Each block that the worker holds was in the index under its name. */
static void take_blocks(struct world *w, struct rank *rk)
{
    (void)w;
    block_cache_each(rk->cache, take_block, rk);
}

static size_t n_true_blocks;

static void count_blocks(struct world *w, struct rank *rk)
{
    (void)w;
    n_true_blocks += block_cache_computed_count(rk->cache);
}

/* Every prompt is found exactly as deep as the worker has it. */
static void compare_depths(struct world *w)
{
    for (int i = 0; i < 300; i++) {
        struct prompt p;
        struct route_request q = {.local = p.local,
                                  .sequence = p.sequence,
                                  .overlap_weight = NAN,
                                  .temperature = NAN,
                                  .query_only = true};
        struct booking *none;

        make_prompt(w, &p);
        q.n_blocks = p.n;
        q.isl = (uint32_t)p.n * BLOCK_SIZE;
        assert_int_equal(scheduler_route(w->scheduler, &q, &w->decision, &none), 0);
        for (size_t k = 0; k < w->decision.n_candidates; k++) {
            const struct route_candidate *c = &w->decision.candidates[k];
            struct cache_block chain[PROMPT_BLOCKS];

            for (size_t b = 0; b < p.n; b++)
                chain[b] =
                    (struct cache_block){mix(p.sequence[b], c->worker.worker_id), p.local[b]};
            assert_int_equal(c->overlap_blocks,
                             block_cache_match(rank_of(w, c->worker)->cache, chain, p.n));
        }
    }
}

static void expect_no_bookings(struct world *w)
{
    struct worker_load loads[WORKERS * RANKS];
    size_t n;

    for (size_t i = 0; i < OPEN_REQUESTS; i++)
        w->bookings[i] = booking_end(w->bookings[i], w->now_ms * 1000000, true);
    n = scheduler_loads(w->scheduler, loads, ARRAY_LEN(loads));
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(loads[i].active_decode_blocks, 0);
        assert_int_equal(loads[i].active_prefill_tokens, 0);
        assert_int_equal(loads[i].active_requests, 0);
    }
}

static struct world *world_new(void)
{
    struct world *w = xcalloc(1, sizeof(*w));

    w->random = 20261121;
    w->now_ms = 1000000;
    w->scheduler = scheduler_new(BLOCK_SIZE, &ROUTE_CONF_KV);
    w->order = event_order_new(&(struct event_order_sink){.apply = on_apply,
                                                          .clear = on_clear,
                                                          .forget = on_forget,
                                                          .withdraw = on_withdraw,
                                                          .note = on_note,
                                                          .arg = w});
    for (size_t i = 0; i < WORKERS; i++)
        worker_toggle(w, &w->workers[i]);
    w->lossy = true;
    return w;
}

static void world_free(struct world *w)
{
    for (size_t i = 0; i < WORKERS; i++)
        for (uint32_t k = 0; k < w->workers[i].n_ranks; k++) {
            block_cache_free(w->workers[i].ranks[k].cache);
            event_queue_done(&w->workers[i].ranks[k].ring);
        }
    route_decision_done(&w->decision);
    event_order_free(w->order);
    scheduler_free(w->scheduler);
    free(w->replies);
    free(w);
}

static void tell(const struct world *w)
{
    struct prefix_stats s = scheduler_index_stats(w->scheduler);

    printf("# %llu events: %zu gaps, %zu restarts, %zu duplicates, %zu stale, %zu overflows, "
           "%zu gave up, %zu orphans\n"
           "# asked: %zu news, %zu ranges, %zu positions, %zu dumps; held at most %zu KiB; "
           "index %zu blocks, %zu KiB\n",
           (unsigned long long)w->n_events, w->notes[EVENT_GAP], w->notes[EVENT_RESTARTED],
           w->notes[EVENT_DUPLICATE], w->notes[EVENT_STALE], w->notes[EVENT_OVERFLOW],
           w->notes[EVENT_GAVE_UP], w->orphans, w->asked[EVENT_ASK_NEWS], w->asked[EVENT_ASK_RANGE],
           w->asked[EVENT_ASK_POSITION], w->asked[EVENT_ASK_DUMP], w->held_max >> 10, s.entries,
           s.bytes >> 10);
}

static uint64_t events_wanted(void)
{
    const char *text = getenv("COMMUTATOR_CHURN_EVENTS");
    uint64_t n = EVENTS;

    if (text && !str_parse_u64(str_from(text), &n))
        fail_msg("COMMUTATOR_CHURN_EVENTS is no number: %s", text);
    return n;
}

static void the_index_is_what_the_workers_hold(void **state)
{
    struct world *w = world_new();
    uint64_t wanted = events_wanted();

    (void)state;
    while (w->n_events < wanted) {
        w->now_ms++;
        mishap(w);
        request(w);
        recover(w);
        if (w->now_ms % 1000 == 0)
            event_order_tick(w->order, w->now_ms);
    }
    w->lossy = false;
    each_rank(w, let_all_arrive);
    settle(w);
    event_order_check(w->order, w->now_ms); /* the last events of a rank may be lost too */
    settle(w);
    event_order_tick(w->order, w->now_ms + EVENT_STRANGER_MS);
    tell(w);

    expect_no_bookings(w);
    assert_int_equal(w->notes[EVENT_GAVE_UP], 0);
    assert_true(w->notes[EVENT_GAP] && w->notes[EVENT_RESTARTED] && w->notes[EVENT_DUPLICATE]);
    each_rank(w, count_blocks);
    assert_int_equal(scheduler_index_stats(w->scheduler).entries, n_true_blocks);
    assert_true(n_true_blocks > 10000);
    compare_depths(w);
    each_rank(w, take_blocks);
    assert_int_equal(scheduler_index_stats(w->scheduler).entries, 0);
    assert_int_equal(scheduler_index_stats(w->scheduler).nodes, 0);
    world_free(w);
}

int main(void)
{
    return TEST_RUN(T(the_index_is_what_the_workers_hold));
}
