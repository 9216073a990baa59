/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of workers, each behind a router of its own, and which of them is to have a request
 * (router.md §8.3; the file and the rules are those of `python -m dynamo.global_router` 1.6.1).
 *
 *     prompt tokens × TTFT target          prefill pools
 *     prompt tokens × ITL target           decode pools
 *     [prompt tokens ×] TTFT × ITL         pools that do both
 *
 * Each range is cut into equal cells, and the file names a pool for each combination of cells. What is
 * outside of a range counts for the cell at its end, a target that is not known for the middle. The
 * first override whose priorities fit beats the grid. Immutable once read, for any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/optional.h"

enum { POOLS_MAX = 1024, POOL_CELLS_MAX = 1 << 16, POOL_AXES = 3 };

enum pool_kind { POOL_PREFILL, POOL_DECODE, POOL_AGG, POOL_KINDS };
extern const char *const POOL_KIND_WORDS[POOL_KINDS]; /* "prefill", "decode", "agg" */

struct pool_axis {
    double min, max;
    size_t cells; /* 0 = the grid does not ask */
};

struct pool_override {
    int64_t min_priority, max_priority; /* both included */
    size_t pool;
};

struct pool_set {
    enum pool_kind kind;
    char **namespaces;                  /* of each pool's router */
    int64_t *priorities;                /* of each pool: the lower, the faster */
    size_t n;                           /* 0 = the file has no such pools */
    struct pool_axis tokens, ttft, itl; /* axes of the grid, in this order; milliseconds */
    uint32_t *cells; /* the pool of each combination; the last axis runs fastest */
    struct pool_override *overrides;
    size_t n_overrides;
};

struct pools {
    struct pool_set sets[POOL_KINDS]; /* prefill and decode, or agg */
    bool retries;                     /* a pool that fails is followed by faster ones */
};

struct pool_question {
    uint64_t n_tokens;
    struct opt_f64 ttft_ms, itl_ms;
    struct opt_i64 priority;
};

/* -EINVAL names the member. */
MUST_CHECK int pools_parse(struct pools **ret, struct str json, struct err *e);
struct pools *pools_free(struct pools *p);
DEFINE_CLEANUP(struct pools *, pools_free)

static inline bool pools_are_agg(const struct pools *p)
{
    return p->sets[POOL_AGG].n > 0;
}

size_t pool_set_choose(const struct pool_set *s, const struct pool_question *q);
/*
 * Who is asked in turn: @first, and with @retries all pools that are faster, the slowest of them first.
 * @ret has room for s->n. Returns how many.
 */
size_t pool_set_order(const struct pool_set *s, size_t first, bool retries, size_t *ret);

/*
 * What a request says of itself: token_ids, `router` and routing.priority of a PreprocessedRequest.
 * -EINVAL when it is none. Null and absent leave targets unset.
 */
MUST_CHECK int pool_question_parse(struct str request, struct pool_question *ret, struct err *e);
