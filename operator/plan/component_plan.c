/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "operator/api/graph.h"
#include "operator/plan/names.h"
#include "operator/plan/object.h"
#include "operator/plan/plan.h"
#include "operator/plan/pod.h"
#include "operator/plan/stock_engine.h"

/* Metadata that Deployment, Service and Ingress of a component share. */
static struct json *component_object(const struct component *c, const struct kube_kind *kind)
{
    struct json *object = object_new(kind, c->ns, c->name);

    object_put_owner(object, &KIND_DCD, c->dcd);
    return object;
}

static void put_metadata(const struct component *c, struct json *object)
{
    char hash[GRAPH_MODEL_HASH_SIZE];

    object_add_labels(object, json_get(c->spec, "labels"));
    object_put_label(object, GRAPH_LABEL_COMPONENT, c->service);
    object_put_label(object, GRAPH_LABEL_NAMESPACE, c->dynamo_namespace);
    object_put_label(object, GRAPH_LABEL_GRAPH, c->graph);
    object_add_annotations(object, json_get(c->spec, "annotations"));
    object_add_annotations(object, json_path(c->spec, "extraPodMetadata", "annotations", NULL));
    if (c->model) {
        graph_model_hash(c->model, hash);
        object_put_label(object, GRAPH_LABEL_MODEL_HASH, hash);
        object_put_annotation(object, ANNOTATION_BASE_MODEL, c->model);
    }
}

/* --- Deployment ------------------------------------------------------------------------------ */

/* A number, or a percentage as text. */
static struct json *int_or_percent(const char *text)
{
    int64_t n;

    return str_parse_i64(str_from(text), &n) ? json_new_i64(n) : json_new_cstr(text);
}

static struct json *strategy_of(const struct component *c)
{
    const struct json *annotations = json_get(c->spec, "annotations");
    const char *type = json_get_cstr(annotations, ANNOTATION_STRATEGY);
    const char *surge = json_get_cstr(annotations, ANNOTATION_MAX_SURGE);
    const char *unavailable = json_get_cstr(annotations, ANNOTATION_MAX_UNAVAILABLE);
    struct json *strategy = json_new_object();
    struct json *rolling;

    if (type && strcmp(type, "Recreate") == 0) {
        json_set_cstr(strategy, "type", "Recreate");
        return strategy;
    }
    json_set_cstr(strategy, "type", "RollingUpdate");
    rolling = json_need_object(strategy, "rollingUpdate");
    json_set(rolling, "maxSurge", int_or_percent(surge ? surge : "25%"));
    json_set(rolling, "maxUnavailable", int_or_percent(unavailable ? unavailable : "25%"));
    return strategy;
}

static void add_deployment(struct object_set *out, const struct component *c, struct json *template)
{
    struct json *deployment =
        object_set_add(out, &KIND_DEPLOYMENT, component_object(c, &KIND_DEPLOYMENT));
    struct json *spec;

    put_metadata(c, deployment);
    spec = json_set(deployment, "spec", json_new_object());
    json_set_i64(spec, "replicas", service_replicas(c->spec));
    json_set_cstr(json_need_object(json_need_object(spec, "selector"), "matchLabels"),
                  GRAPH_LABEL_SELECTOR, c->name);
    json_set(spec, "strategy", strategy_of(c));
    json_set(spec, "template", template);
}

/* --- Services -------------------------------------------------------------------------------- */

static int64_t service_port(const struct component *c, const char **ret_name)
{
    bool frontend = service_is_frontend(c->spec);
    struct stock_engine engine;

    *ret_name = "http";
    if (stock_engine_detect(&engine, c->spec))
        return engine.port;
    *ret_name = frontend ? "http" : "system";
    return frontend ? 8000 : 9090;
}

static struct json *add_port(struct json *spec, const char *name, int64_t number)
{
    struct json *port = json_add(json_need_array(spec, "ports"), json_new_object());

    json_set_cstr(port, "name", name);
    json_set_i64(port, "port", number);
    json_set_cstr(port, "protocol", "TCP");
    return port;
}

/*
 * How frontends find an engine without the Dynamo runtime. Not by the labels of Dynamo's discovery:
 * who looks there waits for records that such a pod does not write.
 */
static void put_engine_labels(struct json *service, const struct stock_engine *engine)
{
    const char *const labels[][2] = {{ENGINE_LABEL, engine->kind},
                                     {ENGINE_LABEL_EVENTS_PORT, engine->events_port},
                                     {ENGINE_LABEL_REPLAY_PORT, engine->replay_port},
                                     {ENGINE_LABEL_BLOCK_SIZE, engine->block_size}};

    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (labels[i][1][0])
            object_put_label(service, labels[i][0], labels[i][1]);
}

/* Its labels are the discovery contract: they pass on to the EndpointSlices that pods watch. */
static void add_service(struct object_set *out, const struct component *c)
{
    struct json *service = object_set_add(out, &KIND_SERVICE, component_object(c, &KIND_SERVICE));
    const char *type = service_type(c->spec), *port_name;
    int64_t port = service_port(c, &port_name);
    struct json *spec, *selector;
    struct stock_engine engine;

    put_metadata(c, service);
    if (stock_engine_detect(&engine, c->spec)) {
        put_engine_labels(service, &engine);
    } else if (c->kubernetes_discovery) {
        object_put_label(service, GRAPH_LABEL_DISCOVERY, "kubernetes");
        object_put_label(service, GRAPH_LABEL_DISCOVERABLE, "true");
    }
    spec = json_set(service, "spec", json_new_object());
    json_set_cstr(spec, "type", "ClusterIP");
    selector = json_need_object(spec, "selector");
    json_set_cstr(selector, GRAPH_LABEL_COMPONENT, c->service);
    if (type[0])
        json_set_cstr(selector, GRAPH_LABEL_TYPE, type);
    json_set_cstr(selector, GRAPH_LABEL_NAMESPACE, c->dynamo_namespace);
    json_set_cstr(add_port(spec, port_name, port), "targetPort", port_name);
}

