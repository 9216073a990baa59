/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decision in words.
 *
 * Which input made the difference is found by asking the policy: what would the chosen worker have
 * scored, had it had this one number of the runner-up? So the answer holds for every policy, and
 * what it says can be computed again.
 */
#include "router/sched/decision_record.h"

#include <inttypes.h>
#include <string.h>

const char *decision_result_word(int result)
{
    static const char *const words[ROUTE_RESULTS] = {
        [0] = "chosen",
        [ROUTE_NO_WORKERS] = "no-workers",
        [ROUTE_ALL_BUSY] = "all-busy",
        [ROUTE_NO_SUCH_PIN] = "no-such-pin",
        [ROUTE_CONSTRAINED] = "constrained",
        [ROUTE_PIN_NEEDED] = "pin-needed",
    };

    return words[result];
}

/* --- what made the difference ------------------------------------------------------------------
 */

enum input_type { INPUT_U32, INPUT_U64, INPUT_F64, INPUT_BOOL };

struct input {
    const char *words; /* "it has 68 <words> against 54", "it does not <words>" */
    size_t offset;
    enum input_type type;
};
#define INPUT(type, member, words)                                                                 \
    {                                                                                              \
        words, offsetof(struct route_candidate, member), INPUT_##type                              \
    }

static const struct input INPUTS[] = {
    INPUT(U32, overlap_blocks, "cached blocks"),
    INPUT(U32, host_blocks, "blocks in host memory"),
    INPUT(U32, disk_blocks, "blocks on disk"),
    INPUT(U32, shared_blocks, "more blocks in the shared cache"),
    INPUT(U64, prefill_tokens, "prompt tokens still to be computed"),
    INPUT(U64, queued_tokens, "prompt tokens in the queue"),
    INPUT(U64, active_blocks, "blocks of running requests"),
    INPUT(U32, new_blocks, "blocks of this prompt that no running request shares"),
    INPUT(U32, requests, "running requests"),
    INPUT(U64, max_num_seqs, "slots"),
    INPUT(F64, slowness, "times the usual prompt time"),
    INPUT(F64, lifetime, "seconds per answer"),
    INPUT(F64, confidence, "confidence in its events"),
    INPUT(F64, preference, "of the preferred taints' weights"),
    INPUT(BOOL, on_cpu, "run on a CPU"),
};

static double input_of(const struct route_candidate *c, const struct input *in)
{
    const void *at = (const char *)c + in->offset;

    switch (in->type) {
    case INPUT_U32:
        return *(const uint32_t *)at;
    case INPUT_U64:
        return (double)*(const uint64_t *)at;
    case INPUT_BOOL:
        return *(const bool *)at;
    case INPUT_F64:
        break;
    }
    return *(const double *)at;
}

static void take_input(struct route_candidate *c, const struct route_candidate *from,
                       const struct input *in)
{
    static const size_t sizes[] = {[INPUT_U32] = sizeof(uint32_t),
                                   [INPUT_U64] = sizeof(uint64_t),
                                   [INPUT_F64] = sizeof(double),
                                   [INPUT_BOOL] = sizeof(bool)};

    memcpy((char *)c + in->offset, (const char *)from + in->offset, sizes[in->type]);
}

/* How much worse the chosen one would score with this input of the runner-up. */
static double worth(const struct decision_record *r, const struct input *in)
{
    struct route_candidate seen[DECISION_CANDIDATES_MAX];
    struct route_score scores[DECISION_CANDIDATES_MAX];

    for (uint32_t i = 0; i < r->n_candidates; i++)
        seen[i] = r->candidates[i].seen;
    take_input(&seen[r->chosen], &seen[r->runner_up], in);
    r->policy->score(seen, r->n_candidates, &r->inputs, scores);
    return scores[r->chosen].logit - r->candidates[r->chosen].score.logit;
}

static const struct input *decisive_input(const struct decision_record *r, double *ret_worth)
{
    const struct input *best = NULL;

    for (size_t i = 0; i < ARRAY_LEN(INPUTS); i++) {
        double w = worth(r, &INPUTS[i]);

        if (w > 0 && (!best || w > *ret_worth)) {
            best = &INPUTS[i];
            *ret_worth = w;
        }
    }
    return best;
}

/* --- the sentence ------------------------------------------------------------------------------
 */

static void put_worker(struct buf *out, struct worker_rank w)
{
    buf_printf(out, "worker %" PRIu64 " rank %" PRIu32, w.worker_id, w.dp_rank);
}

static void put_comparison(struct buf *out, const struct decision_record *r)
{
    const struct decision_candidate *c = decision_chosen(r), *other = &r->candidates[r->runner_up];
    const struct input *in;
    double w = 0;

    buf_printf(out, " with score %.3f, %.3f below the runner-up ", c->score.logit, r->margin);
    put_worker(out, other->seen.worker);
    in = decisive_input(r, &w);
    if (!in)
        return;
    if (in->type == INPUT_BOOL)
        buf_printf(out, ": it does %s%s", input_of(&c->seen, in) != 0 ? "" : "not ", in->words);
    else
        buf_printf(out, ": it has %.9g %s against %.9g", input_of(&c->seen, in), in->words,
                   input_of(&other->seen, in));
    buf_printf(out, ", which is worth %.3f and made the difference", w);
}

