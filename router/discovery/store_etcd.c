/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd store (wire.md §2.3): all buckets are below one prefix, so one list and one watch see them.
 *
 *     list ── its revision + 1 ──▶ watch ── broken ──▶ watch from the last revision seen + 1
 *       ▲                            │                       and a list beside it
 *       └── compacted, or a store ───┘
 *           that knows less than we do
 *
 * A list is compared with what is known: it is how a store that was restored, emptied or compacted
 * is noticed, whatever its revisions say. What the watch tells meanwhile is newer and stands.
 *
 * A stalled etcd lets leases end that nobody gave up; so whether it answers is asked all the time,
 * and what ends after a pause is told as such by `state` (instances.h says what follows).
 *
 * Publishing is etcd_lease.c.
 */
#include <errno.h>
#include <stdint.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "router/discovery/etcd_client.h"
#include "router/discovery/etcd_lease.h"
#include "router/discovery/etcd_wire.h"
#include "router/discovery/store.h"

static const struct log_target LG = {"dynamo_runtime::storage::kv::etcd"};

enum {
    PAGE = 500, /* keys of a list's answer */
    PROBE_MS = 2000,
    PROBES_MAX = 3, /* until a watch must have begun */
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 5000
};

static const struct str PREFIX = {"v1/", 3};

/* A key that is there. */
struct entry {
    char *json;
    bool listed;  /* by the list under way */
    bool watched; /* told by the watch since that list began */
};

/* One change of a message of the watch. */
struct change {
    char *key, *json; /* json NULL = its end */
    uint64_t revision;
    struct str owner; /* of an instance that ends: its id, view into key */
};

struct store_etcd {
    struct store base;
    struct etcd_client *client;
    struct etcd_lease *lease;
    struct strmap *entries; /* key → struct entry */
    struct store_watcher watcher;
    void *arg;
    bool listing;     /* from the first page to the last one's end */
    bool watch_began; /* etcd has confirmed it */
    bool synced_told, told_down;
    unsigned probes;   /* since the watch was asked for */
    uint64_t revision; /* all changes up to it are known; 0 = a list must tell */
    struct etcd_call *list, *watch, *probe;
    uint64_t list_revision;
    struct buf next_key; /* of the list */
    struct change *changes;
    size_t n_changes, cap_changes;
    struct timer *retry, *probe_timer;
    uint64_t retry_ms;
    struct store_stats stats;
};

static struct store_etcd *of(struct store *s)
{
    return CONTAINER_OF(s, struct store_etcd, base);
}

static void entry_free(void *value)
{
    struct entry *en = value;

    free(en->json);
    free(en);
}

/* --- the known keys --------------------------------------------------------------------------- */

static bool is_record_key(struct str key)
{
    for (unsigned kind = 0; kind <= RECORD_EVENT_SOURCE; kind++) {
        struct str bucket = str_from(record_bucket((enum record_kind)kind));

        if (str_starts(key, bucket) && key.len > bucket.len && key.ptr[bucket.len] == '/')
            return true;
    }
    return false;
}

static struct entry *entry_need(struct store_etcd *s, struct str key)
{
    struct entry *en = strmap_get(s->entries, key);

    if (en)
        return en;
    if (strmap_len(s->entries) >= STORE_RECORDS_MAX) {
        s->stats.dropped++;
        return NULL;
    }
    en = xcalloc(1, sizeof(*en));
    (void)strmap_set(s->entries, key, en);
    return en;
}

static void key_there(struct store_etcd *s, struct str key, struct str json, bool watched)
{
    struct entry *en;

    if (json.len > RECORD_BYTES_MAX) {
        s->stats.bad++;
        return;
    }
    en = entry_need(s, key);
    if (!en)
        return;
    en->listed = true;
    if (!watched && en->watched)
        return;
    en->watched |= watched;
    if (en->json && str_eq(str_from(en->json), json))
        return;
    free(en->json);
    en->json = str_dup(json);
    s->stats.puts++;
    s->watcher.put(s->arg, key, json);
}

static void key_gone(struct store_etcd *s, struct str key, enum store_end how)
{
    AUTO(mem_free) char *name = str_dup(key); /* @key may be the map's own */
    struct entry *en = strmap_get(s->entries, key);

    if (!en || !en->json)
        return;
    s->stats.gones++;
    if (s->listing) { /* and the list may still have it: remember that it went */
        free(en->json);
        en->json = NULL;
        en->watched = true;
    } else {
        entry_free(strmap_remove(s->entries, key));
    }
    s->watcher.gone(s->arg, str_from(name), how);
}

