/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/scheduler_inner.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "router/sched/learned.h"

/* Block identities for the tracker: the prompt's own, unique ones, or none. */
static const uint64_t *tracked_sequence(struct scheduler *s, const struct route_request *q)
{
    if (!s->conf.track_active_blocks)
        return NULL;
    if (s->conf.assume_kv_reuse && !q->no_kv_reuse)
        return q->tracked ? q->tracked : q->sequence;
    if (q->n_blocks > s->cap_fresh) {
        s->cap_fresh = q->n_blocks;
        s->fresh_hashes = xreallocarray(s->fresh_hashes, s->cap_fresh, sizeof(*s->fresh_hashes));
    }
    for (size_t i = 0; i < q->n_blocks; i++)
        s->fresh_hashes[i] = (q->random + i) * UINT64_C(0x9E3779B97F4A7C15);
    return s->fresh_hashes;
}

/* As the reference takes it where it is not set, or 0. */
enum { ACCELERATOR_RATIO = 8 };

/* --- what is known of the candidates -----------------------------------------------------------
 */

/* A policy without a credit to take from what is cached does not look at it. */
static bool ignores_caches(const struct route_conf *c)
{
    return c->load_aware && !(c->caches_anyway && policy_of(c) == &POLICY_DYNAMO_1);
}

/* Whether the approximate index is in use: instead of events, or beside them. */
static bool predicts(const struct route_conf *c)
{
    return !c->use_kv_events || c->predicted_ttl_ms > 0;
}

/* What was just routed there counts as if it had been reported. */
static void add_predicted(struct scheduler *s, const struct route_request *q)
{
    size_t n_slots = worker_table_end(s->workers);

    (void)approx_index_match(s->approx, q->local, q->n_blocks, q->now_ns / NS_PER_MS, s->shared,
                             n_slots);
    for (size_t slot = 0; slot < n_slots; slot++)
        s->scores[slot] = MAX(s->scores[slot], s->shared[slot]);
}

void scheduler_match_prompt(struct scheduler *s, const struct route_request *q)
{
    const struct route_conf *c = &s->conf;
    size_t n_slots = worker_table_end(s->workers);
    uint64_t now_ms = q->now_ns / NS_PER_MS;

    s->n_reach = 0;
    if (q->matches && q->matches->told && !ignores_caches(c)) {
        scheduler_take_matches(s, q);
        if (c->remote == ROUTE_REMOTE_EVENTS && c->predicted_ttl_ms > 0)
            add_predicted(s, q);
        return;
    }
    if (ignores_caches(c))
        memset(s->scores, 0, n_slots * sizeof(*s->scores));
    else if (!c->use_kv_events)
        (void)approx_index_match(s->approx, q->local, q->n_blocks, now_ms, s->scores, n_slots);
    else
        (void)prefix_index_match(s->index, q->local, q->n_blocks, s->scores, n_slots);
    if (ignores_caches(c) || !c->use_kv_events)
        return;
    if (tier_index_slots_end(s->tiers))
        scheduler_match_tiers(s, q);
    if (s->n_dead && c->event_fallback)
        scheduler_match_guesses(s, q);
    if (predicts(c))
        add_predicted(s, q);
}

static uint64_t tree_size(const struct scheduler *s, uint32_t slot)
{
    if (s->n_dead && s->rest[slot].signal.dead)
        return approx_index_held(s->guesses, slot);
    return s->conf.use_kv_events ? prefix_index_held(s->index, slot)
                                 : approx_index_held(s->approx, slot);
}

/* Members one by one: a value that is put together first and copied then costs twice the time. */
static void fill_candidate(const struct scheduler *s, const struct route_request *q,
                           const struct learned *l, uint32_t slot, uint32_t n_blocks,
                           struct route_candidate *ret)
{
    const struct target *t = &s->targets[slot];
    const struct sequences_load *load = sequences_load(s->sequences, slot);

