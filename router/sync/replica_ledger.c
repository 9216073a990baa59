/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/replica_ledger.h"

#include "lib/base/buf.h"
#include "lib/base/list.h"
#include "lib/base/map64.h"
#include "lib/base/strmap.h"
#include "router/sched/affinity.h"
#include "router/sched/scheduler.h"
#include "router/sched/sequences.h"
#include "router/wire/sequence_event.h"

const char *const REPLICA_OUTCOME_WORDS[N_REPLICA_OUTCOMES] = {
    [REPLICA_APPLIED] = "applied",
    [REPLICA_OWN] = "own",
    [REPLICA_TWICE] = "twice",
    [REPLICA_UNKNOWN_WORKER] = "unknown_worker",
    [REPLICA_UNKNOWN_REQUEST] = "unknown_request",
    [REPLICA_FULL] = "full",
};

struct router {
    uint64_t id;
    uint64_t publisher_id; /* that placements were last heard from */
    uint64_t heard_ns;     /* last */
    bool announces;        /* one of ours */
    bool newer;            /* speaks 1.x */
    struct list entries;   /* the oldest first */
};

struct entry {
    struct list link; /* in its router */
    struct booking *booking;
    uint64_t since_ns;
    size_t key_len;
    char key[]; /* router id and request id */
};

struct replica_ledger {
    struct scheduler *scheduler;
    uint64_t router_id;
    struct map64 routers;   /* id -> struct router */
    struct strmap *entries; /* key -> struct entry */
    struct buf key;         /* scratch */
    size_t n_alive;
    bool newer;
};

static const uint64_t NS_PER_MS = 1000000;

/* --- sessions --------------------------------------------------------------------------------- */

enum replica_outcome replica_bind(const struct scheduler *s, struct affinity *a,
                                  const struct session_event *ev, uint64_t now_ns)
{
    uint64_t ttl_ns = scheduler_conf(s)->affinity_ttl_s * UINT64_C(1000000000);
    const struct affinity_binding b = {
        ev->session, {ev->worker_id, ev->dp_rank}, {ev->sequence, ev->writer_id}};

    if (ttl_ns == 0)
        return REPLICA_UNKNOWN_REQUEST;
    if (!scheduler_knows(s, b.worker))
        return REPLICA_UNKNOWN_WORKER;
    return affinity_hear(a, &b, ttl_ns, now_ns) ? REPLICA_APPLIED : REPLICA_TWICE;
}

struct session_event replica_session_of(const struct affinity_binding *b)
{
    return (struct session_event){.session = b->session,
                                  .worker_id = b->worker.worker_id,
                                  .dp_rank = b->worker.dp_rank,
                                  .sequence = b->version.sequence,
                                  .writer_id = b->version.writer};
}

/* --- routers ---------------------------------------------------------------------------------- */

static bool is_alive(const struct router *r, uint64_t now_ns)
{
    return now_ns < r->heard_ns + REPLICA_SILENCE_MS * NS_PER_MS;
}

static void count_alive(struct replica_ledger *l, uint64_t now_ns)
{
    uint64_t id, value;
    size_t at = 0;

    l->n_alive = 0;
    l->newer = false;
    while (map64_next(&l->routers, &at, &id, &value)) {
        const struct router *r = (const struct router *)(uintptr_t)value;

        l->n_alive += is_alive(r, now_ns);
        l->newer |= r->newer;
    }
    scheduler_set_replicas(l->scheduler, 1 + l->n_alive);
}

/* NULL when there are too many. */
static struct router *hear_router(struct replica_ledger *l, uint64_t id, uint64_t now_ns)
{
    struct router *r = map64_find_ptr(&l->routers, id);
    bool was_alive = r && is_alive(r, now_ns);

    if (!r && l->routers.len == REPLICA_ROUTERS_MAX)
        return NULL;
    if (!r) {
        r = xcalloc(1, sizeof(*r));
        r->id = id;
        list_init(&r->entries);
        map64_put_ptr(&l->routers, id, r);
    }
    r->heard_ns = now_ns;
    if (!was_alive)
        count_alive(l, now_ns);
    return r;
}

