/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes store: two watches, joined (kube_join.c), and the pod's own DynamoWorkerMetadata,
 * written by server-side apply on a pool thread. A broken watch takes nothing away: kube_watch
 * reports differences only after it has listed again.
 *
 * The written object is a function of the records that are to be published, and one apply is under
 * way at a time, so that the last state wins whatever fails in between. Nothing is withdrawn at the
 * end: readiness and garbage collection see to it.
 */
#include <errno.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "lib/kube/kube_client.h"
#include "lib/kube/kube_kinds.h"
#include "lib/kube/kube_watch.h"
#include "router/discovery/kube_join.h"
#include "router/discovery/store.h"

static const struct log_target LG = {"dynamo_runtime::discovery::kube"};

#define DISCOVERY_LABEL "nvidia.com/dynamo-discovery-enabled=true"
#define FIELD_MANAGER "dynamo-worker"

enum { RETRY_MIN_MS = 200, RETRY_MAX_MS = 10000, MISMATCH_MS = 30000, LOOKS = 5, SETTLE_MS = 500 };

/* What a pool thread works on; outlives the store when that goes first. */
struct apply {
    struct store_kube *store; /* NULL: gone meanwhile */
    struct kube_client *client;
    struct json *object;
    bool running;
    int r;
    struct err why;
};

struct store_kube {
    struct store base;
    char *ns, *pod_name, *pod_uid;
    char *name; /* of what it publishes */
    struct kube_watcher *watcher;
    struct kube_watch *slices, *metadata;
    struct kube_join *join;
    struct store_watcher on;
    void *arg;
    bool watching, report_due, slices_up, metadata_up, synced_told, freed;
    struct strmap *own[RECORD_EVENT_SOURCE + 1]; /* key → JSON text */
    struct apply *apply;
    bool apply_due; /* the records changed since the last apply began */
    struct timer *retry;
    uint64_t retry_ms;
    char *own_pod;
    struct timer *settle; /* until a vanished resource is believed */
    struct timer *look;   /* for a mismatch */
    uint64_t mismatch_ms, matched_ms;
    char *mismatch; /* in words; NULL = none */
    struct store_stats stats;
};

static struct store_kube *of(struct store *s)
{
    return CONTAINER_OF(s, struct store_kube, base);
}

/* --- watching --------------------------------------------------------------------------------- */

static void report(void *arg)
{
    struct store_kube *k = arg;

    if (k->freed)
        return;
    k->report_due = false;
    if (!k->watching)
        return;
    kube_join_report(k->join, &k->on, k->arg, &k->stats);
    if (kube_join_is_unsettled(k->join) && !timer_active(k->settle))
        timer_start(k->settle, SETTLE_MS);
    if (!k->synced_told && kube_watch_synced(k->slices) && kube_watch_synced(k->metadata)) {
        k->synced_told = true;
        if (k->on.synced)
            k->on.synced(k->arg);
    }
}

static void on_settle(void *arg)
{
    struct store_kube *k = arg;

    kube_join_settle(k->join);
    report(k);
}

/* All changes of a turn are told together: a pod and its metadata often come at once. */
static void report_later(struct store_kube *k)
{
    if (k->report_due)
        return;
    k->report_due = true;
    loop_defer(k->base.loop, report, k);
}

static const char *name_of(const struct json *object)
{
    const char *name = json_get_cstr(json_get(object, "metadata"), "name");

    return name ? name : "";
}

static void on_slice(void *arg, enum kube_change what, const struct json *object, struct str raw)
{
    struct store_kube *k = arg;

    (void)raw;
    kube_join_slice(k->join, name_of(object), what == KUBE_DELETED ? NULL : object);
    report_later(k);
}

static void on_metadata(void *arg, enum kube_change what, const struct json *object, struct str raw)
{
    struct store_kube *k = arg;
    struct err e;

    if (what == KUBE_DELETED)
        raw = STR_NULL;
    if (kube_join_metadata(k->join, name_of(object), raw, &e) < 0) {
        k->stats.bad++;
        log_warn(&LG, "bad worker metadata, last good content kept", LOG_STR("why", e.text));
    }
    report_later(k);
}