    ret->worker = t->worker;
    ret->slot = slot;
    ret->overlap_blocks = s->scores[slot];
    ret->host_blocks = ret->disk_blocks = 0;
    if (s->n_reach)
        scheduler_fill_tiers(s, slot, ret);
    ret->shared_blocks = q->shared ? shared_hits_from(q->shared, s->scores[slot]) : 0;
    ret->tree_size = s->scores[slot] ? tree_size(s, slot) : 0;
    ret->new_blocks = n_blocks - s->shared[slot];
    ret->requests = load->requests;
    ret->prefill_tokens = load->prefill_tokens;
    ret->queued_tokens = load->queued_tokens;
    ret->active_blocks = load->active_blocks;
    ret->max_num_seqs = t->max_num_seqs;
    ret->total_kv_blocks = t->total_kv_blocks;
    ret->preference = q->n_preferred ? eligible_preference(&s->rest[slot], q) : 0;
    ret->confidence = 1 - t->doubt;
    ret->slowness = learned_slowness(l, slot);
    ret->lifetime = learned_lifetime(l, slot);
    ret->on_cpu = t->on_cpu;
}

static void reserve_candidates(struct route_decision *d, size_t n)
{
    d->n_candidates = n;
    if (n <= d->cap_candidates)
        return;
    d->cap_candidates = MAX(n, d->cap_candidates * 2);
    d->candidates = xreallocarray(d->candidates, d->cap_candidates, sizeof(*d->candidates));
    d->scores = xreallocarray(d->scores, d->cap_candidates, sizeof(*d->scores));
}

/* What other replicas may have placed meanwhile counts as if it were booked. */
static void add_unheard(const struct unheard *u, struct route_decision *d)
{
    for (size_t i = 0; i < d->n_candidates; i++) {
        struct route_candidate *c = &d->candidates[i];
        struct unheard_load load = unheard_at(u, c->slot);

        c->requests += (uint32_t)load.requests;
        c->prefill_tokens += (uint64_t)load.prefill_tokens;
        c->queued_tokens += (uint64_t)load.prefill_tokens;
        c->active_blocks += (uint64_t)load.blocks;
    }
}

static void sum_up(struct route_decision *d)
{
    uint64_t n_requests = 0, n_on_cpus = 0, least = UINT64_MAX;
    uint32_t n_cpus = 0, fewest = UINT32_MAX, most = 0;
    double most_cached = 0;

    for (size_t i = 0; i < d->n_candidates; i++) {
        const struct route_candidate *c = &d->candidates[i];

        n_requests += c->requests;
        n_on_cpus += c->on_cpu ? c->requests : 0;
        n_cpus += c->on_cpu;
        least = MIN(least, c->prefill_tokens);
        fewest = MIN(fewest, c->requests);
        most = MAX(most, c->requests);
        most_cached = MAX(most_cached, policy_cached_blocks(c));
    }
    d->inputs.cpus = n_cpus;
    d->inputs.accelerators = (uint32_t)d->n_candidates - n_cpus;
    d->inputs.cpu_requests = n_on_cpus;
    d->inputs.accelerator_requests = n_requests - n_on_cpus;
    d->inputs.mean_requests = (double)n_requests / (double)d->n_candidates;
    d->inputs.min_prefill_tokens = least;
    d->inputs.min_requests = fewest;
    d->inputs.max_requests = most;
    d->inputs.most_cached = most_cached;
}

