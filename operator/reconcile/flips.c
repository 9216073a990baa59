/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/flips.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/strmap.h"
#include "operator/api/graph.h"

enum { FLIPS_MAX = 4096 };

struct flips {
    pthread_mutex_t lock;
    struct strmap *since; /* uid of a graph to uint64_t */
};

struct flips *flips_new(void)
{
    struct flips *f = xcalloc(1, sizeof(*f));

    (void)pthread_mutex_init(&f->lock, NULL);
    f->since = strmap_new();
    return f;
}

struct flips *flips_free(struct flips *f)
{
    if (!f)
        return NULL;
    strmap_free_with(f->since, free);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
    return NULL;
}

void flips_begin(struct flips *f, const char *uid, uint64_t since_ms)
{
    uint64_t *value = xmalloc(sizeof(*value));

    *value = since_ms;
    (void)pthread_mutex_lock(&f->lock);
    /* Graphs without frontends would stay here for ever; an event without a time is no harm. */
    if (strmap_len(f->since) >= FLIPS_MAX) {
        strmap_free_with(f->since, free);
        f->since = strmap_new();
    }
    free(strmap_set(f->since, str_from(uid), value));
    (void)pthread_mutex_unlock(&f->lock);
}

bool flips_end(struct flips *f, const char *uid, uint64_t *ret_since_ms)
{
    AUTO(mem_free) uint64_t *value = NULL;

    (void)pthread_mutex_lock(&f->lock);
    value = strmap_remove(f->since, str_from(uid));
    (void)pthread_mutex_unlock(&f->lock);
    if (!value)
        return false;
    *ret_since_ms = *value;
    return true;
}

bool flips_deployment_of(const char *pod, struct str *ret_name)
{
    struct str name = str_from(pod);

    for (int parts = 0; parts < 2; parts++) {
        const char *dash = memrchr(name.ptr, '-', name.len);

        if (!dash || dash == name.ptr)
            return false;
        name.len = (size_t)(dash - name.ptr);
    }
    *ret_name = name;
    return true;
}

static int64_t generation_of(const struct json *object)
{
    int64_t generation = 0;

    if (!str_parse_i64(str_from(object_annotation(object, PLAN_ROUTING_GENERATION)), &generation))
        return 0;
    return generation;
}

struct applied_count {
    struct cache *cache;
    const char *deployment;
    int64_t generation;
    struct json *names; /* of the pods' metadata objects */
};

static void collect_pod(void *arg, const char *ns, const char *name)
{
    struct applied_count *count = arg;
    struct str deployment;

    (void)ns;
    if (flips_deployment_of(name, &deployment) && str_is(deployment, count->deployment))
        (void)json_add(count->names, json_new_cstr(name));
}

/* How many pods of @deployment run @generation or a later one, and what one says against it. */
static size_t count_applied(struct cache *cache, const char *ns, const char *deployment,
                            int64_t generation, struct routing_view *view)
{
    AUTO(json_free) struct json *names = json_new_array();
    struct applied_count count = {cache, deployment, generation, names};
    size_t n = 0;

    cache_each_name(cache, &KIND_DWM, ns, collect_pod, &count);
    JSON_FOREACH (name, names) {
        AUTO(json_free) struct json *said = cache_get(cache, &KIND_DWM, ns, json_cstr(name));
        const char *refused = said ? object_annotation(said, FLIP_ERROR) : NULL;

        if (!said || generation_of(said) < generation)
            continue;
        if (refused)
            (void)snprintf(view->refused, sizeof(view->refused), "%s", refused);
        else
            n++;
    }
    return n;
}

struct routing_view flips_view(struct cache *cache, const struct object_set *set)
{
    static const char suffix[] = "-routing";
    struct routing_view view = {0};

    for (size_t i = 0; i < set->n; i++) {
        const struct json *map = set->at[i].object;
        AUTO(mem_free) char *deployment = NULL;
        const struct planned *component;
        const char *mode;
        size_t n_pods, n_applied;

        if (set->at[i].kind != &KIND_CONFIG_MAP || !object_annotation(map, PLAN_ROUTING_GENERATION))
            continue;
        deployment = xstrndup(object_name(map), strlen(object_name(map)) - (sizeof(suffix) - 1));
        component = object_set_find(set, &KIND_DCD, deployment);
        n_pods = component ? (size_t)service_replicas(json_get(component->object, "spec")) : 0;
        n_applied =
            count_applied(cache, object_namespace(map), deployment, generation_of(map), &view);
        mode = json_get_cstr(json_get(map, "data"), PLAN_ROUTING_MODE);
        view.mode = mode ? mode : "round-robin";
        view.generation = MAX(view.generation, generation_of(map));
        view.n_pods += n_pods;
        view.n_applied += MIN(n_applied, n_pods);
    }
    return view;
}