static void drop_entry(struct replica_ledger *l, struct entry *en, uint64_t now_ns)
{
    (void)strmap_remove(l->entries, str_slice(en->key, en->key_len));
    list_remove(&en->link);
    (void)booking_end(en->booking, now_ns, false);
    free(en);
}

static void drop_router(struct replica_ledger *l, struct router *r, uint64_t now_ns)
{
    LIST_FOREACH (en, &r->entries, struct entry, link)
        drop_entry(l, en, now_ns);
    (void)map64_remove(&l->routers, r->id, NULL);
    free(r);
}

/* --- events ----------------------------------------------------------------------------------- */

/* Valid until the next call. */
static struct str key_of(struct replica_ledger *l, const struct sequence_event *ev)
{
    buf_clear(&l->key);
    buf_put(&l->key, &ev->router_id, sizeof(ev->router_id));
    buf_put_str(&l->key, ev->request_id);
    return buf_str(&l->key);
}

static uint32_t clamp(uint64_t v)
{
    return (uint32_t)MIN(v, (uint64_t)UINT32_MAX);
}

static struct route_booked booked_of(const struct scheduler *s, const struct sequence_event *ev)
{
    uint64_t block_size = scheduler_block_size(s), cached;
    struct route_booked b = {.id = ev->request_id,
                             .worker = {ev->worker_id, ev->dp_rank},
                             .sequence = ev->sequence,
                             .n_blocks = ev->n_sequence};

    if (ev->isl.set) {
        b.isl = clamp(ev->isl.v);
        cached = clamp(ev->overlap_blocks.v) * block_size;
        b.prefill_tokens = cached < b.isl ? b.isl - (uint32_t)cached : 0;
    } else {
        b.prefill_tokens = clamp(ev->prefill_tokens.v);
        b.isl = MAX(b.prefill_tokens, clamp(ev->n_sequence * block_size));
    }
    return b;
}

enum replica_outcome replica_book(struct scheduler *s, const struct sequence_event *ev, bool room,
                                  uint64_t now_ns, struct booking **ret)
{
    const struct route_booked b = booked_of(s, ev);

    if (!room)
        return REPLICA_FULL;
    *ret = scheduler_book_remote(s, &b, now_ns);
    return *ret ? REPLICA_APPLIED : REPLICA_UNKNOWN_WORKER;
}

static enum replica_outcome add(struct replica_ledger *l, struct router *r,
                                const struct sequence_event *ev, uint64_t now_ns)
{
    bool room = strmap_len(l->entries) < REPLICA_BOOKINGS_MAX;
    struct str key = key_of(l, ev);
    enum replica_outcome outcome;
    struct booking *booking;
    struct entry *en;

    if (strmap_get(l->entries, key))
        return REPLICA_TWICE;
    outcome = replica_book(l->scheduler, ev, room, now_ns, &booking);
    if (outcome != REPLICA_APPLIED)
        return outcome;
    en = xcalloc(1, sizeof(*en) + key.len);
    en->booking = booking;
    en->since_ns = now_ns;
    en->key_len = key.len;
    memcpy(en->key, key.ptr, key.len);
    list_append(&r->entries, &en->link);
    (void)strmap_set(l->entries, key, en);
    return REPLICA_APPLIED;
}

enum replica_outcome replica_ledger_apply(struct replica_ledger *l, uint64_t publisher_id,
                                          const struct sequence_event *ev, uint64_t now_ns)
{
    struct entry *en;
    struct router *r;

    if (ev->router_id == l->router_id)
        return REPLICA_OWN;
    r = hear_router(l, ev->router_id, now_ns);
    if (!r)
        return REPLICA_FULL;
    if (ev->form == SEQUENCE_FORM_1_X) {
        /* Ours say the same in the other form; the two may overtake each other. */
        if (r->announces)
            return REPLICA_TWICE;
        if (!r->newer)
            l->newer = r->newer = true;
    }
    r->publisher_id = publisher_id;
    if (ev->kind == SEQUENCE_ADD)
        return add(l, r, ev, now_ns);
    en = strmap_get(l->entries, key_of(l, ev));
    if (!en)
        return REPLICA_UNKNOWN_REQUEST;
    if (ev->kind == SEQUENCE_PREFILL_DONE)
        booking_first_token(en->booking, now_ns);
    else
        drop_entry(l, en, now_ns);
    return REPLICA_APPLIED;
}