/* Shared by every component that serves the model, so that it is made once and left alone. */
static void add_model_service(struct object_set *out, const struct component *c)
{
    char hash[GRAPH_MODEL_HASH_SIZE];
    AUTO(mem_free) char *name = NULL;
    struct json *service, *spec;

    if (!c->model)
        return;
    graph_model_hash(c->model, hash);
    name = xasprintf("dynamo-model-%s", hash);
    service = object_set_add(out, &KIND_SERVICE, object_new(&KIND_SERVICE, c->ns, name));
    out->at[out->n - 1].create_only = true;
    object_put_label(service, GRAPH_LABEL_MODEL_HASH, hash);
    object_put_label(service, "nvidia.com/managed-by", "dynamo-operator");
    object_put_annotation(service, ANNOTATION_BASE_MODEL, c->model);
    object_put_owner(service, &KIND_DCD, c->dcd);
    spec = json_set(service, "spec", json_new_object());
    json_set_cstr(spec, "type", "ClusterIP");
    json_set_cstr(spec, "clusterIP", "None");
    json_set_cstr(json_need_object(spec, "selector"), GRAPH_LABEL_MODEL_HASH, hash);
    json_set_i64(add_port(spec, "system", 9090), "targetPort", 9090);
}

/* --- Ingress --------------------------------------------------------------------------------- */

static char *ingress_host(const struct component *c, const struct json *ingress)
{
    const char *host = json_get_cstr(ingress, "host");
    const char *prefix = json_get_cstr(ingress, "hostPrefix");
    const char *suffix = json_get_cstr(ingress, "hostSuffix");

    if (!suffix || !suffix[0])
        suffix = c->config->ingress_host_suffix;
    if (!suffix || !suffix[0])
        suffix = "local";
    return xasprintf("%s%s.%s", prefix ? prefix : "", host ? host : "", suffix);
}

static void add_ingress_rule(const struct component *c, struct json *spec, const char *host)
{
    struct json *rule = json_add(json_need_array(spec, "rules"), json_new_object());
    struct json *path =
        json_add(json_need_array(json_need_object(rule, "http"), "paths"), json_new_object());
    struct json *backend = json_need_object(json_need_object(path, "backend"), "service");
    const char *port_name;

    json_set_cstr(rule, "host", host);
    json_set_cstr(path, "path", "/");
    json_set_cstr(path, "pathType", "Prefix");
    json_set_cstr(backend, "name", c->name);
    json_set_i64(json_need_object(backend, "port"), "number", service_port(c, &port_name));
}

static void add_ingress(struct object_set *out, const struct component *c)
{
    const struct json *wanted = json_get(c->spec, "ingress");
    const char *class = json_get_cstr(wanted, "ingressControllerClassName");
    const char *secret = json_get_cstr(json_get(wanted, "tls"), "secretName");
    AUTO(mem_free) char *host = ingress_host(c, wanted);
    bool enabled = false, istio = false;
    struct json *ingress, *spec, *tls;

    (void)json_get_bool(wanted, "enabled", &enabled);
    (void)json_get_bool(wanted, "useVirtualService", &istio);
    if (!enabled || istio || !class || !class[0])
        return;
    ingress = object_set_add(out, &KIND_INGRESS, component_object(c, &KIND_INGRESS));
    object_add_labels(ingress, json_get(wanted, "labels"));
    object_add_annotations(ingress, json_get(wanted, "annotations"));
    spec = json_set(ingress, "spec", json_new_object());
    json_set_cstr(spec, "ingressClassName", class);
    add_ingress_rule(c, spec, host);
    if (secret && secret[0]) {
        tls = json_add(json_need_array(spec, "tls"), json_new_object());
        json_add(json_need_array(tls, "hosts"), json_new_cstr(host));
        json_set_cstr(tls, "secretName", secret);
    }
}

struct object_set *component_plan(const struct plan_config *config,
                                  const struct plan_inputs *inputs, const struct json *dcd)
{
    struct object_set *out = object_set_new();
    AUTO(component_done) struct component c;
    struct json *template = NULL;
    struct err e;

    component_init(&c, config, inputs, dcd);
    if (service_nodes(c.spec) > 1) {
        out->blocked = xstrdup("failed to reconcile the resources: "
                               "no multinode orchestrator available");
        return out;
    }
    if (pod_template(&template, &c, &e) < 0) {
        out->blocked = xasprintf("failed to reconcile the resources: failed to create or update "
                                 "the deployment: create or update deployment: failed to generate "
                                 "base pod spec: %s",
                                 e.text);
        return out;
    }
    add_deployment(out, &c, template);
    if (!inputs->leaves_model_service)
        add_model_service(out, &c);
    add_service(out, &c);
    add_ingress(out, &c);
    return out;
}
