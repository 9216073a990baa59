/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/pod_defaults.h"

#include <string.h>

#include "operator/api/graph.h"
#include "operator/plan/merge.h"
#include "operator/plan/object.h"

#define PROBE(path, port, timing) \
    "{\"httpGet\":{\"path\":\"" path "\",\"port\":\"" port "\"}," timing "}"
#define TIMES(period, timeout, failures) \
    "\"periodSeconds\":" #period ",\"timeoutSeconds\":" #timeout ",\"failureThreshold\":" #failures
#define PORT(name, number) \
    "\"ports\":[{\"name\":\"" name "\",\"containerPort\":" #number ",\"protocol\":\"TCP\"}]"
#define SHELL "\"command\":[\"/bin/sh\",\"-c\"]"

static const char frontend_container[] =
    "{\"command\":[\"python3\"],\"args\":[\"-m\",\"dynamo.frontend\"]," PORT("http", 8000) ","
    "\"livenessProbe\":" PROBE("/live", "http", "\"initialDelaySeconds\":15," TIMES(10, 1, 3)) ","
    "\"readinessProbe\":" PROBE("/health", "http", "\"initialDelaySeconds\":10," TIMES(10, 3, 3))
    "}";

/* The startup probe gives a model two hours to load. */
static const char worker_container[] =
    "{" SHELL "," PORT("system", 9090) ","
    "\"livenessProbe\":" PROBE("/live", "system", TIMES(5, 4, 1)) ","
    "\"readinessProbe\":" PROBE("/health", "system", TIMES(10, 4, 3)) ","
    "\"startupProbe\":" PROBE("/live", "system", TIMES(10, 5, 720)) "}";

static const char planner_container[] = "{" SHELL "," PORT("metrics", 9085) "}";
static const char other_container[] = "{" SHELL "}";

struct variable {
    const char *name;
    const char *value;
};

static const struct variable frontend_env[] = {
    {"DYNAMO_PORT", "8000"}, {"DYN_HTTP_PORT", "8000"}, {0}};
static const struct variable worker_env[] = {
    {"DYN_SYSTEM_ENABLED", "true"},
    {"DYN_SYSTEM_PORT", "9090"},
    {"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", "[\"generate\"]"},
    {"DYN_HEALTH_CHECK_ENABLED", "false"},
    {0}};
static const struct variable planner_env[] = {{"PLANNER_PROMETHEUS_PORT", "9085"}, {0}};
static const struct variable no_env[] = {{0}};

static const struct pod_type {
    const char *name;
    const char *container;
    const struct variable *env;
} types[] = {
    {"frontend", frontend_container, frontend_env}, {"worker", worker_container, worker_env},
    {"prefill", worker_container, worker_env},      {"decode", worker_container, worker_env},
    {"planner", planner_container, planner_env},
};
static const struct pod_type other_type = {"", other_container, no_env};

static const struct pod_type *find_type(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    }
    return &other_type;
}

struct json *pod_default_container(const char *type)
{
    return json_constant(find_type(type)->container);
}

static void put_given(struct json *env, const char *name, const char *value)
{
    if (value && value[0])
        env_put_value(env, name, value);
}

static void put_field(struct json *env, const char *name, const char *path)
{
    AUTO(json_free) struct json *entry = json_new_object();
    struct json *from = json_need_object(entry, "valueFrom");

    json_set_cstr(entry, "name", name);
    json_set_cstr(json_need_object(from, "fieldRef"), "fieldPath", path);
    env_put(env, entry);
}

struct json *pod_default_env(const struct component *c)
{
    const char *type = service_type(c->spec);
    struct json *env = json_new_array();

    put_given(env, "NATS_SERVER", c->config->nats_address);
    put_given(env, "ETCD_ENDPOINTS", c->config->etcd_address);
    put_given(env, "MODEL_EXPRESS_URL", c->config->model_express_url);
    put_given(env, "PROMETHEUS_ENDPOINT", c->config->prometheus_endpoint);
    env_put_value(env, "DYN_NAMESPACE", c->dynamo_namespace);
    env_put_value(env, "DYN_COMPONENT", type);
    if (c->graph) {
        env_put_value(env, "DYN_PARENT_DGD_K8S_NAME", c->graph);
        env_put_value(env, "DYN_PARENT_DGD_K8S_NAMESPACE", c->ns);
    }
    put_field(env, "POD_NAME", "metadata.name");
    put_field(env, "POD_NAMESPACE", "metadata.namespace");
    put_field(env, "POD_UID", "metadata.uid");
    if (c->kubernetes_discovery)
        env_put_value(env, "DYN_DISCOVERY_BACKEND", "kubernetes");
    for (const struct variable *v = find_type(type)->env; v->name; v++)
        env_put_value(env, v->name, v->value);
    return env;
}