static void state_tell(struct store_kube *k, const char *why)
{
    bool up = k->slices_up && k->metadata_up;

    if (k->stats.up == up)
        return;
    k->stats.up = up;
    if (k->watching && k->on.state)
        k->on.state(k->arg, up, why);
}

static void on_slices_state(void *arg, bool up, const char *why)
{
    struct store_kube *k = arg;

    k->slices_up = up;
    state_tell(k, why);
}

static void on_metadata_state(void *arg, bool up, const char *why)
{
    struct store_kube *k = arg;

    k->metadata_up = up;
    state_tell(k, why);
}

static void on_synced(void *arg)
{
    report_later(arg);
}

/* --- mismatched back ends --------------------------------------------------------------------- */

static char *mismatch_words(const struct store_kube *k)
{
    struct kube_mismatch mm = kube_join_mismatch(k->join, k->own_pod);

    if (mm.ready_alone)
        return xasprintf("discovery: %zu pods are ready (%.100s) but there is no worker metadata: "
                         "is DYN_DISCOVERY_BACKEND=kubernetes set in them?",
                         mm.ready_alone, mm.example);
    if (mm.metadata_alone)
        return xasprintf(
            "discovery: %zu pods have worker metadata (%.100s) but none is ready in an "
            "EndpointSlice labelled " DISCOVERY_LABEL,
            mm.metadata_alone, mm.example);
    return NULL;
}

/* Some time passes between a pod's readiness and its metadata in the best of worlds. */
static void on_look(void *arg)
{
    struct store_kube *k = arg;
    AUTO(mem_free) char *words = k->synced_told ? mismatch_words(k) : NULL;

    if (!words) {
        k->matched_ms = loop_now_ms(k->base.loop);
        k->mismatch = mem_free(k->mismatch);
    } else if (loop_now_ms(k->base.loop) >= k->matched_ms + k->mismatch_ms) {
        if (!k->mismatch)
            log_warn(&LG, words);
        free(k->mismatch);
        k->mismatch = TAKE(words);
    }
}

static void kube_notes(const struct store *s, void (*note)(void *arg, const char *text), void *arg)
{
    const struct store_kube *k = (const struct store_kube *)(const void *)s;

    if (k->mismatch)
        note(arg, k->mismatch);
}

static int kube_watch_begin(struct store *s, const struct store_watcher *w, void *arg,
                            struct err *e)
{
    struct store_kube *k = of(s);
    const struct kube_watch_spec slices = {
        .kind = &KIND_ENDPOINT_SLICE,
        .ns = k->ns,
        .label_selector = DISCOVERY_LABEL,
        .change = on_slice,
        .synced = on_synced,
        .state = on_slices_state,
        .arg = k,
    };
    const struct kube_watch_spec metadata = {
        .kind = &KIND_DWM,
        .ns = k->ns,
        .change = on_metadata,
        .synced = on_synced,
        .state = on_metadata_state,
        .arg = k,
    };

    (void)e;
    k->on = *w;
    k->arg = arg;
    k->watching = k->slices_up = k->metadata_up = k->stats.up = true;
    k->slices = kube_watch_start(k->watcher, &slices);
    k->metadata = kube_watch_start(k->watcher, &metadata);
    k->matched_ms = loop_now_ms(k->base.loop);
    timer_start_repeat(k->look, MAX(k->mismatch_ms / LOOKS, UINT64_C(1)));
    return 0;
}

static void kube_unwatch(struct store *s)
{
    struct store_kube *k = of(s);

    if (!k->watching)
        return;
    k->watching = k->synced_told = false;
    timer_stop(k->look);
    timer_stop(k->settle);
    k->slices = kube_watch_stop(k->slices);
    k->metadata = kube_watch_stop(k->metadata);
    k->join = kube_join_free(k->join);
    k->join = kube_join_new();
}

/* --- publishing ------------------------------------------------------------------------------- */

static void apply_begin(struct store_kube *k);

static struct apply *apply_free(struct apply *a)
{
    if (!a)
        return NULL;
    a->client = kube_client_free(a->client);
    a->object = json_free(a->object);
    free(a);
    return NULL;
}

static const char *const map_names[] = {
    [RECORD_ENDPOINT] = "endpoints",
    [RECORD_MODEL] = "model_cards",
    [RECORD_EVENT_CHANNEL] = "event_channels",
    [RECORD_EVENT_SOURCE] = "event_sources",
};

