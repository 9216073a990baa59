/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery queries and their answers, of both generations (wire.md §7.7; router.md §2.6).
 *
 * Pure; one thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/optional.h"

struct event_question;

/* Body of the question, as of 1.6; each generation takes the members that it knows. */
void kv_query_put(struct buf *out, const struct event_question *q);

enum kv_answer_kind {
    KV_ANSWER_EVENTS,
    KV_ANSWER_DUMP,
    KV_ANSWER_TOO_NEW,
    KV_ANSWER_REFUSED, /* InvalidRange, Error, TreeDumpFailed, or one that is not known here */
};

/* Views into the answer. */
struct kv_answer {
    enum kv_answer_kind kind;
    struct str events; /* EVENTS, DUMP: JSON array of RouterEvents */
    struct opt_u64
        newest;     /* TOO_NEW: always; EVENTS, DUMP: the newest that it knows, from 1.x on */
    struct str why; /* REFUSED */
};

/* -EINVAL: no answer. The events are checked when they are read. */
MUST_CHECK int kv_answer_parse(struct str json, struct kv_answer *ret, struct err *e);
