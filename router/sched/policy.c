/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/policy_inner.h"

#include <inttypes.h>

#include "lib/base/portable_math.h"

static const struct policy *const MODES[] = {
    [ROUTE_ROUND_ROBIN] = &POLICY_ROUND_ROBIN,
    [ROUTE_RANDOM] = &POLICY_RANDOM,
    [ROUTE_POWER_OF_TWO] = &POLICY_POWER_OF_TWO,
    [ROUTE_LEAST_LOADED] = &POLICY_LEAST_LOADED,
    [ROUTE_DEVICE_AWARE] = &POLICY_DEVICE_AWARE,
    [ROUTE_DIRECT] = &POLICY_DIRECT,
    [ROUTE_KV] = NULL, /* which of those below says route_conf.policy */
};
static const struct policy *const COSTS[] = {
    [ROUTE_POLICY_DYNAMO] = &POLICY_DYNAMO,
    [ROUTE_POLICY_DYNAMO_1] = &POLICY_DYNAMO_1,
    [ROUTE_POLICY_MARGINAL] = &POLICY_MARGINAL,
    [ROUTE_POLICY_TWO_TIER] = &POLICY_TWO_TIER,
    [ROUTE_POLICY_THUNDERAGENT] = &POLICY_THUNDERAGENT,
};

const struct policy *policy_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(MODES); i++)
        if (MODES[i] && str_is(name, MODES[i]->name))
            return MODES[i];
    for (size_t i = 0; i < ARRAY_LEN(COSTS); i++)
        if (str_is(name, COSTS[i]->name))
            return COSTS[i];
    return NULL;
}

const struct policy *policy_of(const struct route_conf *conf)
{
    return conf->mode == ROUTE_KV ? COSTS[conf->policy] : MODES[conf->mode];
}

/* Shadows are asked of what mode kv looked up. */
static bool shadow_counts_shared(uint64_t shadows)
{
    for (size_t i = 0; ROUTE_SHADOW_WORDS[i]; i++)
        if (shadows >> i & 1 && policy_find(str_from(ROUTE_SHADOW_WORDS[i]))->counts_shared)
            return true;
    return false;
}

const char *policy_ignores_shared(const struct route_conf *conf)
{
    const struct policy *policy = policy_of(conf);

    if (conf->shared_cache == SHARED_CACHE_NONE)
        return NULL;
    if (conf->load_aware)
        return "load-aware";
    if (conf->mode == ROUTE_KV && (policy->counts_shared || shadow_counts_shared(conf->shadows)))
        return NULL;
    return policy->name;
}

uint64_t policy_credited_tokens(const struct policy *policy, const struct route_candidate *c,
                                const struct policy_inputs *in)
{
    if (!policy->counts_tiers)
        return (uint64_t)policy_cached_tokens(c, in);
    return (uint64_t)(policy_effective_blocks(c, in) * in->block_size + 0.5);
}

double policy_preference_factor(double sum)
{
    return portable_exp(-portable_tanh(sum));
}

void policy_put_preference(const struct route_candidate *c, struct buf *out)
{
    if (c->preference != 0)
        buf_printf(out, ", times %.9g for preferred taints", policy_preference(c));
}

void policy_put_head(const struct route_candidate *c, struct buf *out)
{
    buf_printf(out, "Formula for worker_id=%" PRIu64 " dp_rank=%" PRIu32 " with ",
               c->worker.worker_id, c->worker.dp_rank);
}

size_t policy_choose(const struct policy *policy, const struct route_candidate *candidates,
                     const struct route_score *scores, size_t n, const struct policy_inputs *in,
                     struct policy_pick *ret)
{
    size_t at;

    *ret = (struct policy_pick){.n = (uint32_t)n, .other = UINT32_MAX};
    at = policy->pick(candidates, scores, n, in, ret);
    ret->at = (uint32_t)at;
    if (ret->other == UINT32_MAX)
        ret->other = ret->at;
    return at;
}

double policy_unit(uint64_t random)
{
    return (double)(random >> 11) * 0x1p-53;
}

size_t policy_draw(uint64_t random, size_t n)
{
    return (size_t)(policy_unit(random) * (double)n);
}
