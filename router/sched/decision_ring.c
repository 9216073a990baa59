/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_ring.h"

#include "router/sched/decision_pack.h"

enum { CHUNK_WORDS = 8000 }; /* 64 KB with its head; a record takes 900 at most */

/* Packed records, each behind the one before. */
struct chunk {
    size_t n_live; /* not overwritten yet */
    size_t used;   /* words */
    uint64_t words[CHUNK_WORDS];
};

struct slot {
    struct chunk *chunk; /* NULL = no record yet */
    size_t at;           /* word that the record begins with */
    struct decision_outcome outcome;
};

struct decision_ring {
    size_t size;
    uint64_t next;
    struct slot *slots;
    uint64_t *ids; /* hash of each record's request id: a search touches these and no record */
    struct chunk *current; /* takes the next record; NULL = none did yet */
    struct chunk *spare;   /* emptied last; NULL = none */
    size_t n_chunks;
    struct decision_record draft; /* that decision_ring_add() gave */
    struct decision_record copy;  /* that decision_ring_at() gave */
};

struct decision_ring *decision_ring_new(size_t size)
{
    struct decision_ring *r = xcalloc(1, sizeof(*r));

    r->size = size;
    r->next = 1;
    r->slots = xcalloc(size, sizeof(*r->slots));
    r->ids = xcalloc(size, sizeof(*r->ids));
    return r;
}

static struct chunk *chunk_free(struct decision_ring *r, struct chunk *c)
{
    r->n_chunks -= c != NULL;
    free(c);
    return NULL;
}

/* Its record is not needed any more. */
static void slot_clear(struct decision_ring *r, struct slot *s)
{
    struct chunk *c = s->chunk;

    s->chunk = NULL;
    if (!c || --c->n_live > 0 || c == r->current)
        return;
    chunk_free(r, r->spare);
    r->spare = c;
}

struct decision_ring *decision_ring_free(struct decision_ring *r)
{
    if (!r)
        return NULL;
    for (size_t i = 0; i < r->size; i++)
        slot_clear(r, &r->slots[i]);
    chunk_free(r, r->spare);
    chunk_free(r, r->current);
    free(r->slots);
    free(r->ids);
    free(r);
    return NULL;
}

/* FNV-1a: ids are UUIDs, and a hit is compared in full. */
static uint64_t hash_of(struct str id)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < id.len; i++)
        h = (h ^ (uint8_t)id.ptr[i]) * UINT64_C(0x100000001b3);
    return h;
}

struct decision_record *decision_ring_add(struct decision_ring *r)
{
    r->draft.seq = r->next;
    return &r->draft;
}

/* One with room for any record. */
static struct chunk *chunk_with_room(struct decision_ring *r)
{
    if (r->current && r->current->used + DECISION_PACKED_MAX <= CHUNK_WORDS)
        return r->current;
    /* Who overwrites the one record of a ring has just emptied it. */
    if (r->current && !r->current->n_live) {
        r->current->used = 0;
        return r->current;
    }
    r->n_chunks += r->spare == NULL;
    r->current = r->spare ? TAKE(r->spare) : xmalloc(sizeof(*r->current));
    r->current->n_live = r->current->used = 0;
    return r->current;
}

void decision_ring_added(struct decision_ring *r)
{
    size_t i = r->next++ % r->size;
    struct slot *s = &r->slots[i];
    struct chunk *c;

    slot_clear(r, s);
    c = chunk_with_room(r);
    *s = (struct slot){c, c->used, r->draft.outcome};
    c->n_live++;
    c->used += decision_pack(&r->draft, c->words + c->used);
    r->ids[i] = hash_of(str_from(r->draft.request_id));
}

static bool has(const struct decision_ring *r, uint64_t seq)
{
    return seq >= decision_ring_first(r) && seq < r->next;
}

const struct decision_record *decision_ring_at(struct decision_ring *r, uint64_t seq)
{
    const struct slot *s = &r->slots[seq % r->size];

    if (!has(r, seq))
        return NULL;
    decision_unpack(s->chunk->words + s->at, &r->copy);
    r->copy.outcome = s->outcome;
    return &r->copy;
}

const struct decision_record *decision_ring_find(struct decision_ring *r, struct str request_id,
                                                 uint64_t before)
{
    uint64_t wanted = hash_of(request_id);

    for (uint64_t seq = MIN(r->next, before); seq-- > decision_ring_first(r);) {
        const struct decision_record *rec;

        if (r->ids[seq % r->size] != wanted)
            continue;
        rec = decision_ring_at(r, seq);
        if (str_is(request_id, rec->request_id))
            return rec;
    }
    return NULL;
}

struct decision_outcome *decision_ring_outcome(struct decision_ring *r, uint64_t seq)
{
    return has(r, seq) ? &r->slots[seq % r->size].outcome : NULL;
}

uint64_t decision_ring_first(const struct decision_ring *r)
{
    return r->next > r->size ? r->next - r->size : 1;
}

uint64_t decision_ring_next(const struct decision_ring *r)
{
    return r->next;
}

bool decision_ring_is_full(const struct decision_ring *r)
{
    return r->next > r->size;
}

size_t decision_ring_bytes(const struct decision_ring *r)
{
    return sizeof(*r) + r->size * (sizeof(*r->slots) + sizeof(*r->ids)) +
           r->n_chunks * sizeof(struct chunk);
}
