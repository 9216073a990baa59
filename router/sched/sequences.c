/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run is a stretch of blocks that the same bookings go through. Every booking ends at the end of
 * a run; one that ends or turns off inside cuts it in two, and the lower half keeps the number, so
 * that bookings and children need no repair. The users of a run are the targets of those bookings,
 * sorted by slot. Runs are named by position, 0 is the root above all prompts. A run without users
 * has no children either and goes at once, so there are at most two runs per booking.
 */
#include "router/sched/sequences.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/base/list.h"
#include "router/kv/edge_table.h"
#include "router/sched/learned.h"

enum { ROOT = 0 };

struct user {
    uint32_t slot, refs; /* bookings of that target which run through here */
    double fraction;     /* how much each block counts: 1, or less for ageing output */
};

struct run {
    uint64_t *hashes; /* NULL in a free run */
    uint32_t n_hashes;
    uint32_t parent; /* of a free run: the next free one */
    struct user *users;
    uint32_t n_users, cap_users;
};

struct target {
    struct sequences_load load;
    uint64_t unique_blocks;
    double discount; /* sum of (1 - fraction) over its blocks */
};

struct sequences {
    struct run *runs;
    uint32_t n_runs, cap_runs, first_free;
    struct edge_table edges; /* (run, first hash of the next) -> next run */
    struct kv_mem mem;       /* of the edges; the bookings bound them */
    struct target *targets;  /* by slot */
    size_t n_targets;
    size_t n_bookings;
    struct list by_activity; /* attached bookings, the longest silent first */
    uint64_t expiry_ns, n_expired;
    struct learned learned;
    struct sequences_hooks hooks;
};

struct booking {
    struct sequences *owner;
    struct list activity;
    uint32_t slot;
    uint32_t prefill_tokens, queued_tokens; /* of this request, until its first token */
    uint64_t queued_ahead;                  /* queued tokens when it was sent, its own included */
    uint64_t sent_ns, first_ns, active_ns;
    bool silent;   /* nothing is learned from it */
    bool teaches;  /* it did not have to wait for a slot */
    uint32_t last; /* the run where its prompt ends */
    uint32_t n_output;
    double output_discount; /* its part of the target's discount */
    bool detached;          /* the target is gone */
};

struct sequences *sequences_new(void)
{
    struct sequences *s = xcalloc(1, sizeof(*s));

    s->n_runs = 1;
    s->mem.limit = SIZE_MAX;
    list_init(&s->by_activity);
    learned_init(&s->learned);
    return s;
}

struct sequences *sequences_free(struct sequences *s)
{
    if (!s)
        return NULL;
    assert(s->n_bookings == 0);
    free(s->targets);
    free(s->runs);
    edge_table_done(&s->edges, &s->mem);
    learned_done(&s->learned);
    free(s);
    return NULL;
}

void sequences_set_hooks(struct sequences *s, struct sequences_hooks hooks)
{
    s->hooks = hooks;
}

static struct target *need_target(struct sequences *s, uint32_t slot)
{
    if (slot >= s->n_targets) {
        size_t n = MAX((size_t)slot + 1, s->n_targets * 2);

        s->targets = xreallocarray(s->targets, n, sizeof(*s->targets));
        memset(s->targets + s->n_targets, 0, (n - s->n_targets) * sizeof(*s->targets));
        s->n_targets = n;
    }
    return &s->targets[slot];
}

static void count_blocks(struct target *t)
{
    t->load.active_blocks = (uint64_t)llround((double)t->unique_blocks - t->discount);
}

/* --- users of a run ----------------------------------------------------------------------------
 */

