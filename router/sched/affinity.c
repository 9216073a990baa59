/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/affinity.h"

#include "lib/base/list.h"
#include "lib/base/strmap.h"

struct binding {
    struct list link; /* in affinity.used */
    char *session;
    struct worker_rank worker;
    uint64_t used_ns;
};

struct affinity {
    struct strmap *bindings; /* session -> struct binding */
    struct list used;        /* the one used last at the end */
    size_t max;
};

struct affinity *affinity_new(size_t max)
{
    struct affinity *a = xcalloc(1, sizeof(*a));

    a->bindings = strmap_new();
    list_init(&a->used);
    a->max = max;
    return a;
}

static void drop(struct affinity *a, struct binding *b)
{
    (void)strmap_remove(a->bindings, str_from(b->session));
    list_remove(&b->link);
    free(b->session);
    free(b);
}

struct affinity *affinity_free(struct affinity *a)
{
    if (!a)
        return NULL;
    LIST_FOREACH (b, &a->used, struct binding, link)
        drop(a, b);
    strmap_free(a->bindings);
    free(a);
    return NULL;
}

bool affinity_find(const struct affinity *a, struct str session, uint64_t ttl_ns, uint64_t now_ns,
                   struct worker_rank *ret)
{
    const struct binding *b = session.len ? strmap_get(a->bindings, session) : NULL;

    if (!b || now_ns - b->used_ns >= ttl_ns)
        return false;
    *ret = b->worker;
    return true;
}

bool affinity_bind(struct affinity *a, struct str session, struct worker_rank w, uint64_t now_ns)
{
    struct binding *b;
    bool full = false;

    if (session.len == 0 || session.len > AFFINITY_ID_MAX)
        return false;
    b = strmap_get(a->bindings, session);
    if (!b) {
        full = strmap_len(a->bindings) == a->max;
        if (full)
            drop(a, LIST_ENTRY(a->used.next, struct binding, link));
        b = xcalloc(1, sizeof(*b));
        b->session = str_dup(session);
        (void)strmap_set(a->bindings, session, b);
    }
    list_remove(&b->link);
    list_append(&a->used, &b->link);
    b->worker = w;
    b->used_ns = now_ns;
    return full;
}

size_t affinity_sessions(const struct affinity *a)
{
    return strmap_len(a->bindings);
}