/* What is known of each candidate, once per decision, and of all of them together. */
static void fill_candidates(struct scheduler *s, const struct route_request *q,
                            const uint64_t *sequence, struct route_decision *d)
{
    size_t n_slots = worker_table_end(s->workers), n_blocks = sequence ? q->n_blocks : 0;
    const struct learned *l = sequences_learned(s->sequences);
    uint64_t start = q->clock ? q->clock() : 0;

    scheduler_match_prompt(s, q);
    d->match_at_ns = start - (q->matches ? q->matches->took_ns : 0);
    d->match_ns = (q->clock ? q->clock() - start : 0) + (q->matches ? q->matches->took_ns : 0);
    sequences_shared(s->sequences, sequence, n_blocks, s->shared, n_slots);
    reserve_candidates(d, s->n_eligible);
    for (size_t i = 0; i < d->n_candidates; i++)
        fill_candidate(s, q, l, s->eligible[i], (uint32_t)n_blocks, &d->candidates[i]);
    unheard_advance(s->unheard, q->now_ns);
    if (unheard_any(s->unheard))
        add_unheard(s->unheard, d);
    sum_up(d);
}

/*
 * The weight of 0.9.0 is the scale of 1.x where that is not set, or where a request overrides it; 0
 * takes the credit away too (router.md §4.8).
 */
static void set_weights(struct policy_inputs *in, const struct route_conf *c,
                        const struct route_request *q)
{
    bool overridden = !isnan(q->overlap_weight), scaled = !isnan(c->prefill_load_scale);

    in->overlap_weight = overridden ? q->overlap_weight : c->overlap_weight;
    in->prefill_load_scale = scaled && !overridden ? c->prefill_load_scale : in->overlap_weight;
    in->overlap_credit = c->overlap_credit;
    if (in->overlap_weight == 0 && (overridden || !scaled))
        in->overlap_credit = 0;
    if (q->overlap_credit)
        in->overlap_credit = *q->overlap_credit;
    in->credit_decay = c->credit_decay;
    in->host_weight = c->host_weight;
    in->disk_weight = c->disk_weight;
    in->shared_weight = q->shared ? c->shared_weight : 0;
    in->active_request_weight = c->active_request_weight;
    in->accelerator_ratio = c->accelerator_ratio ? c->accelerator_ratio : ACCELERATOR_RATIO;
    in->two_tier = c->two_tier;
    in->track_prefill_tokens = c->track_prefill_tokens && !q->no_prefill_tokens;
}

static struct policy_inputs inputs_of(const struct scheduler *s, const struct route_request *q)
{
    struct policy_inputs in = {
        .block_size = s->block_size,
        .isl = q->isl,
        .random = q->random,
        .turn = s->turn,
        .seconds_per_token = learned_seconds_per_token(sequences_learned(s->sequences)),
        .temperature = isnan(q->temperature) ? s->conf.temperature : q->temperature,
    };

    set_weights(&in, &s->conf, q);
    return in;
}

/* --- the decision ------------------------------------------------------------------------------
 */

static void choose(struct route_decision *d)
{
    if (d->policy->score)
        d->policy->score(d->candidates, d->n_candidates, &d->inputs, d->scores);
    else
        memset(d->scores, 0, d->n_candidates * sizeof(*d->scores));
    d->chosen =
        policy_choose(d->policy, d->candidates, d->scores, d->n_candidates, &d->inputs, &d->pick);
}

static void tell_booked(struct scheduler *s, const struct route_request *q,
                        const struct route_candidate *chosen, const struct booking_spec *spec,
                        const struct booking *booking)
{
    uint64_t cached = MIN(spec->cached_tokens, (uint64_t)spec->isl);
    const struct route_booked b = {
        .booking = booking,
        .id = q->id,
        .worker = chosen->worker,
        .sequence = spec->sequence,
        .n_blocks = spec->sequence ? spec->n_blocks : 0,
        .isl = spec->isl,
        .overlap_blocks = chosen->overlap_blocks,
        .prefill_tokens = spec->no_prefill ? 0 : spec->isl - (uint32_t)cached,
    };

    unheard_note(s->unheard, chosen->slot, true,
                 (struct unheard_load){1, b.prefill_tokens, chosen->new_blocks}, q->now_ns);
    LIST_FOREACH (o, &s->observers, struct scheduler_observer, link)
        if (o->booked)
            o->booked(o, &b);
}

