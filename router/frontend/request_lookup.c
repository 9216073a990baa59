/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step before admission where another router keeps the index: what is cached of the prompt is asked
 * there, of the pool that answers and of the one that may prefill at the same time. Once per request:
 * whoever waits for room or is tried again goes by the first answer.
 */
#include "router/frontend/request_state.h"
#include "router/sync/remote_index.h"

static void on_answer(void *arg)
{
    struct request *rq = arg;

    if (--rq->lookup.n_open == 0)
        request_go(rq, rq->step);
}

static void ask(struct request *rq, struct pool *pool)
{
    const struct route_request q = request_query(rq);
    const struct remote_prompt p = pool_remote_prompt(pool, &q);
    struct request_lookup *l = &rq->lookup;

    if (!pool->remote)
        return;
    l->asked[pool->role] = true;
    l->calls[pool->role] =
        remote_lookup_start(pool->remote, &p, &l->matches[pool->role], on_answer, rq);
    l->n_open += l->calls[pool->role] != NULL;
}

bool request_lookup_start(struct request *rq)
{
    const struct route_conf *route = &rq->s->route;
    struct pool *prefills = rq->form->splits_prompts ? serving_find_prefill(rq->s, rq->m) : NULL;

    if (route->mode != ROUTE_KV || route->remote == ROUTE_REMOTE_NOT || route->load_aware ||
        rq->n_blocks == 0)
        return false;
    ask(rq, rq->m->pool);
    if (prefills && pool_cuts_as(prefills, rq->m->pool))
        ask(rq, prefills);
    return rq->lookup.n_open > 0;
}

void request_lookup_done(struct request *rq)
{
    for (size_t role = 0; role < POOL_ROLES; role++) {
        rq->lookup.calls[role] = remote_lookup_free(rq->lookup.calls[role]);
        prompt_matches_done(&rq->lookup.matches[role]);
    }
}

struct route_request request_query_of(const struct request *rq, const struct pool *pool)
{
    struct route_request q = request_query(rq);

    if (!pool_cuts_as(pool, rq->m->pool))
        q.n_blocks = 0; /* the hashes at hand are of other blocks */
    else if (rq->lookup.asked[pool->role])
        q.matches = &rq->lookup.matches[pool->role];
    return q;
}
