/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     cache ─┬─ store of Deployments ── "ns/name" → entry ─┐
 *            ├─ store of Services          │               │ each entry hangs in two rings:
 *            ┆                             └── by owner uid, by namespace
 *
 * One lock for everything: it is held for a hash lookup and a few pointers, never while text is
 * made or parsed.
 */
#include "operator/ctrl/cache.h"

#include <pthread.h>
#include <string.h>

#include "lib/base/list.h"
#include "lib/base/ref.h"
#include "lib/base/strmap.h"

enum { STORES_MAX = 24 };

struct text {
    struct ref ref;
    size_t len;
    char bytes[];
};

struct entry {
    struct list by_owner, by_ns; /* unlinked when there is no owner */
    struct text *text;
    uint64_t version;
    int64_t generation;
    bool observed; /* a watch has told of it */
    char *owner;   /* uid of the controller, or NULL */
    char *name;    /* behind the namespace in the same block */
    char ns[];
};

struct store {
    const struct kube_kind *kind;
    struct strmap *entries;    /* "ns/name" to struct entry */
    struct strmap *by_owner;   /* uid to struct list */
    struct strmap *by_ns;      /* namespace to struct list */
    uint64_t observed_version; /* the watch has told of everything up to here */
    size_t bytes;
};

struct cache {
    pthread_mutex_t lock;
    const struct cache_view *views;
    size_t n_views;
    struct store stores[STORES_MAX];
    size_t n_stores;
};

/* --- text ------------------------------------------------------------------------------------------- */

static struct text *text_new(struct str s)
{
    struct text *t = xmalloc(sizeof(*t) + s.len);

    ref_init(&t->ref);
    t->len = s.len;
    memcpy(t->bytes, s.ptr, s.len);
    return t;
}

static void text_unref(struct text *t)
{
    if (ref_drop(&t->ref))
        free(t);
}

static void put_members(struct buf *out, const struct json *object, const char *without)
{
    bool first = true;

    buf_put_char(out, '{');
    JSON_FOREACH (member, object) {
        if (without && strcmp(json_key(member), without) == 0)
            continue;
        if (!first)
            buf_put_char(out, ',');
        first = false;
        buf_put_char(out, '"');
        buf_put_cstr(out, json_key(member)); /* field names of Kubernetes need no escapes */
        buf_put_cstr(out, "\":");
        if (strcmp(json_key(member), "metadata") == 0)
            put_members(out, member, "managedFields");
        else
            json_print(member, out);
    }
    buf_put_char(out, '}');
}

static struct text *text_of(const struct cache_view *view, const struct json *object)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (!view || !view->trim) {
        put_members(&out, object, NULL);
        return text_new(buf_str(&out));
    }
    buf_put_cstr(&out, "{\"metadata\":");
    put_members(&out, json_get(object, "metadata"), "managedFields");
    if (view->put)
        view->put(&out, object);
    buf_put_char(&out, '}');
    return text_new(buf_str(&out));
}

/* NULL for text that is no object: cannot be, as we printed it. */
static struct json *tree_of(struct text *t)
{
    struct json *object = NULL;

    if (json_parse(&object, str_slice(t->bytes, t->len), NULL) < 0)
        object = NULL;
    return object;
}

/* --- stores ------------------------------------------------------------------------------------------ */

static void ring_free(void *value)
{
    free(value);
}

static void entry_free(struct entry *en)
{
    list_remove(&en->by_owner);
    list_remove(&en->by_ns);
    text_unref(en->text);
    free(en->owner);
    free(en);
}

static void entry_free_value(void *value)
{
    entry_free(value);
}

struct cache *cache_new(const struct cache_view *views, size_t n)
{
    struct cache *c = xcalloc(1, sizeof(*c));

    c->views = views;
    c->n_views = n;
    (void)pthread_mutex_init(&c->lock, NULL);
    return c;
}

struct cache *cache_free(struct cache *c)
{
    if (!c)
        return NULL;
    for (size_t i = 0; i < c->n_stores; i++) {
        strmap_free_with(c->stores[i].entries, entry_free_value);
        strmap_free_with(c->stores[i].by_owner, ring_free);
        strmap_free_with(c->stores[i].by_ns, ring_free);
    }
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

static const struct cache_view *view_of(const struct cache *c, const struct kube_kind *kind)
{
    for (size_t i = 0; i < c->n_views; i++)
        if (c->views[i].kind == kind)
            return &c->views[i];
    return NULL;
}

/* With the lock held. */
static struct store *store_of(struct cache *c, const struct kube_kind *kind)
{
    struct store *s;

