/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/sources.h"

#include <string.h>

#include "lib/base/log.h"
#include "operator/api/graph.h"
#include "operator/ctrl/scope.h"
#include "operator/plan/plan.h"
#include "operator/reconcile/flips.h"

static const struct log_target LG = {"dynamo_operator::watch"};

#define OF_A_GRAPH GRAPH_LABEL_GRAPH
#define ACCOUNT_OF_PODS "nvidia.com/dynamo-component-pod=true"
#define OF_OURS "app.kubernetes.io/managed-by=dynamo-operator"

struct source {
    struct sources *owner;
    const struct source_kind *kind;
    struct kube_watch *watch;
    bool down;
};

struct sources {
    struct sources_conf conf;
    struct source *at;
    size_t n, n_down;
    bool told_synced;
};

/* Whose pass an event of this kind asks for, besides that of the controller of the object. */
typedef void (*relate_fn)(struct sources *s, enum kube_change what, const struct json *object,
                          enum cache_news news);

struct source_kind {
    const struct kube_kind *kind;
    const char *labels, *fields;
    relate_fn relate;
    bool cluster_wide_only;
};

/* --- whose business an event is ----------------------------------------------------------------------- */

static void add(struct queue *q, const struct json *object, bool urgent)
{
    queue_add(q, object_namespace(object), object_name(object), urgent);
}

/* A user's change goes before the flood of a first list; an echo of our own write says nothing. */
static void relate_graph(struct sources *s, enum kube_change what, const struct json *object,
                         enum cache_news news)
{
    if (news != CACHE_KNOWN)
        add(s->conf.graphs, object, what == KUBE_MODIFIED && news == CACHE_EDITED);
}

static void relate_component(struct sources *s, enum kube_change what, const struct json *object,
                             enum cache_news news)
{
    if (news != CACHE_KNOWN)
        add(s->conf.components, object, what == KUBE_MODIFIED && news == CACHE_EDITED);
}

static void add_to(void *queue, const char *ns, const char *name)
{
    queue_add(queue, ns, name, false);
}

/* A claim that a graph has been waiting for, or that it uses, need not be its own. */
static void relate_claim(struct sources *s, enum kube_change what, const struct json *object,
                         enum cache_news news)
{
    (void)news;
    if (what != KUBE_MODIFIED)
        cache_each_name(s->conf.cache, &KIND_DGD, object_namespace(object), add_to, s->conf.graphs);
}

static void relate_secret(struct sources *s, enum kube_change what, const struct json *object,
                          enum cache_news news)
{
    (void)what;
    (void)news;
    cache_each_name(s->conf.cache, &KIND_DCD, object_namespace(object), add_to, s->conf.components);
}

/* A model's Service is shared: when its owner goes, any other component may make it anew. */
static void relate_model_service(struct sources *s, enum kube_change what,
                                 const struct json *object, enum cache_news news)
{
    (void)news;
    if (what == KUBE_DELETED)
        cache_each_name(s->conf.cache, &KIND_DCD, object_namespace(object), add_to,
                        s->conf.components);
}

/* In the component path a pod's selector is the name of its component. */
static void relate_pod(struct sources *s, enum kube_change what, const struct json *object,
                       enum cache_news news)
{
    const char *component = object_label(object, GRAPH_LABEL_SELECTOR);

    (void)what;
    (void)news;
    if (component)
        queue_add(s->conf.components, object_namespace(object), component, false);
}

static void add_controller(struct sources *s, const struct json *object)
{
    const struct json *owner = object_controller(object);
    const char *kind = json_get_cstr(owner, "kind"), *name = json_get_cstr(owner, "name");

    if (!kind || !name)
        return;
    if (strcmp(kind, KIND_DGD.kind) == 0)
        queue_add(s->conf.graphs, object_namespace(object), name, false);
    else if (strcmp(kind, KIND_DCD.kind) == 0)
        queue_add(s->conf.components, object_namespace(object), name, false);
}

/* A frontend pod says which routing configuration it runs: the graph's status counts them. */
static void relate_worker_metadata(struct sources *s, enum kube_change what,
                                   const struct json *object, enum cache_news news)
{
    AUTO(json_free) struct json *map = NULL;
    AUTO(mem_free) char *name = NULL;
    struct str deployment;

    (void)what;
    (void)news;
    if (!object_annotation(object, PLAN_ROUTING_GENERATION) ||
        !flips_deployment_of(object_name(object), &deployment))
        return;
    name = xasprintf("%.*s-routing", STR_ARG(deployment));
    map = cache_get(s->conf.cache, &KIND_CONFIG_MAP, object_namespace(object), name);
    if (map)
        add_controller(s, map);
}

/* A marker that goes hands its namespace over. */
static void relate_marker(struct sources *s, enum kube_change what, const struct json *object,
                          enum cache_news news)
{
    (void)news;
    if (what != KUBE_DELETED)
        return;
    cache_each_name(s->conf.cache, &KIND_DGD, object_namespace(object), add_to, s->conf.graphs);
    cache_each_name(s->conf.cache, &KIND_DCD, object_namespace(object), add_to, s->conf.components);
}

