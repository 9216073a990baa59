/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "operator/api/graph.h"
#include "operator/plan/merge.h"
#include "operator/plan/names.h"
#include "operator/plan/object.h"
#include "operator/plan/plan.h"
#include "operator/plan/restart.h"
#include "operator/plan/routing.h"

static bool is_given(const char *s)
{
    return s && s[0];
}

bool plan_uses_kubernetes_discovery(const struct plan_config *config,
                                    const struct json *annotations)
{
    const char *backend = json_get_cstr(annotations, GRAPH_LABEL_DISCOVERY);

    if (!is_given(backend))
        backend = config->discovery_backend;
    return !is_given(backend) || strcmp(backend, "etcd") != 0;
}

static void plan_pvcs(struct object_set *out, const struct json *dgd)
{
    JSON_FOREACH (pvc, graph_pvcs(dgd)) {
        const char *name = json_get_cstr(pvc, "name");
        const char *mode = json_get_cstr(pvc, "volumeAccessMode");
        struct json *claim, *spec, *requests;

        if (!graph_pvc_is_created(pvc) || !is_given(name) || !is_given(mode))
            continue;
        claim = object_set_add(out, &KIND_PVC, object_new(&KIND_PVC, object_namespace(dgd), name));
        out->at[out->n - 1].create_only = true;
        object_put_owner(claim, &KIND_DGD, dgd);
        spec = json_set(claim, "spec", json_new_object());
        json_add(json_need_array(spec, "accessModes"), json_new_cstr(mode));
        requests = json_need_object(json_need_object(spec, "resources"), "requests");
        json_set(requests, "storage", json_dup(json_get(pvc, "size")));
        json_set(spec, "storageClassName", json_dup(json_get(pvc, "storageClass")));
    }
}

const char *graph_missing_pvc(const struct json *dgd, const struct json *claims)
{
    JSON_FOREACH (pvc, graph_pvcs(dgd)) {
        const char *name = json_get_cstr(pvc, "name");

        if (is_given(name) && !graph_pvc_is_created(pvc) && !json_get(claims, name))
            return name;
    }
    return NULL;
}

/* Its owner after creation is whoever scales, so that an autoscaler's decision is never undone. */
static void plan_adapter(struct object_set *out, const struct json *dgd, const struct json *service)
{
    const char *key = json_key(service);
    AUTO(mem_free) char *name = graph_child_name(object_name(dgd), key);
    struct json *adapter, *spec, *ref;

    if (!service_has_adapter(service))
        return;
    adapter =
        object_set_add(out, &KIND_DGDSA, object_new(&KIND_DGDSA, object_namespace(dgd), name));
    out->at[out->n - 1].create_only = true;
    object_put_label(adapter, GRAPH_LABEL_COMPONENT, key);
    object_put_label(adapter, GRAPH_LABEL_GRAPH, object_name(dgd));
    object_put_owner(adapter, &KIND_DGD, dgd);
    spec = json_set(adapter, "spec", json_new_object());
    json_set_i64(spec, "replicas", service_replicas(service));
    ref = json_set(spec, "dgdRef", json_new_object());
    json_set_cstr(ref, "name", object_name(dgd));
    json_set_cstr(ref, "serviceName", key);
}

static struct json *add_rbac_object(struct object_set *out, const struct kube_kind *kind,
                                    const char *ns, const char *name, const char *account)
{
    struct json *object = object_set_add(out, kind, object_new(kind, ns, name));

    object_put_label(object, "app.kubernetes.io/component", "rbac");
    object_put_label(object, "app.kubernetes.io/managed-by", "dynamo-operator");
    object_put_label(object, "app.kubernetes.io/name", account);
    return object;
}

static void put_binding(struct json *binding, const char *role_kind, const char *role,
                        const char *account)
{
    struct json *ref = json_set(binding, "roleRef", json_new_object());
    struct json *subject = json_add(json_need_array(binding, "subjects"), json_new_object());

    json_set_cstr(ref, "apiGroup", "rbac.authorization.k8s.io");
    json_set_cstr(ref, "kind", role_kind);
    json_set_cstr(ref, "name", role);
    json_set_cstr(subject, "kind", "ServiceAccount");
    json_set_cstr(subject, "name", account);
    json_set_cstr(subject, "namespace", object_namespace(binding));
}

