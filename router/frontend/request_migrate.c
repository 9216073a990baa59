/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that is lost in the middle of an answer (wire.md §8.10, 15.3): what it said becomes part of
 * the prompt, and another worker goes on. The client sees one answer.
 *
 * Decoder and stop rules live on, so that the text is the one that a single worker would have given
 * (the reference begins both anew). A limit on tokens is lowered by what was said, as there; so is
 * the least number of tokens, which the reference leaves.
 */
#include "lib/base/log.h"
#include "router/frontend/request_migrate.h"
#include "router/frontend/request_state.h"

static const struct log_target LG = {"dynamo_llm::migration"};

static uint64_t limit_of(const struct request *rq)
{
    return MAX(rq->m->card->migration_limit, rq->s->migration_limit);
}

/* State of a grammar is in the engine, and cannot be moved. */
static bool is_movable(const struct request *rq)
{
    return limit_of(rq) > 0 && !rq->immovable && !rq->in.sampling.guided_decoding_json.len;
}

void request_remember(struct request *rq, const uint32_t *ids, size_t n)
{
    uint64_t max = rq->s->migration_tokens_max;

    if (!n || !is_movable(rq))
        return;
    if (max && rq->prompt.len + rq->said.len + n > max) {
        rq->immovable = true;
        token_ids_done(&rq->said);
        metric_add(metric_with(rq->s->metrics.migrations_too_long, rq->m->name), 1);
        log_warn(&LG, "Sequence length exceeds migration max_seq_len, disabling migration",
                 LOG_REQUEST(rq->id, &rq->trace), LOG_U64("max_seq_len", max));
        return;
    }
    memcpy(token_ids_reserve(&rq->said, n), ids, n * sizeof(*ids));
    rq->said.len += n;
}

void request_note_loss(struct request *rq, bool early)
{
    if (rq->t_lost_ns)
        return; /* the next one failed too */
    rq->t_lost_ns = clock_now_ns();
    rq->lost_early = early;
}

void request_note_loss_over(struct request *rq, const char *outcome)
{
    uint64_t since = rq->t_lost_ns;

    rq->t_lost_ns = 0;
    if (!since)
        return;
    metric_observe(metric_with(rq->s->metrics.migration_seconds, rq->m->name,
                               rq->lost_early ? "new_request" : "ongoing_request", outcome),
                   (double)(clock_now_ns() - since) / 1e9);
}

bool request_can_migrate(const struct request *rq)
{
    return is_movable(rq) && rq->n_migrations < limit_of(rq) && rq->said.len > 0;
}

static void extend_prompt(struct request *rq)
{
    memcpy(token_ids_reserve(&rq->prompt, rq->said.len), rq->said.ptr,
           rq->said.len * sizeof(*rq->said.ptr));
    rq->prompt.len += rq->said.len;
    prompt_media_extend(&rq->media, rq->said.ptr, rq->said.len);
    rq->n_replayed += rq->said.len;
    rq->said.len = 0;
    rq->n_output_blocks = 0;
    request_hash_prompt(rq);
}

/* What the first worker failed at is over: the next has as many attempts again. */
static void avoid_only(struct request *rq, uint64_t worker)
{
    rq->first_avoided = rq->n_failed = 0;
    rq->failed[rq->n_failed++] = worker;
}

void request_migrate(struct request *rq, const char *reason)
{
    uint64_t worker = rq->decision.candidates[rq->decision.chosen].worker.worker_id;

    rq->attempt.failure = reason;
    request_note_loss(rq, false);
    request_flush(rq);
    request_unroute(rq, DECISION_RETRIED);
    rq->prefill = prefill_free(rq->prefill);
    rq->n_migrations++;
    rq->moved = true;
    extend_prompt(rq);
    metric_add(metric_with(rq->s->metrics.migrations, rq->m->name, "ongoing_request"), 1);
    log_warn(&LG, "Creating new stream, retrying", LOG_REQUEST(rq->id, &rq->trace),
             LOG_U64("worker_id", worker), LOG_STR("why", reason),
             LOG_U64("tokens", rq->n_replayed), LOG_U64("migration", rq->n_migrations),
             LOG_U64("limit", limit_of(rq)));
    avoid_only(rq, worker);
    request_go(rq, STEP_prefill);
}