static const struct source_kind kinds[] = {
    {.kind = &KIND_DGD, .relate = relate_graph},
    {.kind = &KIND_DCD, .relate = relate_component},
    {.kind = &KIND_DGDSA},
    {.kind = &KIND_DEPLOYMENT, .labels = OF_A_GRAPH},
    {.kind = &KIND_SERVICE, .labels = OF_A_GRAPH},
    {.kind = &KIND_SERVICE,
     .labels = "nvidia.com/managed-by=dynamo-operator",
     .relate = relate_model_service},
    {.kind = &KIND_CONFIG_MAP, .labels = OF_A_GRAPH},
    {.kind = &KIND_INGRESS},
    {.kind = &KIND_SERVICE_ACCOUNT, .labels = OF_OURS},
    {.kind = &KIND_SERVICE_ACCOUNT, .labels = ACCOUNT_OF_PODS},
    {.kind = &KIND_ROLE, .labels = OF_OURS},
    {.kind = &KIND_ROLE_BINDING, .labels = OF_OURS},
    {.kind = &KIND_PVC, .relate = relate_claim},
    {.kind = &KIND_SECRET,
     .fields = "type=kubernetes.io/dockerconfigjson",
     .relate = relate_secret},
    {.kind = &KIND_POD, .labels = OF_A_GRAPH, .relate = relate_pod},
    {.kind = &KIND_DWM, .relate = relate_worker_metadata},
    {.kind = &KIND_LEASE,
     .fields = "metadata.name=" SCOPE_LEASE,
     .relate = relate_marker,
     .cluster_wide_only = true},
};

/* --- events ------------------------------------------------------------------------------------------- */

static void on_change(void *arg, enum kube_change what, const struct json *object, struct str raw)
{
    struct source *source = arg;
    struct sources *s = source->owner;
    const struct source_kind *k = source->kind;
    AUTO(json_free) struct json *last = NULL;
    enum cache_news news = CACHE_EDITED;

    if (what == KUBE_DELETED) {
        /* Of a deletion that a new list has shown only the name is told; whose it was, we know. */
        if (raw.len == 0)
            last = cache_get(s->conf.cache, k->kind, object_namespace(object), object_name(object));
        cache_observe_deleted(s->conf.cache, k->kind, object);
        object = last ? last : object;
    } else {
        news = cache_observe(s->conf.cache, k->kind, object);
    }
    if (k->relate)
        k->relate(s, what, object, news);
    /* Whoever made a write has seen its answer, and told whom it concerns. */
    if (news != CACHE_KNOWN)
        add_controller(s, object);
}

static void on_synced(void *arg)
{
    struct source *source = arg;
    struct sources *s = source->owner;

    cache_observe_synced(s->conf.cache, source->kind->kind);
    if (s->told_synced || !sources_are_synced(s, NULL))
        return;
    s->told_synced = true;
    s->conf.synced(s->conf.arg);
}

/* One connection carries them all, so they break together: the first one speaks for the others. */
static void on_state(void *arg, bool up, const char *why)
{
    struct source *source = arg;
    struct sources *s = source->owner;
    const char *kind = source->kind->kind->kind;

    log_debug(&LG, up ? "watching" : "watch broken, resuming", LOG_STR("kind", kind),
              LOG_STR("why", why));
    if (up == !source->down)
        return;
    source->down = !up;
    if (!up && s->n_down++ == 0)
        log_warn(&LG, "watches broken, resuming", LOG_STR("first", kind), LOG_STR("why", why));
    if (up && --s->n_down == 0)
        log_info(&LG, "watches run again");
}

struct sources *sources_start(const struct sources_conf *conf)
{
    struct sources *s = xcalloc(1, sizeof(*s));

    s->conf = *conf;
    s->at = xcalloc(ARRAY_LEN(kinds), sizeof(*s->at));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct source *source = &s->at[s->n];
        struct kube_watch_spec spec = {.kind = kinds[i].kind,
                                       .ns = conf->ns,
                                       .label_selector = kinds[i].labels,
                                       .field_selector = kinds[i].fields,
                                       .change = on_change,
                                       .synced = on_synced,
                                       .state = on_state,
                                       .arg = source};

        if (kinds[i].cluster_wide_only && conf->ns)
            continue;
        source->owner = s;
        source->kind = &kinds[i];
        source->watch = kube_watch_start(conf->watcher, &spec);
        s->n++;
    }
    return s;
}

struct sources *sources_stop(struct sources *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n; i++)
        (void)kube_watch_stop(s->at[i].watch);
    free(s->at);
    free(s);
    return NULL;
}

bool sources_are_synced(const struct sources *s, struct buf *missing)
{
    bool all = true;

    for (size_t i = 0; i < s->n; i++) {
        if (kube_watch_synced(s->at[i].watch))
            continue;
        all = false;
        if (missing)
            buf_printf(missing, "%s%s", missing->len ? ", " : "", s->at[i].kind->kind->kind);
    }
    return all;
}

void sources_each_kind(const struct sources *s, void (*fn)(void *arg, const struct kube_kind *kind),
                       void *arg)
{
    /* Watches of the same kind stand next to each other in the table. */
    for (size_t i = 0; i < s->n; i++)
        if (i == 0 || s->at[i].kind->kind != s->at[i - 1].kind->kind)
            fn(arg, s->at[i].kind->kind);
}

uint64_t sources_restarts(const struct sources *s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        n += kube_watch_restarts(s->at[i].watch);
    return n;
}