/* What pods must see to find each other, and to say where they are. */
static const char discovery_rules[] =
    "[{\"apiGroups\":[\"\"],\"resources\":[\"endpoints\"],\"verbs\":[\"get\",\"list\",\"watch\"]},"
    "{\"apiGroups\":[\"discovery.k8s.io\"],\"resources\":[\"endpointslices\"],"
    "\"verbs\":[\"get\",\"list\",\"watch\"]},"
    "{\"apiGroups\":[\"nvidia.com\"],\"resources\":[\"dynamoworkermetadatas\"],"
    "\"verbs\":[\"create\",\"get\",\"list\",\"watch\",\"update\",\"patch\",\"delete\"]}]";

/* A live Frontend watches its own ConfigMap and no other. */
static void add_routing_rule(struct json *rules, const struct plan_config *config,
                             const struct json *dgd)
{
    AUTO(json_free) struct json *names = json_new_array();

    JSON_FOREACH (service, graph_services(dgd)) {
        AUTO(mem_free) char *name = graph_routing_name(object_name(dgd), json_key(service));

        if (plan_is_live_frontend(config, service))
            json_add(names, json_new_cstr(name));
    }
    if (json_len(names) == 0)
        return;
    json_add(rules, json_constant("{\"apiGroups\":[\"\"],\"resources\":[\"configmaps\"],"
                                  "\"verbs\":[\"get\",\"list\",\"watch\"]}"));
    json_set(json_at(rules, json_len(rules) - 1), "resourceNames", TAKE(names));
}

static void plan_discovery(struct object_set *out, const struct plan_config *config,
                           const struct json *dgd)
{
    const char *ns = object_namespace(dgd);
    AUTO(mem_free) char *account = xasprintf("%s" DISCOVERY_ACCOUNT_SUFFIX, object_name(dgd));
    AUTO(mem_free) char *role_name = xasprintf("%s-role", account);
    AUTO(mem_free) char *binding_name = xasprintf("%s-binding", account);
    struct json *object;

    if (!plan_uses_kubernetes_discovery(config, json_path(dgd, "metadata", "annotations", NULL)))
        return;

    object = add_rbac_object(out, &KIND_SERVICE_ACCOUNT, ns, account, account);
    object_put_owner(object, &KIND_DGD, dgd);

    object = add_rbac_object(out, &KIND_ROLE, ns, role_name, account);
    object_put_owner(object, &KIND_DGD, dgd);
    add_routing_rule(json_set(object, "rules", json_constant(discovery_rules)), config, dgd);

    object = add_rbac_object(out, &KIND_ROLE_BINDING, ns, binding_name, account);
    object_put_owner(object, &KIND_DGD, dgd);
    put_binding(object, "Role", role_name, account);
}

/* Shared by all graphs of the namespace and therefore owned by none. */
static void plan_planner_account(struct object_set *out, const struct plan_config *config,
                                 const struct json *dgd)
{
    const char *ns = object_namespace(dgd);
    bool has_planner = false;
    struct json *binding;

    JSON_FOREACH (service, graph_services(dgd))
        has_planner |= strcmp(service_type(service), "planner") == 0;
    if (!has_planner || !is_given(config->planner_cluster_role))
        return;
    add_rbac_object(out, &KIND_SERVICE_ACCOUNT, ns, PLANNER_ACCOUNT, PLANNER_ACCOUNT);
    out->at[out->n - 1].create_only = true;
    binding =
        add_rbac_object(out, &KIND_ROLE_BINDING, ns, PLANNER_ACCOUNT "-binding", PLANNER_ACCOUNT);
    out->at[out->n - 1].create_only = true;
    put_binding(binding, "ClusterRole", config->planner_cluster_role, PLANNER_ACCOUNT);
}

/* spec.ingress of a Frontend that says nothing about it, from the operator's configuration. */
static struct json *default_ingress(const struct plan_config *config, const struct json *dgd)
{
    struct json *ingress = json_new_object();

    json_set_cstr(ingress, "host", object_name(dgd));
    if (!is_given(config->ingress_class))
        return ingress;
    json_set_bool(ingress, "enabled", true);
    json_set_cstr(ingress, "ingressControllerClassName", config->ingress_class);
    if (is_given(config->ingress_host_suffix))
        json_set_cstr(ingress, "hostSuffix", config->ingress_host_suffix);
    if (is_given(config->ingress_tls_secret))
        json_set_cstr(json_need_object(ingress, "tls"), "secretName", config->ingress_tls_secret);
    return ingress;
}

/* Those of the graph's annotations that steer its components. */
static void inherit_annotations(struct json *spec, const struct json *dgd)
{
    static const char *const keys[] = {GRAPH_LABEL_DISCOVERY, ANNOTATION_ENABLE_METRICS};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (object_annotation(dgd, keys[i]))
            json_set_cstr(json_need_object(spec, "annotations"), keys[i],
                          object_annotation(dgd, keys[i]));
    }
}

