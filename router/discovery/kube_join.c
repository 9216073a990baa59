/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/kube_join.h"

#include <errno.h>
#include <string.h>

#include "lib/base/strmap.h"
#include "router/wire/fields.h"

enum presence {
    PRESENT,
    VANISHED, /* while its pod is ready: counts until settled */
    ENDED,    /* settled */
    DOUBTED,  /* settled together with others; told as doubtful, waits for its pod's end */
};

/* One DynamoWorkerMetadata in its last good form. */
struct metadata {
    enum presence presence;
    char *pod;              /* owner; NULL = none named */
    struct strmap *records; /* "<map>/<key>" → JSON text */
};

struct slice {
    struct strmap *pods; /* ready ones */
    bool of_frontend;    /* by its name */
};

struct kube_join {
    struct strmap *slices;   /* slice name → struct slice */
    struct strmap *metadata; /* resource name → struct metadata */
    struct strmap *shown;    /* "<resource>/<map>/<key>" → JSON text that was told */
    bool slice_deleted;      /* since the last report */
};

static void slice_free(void *value)
{
    struct slice *sl = value;

    if (!sl)
        return;
    (void)strmap_free(sl->pods);
    free(sl);
}

static void metadata_free(void *value)
{
    struct metadata *m = value;

    if (!m)
        return;
    free(m->pod);
    (void)strmap_free_with(m->records, free);
    free(m);
}

struct kube_join *kube_join_new(void)
{
    struct kube_join *j = xcalloc(1, sizeof(*j));

    j->slices = strmap_new();
    j->metadata = strmap_new();
    j->shown = strmap_new();
    return j;
}

struct kube_join *kube_join_free(struct kube_join *j)
{
    if (!j)
        return NULL;
    (void)strmap_free_with(j->slices, slice_free);
    (void)strmap_free_with(j->metadata, metadata_free);
    (void)strmap_free_with(j->shown, free);
    free(j);
    return NULL;
}

/* --- EndpointSlices --------------------------------------------------------------------------- */

/* The API's own rule: an unknown readiness counts as ready. */
static bool is_ready(const struct json *endpoint)
{
    bool ready = true;

    (void)json_get_bool(json_get(endpoint, "conditions"), "ready", &ready);
    return ready;
}

/* A Service of a frontend is named "<graph>-frontend". */
static bool is_of_frontend(const struct json *slice)
{
    const struct json *labels = json_get(json_get(slice, "metadata"), "labels");
    const char *service = json_get_cstr(labels, "kubernetes.io/service-name");
    const char *type = json_get_cstr(labels, "nvidia.com/dynamo-component-type");

    return str_ends(str_from(service), STR("frontend")) || str_is(str_from(type), "frontend");
}

void kube_join_slice(struct kube_join *j, const char *name, const struct json *slice)
{
    static char present;
    struct slice *sl, *old;

    if (!slice) {
        old = strmap_remove(j->slices, str_from(name));
        j->slice_deleted |= old != NULL;
        slice_free(old);
        return;
    }
    sl = xcalloc(1, sizeof(*sl));
    sl->pods = strmap_new();
    sl->of_frontend = is_of_frontend(slice);
    JSON_FOREACH (endpoint, json_get(slice, "endpoints")) {
        const char *pod = json_get_cstr(json_get(endpoint, "targetRef"), "name");

        if (pod && is_ready(endpoint))
            (void)strmap_set(sl->pods, str_from(pod), &present);
    }
    slice_free(strmap_set(j->slices, str_from(name), sl));
}

static bool pod_is_ready(const struct kube_join *j, struct str pod)
{
    struct str name;
    void *sl;

    for (size_t at = 0; strmap_next(j->slices, &at, &name, &sl);)
        if (strmap_get(((struct slice *)sl)->pods, pod))
            return true;
    return false;
}

/* --- DynamoWorkerMetadata --------------------------------------------------------------------- */

/* One of the maps of spec.data; null and absent are the same. */
static void map_read(struct json_pull *p, struct str map, struct metadata *m)
{
    struct str key, value = STR_NULL;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        AUTO(mem_free) char *name = xasprintf("%.*s/%.*s", STR_ARG(map), STR_ARG(key));

        if (!json_pull_skip(p, &value))
            return;
        if (strmap_len(m->records) < STORE_RECORDS_MAX)
            free(strmap_set(m->records, str_from(name), str_dup(value)));
    }
}

