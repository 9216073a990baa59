/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each class keeps its items in two heaps: by score, from which it is served, and by age, whose top
 * goes first once its patience has run out. Both put the strict priority first, so their tops agree
 * on it. An item knows its place in both.
 */
#include "router/sched/route_queue.h"

#include <assert.h>

const char *const ROUTE_QUEUE_ORDER_WORDS[] = {"fcfs", "lcfs", "wspt", NULL};

enum heap_kind { BY_SCORE, BY_AGE, HEAPS };

struct heap {
    struct route_queue_item **items;
    size_t len, cap;
};

struct class
{
    struct route_queue_rule rule;
    struct heap heaps[HEAPS];
    uint64_t deficit; /* earned and not spent */
    uint64_t isl_tokens, cached_tokens;
};

struct route_queue {
    struct class *classes;
    size_t n_classes;
    size_t cursor; /* the class that the next choice looks at first */
    uint64_t patience_ms;
    uint64_t serial;
    size_t len;
};

/* --- heaps -------------------------------------------------------------------------------------
 */

static bool is_before(const struct class *c, enum heap_kind kind, const struct route_queue_item *a,
                      const struct route_queue_item *b)
{
    if (a->strict_priority != b->strict_priority)
        return a->strict_priority > b->strict_priority;
    if (kind == BY_AGE && a->arrival_ms != b->arrival_ms)
        return a->arrival_ms < b->arrival_ms;
    if (kind == BY_SCORE && a->score != b->score)
        return a->score > b->score;
    return (a->serial < b->serial) != (kind == BY_SCORE && c->rule.order == ROUTE_QUEUE_LCFS);
}

static void heap_place(struct heap *h, enum heap_kind kind, size_t at,
                       struct route_queue_item *item)
{
    h->items[at] = item;
    item->at[kind] = (uint32_t)at;
}