/* Position of the slot's user, or where it belongs. */
static uint32_t user_position(const struct run *r, uint32_t slot)
{
    uint32_t low = 0, high = r->n_users;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (r->users[middle].slot < slot)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct user *user_get(const struct run *r, uint32_t slot)
{
    uint32_t at = user_position(r, slot);

    assert(at < r->n_users && r->users[at].slot == slot);
    return &r->users[at];
}

static void user_add(struct run *r, struct target *t, uint32_t slot)
{
    uint32_t at = user_position(r, slot);

    if (at < r->n_users && r->users[at].slot == slot) {
        r->users[at].refs++;
        return;
    }
    if (r->n_users == r->cap_users) {
        r->cap_users = r->cap_users ? r->cap_users * 2 : 1;
        r->users = xreallocarray(r->users, r->cap_users, sizeof(*r->users));
    }
    memmove(r->users + at + 1, r->users + at, (r->n_users - at) * sizeof(*r->users));
    r->users[at] = (struct user){.slot = slot, .refs = 1, .fraction = 1};
    r->n_users++;
    t->unique_blocks += r->n_hashes;
}

static void user_drop(struct run *r, struct target *t, uint32_t slot)
{
    struct user *u = user_get(r, slot);

    if (--u->refs > 0)
        return;
    t->unique_blocks -= r->n_hashes;
    t->discount -= (1 - u->fraction) * r->n_hashes;
    r->n_users--;
    memmove(u, u + 1, (size_t)(r->users + r->n_users - u) * sizeof(*u));
}

/* --- runs --------------------------------------------------------------------------------------
 */

static uint32_t run_take_free(struct sequences *s)
{
    uint32_t id = s->first_free;

    if (id) {
        s->first_free = s->runs[id].parent;
        return id;
    }
    if (s->n_runs >= s->cap_runs) {
        s->cap_runs = s->cap_runs ? s->cap_runs * 2 : 64;
        s->runs = xreallocarray(s->runs, s->cap_runs, sizeof(*s->runs));
    }
    return s->n_runs++;
}

static void edge_put(struct sequences *s, uint32_t parent, uint64_t hash, uint32_t child)
{
    if (!edge_table_reserve(&s->edges, &s->mem))
        abort(); /* as xmalloc() does */
    edge_table_put(&s->edges, parent, hash, child);
}

static uint32_t run_new(struct sequences *s, uint32_t parent, const uint64_t *hashes, size_t n)
{
    uint32_t id = run_take_free(s);
    struct run *r = &s->runs[id];

    *r = (struct run){.n_hashes = (uint32_t)n, .parent = parent};
    r->hashes = xreallocarray(NULL, n, sizeof(*hashes));
    memcpy(r->hashes, hashes, n * sizeof(*hashes));
    edge_put(s, parent, hashes[0], id);
    return id;
}

static void run_free(struct sequences *s, uint32_t id)
{
    struct run *r = &s->runs[id];

    edge_table_remove(&s->edges, &s->mem, r->parent, r->hashes[0]);
    free(r->hashes);
    free(r->users);
    *r = (struct run){.parent = s->first_free};
    s->first_free = id;
}

/* Cuts the run after its first @n blocks; returns the new upper half. */
static uint32_t run_split(struct sequences *s, uint32_t id, uint32_t n)
{
    uint32_t upper = run_new(s, s->runs[id].parent, s->runs[id].hashes, n);
    struct run *u = &s->runs[upper], *r = &s->runs[id];

    u->users = xreallocarray(NULL, r->n_users, sizeof(*u->users));
    memcpy(u->users, r->users, r->n_users * sizeof(*u->users));
    u->n_users = u->cap_users = r->n_users;

    r->n_hashes -= n;
    memmove(r->hashes, r->hashes + n, r->n_hashes * sizeof(*r->hashes));
    r->parent = upper;
    edge_put(s, upper, r->hashes[0], id);
    return upper;
}

static uint32_t common_length(const struct run *r, const uint64_t *hashes, size_t n)
{
    uint32_t most = (uint32_t)MIN(n, (size_t)r->n_hashes), i = 0;

    while (i < most && r->hashes[i] == hashes[i])
        i++;
    return i;
}

/* The run that ends where the sequence does; the rest of the sequence becomes a run without users.
 */
static uint32_t need_path(struct sequences *s, const uint64_t *sequence, size_t n)
{
    uint32_t at = ROOT;

    for (size_t depth = 0; depth < n;) {
        uint32_t id = edge_table_find(&s->edges, at, sequence[depth]), common;

        if (!id)
            return run_new(s, at, sequence + depth, n - depth);
        common = common_length(&s->runs[id], sequence + depth, n - depth);
        at = common < s->runs[id].n_hashes ? run_split(s, id, common) : id;
        depth += common;
    }
    return at;
}

/* --- bookings ----------------------------------------------------------------------------------
 */

/* What it will have to compute. Queued are its new tokens, of which there is always one. */
static void count_prompt(struct booking *b, struct target *t, const struct booking_spec *spec)
{
    if (spec->no_prefill)
        return;
    b->prefill_tokens =
        spec->cached_tokens < spec->isl ? spec->isl - (uint32_t)spec->cached_tokens : 0;
    b->queued_tokens = MAX(b->prefill_tokens, 1u);
    t->load.prefill_tokens += b->prefill_tokens;
    t->load.queued_tokens += b->queued_tokens;
    b->queued_ahead = t->load.queued_tokens;
    b->silent = spec->no_lesson;
    b->teaches = !b->silent && (spec->max_num_seqs == 0 || t->load.requests < spec->max_num_seqs);
}

struct booking *sequences_book(struct sequences *s, const struct booking_spec *spec)
{
    struct target *t = need_target(s, spec->slot);
    struct booking *b = xcalloc(1, sizeof(*b));

    b->owner = s;
    b->slot = spec->slot;
    b->sent_ns = b->active_ns = spec->now_ns;
    count_prompt(b, t, spec);
    b->last = spec->sequence ? need_path(s, spec->sequence, spec->n_blocks) : ROOT;
    for (uint32_t id = b->last; id != ROOT; id = s->runs[id].parent)
        user_add(&s->runs[id], t, spec->slot);
    count_blocks(t);

    t->load.requests++;
    list_append(&s->by_activity, &b->activity);
    s->n_bookings++;
    return b;
}

/* Its prompt does not count any more. */
static void drop_prompt(struct booking *b)
{
    struct target *t = &b->owner->targets[b->slot];

    t->load.prefill_tokens -= b->prefill_tokens;
    t->load.queued_tokens -= b->queued_tokens;
    b->prefill_tokens = b->queued_tokens = 0;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

void booking_touch(struct booking *b, uint64_t now_ns)
{
    if (b->detached)
        return;
    b->active_ns = now_ns;
    list_remove(&b->activity);
    list_append(&b->owner->by_activity, &b->activity);
}

void booking_first_token(struct booking *b, uint64_t now_ns)
{
    if (b->detached || b->first_ns)
        return;
    b->first_ns = MAX(now_ns, UINT64_C(1));
    drop_prompt(b);
    if (b->teaches)
        learned_first_token(&b->owner->learned, b->slot, (double)b->queued_ahead,
                            seconds_between(b->sent_ns, now_ns));
    booking_touch(b, now_ns);
    if (b->owner->hooks.prefilled)
        b->owner->hooks.prefilled(b->owner->hooks.arg, b);
}

static void set_output_discount(struct booking *b, struct target *t, double discount)
{
    t->discount += discount - b->output_discount;
    b->output_discount = discount;
}

/* The blocks that the booking alone uses count @decay from now on. */
static void age_blocks(struct booking *b, struct target *t, double decay)
{
    struct sequences *s = b->owner;

    set_output_discount(b, t, (1 - decay) * b->n_output);
    for (uint32_t id = b->last; id != ROOT; id = s->runs[id].parent) {
        struct user *u = user_get(&s->runs[id], b->slot);

        if (u->refs == 1) {
            t->discount += (u->fraction - decay) * s->runs[id].n_hashes;
            u->fraction = decay;
        }
    }
}

void booking_output_block(struct booking *b, double decay)
{
    struct sequences *s = b->owner;
    struct target *t;

    if (b->detached)
        return;
    t = &s->targets[b->slot];
    t->unique_blocks++;
    b->n_output++;
    if (decay >= 0 && decay < 1)
        age_blocks(b, t, decay);
    count_blocks(t);
    if (s->hooks.grown)
        s->hooks.grown(s->hooks.arg, b);
}

/* What the booking counts for on its target ends. */
static void detach(struct booking *b)
{
    struct sequences *s = b->owner;
    struct target *t = &s->targets[b->slot];

    drop_prompt(b);
    set_output_discount(b, t, 0);
    t->unique_blocks -= b->n_output;
    for (uint32_t id = b->last, up; id != ROOT; id = up) {
        up = s->runs[id].parent;
        user_drop(&s->runs[id], t, b->slot);
        if (s->runs[id].n_users == 0)
            run_free(s, id);
    }
    if (t->unique_blocks == 0)
        t->discount = 0; /* rounding does not add up over the years */
    count_blocks(t);
    t->load.requests--;
    list_remove(&b->activity);
    b->detached = true;
}

struct booking *booking_end(struct booking *b, uint64_t now_ns, bool ok)
{
    if (!b)
        return NULL;
    if (!b->detached) {
        if (ok && b->first_ns && !b->silent)
            learned_end(&b->owner->learned, b->slot, seconds_between(b->first_ns, now_ns));
        detach(b);
    }
    if (b->owner->hooks.ended)
        b->owner->hooks.ended(b->owner->hooks.arg, b);
    b->owner->n_bookings--;
    free(b);
    return NULL;
}

uint32_t booking_slot(const struct booking *b)
{
    return b->slot;
}

void sequences_drop_slot(struct sequences *s, uint32_t slot)
{
    LIST_FOREACH (b, &s->by_activity, struct booking, activity)
        if (b->slot == slot)
            detach(b);
    learned_forget(&s->learned, slot);
}

void sequences_set_expiry(struct sequences *s, uint64_t expiry_ns)
{
    s->expiry_ns = expiry_ns;
}

uint64_t sequences_expire(struct sequences *s, uint64_t now_ns)
{
    while (s->expiry_ns && !list_empty(&s->by_activity)) {
        struct booking *b = LIST_ENTRY(s->by_activity.next, struct booking, activity);

        if (b->active_ns + s->expiry_ns > now_ns)
            break;
        detach(b);
        s->n_expired++;
    }
    return s->n_expired;
}

/* --- loads -------------------------------------------------------------------------------------
 */

const struct sequences_load *sequences_load(const struct sequences *s, uint32_t slot)
{
    static const struct sequences_load none = {0};

    return slot < s->n_targets ? &s->targets[slot].load : &none;
}

void sequences_shared(const struct sequences *s, const uint64_t *sequence, size_t n,
                      uint32_t *ret_shared, size_t n_slots)
{
    uint32_t at = ROOT, common;

    memset(ret_shared, 0, n_slots * sizeof(*ret_shared));
    for (size_t depth = 0; depth < n; depth += common) {
        const struct run *r;

        at = edge_table_find(&s->edges, at, sequence[depth]);
        if (at == ROOT)
            break;
        r = &s->runs[at];
        common = common_length(r, sequence + depth, n - depth);
        /* Who uses this run uses all above it. */
        for (uint32_t i = 0; i < r->n_users && r->users[i].slot < n_slots; i++)
            ret_shared[r->users[i].slot] = (uint32_t)depth + common;
        if (common < r->n_hashes)
            break;
    }
}

const struct learned *sequences_learned(const struct sequences *s)
{
    return &s->learned;
}

size_t sequences_bookings(const struct sequences *s)
{
    return s->n_bookings;
}

void sequences_check(const struct sequences *s)
{
    size_t n_live = 0;

    for (uint32_t id = 1; id < s->n_runs; id++) {
        const struct run *r = &s->runs[id];

        if (!r->hashes)
            continue;
        n_live++;
        assert(r->n_hashes > 0 && r->n_users > 0);
        assert(edge_table_find(&s->edges, r->parent, r->hashes[0]) == id);
        for (uint32_t i = 0; i < r->n_users; i++) {
            assert(r->users[i].refs > 0);
            assert(i == 0 || r->users[i - 1].slot < r->users[i].slot);
            if (r->parent != ROOT)
                assert(user_get(&s->runs[r->parent], r->users[i].slot)->refs >= r->users[i].refs);
        }
    }
    assert(n_live == s->edges.len);
    assert(n_live <= 2 * s->n_bookings);
    (void)n_live;
}