    for (size_t i = 0; i < c->n_stores; i++)
        if (c->stores[i].kind == kind)
            return &c->stores[i];
    if (c->n_stores == STORES_MAX)
        abort(); /* the kinds are ours to count */
    s = &c->stores[c->n_stores++];
    s->kind = kind;
    s->entries = strmap_new();
    s->by_owner = strmap_new();
    s->by_ns = strmap_new();
    return s;
}

/* Puts @link into the ring of @key, made when missing. */
static void ring_link(struct strmap *rings, const char *key, struct list *link)
{
    struct list *ring = strmap_get(rings, str_from(key));

    if (!ring) {
        ring = xmalloc(sizeof(*ring));
        list_init(ring);
        (void)strmap_set(rings, str_from(key), ring);
    }
    list_append(ring, link);
}

static void ring_unlink(struct strmap *rings, const char *key, struct list *link)
{
    struct list *ring = strmap_get(rings, str_from(key));

    list_remove(link);
    if (ring && list_empty(ring))
        free(strmap_remove(rings, str_from(key)));
}

static void store_remove(struct store *s, struct str key)
{
    struct entry *en = strmap_remove(s->entries, key);

    if (!en)
        return;
    s->bytes -= en->text->len;
    ring_unlink(s->by_ns, en->ns, &en->by_ns);
    if (en->owner)
        ring_unlink(s->by_owner, en->owner, &en->by_owner);
    entry_free(en);
}

static void store_insert(struct store *s, struct str key, struct entry *en)
{
    store_remove(s, key);
    (void)strmap_set(s->entries, key, en);
    s->bytes += en->text->len;
    ring_link(s->by_ns, en->ns, &en->by_ns);
    if (en->owner)
        ring_link(s->by_owner, en->owner, &en->by_owner);
}

const struct json *object_controller(const struct json *object)
{
    bool controls;

    JSON_FOREACH (owner, json_path(object, "metadata", "ownerReferences", NULL))
        if (json_get_bool(owner, "controller", &controls) && controls)
            return owner;
    return NULL;
}

static uint64_t version_of(const struct json *object)
{
    const char *text = json_cstr(json_path(object, "metadata", "resourceVersion", NULL));
    uint64_t version = 0;

    if (!str_parse_u64(str_from(text), &version))
        return 0;
    return version;
}

static const char *text_at(const struct json *object, const char *key)
{
    const char *text = json_cstr(json_path(object, "metadata", key, NULL));

    return text ? text : "";
}

static struct entry *entry_new(const struct cache_view *view, const struct json *object)
{
    const char *ns = text_at(object, "namespace"), *name = text_at(object, "name");
    const char *owner = json_get_cstr(object_controller(object), "uid");
    size_t ns_size = strlen(ns) + 1, name_size = strlen(name) + 1;
    struct entry *en = xcalloc(1, sizeof(*en) + ns_size + name_size);

