/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing and keeping account, on the loop.
 */
#include <math.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/base/metric.h"
#include "router/epp/picker_inner.h"
#include "router/sched/sequences.h"
#include "router/wire/trace_context.h"

static const struct log_target LG = {"commutator::epp"};

struct booked {
    struct booking *booking;
    struct pool *pool; /* a reference: the booking is of its scheduler */
};

/* --- models ------------------------------------------------------------------------------------ */

static bool is_ours(const struct picker *p, const struct model *m)
{
    return model_is_served(m) && strcmp(m->pool->component, p->component) == 0 &&
           (!p->model || strcmp(m->name, p->model) == 0) && scheduler_workers(m->pool->scheduler) &&
           model_can_tokenize(m, true);
}

/* Any of ours; NULL when there is none. */
static struct model *first_model(const struct picker *p)
{
    struct str set;
    void *value;

    for (size_t at = 0; p->serving && strmap_next(p->serving->models, &at, &set, &value);)
        if (is_ours(p, value))
            return value;
    return NULL;
}

bool picker_can_route(const struct picker *p)
{
    const struct model *m = first_model(p);

    return m && (!p->enforce_disagg || serving_find_prefill(p->serving, m));
}

/* Of several sets of workers the same one for the same request: its prefill and its decode are
 * asked for one after the other, and blocks go from one to the other. */
struct model *picker_take_model(struct picker *p, const struct openai_request *in, struct str body)
{
    struct model *any = first_model(p), *m;
    struct str name;

    if (!any)
        return NULL;
    name = serving_find_model(p->serving, in->model) ? in->model : str_from(any->name);
    m = serving_pick_model(p->serving, name, (struct opt_u64){.set = false}, body);
    while (m && !is_ours(p, m))
        m = m->next_set;
    return model_ref(m ? m : any);
}

/* --- prompts ----------------------------------------------------------------------------------- */

/* A prompt as schedulers know it. */
struct hashed {
    uint64_t *local, *sequence, *tracked; /* tracked NULL = sequence */
    size_t n;
};

static void hashed_done(struct hashed *h)
{
    free(h->local);
    free(h->sequence);
    free(h->tracked);
}
DEFINE_CLEANUP_EMBEDDED(struct hashed, hashed_done)

static struct hashed hash(const struct picker *p, const struct model *m, const struct pool *pool,
                          const struct pick *pick)
{
    struct str own = pick->salt;
    size_t n = pick->n_tokens / scheduler_block_size(pool->scheduler);
    struct hashed h = {.local = xcalloc(n + 1, sizeof(uint64_t)),
                       .sequence = xcalloc(n + 1, sizeof(uint64_t)),
                       .tracked = xcalloc(n + 1, sizeof(uint64_t))};

    h.n = pool_hash(pool, model_salt(m, own), pick->tokens, pick->n_tokens, h.local, h.sequence);
    if (!pool_cuts_as(pool, m->pool) ||
        !serving_track(p->serving, m, own, pick->tokens, pick->n_tokens, h.tracked)) {
        free(h.tracked);
        h.tracked = NULL;
    }
    return h;
}

static struct route_request query(const struct hashed *h, const struct pick *pick)
{
    const struct openai_request *in = pick->request;
    struct route_request q = {.id = STR("epp"),
                              .local = h->local,
                              .sequence = h->sequence,
                              .tracked = h->tracked,
                              .n_blocks = h->n,
                              .tokens = pick->salt.len ? NULL : pick->tokens,
                              .n_tokens = pick->n_tokens,
                              .isl = (uint32_t)MAX(pick->n_tokens, (size_t)1),
                              .overlap_weight = pick->disagg ? 0 : NAN,
                              .no_kv_reuse = pick->disagg,
                              .no_prefill_tokens = pick->disagg,
                              .temperature = NAN,
                              .now_ns = clock_now_ns(),
                              .clock = clock_now_ns,
                              .random = random_u64()};

    if (in) {
        q.required = in->required_taints;
        q.n_required = in->n_required_taints;
        q.preferred = in->preferred_taints;
        q.n_preferred = in->n_preferred_taints;
    }
    return q;
}

/* --- choosing ---------------------------------------------------------------------------------- */

/* Workers of @pool in none of the pods. */
static size_t left_out(const struct pool *pool, const struct pods *pods, uint64_t *ret_ids)
{
    uint64_t id, worker;
    size_t n = 0;

    for (size_t at = 0; pods->n && map64_next(&pool->workers, &at, &id, &worker);)
        if (!pods_have(pods, id))
            ret_ids[n++] = id;
    return n;
}

static query_router_result_t code_of(int result)
{
    if (result == 0)
        return QUERY_ROUTER_OK;
    return result == ROUTE_ALL_BUSY ? QUERY_ROUTER_ERR_BACKPRESSURE : QUERY_ROUTER_ERR_QUERY_FAILED;
}

