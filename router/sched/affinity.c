/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/affinity.h"

#include <stdlib.h>

#include "lib/base/list.h"
#include "lib/base/strmap.h"

struct binding {
    struct list link; /* in affinity.used */
    char *session;
    struct worker_rank worker;
    struct affinity_version version;
    size_t holds;
    uint64_t used_ns;
};

struct affinity {
    struct strmap *bindings; /* session -> struct binding */
    struct list used;        /* the one used last at the end */
    size_t max;
    struct affinity_version last; /* the greatest sequence here or heard; we as the writer */
    void (*tell)(void *arg, const struct affinity_binding *b); /* NULL = nobody is told */
    void *arg;
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

static bool is_alive(const struct binding *b, uint64_t ttl_ns, uint64_t now_ns)
{
    return b->holds || now_ns - b->used_ns < ttl_ns;
}

bool affinity_find(const struct affinity *a, struct str session, uint64_t ttl_ns, uint64_t now_ns,
                   struct worker_rank *ret)
{
    const struct binding *b = session.len ? strmap_get(a->bindings, session) : NULL;

    if (!b || !is_alive(b, ttl_ns, now_ns))
        return false;
    *ret = b->worker;
    return true;
}

/* Found, or made: then its worker is not known yet. *ret_full: another one had to go for it. */
static struct binding *need(struct affinity *a, struct str session, bool *ret_full)
{
    struct binding *b = strmap_get(a->bindings, session);

    *ret_full = !b && strmap_len(a->bindings) == a->max;
    if (b)
        return b;
    if (*ret_full)
        drop(a, LIST_ENTRY(a->used.next, struct binding, link));
    b = xcalloc(1, sizeof(*b));
    b->session = str_dup(session);
    list_append(&a->used, &b->link);
    (void)strmap_set(a->bindings, session, b);
    return b;
}

static void use(struct affinity *a, struct binding *b, uint64_t now_ns)
{
    list_remove(&b->link);
    list_append(&a->used, &b->link);
    b->used_ns = now_ns;
}

static void put(struct binding *b, struct worker_rank w, struct affinity_version v)
{
    b->worker = w;
    b->version = v;
    b->holds = 0; /* those of requests at another worker */
}

static void tell(const struct affinity *a, const struct binding *b)
{
    if (a->tell)
        a->tell(a->arg, &(struct affinity_binding){str_from(b->session), b->worker, b->version});
}

bool affinity_bind(struct affinity *a, struct str session, struct worker_rank w, uint64_t now_ns)
{
    struct binding *b;
    bool full;

    if (session.len == 0 || session.len > AFFINITY_ID_MAX)
        return false;
    b = need(a, session, &full);
    if (b->version.sequence == 0 || !worker_rank_eq(b->worker, w)) {
        a->last.sequence++;
        put(b, w, a->last);
    }
    use(a, b, now_ns);
    tell(a, b);
    return full;
}

/* --- running requests ------------------------------------------------------------------------- */

struct affinity_hold affinity_hold(struct affinity *a, struct str session)
{
    struct binding *b = session.len ? strmap_get(a->bindings, session) : NULL;

    if (!b)
        return (struct affinity_hold){.session = NULL};
    b->holds++;
    return (struct affinity_hold){str_dup(session), b->version};
}

static bool same_version(struct affinity_version v, struct affinity_version w)
{
    return v.sequence == w.sequence && v.writer == w.writer;
}

void affinity_release(struct affinity *a, struct affinity_hold *h, uint64_t now_ns)
{
    struct binding *b = h->session ? strmap_get(a->bindings, str_from(h->session)) : NULL;

    if (b && b->holds && same_version(b->version, h->version)) {
        b->holds--;
        use(a, b, now_ns);
        tell(a, b);
    }
    free(h->session);
    *h = (struct affinity_hold){.session = NULL};
}

/* --- other routers ---------------------------------------------------------------------------- */

void affinity_share(struct affinity *a, uint64_t writer, uint64_t start,
                    void (*tell_fn)(void *arg, const struct affinity_binding *b), void *arg)
{
    a->last.writer = writer;
    a->last.sequence = MAX(a->last.sequence, start);
    a->tell = tell_fn;
    a->arg = arg;
}

static bool is_later(struct affinity_version v, struct affinity_version w)
{
    return v.sequence != w.sequence ? v.sequence > w.sequence : v.writer > w.writer;
}

bool affinity_hear(struct affinity *a, const struct affinity_binding *heard, uint64_t ttl_ns,
                   uint64_t now_ns)
{
    struct binding *b;
    bool full;

    if (heard->session.len == 0 || heard->session.len > AFFINITY_ID_MAX ||
        heard->version.sequence == 0)
        return false;
    b = strmap_get(a->bindings, heard->session);
    if (b && is_alive(b, ttl_ns, now_ns) && is_later(b->version, heard->version))
        return false;
    if (!b)
        b = need(a, heard->session, &full);
    if (!same_version(b->version, heard->version))
        put(b, heard->worker, heard->version);
    use(a, b, now_ns);
    /* What we bind from now on is later, and there is always a later one. */
    a->last.sequence = MAX(a->last.sequence, MIN(heard->version.sequence, UINT64_MAX / 2));
    return true;
}

size_t affinity_sessions(const struct affinity *a)
{
    return strmap_len(a->bindings);
}
