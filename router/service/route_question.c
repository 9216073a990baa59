/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to the stand-alone router: they are answered as a request would be routed now, and book
 * nothing.
 */
#include <inttypes.h>

#include "lib/base/json_put.h"
#include "router/frontend/shared_cache.h"
#include "router/service/overlap_scores.h"
#include "router/service/route_state.h"
#include "router/wire/plane_server.h"

/* For who only asks; NULL when that failed, and was told. */
static struct route_stream *question_new(struct route_pool *p, struct plane_request *rq,
                                         enum route_endpoint endpoint)
{
    struct route_stream *s = route_stream_new(p, rq, endpoint);
    struct err e;

    if (routed_request_parse(s->arena, plane_request_body(rq), &s->in, &e) < 0) {
        route_fail(s, e.text);
        return NULL;
    }
    route_hash_prompt(s);
    return s;
}

static void answer(struct route_stream *s, struct str item)
{
    plane_request_start(s->request);
    route_send_item(s, item);
    plane_request_finish(s->request);
    route_stream_free(s);
}

static void tell_best_worker(struct route_stream *s)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    int r = route_decide(s, true);

    if (r != 0) {
        route_fail(s, routing_refusal(r));
        return;
    }
    buf_printf(&out, "%" PRIu64, route_chosen(s).worker_id);
    answer(s, buf_str(&out));
}

void route_best_worker_serve(struct route_pool *p, struct plane_request *rq)
{
    struct route_stream *s = question_new(p, rq, ROUTE_BEST_WORKER);

    if (s)
        route_look_up(s, tell_best_worker);
}

static bool wants_shared(const struct route_stream *s)
{
    const struct opt_bool *wanted = &s->in.include_shared;

    return (!wanted->set || wanted->v) &&
           shared_cache_is_asked(s->pool->shared, scheduler_conf(s->pool->scheduler));
}

/* No decision, and none is noted. */
static void tell_overlap_scores(struct route_stream *s)
{
    struct route_pool *p = s->pool;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct route_request q = route_query(s);
    struct overlap_shared shared = {.enabled = wants_shared(s)};
    struct shared_hits hits;
    int r;

    if (shared.enabled)
        q.shared = shared.hits = route_ask_shared(s, &hits);
    q.query_only = true;
    r = scheduler_route(p->scheduler, &q, &s->decision, &s->booking);
    (void)r;
    overlap_scores_put(&j, scheduler_block_size(p->scheduler), s->n_blocks, &shared, &s->decision);
    answer(s, buf_str(&out));
}

void route_overlap_scores_serve(struct route_pool *p, struct plane_request *rq)
{
    struct route_stream *s = question_new(p, rq, ROUTE_OVERLAP_SCORES);

    if (s)
        route_look_up(s, tell_overlap_scores);
}