static void owner_add(struct store_kube *k, struct json *metadata)
{
    struct json *owner = json_add(json_need_array(metadata, "ownerReferences"), json_new_object());

    json_set_cstr(owner, "apiVersion", "v1");
    json_set_bool(owner, "blockOwnerDeletion", false);
    json_set_bool(owner, "controller", strcmp(k->name, k->pod_name) == 0); /* one at most */
    json_set_cstr(owner, "kind", "Pod");
    json_set_cstr(owner, "name", k->pod_name);
    json_set_cstr(owner, "uid", k->pod_uid);
}

static struct json *object_of(struct store_kube *k)
{
    struct json *object = json_new_object(), *metadata, *data;

    json_set_cstr(object, "apiVersion", "nvidia.com/v1alpha1");
    json_set_cstr(object, "kind", "DynamoWorkerMetadata");
    metadata = json_need_object(object, "metadata");
    json_set_cstr(metadata, "name", k->name);
    json_set_cstr(metadata, "namespace", k->ns);
    owner_add(k, metadata);
    data = json_need_object(json_need_object(object, "spec"), "data");
    for (size_t i = 0; i < ARRAY_LEN(map_names); i++) {
        struct json *map = json_need_object(data, map_names[i]);
        struct str key;
        void *text;

        for (size_t at = 0; strmap_next(k->own[i], &at, &key, &text);) {
            AUTO(mem_free) char *name = str_dup(key);
            struct json *record = NULL;

            if (json_parse(&record, str_from(text), NULL) == 0)
                json_set(map, name, record);
        }
    }
    return object;
}

/* On a pool thread: touches nothing but @arg. */
static void apply_work(void *arg)
{
    struct apply *a = arg;

    a->r = kube_apply(a->client, &KIND_DWM, a->object, FIELD_MANAGER, NULL, &a->why);
    if (a->r > 0)
        a->r = -EACCES; /* refused in words */
}

static void apply_failed(struct store_kube *k, const struct apply *a)
{
    k->stats.publish_failures++;
    k->retry_ms = MIN(MAX(2 * k->retry_ms, (uint64_t)RETRY_MIN_MS), (uint64_t)RETRY_MAX_MS);
    log_warn(&LG, "worker metadata not written, will retry", LOG_STR("name", k->name),
             LOG_STR("why", a->why.text), LOG_U64("retry_ms", k->retry_ms));
    k->apply_due = true;
    timer_start(k->retry, k->retry_ms);
}

static void apply_done(void *arg)
{
    struct apply *a = arg;
    struct store_kube *k = a->store;

    a->running = false;
    a->object = json_free(a->object);
    if (!k) {
        (void)apply_free(a);
        return;
    }
    if (a->r < 0)
        apply_failed(k, a);
    else
        k->retry_ms = 0;
    if (k->base.published)
        k->base.published(k->base.published_arg, a->r, a->r < 0 ? a->why.text : "");
    if (a->r == 0 && k->apply_due)
        apply_begin(k);
}

static void apply_begin(struct store_kube *k)
{
    struct apply *a = k->apply;

    if (a->running || timer_active(k->retry))
        return;
    k->apply_due = false;
    a->running = true;
    a->object = object_of(k);
    loop_work(k->base.loop, apply_work, apply_done, a);
}

static void apply_deferred(void *arg)
{
    struct store_kube *k = arg;

    if (!k->freed && k->apply_due)
        apply_begin(k);
}

static void on_retry(void *arg)
{
    apply_deferred(arg);
}

/* At the end of the turn: a worker publishes several records at once. */
static void apply_later(struct store_kube *k)
{
    if (!k->apply_due)
        loop_defer(k->base.loop, apply_deferred, k);
    k->apply_due = true;
}

static int kube_publish(struct store *s, const struct record *rec, struct err *e)
{
    struct store_kube *k = of(s);
    AUTO(json_free) struct json *check = NULL;
    AUTO(buf_done) struct buf key = BUF_NULL;
    AUTO(buf_done) struct buf json = BUF_NULL;
    int r;

    if (!k->apply)
        return err_set(e, -EINVAL, "publishing needs POD_NAME and POD_UID");
    record_key_put(&key, rec);
    record_put(&json, rec, true);
    r = json_parse(&check, buf_str(&json), e);
    if (r < 0)
        return err_wrap(e, r, "record");
    free(strmap_set(k->own[rec->kind], buf_str(&key), buf_take_cstr(&json)));
    apply_later(k);
    return 0;
}

