/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records in memory: what one store of a hub publishes, all of them see.
 */
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/strmap.h"
#include "router/discovery/store.h"

struct store_hub {
    struct strmap *records; /* bucket/key → JSON text */
    struct list stores;
};

struct store_mem {
    struct store base;
    struct store_hub *hub;
    struct list in_hub;
    struct store_watcher watcher;
    void *arg;
    bool watching;
    struct store_stats stats;
};

struct store_hub *store_hub_new(void)
{
    struct store_hub *h = xcalloc(1, sizeof(*h));

    h->records = strmap_new();
    list_init(&h->stores);
    return h;
}

struct store_hub *store_hub_free(struct store_hub *h)
{
    if (!h)
        return NULL;
    (void)strmap_free_with(h->records, free);
    free(h);
    return NULL;
}

static struct store_mem *of(struct store *s)
{
    return CONTAINER_OF(s, struct store_mem, base);
}

static void key_put(struct buf *out, const struct record *rec)
{
    buf_printf(out, "%s/", record_bucket(rec->kind));
    record_key_put(out, rec);
}

static void put_all(struct store_mem *m)
{
    struct str key;
    void *json;

    for (size_t at = 0; strmap_next(m->hub->records, &at, &key, &json);)
        m->watcher.put(m->arg, key, str_from(json));
    if (m->watcher.synced)
        m->watcher.synced(m->arg);
}

static int mem_watch(struct store *s, const struct store_watcher *w, void *arg, struct err *e)
{
    struct store_mem *m = of(s);

    (void)e;
    m->watcher = *w;
    m->arg = arg;
    m->watching = true;
    put_all(m);
    return 0;
}

static void mem_unwatch(struct store *s)
{
    of(s)->watching = false;
}

static int mem_publish(struct store *s, const struct record *rec, struct err *e)
{
    struct store_mem *m = of(s);
    AUTO(buf_done) struct buf key = BUF_NULL;
    AUTO(buf_done) struct buf json = BUF_NULL;

    (void)e;
    key_put(&key, rec);
    record_put(&json, rec, true);
    free(strmap_set(m->hub->records, buf_str(&key), xstrndup(buf_data(&json), json.len)));
    LIST_FOREACH (other, &m->hub->stores, struct store_mem, in_hub)
        if (other->watching)
            other->watcher.put(other->arg, buf_str(&key), buf_str(&json));
    if (s->published)
        s->published(s->published_arg, 0, "");
    return 0;
}

static void mem_withdraw(struct store *s, const struct record *rec)
{
    struct store_mem *m = of(s);
    AUTO(buf_done) struct buf key = BUF_NULL;

    key_put(&key, rec);
    free(strmap_remove(m->hub->records, buf_str(&key)));
    LIST_FOREACH (other, &m->hub->stores, struct store_mem, in_hub)
        if (other->watching)
            other->watcher.gone(other->arg, buf_str(&key), STORE_END_TOLD);
}

static struct store_stats mem_stats(const struct store *s)
{
    const struct store_mem *m = (const struct store_mem *)(const void *)s;
    struct store_stats st = m->stats;

    st.records = strmap_len(m->hub->records);
    st.up = true;
    return st;
}

static void mem_free_store(struct store *s)
{
    struct store_mem *m = of(s);

    list_remove(&m->in_hub);
    free(m);
}

static const struct store_ops mem_ops = {
    .watch = mem_watch,
    .unwatch = mem_unwatch,
    .publish = mem_publish,
    .withdraw = mem_withdraw,
    .stats = mem_stats,
    .free = mem_free_store,
};

struct store *store_mem_new(struct store_hub *h, struct loop *l)
{
    struct store_mem *m = xcalloc(1, sizeof(*m));

    m->base = (struct store){.ops = &mem_ops, .loop = l, .instance_id = random_u64()};
    m->hub = h;
    list_append(&h->stores, &m->in_hub);
    return &m->base;
}
