/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/route_decision.h"

#include <inttypes.h>

const char *route_reject_word(enum route_reject why)
{
    switch (why) {
    case ROUTE_REJECT_FAILED:
        return "failed";
    case ROUTE_REJECT_BUSY:
        return "busy";
    case ROUTE_REJECT_NOT_PINNED:
        return "not_pinned";
    case ROUTE_REJECT_TAINT:
        return "taint";
    case ROUTE_REJECT_SESSION:
        return "session";
    }
    return "";
}

void route_decision_done(struct route_decision *d)
{
    free(d->candidates);
    free(d->scores);
    free(d->rejections);
    *d = (struct route_decision){0};
}

static void put_choice(const struct route_decision *d, struct buf *out)
{
    const struct route_candidate *c = &d->candidates[d->chosen];

    buf_printf(out,
               "Selected worker: worker_id=%" PRIu64 " dp_rank=%" PRIu32
               ", logit: %.3f, cached blocks: %" PRIu32 ", tree size: %" PRIu64,
               c->worker.worker_id, c->worker.dp_rank, d->scores[d->chosen].logit,
               c->overlap_blocks, c->tree_size);
    if (c->total_kv_blocks)
        buf_printf(out, ", total blocks: %" PRIu64, c->total_kv_blocks);
}

void route_decision_trace(const struct route_decision *d, void (*line)(void *arg, struct str text),
                          void *arg)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (!d->policy->put)
        return;
    for (size_t i = 0; i < d->n_candidates; i++) {
        buf_clear(&out);
        d->policy->put(&d->candidates[i], &d->scores[i], &d->inputs, &out);
        line(arg, buf_str(&out));
    }
    if (d->pick.tied)
        line(arg, str_from(d->policy->tie_note));
    buf_clear(&out);
    put_choice(d, &out);
    line(arg, buf_str(&out));
}
