/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace lines of router.md §4.2, printed from the decision record and from nothing else: what a
 * user reads is what was computed.
 */
#include "router/sched/scheduler.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* One digit after the point like the reference, more only when the weight has more: the line must
 * compute. */
static const char *weight_text(double weight, char *out, size_t size)
{
    (void)snprintf(out, size, "%.1f", weight);
    if (strtod(out, NULL) != weight)
        (void)snprintf(out, size, "%.9g", weight);
    return out;
}

static void trace_candidate(const struct route_decision *d, const struct route_candidate *c,
                            struct buf *out)
{
    char text[32];
    const char *weight = weight_text(d->overlap_weight, text, sizeof(text));

    buf_printf(out,
               "Formula for worker_id=%" PRIu64 " dp_rank=%" PRIu32 " with %" PRIu32
               " cached blocks: %.3f = %s * prefill_blocks + decode_blocks = %s * %.3f + %.3f",
               c->worker.worker_id, c->worker.dp_rank, c->overlap_blocks, c->logit, weight, weight,
               c->prefill_blocks, c->decode_blocks);
}

static void trace_choice(const struct route_decision *d, struct buf *out)
{
    const struct route_candidate *c = &d->candidates[d->chosen];

    buf_printf(out,
               "Selected worker: worker_id=%" PRIu64 " dp_rank=%" PRIu32
               ", logit: %.3f, cached blocks: %" PRIu32 ", tree size: %" PRIu64,
               c->worker.worker_id, c->worker.dp_rank, c->logit, c->overlap_blocks, c->tree_size);
    if (d->total_kv_blocks)
        buf_printf(out, ", total blocks: %" PRIu64, d->total_kv_blocks);
}

void route_decision_trace(const struct route_decision *d, void (*line)(void *arg, struct str text),
                          void *arg)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (d->mode != ROUTE_KV)
        return;
    for (size_t i = 0; i < d->n_candidates; i++) {
        buf_clear(&out);
        trace_candidate(d, &d->candidates[i], &out);
        line(arg, buf_str(&out));
    }
    if (d->tied)
        line(arg, STR("Multiple workers tied with same logit, using tree size as tie-breaker"));
    buf_clear(&out);
    trace_choice(d, &out);
    line(arg, buf_str(&out));
}
