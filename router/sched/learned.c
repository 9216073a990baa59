/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/learned.h"

#include <string.h>

#include "lib/base/mem.h"

static const double DECAY = 0.995;
static const double PRIOR_SECONDS_PER_TOKEN = 1e-4, PRIOR_LIFETIME = 10;
/* Weight of that prior: two observations with a spread of 1,000 tokens. */
static const double RIDGE = 2e6;
static const double SECONDS_PER_TOKEN_MIN = 2e-6, SECONDS_PER_TOKEN_MAX = 5e-3;
static const double SECONDS_MIN = 1e-3; /* no first token is expected sooner */
/* Observations of average length by which a worker is held to be like the others. */
static const double SLOWNESS_PRIOR = 30;
/* e^±0.25: what lies between is noise. */
static const double SLOWER = 0x1.48b5e3c3e8186p+0, FASTER = 0x1.8ebef9eac820bp-1;
enum { OBSERVATIONS_MIN = 20, ENDS_MIN = 5 };
static const double LIFETIME_RATE_MIN = 0.02, POOLED_LIFETIME_RATE_MIN = 0.01;

struct learned_worker {
    double observed, expected; /* decayed sums of seconds to first token */
    double lifetime;
    uint64_t n_ended;
};

void learned_init(struct learned *l)
{
    *l = (struct learned){0};
}

void learned_done(struct learned *l)
{
    free(l->workers);
    *l = (struct learned){0};
}

static struct learned_worker *need(struct learned *l, uint32_t slot)
{
    if (slot >= l->n_workers) {
        size_t n = MAX((size_t)slot + 1, l->n_workers * 2);

        l->workers = xreallocarray(l->workers, n, sizeof(*l->workers));
        memset(l->workers + l->n_workers, 0, (n - l->n_workers) * sizeof(*l->workers));
        l->n_workers = n;
    }
    return &l->workers[slot];
}

static void compare(struct learned *l, uint32_t slot, double x, double y)
{
    struct learned_worker *w = need(l, slot);
    double expected = l->mean_seconds + l->seconds_per_token * (x - l->sx / l->s0);

    w->observed = w->observed * DECAY + y;
    w->expected = w->expected * DECAY + MAX(expected, SECONDS_MIN);
}

void learned_first_token(struct learned *l, uint32_t slot, double queued_tokens, double seconds)
{
    double x = queued_tokens, y = seconds, variance, covariance, ridge, slope;

    if (l->s0 >= OBSERVATIONS_MIN)
        compare(l, slot, x, y);
    l->s0 = l->s0 * DECAY + 1;
    l->sx = l->sx * DECAY + x;
    l->sxx = l->sxx * DECAY + x * x;
    l->sy = l->sy * DECAY + y;
    l->sxy = l->sxy * DECAY + x * y;
    l->mean_seconds = l->sy / l->s0;

    variance = l->sxx / l->s0 - (l->sx / l->s0) * (l->sx / l->s0);
    covariance = l->sxy / l->s0 - l->sx / l->s0 * l->sy / l->s0;
    ridge = RIDGE / l->s0;
    slope = (covariance + ridge * PRIOR_SECONDS_PER_TOKEN) / (variance + ridge);
    l->seconds_per_token = MIN(SECONDS_PER_TOKEN_MAX, MAX(SECONDS_PER_TOKEN_MIN, slope));
}

/* A mean over all until there are 1 / @rate_min of them, then one that forgets. */
static void average(double *mean, uint64_t *n, double value, double rate_min)
{
    double rate = MAX(rate_min, 1 / ((double)*n + 1));

    *mean += rate * (value - *mean);
    (*n)++;
}

void learned_end(struct learned *l, uint32_t slot, double seconds)
{
    struct learned_worker *w = need(l, slot);

    average(&w->lifetime, &w->n_ended, seconds, LIFETIME_RATE_MIN);
    average(&l->lifetime, &l->n_ended, seconds, POOLED_LIFETIME_RATE_MIN);
}

void learned_forget(struct learned *l, uint32_t slot)
{
    if (slot < l->n_workers)
        l->workers[slot] = (struct learned_worker){0};
}

double learned_seconds_per_token(const struct learned *l)
{
    return l->seconds_per_token > 0 ? l->seconds_per_token : PRIOR_SECONDS_PER_TOKEN;
}

double learned_slowness(const struct learned *l, uint32_t slot)
{
    const struct learned_worker *w;
    double observed, expected;

    if (slot >= l->n_workers || l->s0 < OBSERVATIONS_MIN)
        return 1;
    w = &l->workers[slot];
    observed = w->observed + SLOWNESS_PRIOR * l->mean_seconds;
    expected = w->expected + SLOWNESS_PRIOR * l->mean_seconds;
    if (observed > FASTER * expected && observed < SLOWER * expected)
        return 1; /* as most are: no division */
    return observed / expected;
}

double learned_lifetime(const struct learned *l, uint32_t slot)
{
    if (slot < l->n_workers && l->workers[slot].n_ended >= ENDS_MIN)
        return l->workers[slot].lifetime;
    return l->n_ended ? l->lifetime : PRIOR_LIFETIME;
}
