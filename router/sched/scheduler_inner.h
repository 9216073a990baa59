/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the scheduler is made of, for scheduler.c, eligible.c and decide.c only.
 */
#pragma once

#include "router/kv/approx_index.h"
#include "router/kv/tier_index.h"
#include "router/sched/scheduler.h"
#include "router/sched/sequences.h"
#include "router/sched/signal_health.h"
#include "router/sched/unheard.h"

enum { NS_PER_MS = 1000000 };

/*
 * What is known of one target beside its blocks and bookings, as far as every decision may read it of
 * every target: a cache line each, so that one pass over all of them asks for no other.
 */
struct target {
    struct worker_rank worker; /* while known */
    bool known;                /* discovery has it */
    bool first_rank;           /* stands for the worker in the modes that do not know ranks */
    bool on_cpu;
    bool worker_free; /* scratch of one decision, in its first rank: a rank is not busy */
    uint32_t first;   /* slot of the worker's first rank */
    uint64_t total_kv_blocks, max_num_seqs;
    double doubt; /* 1 - confidence */
    uint64_t max_batched_tokens, reported_blocks;
};
_Static_assert(sizeof(struct target) == 64, "one cache line");

/* The rest of it. */
struct target_rest {
    struct signal_health signal;
    char **taints; /* owned, n_taints of them */
    size_t n_taints;
};

/* How many blocks of the prompt a target has if host memory counts, and if all counts. */
struct tier_reach {
    uint32_t host, disk;
};

struct scheduler {
    struct route_conf conf;
    uint32_t block_size;
    struct worker_table *workers;
    struct prefix_index *index;
    struct tier_index *tiers;
    struct approx_index *approx;
    struct approx_index *guesses; /* for targets whose events do not come */
    size_t n_dead;                /* of them */
    struct sequences *sequences;
    struct unheard *unheard;
    struct list observers;
    struct target *targets;   /* by slot, */
    struct target_rest *rest; /* likewise */
    size_t n_targets;
    uint64_t turn;             /* of round-robin */
    uint32_t *scores, *shared; /* by slot, scratch of one decision */
    uint32_t *eligible;        /* slots, scratch too; sorted */
    size_t n_eligible;
    struct prefix_end *ends;  /* scratch of one match, with room for cap_ends */
    struct tier_reach *reach; /* by slot, below n_reach; what the last match found */
    uint32_t cap_ends, n_reach;
    uint64_t *fresh_hashes; /* scratch: block identities that match nothing */
    size_t cap_fresh;
    struct route_decision probe; /* scratch of the questions about room */
};

/* Whether predictions last until a target has no more room for them. */
static inline bool scheduler_keeps_used(const struct route_conf *c)
{
    return c->approx_policy == APPROX_LRU && !c->use_kv_events;
}

/* Active blocks for the busy threshold: the router's count or the worker's, what is more. */
uint64_t scheduler_decode_blocks(const struct scheduler *s, uint32_t slot);
bool scheduler_rank_is_busy(const struct scheduler *s, uint32_t slot);
/* max_batched_tokens of the target, or what the reference assumes (router.md §4.7). */
double scheduler_batched_tokens(const struct scheduler *s, uint32_t slot);
/* --- signals.c --- */
/* Guesses follow the configuration. */
struct approx_conf scheduler_guess_conf(const struct route_conf *c);
/* A prompt was routed to the slot: noted as a guess when its events are doubtful. */
void scheduler_guess(struct scheduler *s, uint32_t slot, const struct route_request *q);
/* s->scores of targets whose events do not come: from guesses. Uses s->shared. */
void scheduler_match_guesses(struct scheduler *s, const struct route_request *q);
/* The slot is about to be somebody else's. */
void scheduler_drop_signal(struct scheduler *s, uint32_t slot);

/* --- tiers.c --- */
size_t scheduler_tier_bytes(size_t index_bytes);
/* s->reach, where s->scores are those of the device. */
void scheduler_match_tiers(struct scheduler *s, const struct route_request *q);
/* Room for so many slots in s->reach. */
void scheduler_need_reach(struct scheduler *s, uint32_t n_slots);
/* Sets host_blocks and disk_blocks, beyond overlap_blocks. */
void scheduler_fill_tiers(const struct scheduler *s, uint32_t slot, struct route_candidate *ret);

/* --- matches.c --- */
/* s->scores and s->reach from q->matches. */
void scheduler_take_matches(struct scheduler *s, const struct route_request *q);

/* s->scores[slot] = blocks of the prompt that each target holds. */
void scheduler_match_prompt(struct scheduler *s, const struct route_request *q);

/*
 * The one stage that says who may be chosen, in every mode: fills s->eligible and d->rejections. 0 or
 * the outcome of scheduler_route() that says why nobody is.
 */
int eligible_gather(struct scheduler *s, const struct route_request *q, struct route_decision *d);
/* Sum of the weights of preferred taints that the target has. */
double eligible_preference(const struct target_rest *t, const struct route_request *q);
