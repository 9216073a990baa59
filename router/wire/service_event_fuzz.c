/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was read says the same after writing it and reading it again.
 */
#include <stdlib.h>

#include "router/wire/service_event.h"
#include "router/wire/session_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_session(struct str bytes)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct session_event s, again;

    if (session_event_decode(bytes, &s, NULL) < 0)
        return;
    session_event_put(&out, &s);
    if (session_event_decode(buf_str(&out), &again, NULL) < 0)
        abort();
    if (!str_eq(s.session, again.session) || !str_eq(s.model, again.model) ||
        s.worker_id != again.worker_id || s.dp_rank != again.dp_rank ||
        s.sequence != again.sequence || s.writer_id != again.writer_id)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct str bytes = str_slice(data, size);
    struct service_sequence s, again;

    check_session(bytes);
    if (service_sequence_decode(&r, bytes, &s, NULL) < 0)
        return 0;
    service_sequence_put(&out, &s);
    if (service_sequence_decode(&r, buf_str(&out), &again, NULL) < 0)
        abort();
    if (!str_eq(s.model, again.model) || !str_eq(s.group, again.group) ||
        s.block_size != again.block_size || s.event.kind != again.event.kind ||
        !str_eq(s.event.request_id, again.event.request_id) ||
        s.event.worker_id != again.event.worker_id || s.event.n_sequence != again.event.n_sequence)
        abort();
    return 0;
}