/* Blocks of the engine that may hold a prompt's blocks: one has its rest, as 1.6.1 counts. */
static size_t room_beside_rest(const struct route_candidate *c, const struct policy_inputs *in)
{
    return c->total_kv_blocks - (in->isl % in->block_size != 0);
}

static struct booking *book(struct scheduler *s, const struct route_request *q,
                            const struct route_decision *d, const uint64_t *sequence)
{
    const struct route_candidate *chosen = &d->candidates[d->chosen];
    const struct booking_spec spec = {
        .slot = chosen->slot,
        .sequence = sequence,
        .n_blocks = q->n_blocks,
        .isl = q->isl,
        .cached_tokens = q->to_compute ? q->isl - MIN(*q->to_compute, q->isl)
                                       : policy_credited_tokens(d->policy, chosen, &d->inputs),
        .max_num_seqs = chosen->max_num_seqs,
        .no_prefill = !d->inputs.track_prefill_tokens,
        .now_ns = q->now_ns,
    };
    struct booking *b;

    if (s->conf.mode == ROUTE_ROUND_ROBIN)
        s->turn++;
    if (predicts(&s->conf))
        approx_index_insert(s->approx, chosen->slot, q->local, q->sequence, q->n_blocks,
                            q->now_ns / NS_PER_MS);
    if (scheduler_keeps_used(&s->conf) && chosen->total_kv_blocks)
        approx_index_keep(s->approx, chosen->slot, room_beside_rest(chosen, &d->inputs));
    scheduler_guess(s, chosen->slot, q);
    b = sequences_book(s->sequences, &spec);
    tell_booked(s, q, chosen, &spec, b);
    return b;
}

struct booking *scheduler_book_remote(struct scheduler *s, const struct route_booked *b,
                                      uint64_t now_ns)
{
    uint32_t slot = worker_table_find(s->workers, b->worker);
    const struct booking_spec spec = {
        .slot = slot,
        .sequence = b->sequence,
        .n_blocks = b->n_blocks,
        .isl = b->isl,
        .cached_tokens = b->isl - MIN(b->prefill_tokens, b->isl),
        .no_lesson = true,
        .now_ns = now_ns,
    };

    if (!scheduler_knows(s, b->worker))
        return NULL;
    sequences_shared(s->sequences, b->sequence, b->n_blocks, s->shared,
                     worker_table_end(s->workers));
    unheard_note(
        s->unheard, slot, false,
        (struct unheard_load){1, b->prefill_tokens, (int64_t)b->n_blocks - s->shared[slot]},
        now_ns);
    return sequences_book(s->sequences, &spec);
}

void scheduler_set_replicas(struct scheduler *s, size_t n)
{
    unheard_set_replicas(s->unheard, n);
}

int scheduler_route(struct scheduler *s, const struct route_request *q,
                    struct route_decision *ret_decision, struct booking **ret_booking)
{
    struct route_decision *d = ret_decision;
    const uint64_t *sequence;
    int r;

    assert(q->isl >= 1);
    d->mode = (enum route_mode)s->conf.mode;
    d->policy = policy_of(&s->conf);
    d->inputs = inputs_of(s, q);
    d->isl_blocks = (q->isl + s->block_size - 1) / s->block_size;
    d->shared_asked = q->shared != NULL;
    d->n_pages = q->shared ? q->shared->n_pages : 0;
    d->shared_pages = q->shared ? shared_hits_from(q->shared, 0) : 0;

    (void)sequences_expire(s->sequences, q->now_ns);
    d->n_candidates = 0;
    r = eligible_gather(s, q, d);
    if (r != 0)
        return r;
    sequence = tracked_sequence(s, q);
    fill_candidates(s, q, sequence, d);
    choose(d);
    *ret_booking = q->query_only ? NULL : book(s, q, d, sequence);
    return 0;
}
