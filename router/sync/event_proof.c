/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_proof.h"

#include "lib/base/mem.h"

struct event_proof {
    struct worker_rank rank;
    uint64_t id, digest; /* of the last event; a digest is never 0 */
    uint64_t wanted_id, wanted;
    enum event_expectation state;
};

static struct event_proof *find(const struct event_proofs *p, struct worker_rank w)
{
    struct event_proof *proof = map64_find_ptr(&p->ranks, worker_rank_key(w));

    return proof && worker_rank_eq(proof->rank, w) ? proof : NULL;
}

/* Of two ranks with one key the second has no proof, which costs it a dump at most. */
static struct event_proof *need(struct event_proofs *p, struct worker_rank w)
{
    struct event_proof *proof = map64_find_ptr(&p->ranks, worker_rank_key(w));

    if (!proof) {
        proof = xcalloc(1, sizeof(*proof));
        proof->rank = w;
        map64_put_ptr(&p->ranks, worker_rank_key(w), proof);
    }
    return worker_rank_eq(proof->rank, w) ? proof : NULL;
}

static uint64_t mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * UINT64_C(0xBF58476D1CE4E5B9);
    return h ^ h >> 31;
}

/* The ends of a chain of blocks are enough: hashes name all that comes before. */
static uint64_t digest_of(const struct kv_event *ev)
{
    uint64_t h = mix(ev->kind, ev->tier + 8u);

    if (ev->kind == KV_STORED && ev->n_blocks) {
        h = mix(h, ev->n_blocks);
        h = mix(h, ev->parent_hash.set ? ev->parent_hash.v : 1);
        h = mix(h, ev->blocks[0].block_hash);
        h = mix(h, ev->blocks[ev->n_blocks - 1].block_hash);
        h = mix(h, ev->blocks[ev->n_blocks - 1].tokens_hash);
    } else if (ev->kind == KV_REMOVED && ev->n_removed) {
        h = mix(h, ev->n_removed);
        h = mix(h, ev->removed[0]);
        h = mix(h, ev->removed[ev->n_removed - 1]);
    }
    return h ? h : 1;
}

void event_proofs_saw(struct event_proofs *p, const struct kv_event *ev)
{
    struct event_proof *proof = need(p, (struct worker_rank){ev->worker_id, ev->dp_rank});

    if (!proof)
        return;
    if (ev->event_id != proof->id || !proof->digest) { /* of several with one id the first counts */
        proof->id = ev->event_id;
        proof->digest = digest_of(ev);
        if (proof->state == EVENT_NOT_TOLD && ev->event_id == proof->wanted_id)
            proof->state =
                proof->digest == proof->wanted ? EVENT_NOT_EXPECTED : EVENT_TOLD_OTHERWISE;
    }
}

uint64_t event_proofs_of(const struct event_proofs *p, struct worker_rank w, uint64_t id)
{
    const struct event_proof *proof = find(p, w);

    return proof && proof->id == id ? proof->digest : 0;
}

void event_proofs_expect(struct event_proofs *p, struct worker_rank w, uint64_t id, uint64_t wanted)
{
    struct event_proof *proof = need(p, w);

    if (!proof)
        return;
    proof->digest = 0;
    proof->wanted_id = id;
    proof->wanted = wanted;
    proof->state = EVENT_NOT_TOLD;
}

void event_proofs_reset(struct event_proofs *p, struct worker_rank w)
{
    struct event_proof *proof = find(p, w);

    if (proof)
        proof->state = EVENT_NOT_EXPECTED;
}

void event_proofs_forget(struct event_proofs *p, uint64_t worker_id)
{
    uint64_t key, value;
    size_t at = 0;

    while (map64_next(&p->ranks, &at, &key, &value)) {
        struct event_proof *proof = (struct event_proof *)(uintptr_t)value;

        if (proof->rank.worker_id != worker_id)
            continue;
        (void)map64_remove(&p->ranks, key, NULL);
        free(proof);
        at = 0; /* entries move */
    }
}

enum event_expectation event_proofs_look(const struct event_proofs *p, struct worker_rank w)
{
    const struct event_proof *proof = find(p, w);

    return proof ? proof->state : EVENT_NOT_EXPECTED;
}

bool event_proofs_next(const struct event_proofs *p, size_t *at, struct worker_rank *ret)
{
    uint64_t key, value;

    while (map64_next(&p->ranks, at, &key, &value)) {
        const struct event_proof *proof = (const struct event_proof *)(uintptr_t)value;

        if (proof->state == EVENT_NOT_EXPECTED)
            continue;
        *ret = proof->rank;
        return true;
    }
    return false;
}

void event_proofs_done(struct event_proofs *p)
{
    uint64_t key, value;
    size_t at = 0;

    while (map64_next(&p->ranks, &at, &key, &value))
        free((struct event_proof *)(uintptr_t)value);
    map64_done(&p->ranks);
}
