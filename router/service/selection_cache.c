/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/selection_cache.h"

#include <string.h>

#include "lib/base/list.h"
#include "lib/base/strmap.h"

struct pending {
    struct list link; /* by age */
    struct selection selection;
    uint64_t until_ms;
    size_t bytes;
    char *key, *session;
    uint64_t hashes[]; /* local, then sequence */
};

struct selection_cache {
    struct selection_cache_conf conf;
    struct strmap *by_key;
    struct list oldest_first;
    struct selection_cache_stats stats;
};

struct selection_cache *selection_cache_new(const struct selection_cache_conf *conf)
{
    struct selection_cache *c = xcalloc(1, sizeof(*c));

    c->conf = *conf;
    c->by_key = strmap_new();
    list_init(&c->oldest_first);
    return c;
}

static void drop(struct selection_cache *c, struct pending *p)
{
    (void)strmap_remove(c->by_key, str_from(p->key));
    list_remove(&p->link);
    c->stats.entries--;
    c->stats.bytes -= p->bytes;
    free(p->key);
    free(p->session);
    free(p);
}

struct selection_cache *selection_cache_free(struct selection_cache *c)
{
    if (!c)
        return NULL;
    LIST_FOREACH (p, &c->oldest_first, struct pending, link)
        drop(c, p);
    strmap_free(c->by_key);
    free(c);
    return NULL;
}

/* All wait equally long, so those that have expired are the oldest. */
static void expire(struct selection_cache *c, uint64_t now_ms)
{
    LIST_FOREACH (p, &c->oldest_first, struct pending, link) {
        if (p->until_ms > now_ms)
            return;
        drop(c, p);
        c->stats.expired++;
    }
}

static void make_room(struct selection_cache *c, size_t bytes)
{
    LIST_FOREACH (p, &c->oldest_first, struct pending, link) {
        if (c->stats.entries < c->conf.max_entries && c->stats.bytes + bytes <= c->conf.max_bytes)
            return;
        drop(c, p);
        c->stats.evicted++;
    }
}

void selection_cache_put(struct selection_cache *c, struct str key, const struct selection *s,
                         uint64_t now_ms)
{
    size_t n = s->n_blocks, size = n * sizeof(uint64_t);
    size_t bytes = sizeof(struct pending) + 2 * size + key.len + s->session.len;
    struct pending *p;

    selection_cache_remove(c, key);
    expire(c, now_ms);
    make_room(c, bytes);
    if (bytes > c->conf.max_bytes || c->conf.max_entries == 0) {
        c->stats.evicted++;
        return;
    }
    p = xmalloc(sizeof(*p) + 2 * size);
    *p = (struct pending){.selection = *s, .until_ms = now_ms + c->conf.ttl_ms, .bytes = bytes};
    p->key = str_dup(key);
    p->session = str_dup(s->session);
    p->selection.session = str_from(p->session);
    if (n) {
        memcpy(p->hashes, s->local, size);
        memcpy(p->hashes + n, s->sequence, size);
    }
    p->selection.local = p->hashes;
    p->selection.sequence = p->hashes + n;
    list_append(&c->oldest_first, &p->link);
    (void)strmap_set(c->by_key, key, p);
    c->stats.entries++;
    c->stats.bytes += bytes;
}

const struct selection *selection_cache_find(struct selection_cache *c, struct str key,
                                             uint64_t now_ms)
{
    struct pending *p;

    expire(c, now_ms);
    p = strmap_get(c->by_key, key);
    return p ? &p->selection : NULL;
}

void selection_cache_remove(struct selection_cache *c, struct str key)
{
    struct pending *p = strmap_get(c->by_key, key);

    if (p)
        drop(c, p);
}

struct selection_cache_stats selection_cache_stats(const struct selection_cache *c)
{
    return c->stats;
}