static size_t count_equal_scores(const struct decision_record *r)
{
    size_t n = 0;

    for (uint32_t i = 0; i < r->n_candidates; i++)
        n += r->candidates[i].score.logit == decision_chosen(r)->score.logit;
    return n;
}

static void put_reason(struct buf *out, const struct decision_record *r)
{
    const struct decision_candidate *c = decision_chosen(r);

    if (r->pinned)
        buf_put_cstr(out, " because the request names it");
    else if (r->runner_up == DECISION_NONE)
        buf_put_cstr(out, " because nobody else was eligible");
    else if (!r->policy->score)
        buf_printf(out, " by %s among %u, whatever it holds", r->policy->name,
                   (unsigned)r->n_candidates + r->more_candidates);
    else if (r->margin > 0)
        put_comparison(out, r);
    else if (r->margin < 0)
        buf_printf(out, " by a draw: its score is %.3f, the lowest is %.3f", c->score.logit,
                   r->candidates[r->runner_up].score.logit);
    else
        buf_printf(out,
                   " among %zu that tied with score %.3f: it holds %" PRIu64
                   " blocks in all, where that did not decide chance did",
                   count_equal_scores(r), c->score.logit, c->seen.tree_size);
}

static void put_sentence(struct buf *out, const struct decision_record *r)
{
    const struct decision_candidate *c = decision_chosen(r);

    buf_printf(out, "Request %s: ", r->request_id);
    if (!c) {
        buf_printf(out, "no worker could be chosen (%s)", decision_result_word(r->result));
    } else {
        put_worker(out, c->seen.worker);
        buf_put_cstr(out, " was chosen");
        put_reason(out, r);
    }
    buf_put_cstr(out, ".\n");
}

/* --- the lines below it ------------------------------------------------------------------------
 */

static void put_candidates(struct buf *out, const struct decision_record *r)
{
    for (uint32_t i = 0; i < r->n_candidates; i++) {
        const struct decision_candidate *c = &r->candidates[i];

        buf_put_cstr(out, i == r->chosen ? "* " : i == r->runner_up ? "+ " : "  ");
        put_worker(out, c->seen.worker);
        buf_printf(out, ": score %.3f", c->score.logit);
        for (size_t k = 0; k < POLICY_TERMS_MAX && r->policy->terms[k]; k++)
            buf_printf(out, ", %s %.3f", r->policy->terms[k], c->score.terms[k]);
        buf_printf(out, ", cached %" PRIu32 " of %" PRIu32 " blocks, requests %" PRIu32 "\n",
                   c->seen.overlap_blocks, r->isl_blocks, c->seen.requests);
    }
    if (r->more_candidates)
        buf_printf(out, "  and %" PRIu32 " more\n", r->more_candidates);
    for (uint32_t i = 0; i < r->n_rejected; i++) {
        buf_put_cstr(out, "- ");
        put_worker(out, r->rejected[i].worker);
        buf_printf(out, ": not eligible, %s\n", route_reject_word(r->rejected[i].why));
    }
    if (r->more_rejected)
        buf_printf(out, "- and %" PRIu32 " more\n", r->more_rejected);
}

static void put_shadows(struct buf *out, const struct decision_record *r)
{
    for (uint32_t i = 0; i < r->n_shadows; i++) {
        const struct decision_shadow *s = &r->shadows[i];

        buf_printf(out, "policy %s would have taken ", s->policy->name);
        put_worker(out, s->pick);
        buf_printf(out, ", regret %.3f\n", s->chosen_logit - s->pick_logit);
    }
}

static void put_outcome(struct buf *out, const struct decision_record *r)
{
    const struct decision_outcome *o = &r->outcome;

    buf_printf(out, "outcome: %s", decision_end_word(o->ended));
    if (o->cached_tokens != DECISION_UNKNOWN)
        buf_printf(out, ", cached tokens %" PRIu64 " observed, %" PRIu64 " predicted",
                   o->cached_tokens, r->predicted_cached_tokens);
    if (!isnan(o->ttft_ms))
        buf_printf(out, ", first token after %.1f ms", o->ttft_ms);
    if (!isnan(o->duration_ms))
        buf_printf(out, ", %" PRIu64 " tokens in %.1f ms", o->output_tokens, o->duration_ms);
    buf_put_char(out, '\n');
}

void decision_record_put_text(struct buf *out, const struct decision_record *r)
{
    put_sentence(out, r);
    buf_printf(out,
               "model %s, mode %s, policy %s, attempt %" PRIu32 ", prompt of %" PRIu32 " tokens",
               r->model, ROUTE_MODE_WORDS[r->mode], r->policy->name, r->attempt, r->inputs.isl);
    if (r->index_age_ms != DECISION_UNKNOWN)
        buf_printf(out, ", last KV event %.1f s ago", (double)r->index_age_ms / 1e3);
    if (r->index == DECISION_INDEX_REMOTE)
        buf_put_cstr(out, ", caches as the remote indexer told them");
    else if (r->index == DECISION_INDEX_LOST)
        buf_put_cstr(out, ", the remote indexer did not answer: caches by what this router placed");
    buf_put_char(out, '\n');
    put_candidates(out, r);
    put_shadows(out, r);
    put_outcome(out, r);
}