/* --- broken and mended ------------------------------------------------------------------------ */

static void broken(struct store_etcd *s, const char *why)
{
    s->list = etcd_call_cancel(s->list);
    s->watch = etcd_call_cancel(s->watch);
    s->probe = etcd_call_cancel(s->probe);
    s->listing = false;
    timer_stop(s->probe_timer);
    s->retry_ms = MIN(MAX(2 * s->retry_ms, (uint64_t)RETRY_MIN_MS), (uint64_t)RETRY_MAX_MS);
    timer_start(s->retry, s->retry_ms);
    s->stats.up = false;
    if (s->told_down)
        return;
    s->told_down = true;
    if (s->watcher.state)
        s->watcher.state(s->arg, false, why);
}

static void mended(struct store_etcd *s)
{
    s->retry_ms = 0;
    s->stats.up = true;
    if (s->told_down && s->watcher.state)
        s->watcher.state(s->arg, true, etcd_client_endpoint(s->client));
    s->told_down = false;
    if (!s->synced_told && s->watcher.synced)
        s->watcher.synced(s->arg);
    s->synced_told = true;
}

/* --- the list --------------------------------------------------------------------------------- */

static void watch_start(struct store_etcd *s);
static void list_page(struct store_etcd *s);

static void on_listed(void *arg, const struct etcd_kv *kv)
{
    struct store_etcd *s = arg;

    buf_clear(&s->next_key);
    buf_put_str(&s->next_key, kv->key);
    buf_put_char(&s->next_key, '\0'); /* the least key above it */
    if (is_record_key(kv->key))
        key_there(s, kv->key, kv->value, false);
}

static void list_end(struct store_etcd *s)
{
    struct str key;
    void *value;

    s->listing = false;
    for (size_t at = 0; strmap_next(s->entries, &at, &key, &value);) {
        struct entry *en = value;

        if (!en->json)
            entry_free(strmap_remove(s->entries, key));
        else if (!en->listed && !en->watched)
            key_gone(s, key, STORE_END_SILENT);
    }
    mended(s);
    if (s->watch)
        return;
    s->revision = s->list_revision;
    watch_start(s);
}

static void on_list(void *arg, int r, struct str body, const char *why)
{
    struct store_etcd *s = arg;
    struct etcd_range range;
    struct err e;

    s->list = NULL;
    if (r == 0 && (r = etcd_range_parse(body, &range, on_listed, s, &e)) < 0)
        why = e.text;
    if (r != 0) {
        broken(s, why);
        return;
    }
    if (!s->list_revision)
        s->list_revision = range.revision;
    if (range.more)
        list_page(s);
    else
        list_end(s);
}

static void list_page(struct store_etcd *s)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    etcd_put_range(&body, buf_str(&s->next_key), PREFIX, s->list_revision, PAGE);
    s->list = etcd_call_start(
        s->client, &(struct etcd_call_spec){
                       .path = "/v3/kv/range", .body = buf_str(&body), .done = on_list, .arg = s});
}

static void list_start(struct store_etcd *s)
{
    struct str key;
    void *value;

    for (size_t at = 0; strmap_next(s->entries, &at, &key, &value);)
        ((struct entry *)value)->listed = ((struct entry *)value)->watched = false;
    s->list = etcd_call_cancel(s->list);
    s->listing = true;
    s->list_revision = 0;
    buf_clear(&s->next_key);
    buf_put_str(&s->next_key, PREFIX);
    list_page(s);
}

/* --- the watch -------------------------------------------------------------------------------- */

static void changes_clear(struct store_etcd *s)
{
    for (size_t i = 0; i < s->n_changes; i++) {
        free(s->changes[i].key);
        free(s->changes[i].json);
    }
    s->n_changes = 0;
}

/* The id of an instance, which is its lease: the last part of the key. */
static struct str owner_of(struct str key)
{
    size_t at = key.len;

    if (!str_starts(key, str_from(record_bucket(RECORD_ENDPOINT))))
        return STR_NULL;
    while (at && key.ptr[at - 1] != '/')
        at--;
    return str_skip(key, at);
}