static void spec_read(struct json_pull *p, struct metadata *m, bool *ret_has_data)
{
    struct str key, map;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (!str_is(key, "data") || json_pull_peek(p) != JSON_KIND_OBJECT) {
            skip_pull(p);
            continue;
        }
        *ret_has_data = true;
        if (!json_pull_object(p))
            return;
        while (json_pull_key(p, &map)) {
            if (json_pull_peek(p) == JSON_KIND_OBJECT)
                map_read(p, map, m);
            else
                skip_pull(p);
        }
    }
}

static void owner_read(struct json_pull *p, struct metadata *m)
{
    struct str key, kind = STR_NULL, name = STR_NULL;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "kind") || str_is(key, "name")) {
            if (!json_pull_raw_string(p, str_is(key, "kind") ? &kind : &name))
                return;
        } else {
            skip_pull(p);
        }
    }
    if (str_is(kind, "Pod") && name.len && !m->pod)
        m->pod = str_dup(name);
}

static void object_metadata_read(struct json_pull *p, struct metadata *m)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (!str_is(key, "ownerReferences")) {
            skip_pull(p);
            continue;
        }
        if (!json_pull_array(p))
            continue;
        while (json_pull_element(p))
            owner_read(p, m);
    }
}

int kube_join_metadata(struct kube_join *j, const char *name, struct str raw, struct err *e)
{
    struct metadata *m;
    bool has_data = false;
    struct json_pull p;
    struct str key;
    int r;

    if (!raw.len) {
        m = strmap_get(j->metadata, str_from(name));
        if (m && m->presence == PRESENT)
            m->presence = VANISHED;
        return 0;
    }
    m = xcalloc(1, sizeof(*m));
    m->records = strmap_new();
    json_pull_init(&p, raw);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "spec"))
                spec_read(&p, m, &has_data);
            else if (str_is(key, "metadata"))
                object_metadata_read(&p, m);
            else
                skip_pull(&p);
        }
    }
    r = json_pull_end(&p, e);
    if (r == 0 && !has_data)
        r = err_set(e, -EINVAL, "spec.data is missing");
    if (r < 0) {
        metadata_free(m);
        return err_wrap(e, r, "DynamoWorkerMetadata '%.100s'", name);
    }
    metadata_free(strmap_set(j->metadata, str_from(name), m));
    return 0;
}

/* --- the join --------------------------------------------------------------------------------- */

static bool pod_of_is_ready(const struct kube_join *j, struct str name, const struct metadata *m)
{
    return pod_is_ready(j, name) || (m->pod && pod_is_ready(j, str_from(m->pod)));
}

static bool counts(const struct kube_join *j, struct str name, const struct metadata *m)
{
    return (m->presence == PRESENT || m->presence == VANISHED) && pod_of_is_ready(j, name, m);
}

/* Why the records of a resource count no more; @key begins with its name. */
static enum store_end end_of(const struct kube_join *j, struct str key)
{
    struct str name = str_head(key, str_index(key, '/'));
    const struct metadata *m = strmap_get(j->metadata, name);

    if (m && m->presence == DOUBTED)
        return STORE_END_DOUBTFUL;
    return j->slice_deleted || (m && m->presence == ENDED) ? STORE_END_SILENT : STORE_END_TOLD;
}

static void gone_report(struct kube_join *j, const struct store_watcher *w, void *arg,
                        struct strmap *now, struct store_stats *stats)
{
    struct str key;
    void *json;

    for (size_t at = 0; strmap_next(j->shown, &at, &key, &json);) {
        AUTO(mem_free) char *name = NULL;
        size_t n = key.len;

        if (strmap_get(now, key))
            continue;
        name = str_dup(key); /* the key goes with its entry */
        free(strmap_remove(j->shown, key));
        stats->gones++;
        w->gone(arg, str_slice(name, n), end_of(j, str_slice(name, n)));
    }
    j->slice_deleted = false;
}

/* What was told as doubtful: its pod's end is the last word on it. */
static void doubt_end(const struct metadata *m, struct str name, const struct store_watcher *w,
                      void *arg)
{
    struct str key;
    void *json;

    for (size_t at = 0; strmap_next(m->records, &at, &key, &json);) {
        AUTO(mem_free) char *full = xasprintf("%.*s/%.*s", STR_ARG(name), STR_ARG(key));

        w->gone(arg, str_from(full), STORE_END_TOLD);
    }
}