void replica_ledger_present(struct replica_ledger *l, uint64_t router_id, uint64_t now_ns)
{
    struct router *r = router_id == l->router_id ? NULL : hear_router(l, router_id, now_ns);

    if (r)
        r->announces = true;
}

void replica_ledger_leave(struct replica_ledger *l, uint64_t router_id, uint64_t now_ns)
{
    struct router *r = map64_find_ptr(&l->routers, router_id);

    if (!r)
        return;
    drop_router(l, r, now_ns);
    count_alive(l, now_ns);
}

void replica_ledger_publisher_gone(struct replica_ledger *l, uint64_t publisher_id, uint64_t now_ns)
{
    struct router *gone[REPLICA_ROUTERS_MAX];
    uint64_t id, value;
    size_t at = 0, n = 0;

    while (map64_next(&l->routers, &at, &id, &value)) {
        struct router *r = (struct router *)(uintptr_t)value;

        if (r->publisher_id == publisher_id)
            gone[n++] = r;
    }
    while (n)
        drop_router(l, gone[--n], now_ns);
    count_alive(l, now_ns);
}

/* --- time ------------------------------------------------------------------------------------- */

static void drop_aged(struct replica_ledger *l, struct router *r, uint64_t now_ns)
{
    uint64_t age_ns = scheduler_conf(l->scheduler)->expiry_ms * NS_PER_MS;

    while (age_ns && !list_empty(&r->entries)) {
        struct entry *oldest = LIST_ENTRY(r->entries.next, struct entry, link);

        if (now_ns < oldest->since_ns + age_ns)
            break;
        drop_entry(l, oldest, now_ns);
    }
}

void replica_ledger_tick(struct replica_ledger *l, uint64_t now_ns)
{
    struct router *silent[REPLICA_ROUTERS_MAX];
    uint64_t id, value;
    size_t at = 0, n = 0;

    while (map64_next(&l->routers, &at, &id, &value)) {
        struct router *r = (struct router *)(uintptr_t)value;

        drop_aged(l, r, now_ns);
        if (!is_alive(r, now_ns) && (r->announces || list_empty(&r->entries)))
            silent[n++] = r;
    }
    while (n)
        drop_router(l, silent[--n], now_ns);
    count_alive(l, now_ns);
}

/* --- life ------------------------------------------------------------------------------------- */

struct replica_ledger *replica_ledger_new(struct scheduler *s, uint64_t router_id)
{
    struct replica_ledger *l = xcalloc(1, sizeof(*l));

    l->scheduler = s;
    l->router_id = router_id;
    l->entries = strmap_new();
    return l;
}

struct replica_ledger *replica_ledger_free(struct replica_ledger *l)
{
    uint64_t id, value;
    size_t at = 0;

    if (!l)
        return NULL;
    while (map64_next(&l->routers, &at, &id, &value)) {
        struct router *r = (struct router *)(uintptr_t)value;

        LIST_FOREACH (en, &r->entries, struct entry, link)
            drop_entry(l, en, 0);
        free(r);
    }
    scheduler_set_replicas(l->scheduler, 1);
    map64_done(&l->routers);
    strmap_free(l->entries);
    buf_done(&l->key);
    free(l);
    return NULL;
}

size_t replica_ledger_bookings(const struct replica_ledger *l)
{
    return strmap_len(l->entries);
}

size_t replica_ledger_routers(const struct replica_ledger *l)
{
    return l->n_alive;
}

bool replica_ledger_newer(const struct replica_ledger *l)
{
    return l->newer;
}
