/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/decisions/decision_score.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/json_put.h"
#include "router/sched/decision_replay.h"

void decision_score_init(struct decision_score *s, const struct decision_question *question)
{
    *s = (struct decision_score){.question = *question, .workers = worker_table_new()};
}

void decision_score_done(struct decision_score *s)
{
    worker_table_free(s->workers);
    free(s->shares);
    *s = (struct decision_score){.workers = NULL};
}

/* NULL when there are more workers than a table holds. */
static struct decision_share *share_of(struct decision_score *s, struct worker_rank w)
{
    uint32_t slot = worker_table_add(s->workers, w);

    if (slot == WORKER_SLOT_NONE)
        return NULL;
    if (slot >= s->n_shares) {
        size_t n = MAX((size_t)slot + 1, s->n_shares * 2);

        s->shares = xreallocarray(s->shares, n, sizeof(*s->shares));
        memset(s->shares + s->n_shares, 0, (n - s->n_shares) * sizeof(*s->shares));
        s->n_shares = n;
    }
    s->shares[slot].worker = w;
    return &s->shares[slot];
}

static void count_verdict(struct decision_score *s, const struct decision_record *r,
                          enum decision_verdict verdict)
{
    s->decisions++;
    switch (verdict) {
    case DECISION_SAME:
        s->same++;
        return;
    case DECISION_INCOMPLETE:
        s->incomplete++;
        return;
    case DECISION_SCORES_DIFFER:
        s->scores_differ++;
        break;
    case DECISION_PICK_DIFFERS:
        s->picks_differ++;
        break;
    }
    if (!s->first_difference)
        s->first_difference = r->seq;
}

/* Asks as the question wants it. A policy that takes turns goes on from record to record. */
static void ask(const struct decision_score *s, const struct decision_record *r,
                struct decision_replay *ret)
{
    const struct decision_question *q = &s->question;
    struct policy_inputs in = r->inputs;

    if (!isnan(q->overlap_weight))
        in.overlap_weight = q->overlap_weight;
    if (!isnan(q->temperature))
        in.temperature = q->temperature;
    if (q->policy && q->policy != r->policy)
        in.turn = r->seq;
    decision_replay(r, q->policy ? q->policy : r->policy, &in, ret);
}

void decision_score_add(struct decision_score *s, const struct decision_record *r)
{
    const struct decision_candidate *chosen = decision_chosen(r), *pick;
    struct decision_replay replay;
    struct decision_share *share;

    if (!chosen) {
        s->nobody++;
        return;
    }
    count_verdict(s, r, decision_verify(r, &replay));
    ask(s, r, &replay);
    pick = &r->candidates[replay.pick];
    s->agreements += replay.pick == r->chosen;
    s->blocks += r->isl_blocks;
    s->hits_recorded += chosen->seen.overlap_blocks;
    s->hits_replayed += pick->seen.overlap_blocks;
    s->regret_recorded += pick->score.logit - chosen->score.logit;
    s->regret_replayed += replay.scores[r->chosen].logit - replay.scores[replay.pick].logit;
    share = share_of(s, chosen->seen.worker);
    if (share)
        share->recorded++;
    share = share_of(s, pick->seen.worker);
    if (share)
        share->replayed++;
}

bool decision_score_is_exact(const struct decision_score *s)
{
    return s->scores_differ + s->picks_differ == 0;
}

/* --- what is told ------------------------------------------------------------------------------
 */

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static double mean(double sum, uint64_t n)
{
    return n ? sum / (double)n : 0;
}

static void largest(const struct decision_score *s, uint64_t *ret_recorded, uint64_t *ret_replayed)
{
    *ret_recorded = *ret_replayed = 0;
    for (size_t i = 0; i < worker_table_end(s->workers); i++) {
        *ret_recorded = MAX(*ret_recorded, s->shares[i].recorded);
        *ret_replayed = MAX(*ret_replayed, s->shares[i].replayed);
    }
}

