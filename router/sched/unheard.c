/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes are in a ring in the order of time; per slot there are the sums of those in it.
 */
#include "router/sched/unheard.h"

#include <string.h>

struct note {
    uint64_t at_ns;
    uint32_t slot;
    bool ours;
    struct unheard_load load;
};

struct sums {
    struct unheard_load ours, heard;
};

struct unheard {
    size_t n_replicas;
    struct note *notes; /* ring of UNHEARD_NOTES_MAX, made when first used */
    size_t first, len;
    struct sums *slots;
    size_t n_slots;
};

static const uint64_t WINDOW_NS = UINT64_C(1000000) * UNHEARD_WINDOW_MS;

struct unheard *unheard_new(void)
{
    struct unheard *u = xcalloc(1, sizeof(*u));

    u->n_replicas = 1;
    return u;
}

struct unheard *unheard_free(struct unheard *u)
{
    if (!u)
        return NULL;
    free(u->notes);
    free(u->slots);
    free(u);
    return NULL;
}

static void add(struct unheard *u, const struct note *n, int64_t sign)
{
    struct sums *s = &u->slots[n->slot];
    struct unheard_load *at = n->ours ? &s->ours : &s->heard;

    at->requests += sign * n->load.requests;
    at->prefill_tokens += sign * n->load.prefill_tokens;
    at->blocks += sign * n->load.blocks;
}

static void drop_oldest(struct unheard *u)
{
    add(u, &u->notes[u->first], -1);
    u->first = (u->first + 1) % UNHEARD_NOTES_MAX;
    u->len--;
}

void unheard_set_replicas(struct unheard *u, size_t n)
{
    u->n_replicas = MAX(n, (size_t)1);
    while (u->n_replicas == 1 && u->len)
        drop_oldest(u);
}

static void need_slot(struct unheard *u, uint32_t slot)
{
    size_t n = MAX((size_t)slot + 1, u->n_slots * 2);

    if (slot < u->n_slots)
        return;
    u->slots = xreallocarray(u->slots, n, sizeof(*u->slots));
    memset(u->slots + u->n_slots, 0, (n - u->n_slots) * sizeof(*u->slots));
    u->n_slots = n;
}

void unheard_note(struct unheard *u, uint32_t slot, bool ours, struct unheard_load load,
                  uint64_t now_ns)
{
    struct note *n;

    if (u->n_replicas == 1)
        return;
    need_slot(u, slot);
    if (!u->notes)
        u->notes = xcalloc(UNHEARD_NOTES_MAX, sizeof(*u->notes));
    if (u->len == UNHEARD_NOTES_MAX)
        drop_oldest(u);
    n = &u->notes[(u->first + u->len++) % UNHEARD_NOTES_MAX];
    *n = (struct note){now_ns, slot, ours, load};
    add(u, n, 1);
}

void unheard_advance(struct unheard *u, uint64_t now_ns)
{
    while (u->len && u->notes[u->first].at_ns + WINDOW_NS <= now_ns)
        drop_oldest(u);
}

static int64_t expected(const struct unheard *u, int64_t ours, int64_t heard)
{
    return MAX((int64_t)(u->n_replicas - 1) * ours - heard, INT64_C(0));
}

bool unheard_any(const struct unheard *u)
{
    return u->len > 0;
}

struct unheard_load unheard_at(const struct unheard *u, uint32_t slot)
{
    const struct sums *s;

    if (slot >= u->n_slots)
        return (struct unheard_load){0};
    s = &u->slots[slot];
    return (struct unheard_load){
        expected(u, s->ours.requests, s->heard.requests),
        expected(u, s->ours.prefill_tokens, s->heard.prefill_tokens),
        expected(u, s->ours.blocks, s->heard.blocks),
    };
}