static void put_identity(struct json *labels, const struct json *dgd, const char *key,
                         const char *dynamo_namespace)
{
    json_set_cstr(labels, GRAPH_LABEL_COMPONENT, key);
    json_set_cstr(labels, GRAPH_LABEL_GRAPH, object_name(dgd));
    json_set_cstr(labels, GRAPH_LABEL_NAMESPACE, dynamo_namespace);
}

static struct json *component_spec(const struct plan_config *config, const struct json *dgd,
                                   const struct json *service)
{
    const char *key = json_key(service);
    const char *framework = json_get_cstr(json_get(dgd, "spec"), "backendFramework");
    const struct json *graph_env = json_path(dgd, "spec", "envs", NULL);
    AUTO(mem_free)
    char *ns = graph_dynamo_namespace(service, object_namespace(dgd), object_name(dgd));
    struct json *spec = json_is_object(service) ? compact_copy(service) : json_new_object();
    AUTO(json_free) struct json *env = json_new_array();

    if (is_given(framework))
        json_set_cstr(spec, "backendFramework", framework);
    json_set_cstr(spec, "serviceName", key);
    json_set_cstr(spec, "dynamoNamespace", ns);
    put_identity(json_need_object(spec, "labels"), dgd, key, ns);
    inherit_annotations(spec, dgd);

    env_put_all(env, graph_env);
    env_put_all(env, json_get(service, "envs"));
    if (json_len(env) > 0)
        json_set(spec, "envs", TAKE(env));
    if (service_is_frontend(service) && !json_is_object(json_get(service, "ingress")))
        json_set(spec, "ingress", default_ingress(config, dgd));
    if (strcmp(service_type(service), "planner") == 0)
        json_set_cstr(json_need_object(spec, "extraPodSpec"), "serviceAccountName",
                      PLANNER_ACCOUNT);
    return spec;
}

static struct json *plan_component(struct object_set *out, const struct plan_config *config,
                                   const struct plan_inputs *inputs, const struct json *dgd,
                                   const struct json *service)
{
    const char *key = json_key(service);
    AUTO(mem_free) char *name = graph_child_name(object_name(dgd), key);
    AUTO(mem_free) char *routing = graph_routing_name(object_name(dgd), key);
    struct json *spec = component_spec(config, dgd, service);
    struct json *dcd = object_new(&KIND_DCD, object_namespace(dgd), name);

    if (plan_is_live_frontend(config, spec))
        object_set_add(out, &KIND_CONFIG_MAP,
                       routing_config_map(dgd, key, spec, json_get(inputs->routing, routing)));
    put_identity(json_need_object(json_get(dcd, "metadata"), "labels"), dgd, key,
                 json_get_cstr(spec, "dynamoNamespace"));
    object_put_owner(dcd, &KIND_DGD, dgd);
    json_set(dcd, "spec", spec);
    return object_set_add(out, &KIND_DCD, dcd);
}

static void put_restart_mark(struct json *dcd, const struct json *marks)
{
    struct json *spec = json_get(dcd, "spec");
    const char *mark = json_get_cstr(marks, json_get_cstr(spec, "serviceName"));

    if (mark)
        json_set_cstr(json_need_object(spec, "annotations"), ANNOTATION_RESTART, mark);
}

struct object_set *graph_plan(const struct plan_config *config, const struct plan_inputs *inputs,
                              const struct json *dgd)
{
    struct object_set *out = object_set_new();
    AUTO(json_free) struct json *marks = restart_marks(dgd, inputs->components);

    plan_pvcs(out, dgd);
    JSON_FOREACH (service, graph_services(dgd))
        plan_adapter(out, dgd, service);
    plan_discovery(out, config, dgd);
    plan_planner_account(out, config, dgd);

    JSON_FOREACH (service, graph_services(dgd)) {
        if (service_nodes(service) > 1) {
            out->blocked = xstrdup("failed to reconcile Dynamo components deployments: "
                                   "no multinode orchestrator available");
            return out;
        }
    }
    JSON_FOREACH (service, graph_services(dgd)) {
        if (strcmp(service_type(service), "epp") != 0) {
            put_restart_mark(plan_component(out, config, inputs, dgd, service), marks);
        } else if (!out->blocked) {
            out->blocked = xasprintf("failed to reconcile EPP resources: spec.services[%s]: "
                                     "componentType epp is not supported by this operator",
                                     json_key(service));
        }
    }
    return out;
}
