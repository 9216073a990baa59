/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a client is told that its request has failed: by a status, or by an event of its stream.
 */
#include "router/frontend/request_batch.h"
#include "router/frontend/request_relay.h"

/* In a stream that has begun. */
static void put_error(struct request *rq, const struct api_error *e)
{
    struct dialect_end end = {.failed = e};

    if (rq->own.answers) {
        request_relay_put_error(rq, e);
        return;
    }
    if (!rq->dialect) {
        chunk_put_error(rq->m->chunks, &rq->out, e->status, str_from(e->text));
        return;
    }
    if (rq->ended) {
        end.end = &rq->end;
        end.usage = &rq->usage;
    }
    rq->dialect->put_end(rq->told, &rq->out, &end);
}

static void end_stream(struct request *rq, const struct api_error *e)
{
    put_error(rq, e);
    if (!rq->own.answers)
        chunk_put_done(&rq->out);
    http_stream_write(rq->x, buf_str(&rq->out));
    http_stream_end(rq->x);
}

void request_put_failure(struct request *rq, const struct api_error *e)
{
    if (rq->batch)
        request_batch_fail(rq, e);
    else if (http_stream_has_begun(rq->x))
        end_stream(rq, e);
    else if (rq->own.refusal.len)
        http_respond(rq->x, e->status, "application/json", rq->own.refusal);
    else
        request_refuse(rq->x, rq->dialect, e);
}
