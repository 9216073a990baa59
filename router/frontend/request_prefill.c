/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step between check and route: who computes the prompt (router.md §5.1).
 */
#include "lib/base/log.h"
#include "router/frontend/request_state.h"

static const struct log_target LG = {"commutator::frontend::request"};

static void count(const struct request *rq, const char *path, const char *reason)
{
    metric_add(metric_with(rq->s->metrics.prefills, rq->m->label, path, reason), 1);
}

/* --- without a prefill worker ------------------------------------------------------------------
 */

/* The worker that answers computes the prompt, unless the user wants no answer then. */
static enum step_result decode_alone(struct request *rq, const char *reason)
{
    rq->prefill = prefill_free(rq->prefill);
    count(rq, "fallback", reason);
    if (!rq->s->enforce_disagg) {
        log_warn(&LG, "no prefill worker did it, the decode worker computes the prompt",
                 LOG_REQUEST(rq->id, &rq->trace), LOG_STR("why", reason));
        rq->step = STEP_route;
        return STEP_MORE;
    }
    request_fail(
        rq, 503,
        "Failed to generate completions: prefill failed (%s), and --enforce-disagg forbids "
        "the decode worker to compute the prompt",
        reason);
    return STEP_DONE;
}

static enum step_result not_activated(struct request *rq)
{
    if (!rq->s->enforce_disagg) {
        rq->step = STEP_route;
        return STEP_MORE;
    }
    count(rq, "fallback", "not_activated");
    request_fail(rq, 503, "Failed to generate completions: Prefill router not yet activated");
    return STEP_DONE;
}

/* --- bypass ------------------------------------------------------------------------------------
 */

/* Whom @pool would choose, without booking. False when nobody. */
static bool peek(struct request *rq, struct pool *pool, struct route_decision *d,
                 struct route_candidate *ret)
{
    struct route_request q = request_query_of(rq, pool);
    struct booking *none;

    q.query_only = true;
    if (pool_route(pool, &q, request_avoid(rq, pool), d, &none) != 0)
        return false;
    *ret = d->candidates[d->chosen];
    return true;
}

/* The worker that would answer is asked for in mode kv only: others know no caches. */
static bool bypasses(struct request *rq, struct pool *prefills)
{
    const struct bypass_conf *conf = &rq->s->route.bypass;
    AUTO(route_decision_done) struct route_decision d = {.n_candidates = 0};
    struct route_candidate decode, prefill;
    struct bypass_signals s = {.prompt_tokens = rq->prompt.len};
    const struct pool_worker *w;
    enum bypass b;

    if (!conf->enabled || rq->s->route.mode != ROUTE_KV || rq->in.prefill_worker_id.set ||
        !peek(rq, rq->m->pool, &d, &decode))
        return false;
    s.cached_tokens = policy_credited_tokens(d.policy, &decode, &d.inputs);
    s.decode_blocks = decode.active_blocks + decode.new_blocks;
    s.decode_capacity_blocks = decode.total_kv_blocks;
    if (conf->policy != BYPASS_ISL_BOUNDING && peek(rq, prefills, &d, &prefill)) {
        w = pool_worker(prefills, prefill.worker.worker_id);
        s.prefill_tokens = prefill.prefill_tokens;
        s.prefill_batch = w ? w->max_num_batched_tokens : 0;
    }
    b = bypass_decide(conf, &s);
    if (b != BYPASS_NO)
        count(rq, bypass_is_on(b) ? "bypass" : "bypass_vetoed", bypass_word(b));
    if (!bypass_is_on(b))
        return false;
    log_info(&LG, "Conditional disagg routing to decode worker", LOG_REQUEST(rq->id, &rq->trace),
             LOG_U64("worker_id", decode.worker.worker_id), LOG_STR("why", bypass_word(b)),
             LOG_U64("overlap_tokens", s.cached_tokens),
             LOG_U64("net_new_tokens", s.prompt_tokens - MIN(s.cached_tokens, s.prompt_tokens)));
    rq->bypasses = true;
    rq->bypass_pin = decode.worker;
    return true;
}

/* --- with one ----------------------------------------------------------------------------------
 */

static void fill(void *arg, struct engine_request *ret)
{
    request_fill_engine(arg, ret);
}

static void on_go(void *arg)
{
    request_go(arg, STEP_route);
}

static void on_answered(void *arg, struct str item)
{
    request_take_answer(arg, item);
}

static void on_lost(void *arg)
{
    request_unroute(arg, DECISION_RETRIED);
}

static void on_failed(void *arg)
{
    struct request *rq = arg;

    if (decode_alone(rq, prefill_reason(rq->prefill)) == STEP_MORE)
        request_go(rq, STEP_route);
}

/* The worker that the request names, or the one it names for everything if that is one of @pool. */
static void pin(const struct request *rq, const struct pool *pool, struct route_request *q)
{
    if (rq->in.prefill_worker_id.set)
        q->pin =
            (struct worker_rank){rq->in.prefill_worker_id.v, (uint32_t)rq->in.prefill_dp_rank.v};
    else if (rq->pinned && pool_worker(pool, rq->pin))
        q->pin.worker_id = rq->pin;
    else
        return;
    q->pinned = true;
}

enum step_result request_prefill(struct request *rq)
{
    struct pool *pool = serving_find_prefill(rq->s, rq->m);
    struct prefill_conf conf = {.s = rq->s,
                                .pool = pool,
                                .id = rq->id,
                                .trace = &rq->trace,
                                .times = &rq->times,
                                .label = rq->m->label,
                                .request = request_query(rq),
                                .hashed_for = rq->m->pool,
                                .salt = model_salt(rq->m, rq->in.cache_salt),
                                .fill = fill,
                                .go = on_go,
                                .answered = model_is_of_1(rq->m) ? on_answered : NULL,
                                .lost = on_lost,
                                .failed = on_failed,
                                .arg = rq};

    rq->bypasses = false;
    if (!rq->form->splits_prompts) {
        rq->step = STEP_route;
        return STEP_MORE;
    }
    if (!pool)
        return not_activated(rq);
    conf.request.matches = request_query_of(rq, pool).matches;
    rq->step = STEP_route;
    if (bypasses(rq, pool))
        return STEP_MORE;
    pin(rq, pool, &conf.request);
    rq->prefill = prefill_new(&conf);
    switch (prefill_start(rq->prefill)) {
    case PREFILL_AHEAD:
    case PREFILL_READY:
        return STEP_MORE;
    case PREFILL_WAITING:
        return STEP_WAIT;
    case PREFILL_FAILED:
        break;
    }
    return decode_alone(rq, prefill_reason(rq->prefill));
}
