/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decision record as one line of JSON, and back.
 *
 * Numbers survive the way exactly: integers up to 64 bits as they are, doubles in the shortest form
 * that reads back the same. Keys, in this order:
 *
 *     v seq time_ms request_id model worker_type attempt result mode policy inputs pinned query_only tied
 *     isl_blocks chosen runner_up margin index_age_ms predicted_cached_tokens index outcome candidates
 *     more_candidates rejected more_rejected shadows
 *
 * `chosen` and `runner_up` are worker, rank and `at`, the index in `candidates`; null = none. What is
 * not known is null; `index` is left out where it is "own". A reader takes unknown keys as from a newer writer and passes over them.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "router/sched/decision_record.h"

struct err;

enum { DECISION_LINE_MAX = 256 << 10 }; /* bytes; with every array full about 25,000 */

/* One object, without a line end. */
void decision_record_put_json(struct buf *out, const struct decision_record *r);
/* -EINVAL says what is wrong with it. */
MUST_CHECK int decision_record_parse(struct str line, struct decision_record *ret, struct err *e);