void decision_score_print(const struct decision_score *s, FILE *out)
{
    uint64_t recorded, replayed;

    largest(s, &recorded, &replayed);
    (void)fprintf(out,
                  "decisions        %10" PRIu64 "\n"
                  "  bit for bit    %10" PRIu64 "   same scores, same choice\n"
                  "  incomplete     %10" PRIu64
                  "   same scores, but it was not recorded how the choice came about\n"
                  "  scores differ  %10" PRIu64 "\n"
                  "  choice differs %10" PRIu64 "\n"
                  "nobody chosen    %10" PRIu64 "\n"
                  "overwritten      %10" PRIu64 "\n\n",
                  s->decisions, s->same, s->incomplete, s->scores_differ, s->picks_differ,
                  s->nobody, s->overwritten);
    (void)fprintf(out, "                           recorded  %14s\n",
                  s->question.policy ? s->question.policy->name : "replayed");
    (void)fprintf(out, "agreement (%%)               100.0  %14.1f\n",
                  percent(s->agreements, s->decisions));
    (void)fprintf(out, "hit blocks             %12" PRIu64 "  %14" PRIu64 "\n", s->hits_recorded,
                  s->hits_replayed);
    (void)fprintf(out, "hit blocks (%%)         %12.1f  %14.1f\n",
                  percent(s->hits_recorded, s->blocks), percent(s->hits_replayed, s->blocks));
    (void)fprintf(out, "largest share (%%)      %12.1f  %14.1f\n", percent(recorded, s->decisions),
                  percent(replayed, s->decisions));
    (void)fprintf(out, "mean regret            %12.3f  %14.3f   of the one, scored by the other\n",
                  mean(s->regret_replayed, s->decisions), mean(s->regret_recorded, s->decisions));
    for (size_t i = 0; i < worker_table_end(s->workers); i++)
        (void)fprintf(out, "  %20" PRIu64 " %-3" PRIu32 "%8.1f%%  %13.1f%%\n",
                      s->shares[i].worker.worker_id, s->shares[i].worker.dp_rank,
                      percent(s->shares[i].recorded, s->decisions),
                      percent(s->shares[i].replayed, s->decisions));
}

static void put_u64(struct json_put *j, const char *key, uint64_t value)
{
    json_put_key(j, key);
    json_put_u64(j, value);
}

static void put_f64(struct json_put *j, const char *key, double value)
{
    json_put_key(j, key);
    json_put_f64(j, value);
}

void decision_score_put_json(const struct decision_score *s, struct buf *out)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "policy"); /* null: each record's own */
    json_put_cstr(&j, s->question.policy ? s->question.policy->name : NULL);
    put_f64(&j, "overlap_score_weight", s->question.overlap_weight);
    put_f64(&j, "temperature", s->question.temperature);
    put_u64(&j, "decisions", s->decisions);
    put_u64(&j, "same", s->same);
    put_u64(&j, "incomplete", s->incomplete);
    put_u64(&j, "scores_differ", s->scores_differ);
    put_u64(&j, "picks_differ", s->picks_differ);
    put_u64(&j, "nobody", s->nobody);
    put_u64(&j, "overwritten", s->overwritten);
    put_f64(&j, "agreement", percent(s->agreements, s->decisions) / 100);
    put_u64(&j, "blocks", s->blocks);
    put_u64(&j, "hit_blocks_recorded", s->hits_recorded);
    put_u64(&j, "hit_blocks_replayed", s->hits_replayed);
    put_f64(&j, "regret_recorded", s->regret_recorded);
    put_f64(&j, "regret_replayed", s->regret_replayed);
    json_put_key(&j, "workers");
    json_put_array(&j);
    for (size_t i = 0; i < worker_table_end(s->workers); i++) {
        json_put_object(&j);
        put_u64(&j, "worker_id", s->shares[i].worker.worker_id);
        put_u64(&j, "dp_rank", s->shares[i].worker.dp_rank);
        put_u64(&j, "recorded", s->shares[i].recorded);
        put_u64(&j, "replayed", s->shares[i].replayed);
        json_put_object_end(&j);
    }
    json_put_array_end(&j);
    json_put_object_end(&j);
    buf_put_char(out, '\n');
}
