/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/kube_join.h"

#include <errno.h>
#include <string.h>

#include "lib/base/strmap.h"
#include "router/wire/fields.h"

/* One DynamoWorkerMetadata in its last good form. */
struct metadata {
    char *pod;              /* owner; NULL = none named */
    struct strmap *records; /* "<map>/<key>" → JSON text */
};

struct kube_join {
    struct strmap *slices;   /* slice name → strmap of ready pods */
    struct strmap *metadata; /* resource name → struct metadata */
    struct strmap *shown;    /* "<resource>/<map>/<key>" → JSON text that was told */
};

static void slice_free(void *pods)
{
    (void)strmap_free(pods);
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

void kube_join_slice(struct kube_join *j, const char *name, const struct json *slice)
{
    static char present;
    struct strmap *pods, *old;

    if (!slice) {
        (void)strmap_free(strmap_remove(j->slices, str_from(name)));
        return;
    }
    pods = strmap_new();
    JSON_FOREACH (endpoint, json_get(slice, "endpoints")) {
        const char *pod = json_get_cstr(json_get(endpoint, "targetRef"), "name");

        if (pod && is_ready(endpoint))
            (void)strmap_set(pods, str_from(pod), &present);
    }
    old = strmap_set(j->slices, str_from(name), pods);
    (void)strmap_free(old);
}

static bool pod_is_ready(const struct kube_join *j, struct str pod)
{
    struct str name;
    void *pods;

    for (size_t at = 0; strmap_next(j->slices, &at, &name, &pods);)
        if (strmap_get(pods, pod))
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
        metadata_free(strmap_remove(j->metadata, str_from(name)));
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

static bool counts(const struct kube_join *j, struct str name, const struct metadata *m)
{
    return pod_is_ready(j, name) || (m->pod && pod_is_ready(j, str_from(m->pod)));
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
        w->gone(arg, str_slice(name, n));
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
    stats->records = strmap_len(j->shown);
}
