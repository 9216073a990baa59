/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that only ask who would be chosen: nvext.annotations "query_instance_id:…", in mode kv
 * (router.md §4.5). Nothing is sent, nothing is booked; the answer is the workers and the tokens.
 */
#include "router/frontend/decision_note.h"
#include "router/frontend/event_stream.h"
#include "router/frontend/request_state.h"

/* Who would compute the prompt, where there are workers for that; else nothing is written. */
static int ask_prefill(struct request *rq, uint64_t *ret_worker)
{
    struct pool *pool = serving_find_prefill(rq->s, rq->m);
    AUTO(route_decision_done) struct route_decision d = {.n_candidates = 0};
    struct route_request q;
    struct booking *none;
    int r;

    if (!pool)
        return 0;
    q = request_query_of(rq, pool);
    q.query_only = true;
    q.pinned = rq->in.prefill_worker_id.set;
    q.pin.worker_id = rq->in.prefill_worker_id.v;
    r = pool_route(pool, &q, request_avoid(rq, pool), &d, &none);
    if (r == 0)
        *ret_worker = d.candidates[d.chosen].worker.worker_id;
    return r;
}

static void answer(struct request *rq, uint64_t prefill, uint64_t decode)
{
    AUTO(chunk_done) struct chunk chunk;
    AUTO(buf_done) struct buf out = BUF_NULL;

    chunk_init(&chunk, rq->in.api, rq->m->chunks, str_from(rq->id), rq->in.model,
               clock_wall_ms() / 1000);
    chunk_tell_workers(&chunk, &(struct chunk_workers){.prefill_id = prefill, .decode_id = decode});
    chunk_tell_tokens(&chunk, rq->prompt.ptr, rq->prompt.len);
    if (rq->dialect) {
        rq->dialect->put_body(rq->told, &out, &(struct chunk_delta){.text = STR_NULL}, &chunk,
                              &(struct dialect_end){.end = &(struct chunk_end){.finish = "stop"},
                                                    .completed = clock_wall_ms() / 1000});
        http_respond(rq->x, 200, "application/json", buf_str(&out));
    } else if (rq->in.stream) {
        chunk_put_text(&chunk, &out, STR_NULL, NULL);
        chunk_put_done(&out);
        event_stream_open(rq->x);
        http_stream_write(rq->x, buf_str(&out));
        http_stream_end(rq->x);
    } else {
        chunk_put_folded(&chunk, &out, &(struct chunk_delta){.text = STR_NULL}, NULL, NULL);
        http_respond(rq->x, 200, "application/json", buf_str(&out));
    }
    request_finish(rq);
}

enum step_result request_tell(struct request *rq)
{
    struct route_request q = request_query_of(rq, rq->m->pool);
    uint64_t prefill, decode;
    int r;

    q.query_only = true;
    if (serving_find_prefill(rq->s, rq->m))
        q.overlap_weight = 0; /* as if its prompt came from there */
    request_pin(rq, &q);
    r = pool_route(rq->m->pool, &q, request_avoid(rq, rq->m->pool), &rq->decision, &rq->booking);
    request_note_decision(rq, &q, r);
    rq->decision_seq = 0; /* nothing comes of it */
    if (r == 0) {
        prefill = decode = rq->decision.candidates[rq->decision.chosen].worker.worker_id;
        r = ask_prefill(rq, &prefill);
    }
    if (r != 0)
        return request_route_failed(rq, r);
    pool_trace(rq->m->pool, &rq->decision, rq->id, &rq->trace);
    answer(rq, prefill, decode);
    return STEP_DONE;
}
