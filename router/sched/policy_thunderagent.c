/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of 1.6.1's selector thunderagent: the fewest tokens there, those of prompts that are being
 * computed and those of blocks in use once this prompt is there. Caches count as far as blocks are in
 * use; slower tiers, preferred taints and temperature have no part in it. Equals: the lowest worker.
 * A session that is bound to a worker comes here with that one alone (eligible.c).
 */
#include "router/sched/policy_inner.h"

enum { PREFILL_TOKENS, DECODE_BLOCKS };

static void score(const struct route_candidate *candidates, size_t n,
                  const struct policy_inputs *in, struct route_score *ret)
{
    for (size_t i = 0; i < n; i++) {
        const struct route_candidate *c = &candidates[i];

        ret[i].terms[PREFILL_TOKENS] = (double)c->prefill_tokens;
        ret[i].terms[DECODE_BLOCKS] = (double)(c->active_blocks + c->new_blocks);
        ret[i].logit = ret[i].terms[PREFILL_TOKENS] + ret[i].terms[DECODE_BLOCKS] * in->block_size;
    }
}

static bool is_before(struct worker_rank a, struct worker_rank b)
{
    return a.worker_id != b.worker_id ? a.worker_id < b.worker_id : a.dp_rank < b.dp_rank;
}

static size_t first_of_lowest(const struct route_candidate *candidates,
                              const struct route_score *scores, size_t n, bool *ret_tied)
{
    size_t at = policy_lowest(scores, n), first = at;

    for (size_t i = first + 1; i < n; i++) {
        if (scores[i].logit != scores[first].logit)
            continue;
        *ret_tied = true;
        if (is_before(candidates[i].worker, candidates[at].worker))
            at = i;
    }
    return at;
}

static size_t pick(const struct route_candidate *candidates, const struct route_score *scores,
                   size_t n, const struct policy_inputs *in, struct policy_pick *ret)
{
    (void)in;
    ret->pool = 1; /* nothing is left to chance */
    return first_of_lowest(candidates, scores, n, &ret->tied);
}

static bool follows(const struct policy_part *part, const struct policy_inputs *in,
                    const struct policy_pick *how)
{
    bool tied = false;
    size_t at = first_of_lowest(part->candidates, part->scores, part->n, &tied);

    (void)in;
    return at == part->chosen && (how->tied || !tied);
}

static void put(const struct route_candidate *c, const struct route_score *s,
                const struct policy_inputs *in, struct buf *out)
{
    policy_put_head(c, out);
    buf_printf(out,
               "%.9g cached blocks: %.9g = prefill_tokens + block_size * decode_blocks = "
               "%.9g + %u * %.9g",
               policy_cached_blocks(c), s->logit, s->terms[PREFILL_TOKENS], in->block_size,
               s->terms[DECODE_BLOCKS]);
}

const struct policy POLICY_THUNDERAGENT = {
    .name = "thunderagent",
    .terms = {"prefill_tokens", "decode_blocks"},
    .score = score,
    .pick = pick,
    .follows = follows,
    .tie_note = "Multiple workers tied with same logit, the lowest id is taken",
    .put = put};