static void on_change(void *arg, const struct etcd_kv *kv)
{
    struct store_etcd *s = arg;
    struct change *ch;

    if (s->n_changes == s->cap_changes) {
        s->cap_changes = MAX(2 * s->cap_changes, (size_t)16);
        s->changes = xreallocarray(s->changes, s->cap_changes, sizeof(*s->changes));
    }
    ch = &s->changes[s->n_changes++];
    *ch = (struct change){.key = str_dup(kv->key), .revision = kv->revision};
    if (!kv->is_end)
        ch->json = str_dup(kv->value);
    else
        ch->owner = owner_of(str_slice(ch->key, kv->key.len));
}

/*
 * A lease takes away what is under it in one revision of its own. One that takes the instances of
 * several is nobody's leaving: the store was wiped.
 */
static enum store_end end_of(const struct store_etcd *s, uint64_t revision)
{
    struct str first = STR_NULL;

    for (size_t i = 0; i < s->n_changes; i++) {
        const struct change *ch = &s->changes[i];

        if (ch->revision != revision || !ch->owner.len)
            continue;
        if (first.len && !str_eq(first, ch->owner))
            return STORE_END_DOUBTFUL;
        first = ch->owner;
    }
    return STORE_END_SILENT;
}

static void changes_tell(struct store_etcd *s)
{
    enum store_end how = STORE_END_SILENT;
    uint64_t revision = 0;

    for (size_t i = 0; i < s->n_changes; i++) {
        const struct change *ch = &s->changes[i];

        if (ch->revision != revision)
            how = end_of(s, ch->revision);
        revision = ch->revision;
        if (!is_record_key(str_from(ch->key)))
            continue;
        if (ch->json)
            key_there(s, str_from(ch->key), str_from(ch->json), true);
        else
            key_gone(s, str_from(ch->key), how);
    }
}

/* The store's past is not ours: only a list tells what is. */
static void past_lost(struct store_etcd *s, const char *why)
{
    log_warn(&LG, "changes of etcd cannot be followed on, listing anew", LOG_STR("why", why),
             LOG_U64("revision", s->revision));
    s->watch = etcd_call_cancel(s->watch);
    s->revision = 0;
    list_start(s);
}

static void watch_answered(struct store_etcd *s, const struct etcd_watch_answer *a)
{
    if (a->cancelled && a->compact_revision) {
        past_lost(s, "they are compacted");
    } else if (a->cancelled) {
        AUTO(mem_free) char *why = xasprintf("etcd cancelled the watch: %.*s", STR_ARG(a->reason));

        etcd_client_drop_token(s->client); /* which may have been the reason */
        broken(s, why);
    } else if (a->created && a->revision < s->revision) {
        past_lost(s, "the store has an earlier revision than before");
    } else if (a->created) {
        s->watch_began = true;
        if (s->told_down)
            list_start(s);
    } else if (!a->fragment) {
        /* A store that catches up says its own revision, which is ahead of what it has told. */
        s->revision =
            s->n_changes ? s->changes[s->n_changes - 1].revision : MAX(s->revision, a->revision);
    }
}

static void on_watch_line(void *arg, struct str json)
{
    struct store_etcd *s = arg;
    struct etcd_watch_answer a;
    struct err e;

    if (etcd_watch_parse(json, &a, on_change, s, &e) < 0) {
        changes_clear(s);
        broken(s, e.text);
        return;
    }
    changes_tell(s);
    watch_answered(s, &a);
    changes_clear(s);
}

static void on_watch_end(void *arg, int r, struct str body, const char *why)
{
    struct store_etcd *s = arg;

    (void)r;
    (void)body;
    s->watch = NULL;
    broken(s, why);
}

static void watch_start(struct store_etcd *s)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    s->watch_began = false;
    s->probes = 0;
    timer_start_repeat(s->probe_timer, PROBE_MS);
    etcd_put_watch(&body, PREFIX, s->revision + 1);
    s->watch = etcd_call_start(s->client, &(struct etcd_call_spec){.path = "/v3/watch",
                                                                   .body = buf_str(&body),
                                                                   .line = on_watch_line,
                                                                   .done = on_watch_end,
                                                                   .arg = s});
}

/* --- whether it answers ----------------------------------------------------------------------- */