query_router_result_t picker_choose(struct picker *p, struct model *m, struct pick *pick)
{
    AUTO(route_decision_done) struct route_decision d = {.n_candidates = 0};
    AUTO(mem_free) uint64_t *out = NULL;
    struct pool *pool = m->pool;
    struct booking *turn = NULL;
    struct pool_avoid avoid;
    int r;

    if (!p->serving)
        return QUERY_ROUTER_ERR_INVALID_HANDLE;
    if (pick->role == POOL_PREFILL)
        pool = serving_find_prefill(p->serving, m);
    else if (p->enforce_disagg && !pick->disagg)
        return QUERY_ROUTER_ERR_DISAGG_ENFORCED;
    if (!pool)
        return QUERY_ROUTER_ERR_QUERY_FAILED;
    out = xcalloc(pool->workers.len + 1, sizeof(*out));
    avoid = (struct pool_avoid){out, left_out(pool, &pick->pods, out)};
    {
        AUTO(hashed_done) struct hashed h = hash(p, m, pool, pick);
        struct route_request q = query(&h, pick);

        q.query_only = p->serving->route.mode == ROUTE_KV;
        r = pool_route(pool, &q, avoid, &d, &turn);
    }
    if (turn) /* other modes move on with what is sent, and this is as if it were */
        booking_end(turn, clock_now_ns(), false);
    if (r == 0) {
        pick->worker = d.candidates[d.chosen].worker;
        pool_trace(pool, &d, "epp", &(struct trace_context){.trace_id = ""});
    } else {
        log_warn(&LG, "nobody may be chosen", LOG_STR("worker_type", POOL_ROLE_WORDS[pool->role]),
                 LOG_U64("workers", pool->workers.len), LOG_U64("left_out", avoid.n));
    }
    return code_of(r);
}

query_router_result_t picker_choose_pair(struct picker *p, struct model *m, struct pick *pick,
                                         struct opt_u64 *ret_prefill)
{
    *ret_prefill = (struct opt_u64){.set = false};
    if (p->serving && serving_find_prefill(p->serving, m)) {
        pick->role = POOL_PREFILL;
        if (picker_choose(p, m, pick) == QUERY_ROUTER_OK)
            *ret_prefill = OPT_U64(pick->worker.worker_id);
    }
    pick->role = POOL_DECODE;
    pick->disagg = ret_prefill->set;
    return picker_choose(p, m, pick);
}

/* --- account ----------------------------------------------------------------------------------- */

static struct model *model_of_worker(const struct picker *p, uint64_t worker_id)
{
    struct str set;
    void *value;

    for (size_t at = 0; strmap_next(p->serving->models, &at, &set, &value);)
        if (pool_worker(((struct model *)value)->pool, worker_id))
            return value;
    return NULL;
}

static struct booking *book(struct picker *p, struct model *m, const struct pick *pick)
{
    AUTO(route_decision_done) struct route_decision d = {.n_candidates = 0};
    AUTO(hashed_done) struct hashed h = hash(p, m, m->pool, pick);
    struct route_request q = query(&h, pick);
    struct booking *b = NULL;

    q.pinned = true;
    q.pin = pick->worker;
    return pool_route(m->pool, &q, (struct pool_avoid){NULL, 0}, &d, &b) == 0 ? b : NULL;
}

static void note_bookings(struct picker *p)
{
    metric_set(p->bookings, (double)strmap_len(p->booked));
}

query_router_result_t picker_book(struct picker *p, struct str id, const struct pick *asked)
{
    const struct worker_rank worker = asked->worker;
    struct pick pick = *asked;
    struct booking *b;
    struct booked *one;
    struct model *m;

    if (!p->serving)
        return QUERY_ROUTER_ERR_INVALID_HANDLE;
    if (strmap_get(p->booked, id)) {
        log_warn(&LG, "a request of that id is booked already", LOG_VIEW("request_id", id));
        return QUERY_ROUTER_OK;
    }
    if (strmap_len(p->booked) >= p->serving->requests_max) {
        metric_add(p->refused, 1);
        log_warn(&LG, "not booked: too many requests are", LOG_VIEW("request_id", id));
        return QUERY_ROUTER_ERR_BACKPRESSURE;
    }
    m = model_of_worker(p, worker.worker_id);
    pick.disagg = m && serving_find_prefill(p->serving, m);
    b = m ? book(p, m, &pick) : NULL;
    if (!b) {
        log_warn(&LG, "not booked: its worker is not known, or cannot be chosen",
                 LOG_VIEW("request_id", id), LOG_U64("worker_id", worker.worker_id),
                 LOG_U64("dp_rank", worker.dp_rank));
        return QUERY_ROUTER_OK;
    }
    one = xcalloc(1, sizeof(*one));
    *one = (struct booked){b, pool_ref(m->pool)};
    (void)strmap_set(p->booked, id, one);
    note_bookings(p);
    return QUERY_ROUTER_OK;
}

void picker_prefilled(struct picker *p, struct str id)
{
    const struct booked *one = strmap_get(p->booked, id);

    if (one)
        booking_first_token(one->booking, clock_now_ns());
    else
        log_warn(&LG, "no prefill to complete: not booked", LOG_VIEW("request_id", id));
}

static void end(struct booked *one)
{
    booking_end(one->booking, clock_now_ns(), true);
    pool_unref(one->pool);
    free(one);
}

void picker_end(struct picker *p, struct str id)
{
    struct booked *one = strmap_remove(p->booked, id);

    if (!one) {
        log_debug(&LG, "nothing to free: not booked", LOG_VIEW("request_id", id));
        return;
    }
    end(one);
    note_bookings(p);
}

static void drop(void *one)
{
    end(one);
}

void picker_drop_bookings(struct picker *p)
{
    (void)strmap_free_with(p->booked, drop);
    p->booked = strmap_new();
}