static void heap_rise(struct class *c, enum heap_kind kind, size_t at)
{
    struct heap *h = &c->heaps[kind];
    struct route_queue_item *item = h->items[at];

    while (at > 0 && is_before(c, kind, item, h->items[(at - 1) / 2])) {
        heap_place(h, kind, at, h->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_place(h, kind, at, item);
}

static void heap_sink(struct class *c, enum heap_kind kind, size_t at)
{
    struct heap *h = &c->heaps[kind];
    struct route_queue_item *item = h->items[at];

    for (size_t child; (child = 2 * at + 1) < h->len; at = child) {
        if (child + 1 < h->len && is_before(c, kind, h->items[child + 1], h->items[child]))
            child++;
        if (!is_before(c, kind, h->items[child], item))
            break;
        heap_place(h, kind, at, h->items[child]);
    }
    heap_place(h, kind, at, item);
}

static void heap_add(struct class *c, enum heap_kind kind, struct route_queue_item *item)
{
    struct heap *h = &c->heaps[kind];

    if (h->len == h->cap) {
        h->cap = h->cap ? h->cap * 2 : 16;
        h->items = xreallocarray(h->items, h->cap, sizeof(struct route_queue_item *));
    }
    heap_place(h, kind, h->len++, item);
    heap_rise(c, kind, h->len - 1);
}

static void heap_drop(struct class *c, enum heap_kind kind, const struct route_queue_item *item)
{
    struct heap *h = &c->heaps[kind];
    size_t at = item->at[kind];
    struct route_queue_item *last = h->items[--h->len];

    assert(h->items[at] == item);
    if (last == item)
        return;
    heap_place(h, kind, at, last);
    heap_rise(c, kind, at);
    heap_sink(c, kind, last->at[kind]);
}

/* --- items -------------------------------------------------------------------------------------
 */

struct route_queue *route_queue_new(const struct route_queue_rule *rules, size_t n_rules,
                                    uint64_t patience_ms)
{
    struct route_queue *q = xcalloc(1, sizeof(*q));

    assert(n_rules >= 1 && n_rules <= ROUTE_QUEUE_CLASSES_MAX);
    q->classes = xcalloc(n_rules, sizeof(*q->classes));
    q->n_classes = n_rules;
    q->patience_ms = patience_ms;
    for (size_t i = 0; i < n_rules; i++)
        q->classes[i].rule = rules[i];
    return q;
}

struct route_queue *route_queue_free(struct route_queue *q)
{
    if (!q)
        return NULL;
    assert(q->len == 0);
    for (size_t i = 0; i < q->n_classes; i++)
        for (size_t kind = 0; kind < HEAPS; kind++)
            free(q->classes[i].heaps[kind].items);
    free(q->classes);
    free(q);
    return NULL;
}

/* What the item costs its class, and weighs in wspt. */
static uint64_t cost_of(const struct route_queue_item *item)
{
    return item->cached_tokens < item->isl_tokens ? item->isl_tokens - item->cached_tokens : 1;
}

static double score_of(const struct class *c, const struct route_queue_item *item)
{
    double arrival_s = (double)item->arrival_ms / 1000;

    switch ((enum route_queue_order)c->rule.order) {
    case ROUTE_QUEUE_FCFS:
        break;
    case ROUTE_QUEUE_LCFS:
        return item->jump_s + arrival_s;
    case ROUTE_QUEUE_WSPT:
        return (1 + item->jump_s) / (double)cost_of(item);
    }
    return item->jump_s - arrival_s;
}

static bool is_over(uint64_t have, uint64_t per_worker, size_t n_workers)
{
    uint64_t limit;

    if (per_worker == 0)
        return false;
    return !__builtin_mul_overflow(per_worker, (uint64_t)n_workers, &limit) && have >= limit;
}

int route_queue_put(struct route_queue *q, size_t class, struct route_queue_item *item,
                    size_t n_workers)
{
    struct class *c = &q->classes[class];

    assert(class < q->n_classes && !item->queued);
    if (is_over(c->heaps[BY_SCORE].len, c->rule.max_requests, n_workers))
        return ROUTE_QUEUE_REQUESTS_FULL;
    if (is_over(c->isl_tokens, c->rule.max_isl_tokens, n_workers))
        return ROUTE_QUEUE_ISL_FULL;
    if (is_over(c->cached_tokens, c->rule.max_cached_tokens, n_workers))
        return ROUTE_QUEUE_CACHED_FULL;

    item->class = (uint32_t) class;
    item->serial = q->serial++;
    item->score = score_of(c, item);
    item->queued = true;
    for (enum heap_kind kind = 0; kind < HEAPS; kind++)
        heap_add(c, kind, item);
    c->isl_tokens += item->isl_tokens;
    c->cached_tokens += item->cached_tokens;
    q->len++;
    return 0;
}

void route_queue_remove(struct route_queue *q, struct route_queue_item *item)
{
    struct class *c;

    if (!item->queued)
        return;
    c = &q->classes[item->class];
    for (enum heap_kind kind = 0; kind < HEAPS; kind++)
        heap_drop(c, kind, item);
    c->isl_tokens -= item->isl_tokens;
    c->cached_tokens -= item->cached_tokens;
    item->queued = false;
    q->len--;
}

struct route_queue_item *route_queue_any(struct route_queue *q)
{
    for (size_t i = 0; i < q->n_classes; i++)
        if (q->classes[i].heaps[BY_AGE].len)
            return q->classes[i].heaps[BY_AGE].items[0];
    return NULL;
}

size_t route_queue_len(const struct route_queue *q)
{
    return q->len;
}

struct route_queue_stats route_queue_stats(const struct route_queue *q, size_t class)
{
    const struct class *c = &q->classes[class];

    return (struct route_queue_stats){c->heaps[BY_SCORE].len, c->isl_tokens, c->cached_tokens};
}

/* --- the choice --------------------------------------------------------------------------------
 */

/* Of one class; NULL when it is empty. */
static struct route_queue_item *head_of(const struct route_queue *q, const struct class *c,
                                        uint64_t now_ms)
{
    struct route_queue_item *oldest;

    if (c->heaps[BY_AGE].len == 0)
        return NULL;
    oldest = c->heaps[BY_AGE].items[0];
    if (now_ms >= oldest->arrival_ms && now_ms - oldest->arrival_ms >= q->patience_ms)
        return oldest;
    return c->heaps[BY_SCORE].items[0];
}

/* One round from the cursor on: the first class that can pay. With @grant each earns its quantum on
 * the way, unless it can pay as it is. */
static struct class *find_payer(struct route_queue *q, struct route_queue_item *const *heads,
                                bool grant)
{
    for (size_t i = 0; i < q->n_classes; i++) {
        size_t at = (q->cursor + i) % q->n_classes;
        struct class *c = &q->classes[at];

        if (!heads[at])
            continue;
        if (grant && c->deficit < cost_of(heads[at]))
            c->deficit += c->rule.quantum;
        if (c->deficit >= cost_of(heads[at]))
            return c;
    }
    return NULL;
}

/* The rounds that pass until somebody can pay, all at once. */
static void skip_rounds(struct route_queue *q, struct route_queue_item *const *heads)
{
    uint64_t rounds = UINT64_MAX;

    for (size_t i = 0; i < q->n_classes; i++)
        if (heads[i]) {
            const struct class *c = &q->classes[i];
            uint64_t missing = cost_of(heads[i]) - c->deficit;

            rounds = MIN(rounds, (missing - 1) / c->rule.quantum + 1);
        }
    for (size_t i = 0; i < q->n_classes; i++)
        if (heads[i])
            q->classes[i].deficit += rounds * q->classes[i].rule.quantum;
}

static void charge(struct route_queue *q, struct class *c, uint64_t cost, uint64_t now_ms)
{
    const struct route_queue_item *next = head_of(q, c, now_ms);
    size_t at = (size_t)(c - q->classes);

    c->deficit = next ? c->deficit - cost : 0;
    /* It stays its turn while it can pay. */
    q->cursor = next && c->deficit >= cost_of(next) ? at : (at + 1) % q->n_classes;
}

struct route_queue_item *route_queue_next(struct route_queue *q, uint64_t now_ms,
                                          bool (*can_go)(void *arg, struct route_queue_item *head),
                                          void *arg)
{
    struct route_queue_item *heads[ROUTE_QUEUE_CLASSES_MAX], *item;
    bool any = false;
    struct class *c;

    for (size_t i = 0; i < q->n_classes; i++) {
        heads[i] = head_of(q, &q->classes[i], now_ms);
        if (!heads[i])
            q->classes[i].deficit = 0; /* it emptied by removals */
        else if (!can_go(arg, heads[i]))
            heads[i] = NULL;
        any |= heads[i] != NULL;
    }
    if (!any)
        return NULL;
    c = find_payer(q, heads, true);
    if (!c) {
        skip_rounds(q, heads);
        c = find_payer(q, heads, false);
    }
    item = heads[c - q->classes];
    route_queue_remove(q, item);
    charge(q, c, cost_of(item), now_ms);
    return item;
}