    memcpy(en->ns, ns, ns_size);
    en->name = en->ns + ns_size;
    memcpy(en->name, name, name_size);
    en->owner = owner ? xstrdup(owner) : NULL;
    en->version = version_of(object);
    (void)json_get_i64(json_get(object, "metadata"), "generation", &en->generation);
    en->text = text_of(view, object);
    return en;
}

static void put_key(struct buf *out, const char *ns, const char *name)
{
    buf_printf(out, "%s/%s", ns ? ns : "", name);
}

/* --- writing ---------------------------------------------------------------------------------------- */

/* @have, what is there (may be NULL), against @en from a watch. */
static enum cache_news news_of(const struct entry *have, const struct entry *en)
{
    if (!have || have->generation != en->generation)
        return CACHE_EDITED;
    return have->version == en->version || (have->version > en->version && !have->observed)
               ? CACHE_KNOWN
               : CACHE_NEWS;
}

enum cache_news cache_observe(struct cache *c, const struct kube_kind *kind,
                              const struct json *object)
{
    const struct cache_view *view = view_of(c, kind);
    AUTO(buf_done) struct buf key = BUF_NULL;
    enum cache_news news;
    struct entry *en;
    struct store *s;

    if (view && view->keep && !view->keep(object)) {
        cache_observe_deleted(c, kind, object);
        return CACHE_NEWS;
    }
    en = entry_new(view, object);
    en->observed = true;
    put_key(&key, en->ns, en->name);
    (void)pthread_mutex_lock(&c->lock);
    s = store_of(c, kind);
    s->observed_version = MAX(s->observed_version, en->version);
    const struct entry *have = strmap_get(s->entries, buf_str(&key));
    news = news_of(have, en);
    /* Our own later write may have been answered before the watch told of the earlier one. */
    if (have && have->version > en->version && !have->observed)
        entry_free(en);
    else
        store_insert(s, buf_str(&key), en);
    (void)pthread_mutex_unlock(&c->lock);
    return news;
}

void cache_observe_deleted(struct cache *c, const struct kube_kind *kind, const struct json *object)
{
    AUTO(buf_done) struct buf key = BUF_NULL;
    struct store *s;

    put_key(&key, text_at(object, "namespace"), text_at(object, "name"));
    (void)pthread_mutex_lock(&c->lock);
    s = store_of(c, kind);
    s->observed_version = MAX(s->observed_version, version_of(object));
    const struct entry *have = strmap_get(s->entries, buf_str(&key));
    if (have && (have->observed || have->version <= version_of(object)))
        store_remove(s, buf_str(&key));
    (void)pthread_mutex_unlock(&c->lock);
}

void cache_observe_synced(struct cache *c, const struct kube_kind *kind)
{
    struct store *s;
    struct str key;
    size_t at = 0;
    void *value;

    (void)pthread_mutex_lock(&c->lock);
    s = store_of(c, kind);
    while (strmap_next(s->entries, &at, &key, &value)) {
        const struct entry *en = value;
        AUTO(mem_free) char *gone = NULL;

        if (en->observed)
            continue;
        gone = str_dup(key);
        store_remove(s, str_from(gone));
    }
    (void)pthread_mutex_unlock(&c->lock);
}

/*
 * Events of one kind come in the order of their versions, so an answer that is not newer than the
 * newest event says nothing that the watch has not said, perhaps with a deletion since.
 */
void cache_wrote(struct cache *c, const struct kube_kind *kind, const struct json *object)
{
    struct entry *en = entry_new(view_of(c, kind), object);
    AUTO(buf_done) struct buf key = BUF_NULL;
    struct store *s;

    put_key(&key, en->ns, en->name);
    (void)pthread_mutex_lock(&c->lock);
    s = store_of(c, kind);
    if (en->version > s->observed_version)
        store_insert(s, buf_str(&key), en);
    else
        entry_free(en);
    (void)pthread_mutex_unlock(&c->lock);
}

/* --- reading ---------------------------------------------------------------------------------------- */

static struct text *text_ref(struct text *t)
{
    ref_take(&t->ref);
    return t;
}

struct json *cache_get(struct cache *c, const struct kube_kind *kind, const char *ns,
                       const char *name)
{
    AUTO(buf_done) struct buf key = BUF_NULL;
    struct json *object = NULL;
    struct text *text = NULL;
    const struct entry *en;

    put_key(&key, ns, name);
    (void)pthread_mutex_lock(&c->lock);
    en = strmap_get(store_of(c, kind)->entries, buf_str(&key));
    if (en)
        text = text_ref(en->text);
    (void)pthread_mutex_unlock(&c->lock);
    if (text) {
        object = tree_of(text);
        text_unref(text);
    }
    return object;
}

struct texts {
    struct text **at;
    size_t n, cap;
};

static void texts_add(struct texts *ts, struct text *t)
{
    if (ts->n == ts->cap) {
        ts->cap = MAX((size_t)8, ts->cap * 2);
        ts->at = xreallocarray(ts->at, ts->cap, sizeof(struct text *));
    }
    ts->at[ts->n++] = text_ref(t);
}

/* Parses, drops the references, and keys the objects by name. */
static struct json *trees_by_name(struct texts *ts)
{
    struct json *all = json_new_object();

    for (size_t i = 0; i < ts->n; i++) {
        struct json *object = tree_of(ts->at[i]);

        if (object) {
            AUTO(mem_free) char *name = xstrdup(text_at(object, "name"));

            (void)json_set(all, name, object);
        }
        text_unref(ts->at[i]);
    }
    free(ts->at);
    return all;
}

struct json *cache_get_owned(struct cache *c, const struct kube_kind *kind, const char *owner_uid)
{
    struct texts ts = {0};
    struct list *ring;

    (void)pthread_mutex_lock(&c->lock);
    ring = strmap_get(store_of(c, kind)->by_owner, str_from(owner_uid));
    if (ring)
        LIST_FOREACH (en, ring, struct entry, by_owner)
            texts_add(&ts, en->text);
    (void)pthread_mutex_unlock(&c->lock);
    return trees_by_name(&ts);
}

struct json *cache_get_all(struct cache *c, const struct kube_kind *kind, const char *ns)
{
    struct texts ts = {0};
    struct list *ring;

    (void)pthread_mutex_lock(&c->lock);
    ring = strmap_get(store_of(c, kind)->by_ns, str_from(ns));
    if (ring)
        LIST_FOREACH (en, ring, struct entry, by_ns)
            texts_add(&ts, en->text);
    (void)pthread_mutex_unlock(&c->lock);
    return trees_by_name(&ts);
}

void cache_each_name(struct cache *c, const struct kube_kind *kind, const char *ns,
                     void (*fn)(void *arg, const char *ns, const char *name), void *arg)
{
    struct str key;
    size_t at = 0;
    void *value;

    (void)pthread_mutex_lock(&c->lock);
    while (strmap_next(store_of(c, kind)->entries, &at, &key, &value)) {
        const struct entry *en = value;

        if (!ns || strcmp(en->ns, ns) == 0)
            fn(arg, en->ns, en->name);
    }
    (void)pthread_mutex_unlock(&c->lock);
}

struct cache_stats cache_stats(struct cache *c, const struct kube_kind *kind)
{
    struct cache_stats stats;
    struct store *s;

    (void)pthread_mutex_lock(&c->lock);
    s = store_of(c, kind);
    stats = (struct cache_stats){strmap_len(s->entries), s->bytes};
    (void)pthread_mutex_unlock(&c->lock);
    return stats;
}