/* Resources that vanished are forgotten once nobody waits for news of their pods. */
static void vanished_forget(struct kube_join *j, const struct store_watcher *w, void *arg)
{
    struct str name;
    void *value;

    for (size_t at = 0; strmap_next(j->metadata, &at, &name, &value);) {
        struct metadata *m = value;
        bool ready = pod_of_is_ready(j, name, m);

        if (m->presence == PRESENT || (ready && m->presence != ENDED))
            continue;
        if (m->presence == DOUBTED)
            doubt_end(m, name, w, arg);
        metadata_free(strmap_remove(j->metadata, name));
    }
}

/* All records that count, borrowed: full key → JSON text. */
static struct strmap *records_now(const struct kube_join *j, struct store_stats *stats)
{
    struct strmap *now = strmap_new();
    struct str name, key;
    void *value, *json;

    for (size_t i = 0; strmap_next(j->metadata, &i, &name, &value);) {
        const struct metadata *m = value;

        if (!counts(j, name, m))
            continue;
        for (size_t k = 0; strmap_next(m->records, &k, &key, &json);) {
            AUTO(mem_free) char *full = xasprintf("%.*s/%.*s", STR_ARG(name), STR_ARG(key));

            if (strmap_len(now) >= STORE_RECORDS_MAX)
                stats->dropped++;
            else
                (void)strmap_set(now, str_from(full), json);
        }
    }
    return now;
}

void kube_join_report(struct kube_join *j, const struct store_watcher *w, void *arg,
                      struct store_stats *stats)
{
    AUTO(strmap_free) struct strmap *now = records_now(j, stats);
    struct str key;
    void *json;

    gone_report(j, w, arg, now, stats);
    for (size_t at = 0; strmap_next(now, &at, &key, &json);) {
        const char *before = strmap_get(j->shown, key);

        if (before && strcmp(before, json) == 0)
            continue;
        free(strmap_set(j->shown, key, xstrdup(json)));
        stats->puts++;
        w->put(arg, key, str_from(json));
    }
    vanished_forget(j, w, arg);
    stats->records = strmap_len(j->shown);
}

bool kube_join_is_unsettled(const struct kube_join *j)
{
    struct str name;
    void *m;

    for (size_t at = 0; strmap_next(j->metadata, &at, &name, &m);)
        if (((struct metadata *)m)->presence == VANISHED)
            return true;
    return false;
}

void kube_join_settle(struct kube_join *j)
{
    size_t n = 0;
    struct str name;
    void *m;

    for (size_t at = 0; strmap_next(j->metadata, &at, &name, &m);)
        n += ((struct metadata *)m)->presence == VANISHED;
    for (size_t at = 0; strmap_next(j->metadata, &at, &name, &m);)
        if (((struct metadata *)m)->presence == VANISHED)
            ((struct metadata *)m)->presence = n > 1 ? DOUBTED : ENDED;
}

/* --- mismatch --------------------------------------------------------------------------------- */

static bool has_metadata(const struct kube_join *j, struct str pod)
{
    struct str name;
    void *value;

    for (size_t at = 0; strmap_next(j->metadata, &at, &name, &value);) {
        const struct metadata *m = value;

        if (m->presence != PRESENT)
            continue;
        if (str_eq(name, pod) || (m->pod && str_is(pod, m->pod)))
            return true;
    }
    return false;
}

static void ready_alone(const struct kube_join *j, const struct slice *sl,
                        struct kube_mismatch *ret)
{
    struct str pod;
    void *value;

    for (size_t at = 0; strmap_next(sl->pods, &at, &pod, &value);)
        if (!has_metadata(j, pod)) {
            ret->ready_alone++;
            ret->example = pod.ptr;
        }
}

struct kube_mismatch kube_join_mismatch(const struct kube_join *j, const char *own_pod)
{
    struct kube_mismatch ret = {0};
    struct str name, own = str_from(own_pod);
    void *value;

    for (size_t at = 0; strmap_next(j->metadata, &at, &name, &value);) {
        const struct metadata *m = value;

        if (str_eq(name, own) || m->presence != PRESENT || !strmap_len(m->records))
            continue;
        if (counts(j, name, m))
            return (struct kube_mismatch){0}; /* they have found each other */
        ret.metadata_alone++;
        ret.example = name.ptr;
    }
    for (size_t at = 0; strmap_next(j->slices, &at, &name, &value);) {
        const struct slice *sl = value;

        if (!sl->of_frontend && !(own.len && strmap_get(sl->pods, own)))
            ready_alone(j, sl, &ret);
    }
    return ret;
}
