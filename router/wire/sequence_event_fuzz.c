/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event that was read says the same after writing it in its form and reading it again.
 */
#include <stdlib.h>
#include <string.h>

#include "router/wire/sequence_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool opt_same(struct opt_u64 a, struct opt_u64 b)
{
    return a.set == b.set && (!a.set || a.v == b.v);
}

static void same(void *arg, const struct sequence_event *ev)
{
    const struct sequence_event *w = arg;

    if (!str_eq(ev->request_id, w->request_id) || ev->worker_id != w->worker_id ||
        ev->dp_rank != w->dp_rank || ev->kind != w->kind || ev->router_id != w->router_id)
        abort();
    if (ev->kind != SEQUENCE_ADD)
        return;
    if ((ev->sequence == NULL) != (w->sequence == NULL) || ev->n_sequence != w->n_sequence ||
        (w->n_sequence &&
         memcmp(ev->sequence, w->sequence, w->n_sequence * sizeof(*w->sequence)) != 0) ||
        !opt_same(ev->expected_output_tokens, w->expected_output_tokens))
        abort();
    if (w->prefill_tokens.set && !opt_same(ev->prefill_tokens, w->prefill_tokens))
        abort();
    if (!w->prefill_tokens.set && ev->isl.v != w->isl.v)
        abort();
}

static void again(void *arg, const struct sequence_event *ev)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct sequence_event want = *ev;

    (void)arg;
    sequence_event_put(&out, ev, ev->prefill_tokens.set ? SEQUENCE_FORM_1_X : SEQUENCE_FORM_0_9);
    if (sequence_events_decode(&r, buf_str(&out), same, &want, NULL) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};

    struct router_presence p;

    (void)!router_presence_decode(str_slice(data, size), &p, NULL);
    (void)!sequence_events_decode(&r, str_slice(data, size), again, NULL, NULL);
    return 0;
}
