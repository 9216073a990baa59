/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_record.h"

#include <string.h>

static void put_name(char *out, size_t size, struct str name)
{
    size_t n = MIN(name.len, size - 1);

    if (n)
        memcpy(out, name.ptr, n);
    out[n] = '\0';
}

/* --- candidates --------------------------------------------------------------------------------
 */

/* The chosen one, and the one that it was compared to, are kept whatever their scores. */
static bool is_kept(const struct route_decision *d, size_t i)
{
    return i == d->chosen || i == d->pick.other;
}

/*
 * Which scores are kept when not all are: the limit is that of the lowest without those that are kept
 * anyhow. *ret_ties is how many of those that have exactly it.
 */
static double score_limit(const struct route_decision *d, size_t *ret_ties)
{
    double lowest[DECISION_CANDIDATES_MAX - 1];
    size_t n = 0, ties = 0, room = ARRAY_LEN(lowest) - (d->pick.other != d->chosen);

    for (size_t i = 0; i < d->n_candidates; i++) {
        double logit = d->scores[i].logit;
        size_t at;

        if (is_kept(d, i) || (n == room && logit >= lowest[n - 1]))
            continue;
        n += n < room;
        for (at = n - 1; at > 0 && lowest[at - 1] > logit; at--)
            lowest[at] = lowest[at - 1];
        lowest[at] = logit;
    }
    for (size_t i = 0; i < n; i++)
        ties += lowest[i] == lowest[n - 1];
    *ret_ties = ties;
    return n ? lowest[n - 1] : 0;
}

static void keep(struct decision_record *r, const struct route_decision *d, size_t i)
{
    if (i == d->chosen)
        r->chosen = r->n_candidates;
    if (i == d->pick.other)
        r->other = r->n_candidates;
    r->candidates[r->n_candidates++] = (struct decision_candidate){d->candidates[i], d->scores[i]};
}

static void keep_candidates(struct decision_record *r, const struct route_decision *d)
{
    size_t ties = 0;
    double limit = 0;
    bool all = d->n_candidates <= DECISION_CANDIDATES_MAX;

    if (!all)
        limit = score_limit(d, &ties);
    for (size_t i = 0; i < d->n_candidates; i++) {
        double logit = d->scores[i].logit;
        bool kept = all || is_kept(d, i) || logit < limit;

        if (!kept && logit == limit && ties > 0) {
            kept = true;
            ties--;
        }
        if (kept)
            keep(r, d, i);
    }
    r->more_candidates = (uint32_t)d->n_candidates - r->n_candidates;
}

static void find_runner_up(struct decision_record *r)
{
    for (uint32_t i = 0; i < r->n_candidates; i++)
        if (i != r->chosen &&
            (r->runner_up == DECISION_NONE ||
             r->candidates[i].score.logit < r->candidates[r->runner_up].score.logit))
            r->runner_up = i;
    if (r->runner_up != DECISION_NONE)
        r->margin = r->candidates[r->runner_up].score.logit - r->candidates[r->chosen].score.logit;
}

/* --- the record --------------------------------------------------------------------------------
 */

static void keep_choice(struct decision_record *r, const struct route_decision *d, bool sent)
{
    const struct route_candidate *c;

    keep_candidates(r, d);
    find_runner_up(r);
    c = &decision_chosen(r)->seen;
    r->pick = d->pick;
    r->predicted_cached_tokens =
        (uint64_t)policy_served_blocks(c, &r->inputs) * r->inputs.block_size;
    r->outcome.ended = sent ? DECISION_RUNNING : DECISION_NOT_SENT;
}

void decision_record_fill(struct decision_record *ret, const struct route_request *q,
                          const struct route_decision *d, int result,
                          const struct decision_context *context)
{
    struct decision_record *r = ret;

    /* The arrays behind the head keep their bytes: what their counts do not cover is not read. */
    put_name(r->request_id, sizeof(r->request_id), q->id);
    put_name(r->model, sizeof(r->model), context->model);
    put_name(r->worker_type, sizeof(r->worker_type), str_from(context->worker_type));
    r->time_ms = context->time_ms;
    r->attempt = context->attempt;
    r->result = result;
    r->mode = d->mode;
    r->policy = d->policy;
    r->inputs = d->inputs;
    r->pinned = q->pinned;
    r->query_only = q->query_only;
    r->index = !q->matches        ? DECISION_INDEX_OWN
               : q->matches->told ? DECISION_INDEX_REMOTE
                                  : DECISION_INDEX_LOST;
    r->pick = (struct policy_pick){.n = 0};
    r->isl_blocks = d->isl_blocks;
    r->chosen = r->other = r->runner_up = DECISION_NONE;
    r->margin = NAN;
    r->index_age_ms = context->index_age_ms;
    r->predicted_cached_tokens = 0;
    r->outcome = (struct decision_outcome){.ended = DECISION_NOT_SENT,
                                           .cached_tokens = DECISION_UNKNOWN,
                                           .ttft_ms = NAN,
                                           .duration_ms = NAN};
    r->n_candidates = r->more_candidates = r->n_shadows = 0;
    r->n_rejected = (uint32_t)MIN(d->n_rejections, (size_t)DECISION_REJECTED_MAX);
    r->more_rejected = (uint32_t)d->n_rejections - r->n_rejected;
    if (r->n_rejected)
        memcpy(r->rejected, d->rejections, r->n_rejected * sizeof(r->rejected[0]));
    if (result == 0)
        keep_choice(r, d, !q->query_only);
}

const char *decision_end_word(enum decision_end end)
{
    static const char *const words[] = {
        [DECISION_RUNNING] = "running",         [DECISION_FINISHED] = "finished",
        [DECISION_FAILED] = "failed",           [DECISION_RETRIED] = "retried",
        [DECISION_CLIENT_GONE] = "client-gone", [DECISION_NOT_SENT] = "not-sent",
    };

    return words[end];
}

const char *decision_index_word(enum decision_index index)
{
    static const char *const words[] = {
        [DECISION_INDEX_OWN] = "own",
        [DECISION_INDEX_REMOTE] = "remote",
        [DECISION_INDEX_LOST] = "remote-lost",
    };

    return words[index];
}
