/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_ring.h"

struct decision_ring {
    size_t size;
    uint64_t next;
    struct decision_record *records;
    uint64_t *ids; /* hash of each record's request id: a search touches these and no record */
};

struct decision_ring *decision_ring_new(size_t size)
{
    struct decision_ring *r = xcalloc(1, sizeof(*r));

    r->size = size;
    r->next = 1;
    r->records = xcalloc(size, sizeof(*r->records));
    r->ids = xcalloc(size, sizeof(*r->ids));
    return r;
}

struct decision_ring *decision_ring_free(struct decision_ring *r)
{
    if (!r)
        return NULL;
    free(r->records);
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
    struct decision_record *rec = &r->records[r->next % r->size];

    r->ids[r->next % r->size] = 0;
    rec->seq = r->next++;
    return rec;
}

void decision_ring_added(struct decision_ring *r, const struct decision_record *rec)
{
    r->ids[rec->seq % r->size] = hash_of(str_from(rec->request_id));
}

struct decision_record *decision_ring_at(const struct decision_ring *r, uint64_t seq)
{
    if (seq < decision_ring_first(r) || seq >= r->next)
        return NULL;
    return &r->records[seq % r->size];
}

struct decision_record *decision_ring_find(const struct decision_ring *r, struct str request_id,
                                           uint64_t before)
{
    uint64_t wanted = hash_of(request_id);

    for (uint64_t seq = MIN(r->next, before); seq-- > decision_ring_first(r);) {
        struct decision_record *rec = &r->records[seq % r->size];

        if (r->ids[seq % r->size] == wanted && str_is(request_id, rec->request_id))
            return rec;
    }
    return NULL;
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
