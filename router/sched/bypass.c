/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/bypass.h"

#include <math.h>
#include <stddef.h>

#include "lib/base/mem.h"

/* A batch of unknown size is never full (router.md §4.7). */
static const double BATCH_UNKNOWN = 1e7;

const char *const BYPASS_POLICY_WORDS[] = {"isl_bounding", "prefill_load", "isl_or_load", NULL};

const char *bypass_word(enum bypass b)
{
    static const char *const words[] = {[BYPASS_NO] = "",
                                        [BYPASS_SHORT] = "isl",
                                        [BYPASS_PREFILL_BUSY] = "prefill_busy",
                                        [BYPASS_VETOED] = "decode_busy"};

    return words[b];
}

static bool is_short(const struct bypass_conf *c, const struct bypass_signals *s)
{
    uint64_t fresh = s->prompt_tokens - MIN(s->cached_tokens, s->prompt_tokens);

    return fresh < c->isl && (double)fresh / (double)MAX(s->prompt_tokens, 1u) < c->isl_ratio;
}

static bool prefill_is_busy(const struct bypass_conf *c, const struct bypass_signals *s)
{
    double batch = s->prefill_batch ? (double)s->prefill_batch : BATCH_UNKNOWN;

    return (double)s->prefill_tokens > c->prefill_busy * batch;
}

static bool decode_has_room(const struct bypass_conf *c, const struct bypass_signals *s)
{
    if (isnan(c->decode_busy))
        return true;
    return s->decode_capacity_blocks > 0 &&
           (double)s->decode_blocks <= c->decode_busy * (double)s->decode_capacity_blocks;
}

enum bypass bypass_decide(const struct bypass_conf *c, const struct bypass_signals *s)
{
    enum bypass b = BYPASS_NO;

    if (!c->enabled)
        return BYPASS_NO;
    if (c->policy != BYPASS_PREFILL_LOAD && is_short(c, s))
        b = BYPASS_SHORT;
    else if (c->policy != BYPASS_ISL_BOUNDING && prefill_is_busy(c, s))
        b = BYPASS_PREFILL_BUSY;
    return b != BYPASS_NO && !decode_has_room(c, s) ? BYPASS_VETOED : b;
}