static void kube_withdraw(struct store *s, const struct record *rec)
{
    struct store_kube *k = of(s);
    AUTO(buf_done) struct buf key = BUF_NULL;
    char *old;

    record_key_put(&key, rec);
    old = strmap_remove(k->own[rec->kind], buf_str(&key));
    if (old)
        apply_later(k);
    free(old);
}

/* --- life ------------------------------------------------------------------------------------- */

static struct store_stats kube_stats(const struct store *s)
{
    return ((const struct store_kube *)(const void *)s)->stats;
}

static void kube_drop(void *arg)
{
    struct store_kube *k = arg;

    k->join = kube_join_free(k->join);
    for (size_t i = 0; i < ARRAY_LEN(k->own); i++)
        (void)strmap_free_with(k->own[i], free);
    free(k->ns);
    free(k->pod_name);
    free(k->pod_uid);
    free(k->name);
    free(k->own_pod);
    free(k->mismatch);
    free(k);
}

static void kube_free_store(struct store *s)
{
    struct store_kube *k = of(s);

    kube_unwatch(s);
    k->freed = true;
    k->watcher = kube_watcher_free(k->watcher);
    k->retry = timer_free(k->retry);
    k->look = timer_free(k->look);
    k->settle = timer_free(k->settle);
    if (k->apply && k->apply->running)
        k->apply->store = NULL;
    else
        (void)apply_free(k->apply);
    /* Behind a report or an apply that may be due this turn. */
    loop_defer(s->loop, kube_drop, k);
}

static const struct store_ops kube_ops = {
    .watch = kube_watch_begin,
    .unwatch = kube_unwatch,
    .publish = kube_publish,
    .withdraw = kube_withdraw,
    .stats = kube_stats,
    .free = kube_free_store,
    .notes = kube_notes,
};

/* The container `main` goes by the name of its pod, as in the reference. */
static char *kube_record_name(const char *pod, const char *container)
{
    return container && strcmp(container, "main") != 0 ? xasprintf("%s-%s", pod, container)
                                                       : xstrdup(pod);
}

static int publisher_new(struct store_kube *k, const struct store_kube_conf *conf, struct err *e)
{
    k->pod_name = xstrdup(conf->pod_name);
    k->pod_uid = xstrdup(conf->pod_uid);
    k->name = kube_record_name(conf->pod_name, conf->container);
    k->base.instance_id = instance_id_of_pod(str_from(k->name));
    k->apply = xcalloc(1, sizeof(*k->apply));
    k->apply->store = k;
    return kube_client_new(&k->apply->client, conf->config, e);
}

int store_kube_new(struct store **ret, struct loop *l, const struct store_kube_conf *conf,
                   struct err *e)
{
    struct store_kube *k = xcalloc(1, sizeof(*k));
    AUTO(store_free) struct store *s = &k->base;
    int r;

    k->base = (struct store){.ops = &kube_ops, .loop = l};
    k->ns = xstrdup(conf->ns && *conf->ns ? conf->ns : kube_config_namespace(conf->config));
    k->join = kube_join_new();
    for (size_t i = 0; i < ARRAY_LEN(k->own); i++)
        k->own[i] = strmap_new();
    k->retry = timer_new(l, on_retry, k);
    k->look = timer_new(l, on_look, k);
    k->settle = timer_new(l, on_settle, k);
    k->mismatch_ms = conf->mismatch_ms ? conf->mismatch_ms : MISMATCH_MS;
    if (conf->own_pod)
        k->own_pod = xstrdup(conf->own_pod);
    r = kube_watcher_new(&k->watcher, l, conf->config, e);
    if (r == 0 && conf->pod_name && *conf->pod_name && conf->pod_uid && *conf->pod_uid)
        r = publisher_new(k, conf, e);
    if (r < 0)
        return err_wrap(e, r, "Kubernetes discovery");
    *ret = TAKE(s);
    return 0;
}