static void on_probed(void *arg, int r, struct str body, const char *why)
{
    struct store_etcd *s = arg;

    (void)body;
    s->probe = NULL;
    if (r != 0 && r != ETCD_UNAUTHENTICATED) /* a token that ended is fetched anew next time */
        broken(s, why);
}

static void on_probe(void *arg)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct store_etcd *s = arg;

    if (s->probe)
        return;
    if (!s->watch_began && ++s->probes > PROBES_MAX) {
        broken(s, "the watch does not begin; does a proxy hold back its answers?");
        return;
    }
    etcd_put_range(&body, PREFIX, PREFIX, 0, 0);
    s->probe = etcd_call_start(s->client, &(struct etcd_call_spec){.path = "/v3/kv/range",
                                                                   .body = buf_str(&body),
                                                                   .done = on_probed,
                                                                   .arg = s});
}

static void go(void *arg)
{
    struct store_etcd *s = arg;

    if (s->revision)
        watch_start(s);
    else
        list_start(s);
}

static int etcd_watch(struct store *base, const struct store_watcher *w, void *arg, struct err *e)
{
    struct store_etcd *s = of(base);

    (void)e;
    s->watcher = *w;
    s->arg = arg;
    go(s);
    return 0;
}

static void etcd_unwatch(struct store *base)
{
    struct store_etcd *s = of(base);

    s->listing = s->synced_told = s->told_down = s->stats.up = false;
    s->list = etcd_call_cancel(s->list);
    s->watch = etcd_call_cancel(s->watch);
    s->probe = etcd_call_cancel(s->probe);
    timer_stop(s->retry);
    timer_stop(s->probe_timer);
    s->revision = 0;
    (void)strmap_free_with(s->entries, entry_free);
    s->entries = strmap_new();
}

/* --- the rest --------------------------------------------------------------------------------- */

static int etcd_publish(struct store *base, const struct record *rec, struct err *e)
{
    return etcd_lease_publish(of(base)->lease, rec, e);
}

static void etcd_withdraw(struct store *base, const struct record *rec)
{
    etcd_lease_withdraw(of(base)->lease, rec);
}

static void on_published(void *arg, int r, const char *why)
{
    struct store *base = arg;

    if (base->published)
        base->published(base->published_arg, r, why);
}

static struct store_stats etcd_stats(const struct store *base)
{
    const struct store_etcd *s = (const struct store_etcd *)(const void *)base;
    struct store_stats st = s->stats;

    st.records = strmap_len(s->entries);
    st.publish_failures = etcd_lease_failures(s->lease);
    return st;
}

static void etcd_free(struct store *base)
{
    struct store_etcd *s = of(base);

    s->list = etcd_call_cancel(s->list);
    s->watch = etcd_call_cancel(s->watch);
    s->probe = etcd_call_cancel(s->probe);
    s->lease = etcd_lease_free(s->lease);
    s->client = etcd_client_free(s->client);
    s->retry = timer_free(s->retry);
    s->probe_timer = timer_free(s->probe_timer);
    (void)strmap_free_with(s->entries, entry_free);
    buf_done(&s->next_key);
    changes_clear(s);
    free(s->changes);
    free(s);
}

static const struct store_ops etcd_ops = {
    .watch = etcd_watch,
    .unwatch = etcd_unwatch,
    .publish = etcd_publish,
    .withdraw = etcd_withdraw,
    .stats = etcd_stats,
    .free = etcd_free,
};

int store_etcd_new(struct store **ret, struct loop *l, const struct etcd_conf *conf, struct err *e)
{
    struct store_etcd *s = xcalloc(1, sizeof(*s));
    AUTO(store_free) struct store *base = &s->base;
    int r;

    /* The instance is named by its lease, a positive number of 64 bits that we choose. */
    s->base =
        (struct store){.ops = &etcd_ops, .loop = l, .instance_id = (random_u64() & INT64_MAX) | 1};
    s->entries = strmap_new();
    s->retry = timer_new(l, go, s);
    s->probe_timer = timer_new(l, on_probe, s);
    r = etcd_client_new(&s->client, l, conf, e);
    if (r < 0)
        return err_wrap(e, r, "discovery");
    s->lease = etcd_lease_new(l, s->client, s->base.instance_id, conf->lease_ttl_s, on_published,
                              &s->base);
    *ret = TAKE(base);
    return 0;
}
