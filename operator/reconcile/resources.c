/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/resources.h"

#include <string.h>

#include "lib/base/strmap.h"
#include "operator/plan/status.h"

struct resources {
    struct metric_family *family;
    struct cache *cache;
    struct strmap *series; /* "kind ns status" to struct metric: those that were ever set */
};

struct names {
    struct json *list; /* [ns, name, ns, name, …] */
};

struct resources *resources_new(struct metric_registry *r, struct cache *cache)
{
    struct resources *rs = xcalloc(1, sizeof(*rs));

    rs->family =
        metric_family(r, &(struct metric_desc){.name = "dynamo_operator_resources_total",
                                               .help = "Graphs and components by state.",
                                               .type = METRIC_GAUGE,
                                               .labels = {"resource_type", "namespace", "status"}});
    rs->cache = cache;
    rs->series = strmap_new();
    return rs;
}

struct resources *resources_free(struct resources *r)
{
    if (!r)
        return NULL;
    strmap_free(r->series);
    free(r);
    return NULL;
}

static void collect(void *arg, const char *ns, const char *name)
{
    struct names *names = arg;

    (void)json_add(names->list, json_new_cstr(ns));
    (void)json_add(names->list, json_new_cstr(name));
}

static const char *graph_state(const struct json *dgd)
{
    const char *state = json_cstr(json_path(dgd, "status", "state", NULL));

    return state && *state ? state : "unknown";
}

static const char *component_state(const struct json *dcd)
{
    if (status_condition_is(dcd, "Available", "True"))
        return "ready";
    return status_condition_is(dcd, "Available", "False") ? "not_ready" : "unknown";
}

static void count_one(struct resources *r, const struct kube_kind *kind, const char *ns,
                      const char *status)
{
    AUTO(mem_free) char *key = xasprintf("%s %s %s", kind->kind, ns, status);
    struct metric *m = strmap_get(r->series, str_from(key));

    if (!m) {
        m = metric_with(r->family, kind->kind, ns, status);
        (void)strmap_set(r->series, str_from(key), m);
    }
    metric_add(m, 1);
}

static void count_kind(struct resources *r, const struct kube_kind *kind,
                       const char *(*state)(const struct json *object))
{
    AUTO(json_free) struct json *list = json_new_array();
    struct names names = {list};

    cache_each_name(r->cache, kind, NULL, collect, &names);
    for (struct json *ns = json_first(list); ns; ns = json_next(json_next(ns))) {
        const char *name = json_cstr(json_next(ns));
        AUTO(json_free) struct json *object = cache_get(r->cache, kind, json_cstr(ns), name);

        if (object)
            count_one(r, kind, json_cstr(ns), state(object));
    }
}

void resources_count(struct resources *r)
{
    struct str key;
    size_t at = 0;
    void *series;

    while (strmap_next(r->series, &at, &key, &series))
        metric_set(series, 0);
    count_kind(r, &KIND_DGD, graph_state);
    count_kind(r, &KIND_DCD, component_state);
}
