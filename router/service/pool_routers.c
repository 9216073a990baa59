/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/pool_routers.h"

#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "router/discovery/store.h"
#include "router/wire/plane_client.h"

static const struct log_target LG = {"commutator::global_router"};

/* All routers of a namespace, the one whose turn it is first. */
struct pool_place {
    struct list routers;
};

struct pool_routers {
    struct store *store;
    struct plane_client *plane;
    struct strmap *places; /* namespace -> struct pool_place */
    struct strmap *by_key; /* the store's key -> struct pool_router */
};

static struct pool_place *place_of(struct pool_routers *r, struct str ns)
{
    struct pool_place *p = strmap_get(r->places, ns);

    if (p)
        return p;
    p = xcalloc(1, sizeof(*p));
    list_init(&p->routers);
    (void)strmap_set(r->places, ns, p);
    return p;
}

static void router_free(void *value)
{
    struct pool_router *one = value;

    list_remove(&one->link);
    free(one->address);
    free(one);
}

static void forget(struct pool_routers *r, struct str key)
{
    struct pool_router *one = strmap_remove(r->by_key, key);

    if (!one)
        return;
    log_info(&LG, "router gone", LOG_U64("instance_id", one->id), LOG_STR("address", one->address));
    plane_client_forget(r->plane, str_from(one->address));
    router_free(one);
}

/* --- what the store tells --------------------------------------------------------------------- */

static void add(struct pool_routers *r, struct str key, const struct record *rec)
{
    struct pool_router *one = strmap_get(r->by_key, key);

    if (one && str_is(rec->address, one->address)) {
        one->doubtful = false;
        return;
    }
    forget(r, key);
    one = xcalloc(1, sizeof(*one));
    one->id = rec->instance_id;
    one->address = str_dup(rec->address);
    one->place = place_of(r, rec->ns);
    list_append(&one->place->routers, &one->link);
    (void)strmap_set(r->by_key, key, one);
    log_info(&LG, "router found", LOG_VIEW("namespace", rec->ns), LOG_U64("instance_id", one->id),
             LOG_STR("address", one->address));
}

static void on_put(void *arg, struct str key, struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct pool_routers *r = arg;
    struct record rec;
    struct err e;

    if (record_parse(json, &scratch, &rec, &e) != 0)
        return; /* what it was before goes on */
    if (rec.kind == RECORD_ENDPOINT && str_is(rec.component, "router") &&
        str_is(rec.endpoint, "generate"))
        add(r, key, &rec);
}

static void on_gone(void *arg, struct str key, enum store_end how)
{
    struct pool_routers *r = arg;
    struct pool_router *one = strmap_get(r->by_key, key);

    if (one && how == STORE_END_DOUBTFUL)
        one->doubtful = true;
    else
        forget(r, key);
}

int pool_routers_new(struct pool_routers **ret, struct store *store, struct plane_client *plane,
                     struct err *e)
{
    static const struct store_watcher watcher = {.put = on_put, .gone = on_gone};
    struct pool_routers *r = xcalloc(1, sizeof(*r));

    r->store = store;
    r->plane = plane;
    r->places = strmap_new();
    r->by_key = strmap_new();
    *ret = r;
    return store_watch(store, &watcher, r, e);
}

struct pool_routers *pool_routers_free(struct pool_routers *r)
{
    if (!r)
        return NULL;
    store_unwatch(r->store);
    strmap_free_with(r->by_key, router_free);
    strmap_free_with(r->places, free);
    free(r);
    return NULL;
}

/* --- whose turn it is ------------------------------------------------------------------------- */

static bool is_one_of(uint64_t id, const uint64_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

const struct pool_router *pool_routers_next(struct pool_routers *r, const char *ns,
                                            const uint64_t *avoid, size_t n_avoid)
{
    struct pool_place *p = strmap_get(r->places, str_from(ns));
    struct pool_router *found = NULL;

    if (!p)
        return NULL;
    LIST_FOREACH (one, &p->routers, struct pool_router, link)
        if (!is_one_of(one->id, avoid, n_avoid) && (!found || (found->doubtful && !one->doubtful)))
            found = one;
    if (found) {
        list_remove(&found->link);
        list_append(&p->routers, &found->link);
    }
    return found;
}

void pool_routers_failed(struct pool_routers *r, const char *ns, uint64_t id)
{
    const struct pool_place *p = strmap_get(r->places, str_from(ns));
    struct str key;
    size_t at = 0;
    void *value;

    while (strmap_next(r->by_key, &at, &key, &value)) {
        const struct pool_router *one = value;

        if (one->place == p && one->id == id && one->doubtful) {
            forget(r, key);
            return;
        }
    }
}
