/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/pod_defaults.h"

#include <string.h>

#include "operator/api/graph.h"
#include "operator/plan/merge.h"
#include "operator/plan/object.h"
#include "operator/plan/routing.h"
#include "operator/plan/stock_engine.h"
#include "operator/plan/words.h"

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

/* A GET; all zero is no probe. Times in seconds. */
struct probe {
    const char *path;
    int delay_s, period_s, timeout_s, failures;
};

struct pod_type {
    const char *command, *args; /* JSON; args may be NULL */
    const char *port_name;      /* NULL: no port */
    int port;
    struct probe liveness, readiness, startup;
    const struct variable *env;
};

static const char shell[] = "[\"/bin/sh\",\"-c\"]";

static const struct pod_type frontend_type = {
    .command = "[\"python3\"]",
    .args = "[\"-m\",\"dynamo.frontend\"]",
    .port_name = "http",
    .port = 8000,
    .liveness = {"/live", 15, 10, 1, 3},
    .readiness = {"/health", 10, 10, 3, 3},
    .env = frontend_env,
};
/* The startup probe gives a model two hours to load. */
static const struct pod_type worker_type = {
    .command = shell,
    .port_name = "system",
    .port = 9090,
    .liveness = {"/live", 0, 5, 4, 1},
    .readiness = {"/health", 0, 10, 4, 3},
    .startup = {"/live", 0, 10, 5, 720},
    .env = worker_env,
};
/* An engine's own server: one port, /health once the model is loaded. Its port is filled in. */
static const struct pod_type stock_type = {
    .command = shell,
    .port_name = "http",
    .liveness = {"/health", 0, 10, 5, 3},
    .readiness = {"/health", 0, 5, 4, 3},
    .startup = {"/health", 0, 10, 5, 720},
    .env = no_env,
};
static const struct pod_type planner_type = {
    .command = shell,
    .port_name = "metrics",
    .port = 9085,
    .env = planner_env,
};
static const struct pod_type other_type = {.command = shell, .env = no_env};

static struct pod_type find_type(const struct json *spec)
{
    struct stock_engine engine;

    if (stock_engine_detect(&engine, spec)) {
        struct pod_type type = stock_type;

        type.port = (int)engine.port;
        return type;
    }
    if (service_is_worker(spec))
        return worker_type;
    if (service_is_frontend(spec))
        return frontend_type;
    return strcmp(service_type(spec), "planner") == 0 ? planner_type : other_type;
}

/* How the kubelet asks: it takes any certificate and has none of its own. */
enum manner { BY_HTTP, BY_HTTPS, BY_CONNECTING };

static bool is_set(const struct json *env, const char *variable, const struct words *w,
                   const char *flag)
{
    const struct json *entry = env_find(env, variable);
    const char *value = json_get_cstr(entry, "value");

    return words_option(w, flag) || (value && value[0]) ||
           json_is_object(json_get(entry, "valueFrom"));
}

/* The reference's operator does not ask whether a frontend serves HTTPS, so that its probes fail. */
static enum manner manner_of(const struct json *spec)
{
    AUTO(json_free) struct json *env = routing_user_env(spec);
    AUTO(words_done) struct words w = {.n = 0};

    words_read(&w, json_path(spec, "extraPodSpec", "mainContainer", NULL));
    if (!service_is_frontend(spec) || !is_set(env, "DYN_TLS_CERT_PATH", &w, "--tls-cert-path"))
        return BY_HTTP;
    return is_set(env, "DYN_TLS_CLIENT_CA_CERT_PATH", &w, "--tls-client-ca-cert-path")
               ? BY_CONNECTING
               : BY_HTTPS;
}

static void put_probe(struct json *container, const char *key, const struct probe *p,
                      const char *port, enum manner manner)
{
    struct json *probe, *handler;

    if (!p->path)
        return;
    probe = json_set(container, key, json_new_object());
    handler = json_need_object(probe, manner == BY_CONNECTING ? "tcpSocket" : "httpGet");
    json_set_cstr(handler, "port", port);
    if (manner != BY_CONNECTING)
        json_set_cstr(handler, "path", p->path);
    if (manner == BY_HTTPS)
        json_set_cstr(handler, "scheme", "HTTPS");
    if (p->delay_s)
        json_set_i64(probe, "initialDelaySeconds", p->delay_s);
    json_set_i64(probe, "periodSeconds", p->period_s);
    json_set_i64(probe, "timeoutSeconds", p->timeout_s);
    json_set_i64(probe, "failureThreshold", p->failures);
}

static void put_port(struct json *container, const struct pod_type *type)
{
    struct json *port = json_add(json_need_array(container, "ports"), json_new_object());

    json_set_cstr(port, "name", type->port_name);
    json_set_i64(port, "containerPort", type->port);
    json_set_cstr(port, "protocol", "TCP");
}

struct json *pod_default_container(const struct json *spec)
{
    const struct pod_type type = find_type(spec);
    enum manner manner = manner_of(spec);
    struct json *container = json_new_object();

    json_set(container, "command", json_constant(type.command));
    if (type.args)
        json_set(container, "args", json_constant(type.args));
    if (type.port_name)
        put_port(container, &type);
    put_probe(container, "livenessProbe", &type.liveness, type.port_name, manner);
    put_probe(container, "readinessProbe", &type.readiness, type.port_name, manner);
    put_probe(container, "startupProbe", &type.startup, type.port_name, manner);
    return container;
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
    const struct pod_type type = find_type(c->spec);
    struct json *env = json_new_array();

    put_given(env, "NATS_SERVER", c->config->nats_address);
    put_given(env, "ETCD_ENDPOINTS", c->config->etcd_address);
    put_given(env, "MODEL_EXPRESS_URL", c->config->model_express_url);
    put_given(env, "PROMETHEUS_ENDPOINT", c->config->prometheus_endpoint);
    env_put_value(env, "DYN_NAMESPACE", c->dynamo_namespace);
    env_put_value(env, "DYN_COMPONENT", service_type(c->spec));
    if (c->graph) {
        env_put_value(env, "DYN_PARENT_DGD_K8S_NAME", c->graph);
        env_put_value(env, "DYN_PARENT_DGD_K8S_NAMESPACE", c->ns);
    }
    put_field(env, "POD_NAME", "metadata.name");
    put_field(env, "POD_NAMESPACE", "metadata.namespace");
    put_field(env, "POD_UID", "metadata.uid");
    if (c->kubernetes_discovery)
        env_put_value(env, "DYN_DISCOVERY_BACKEND", "kubernetes");
    for (const struct variable *v = type.env; v->name; v++)
        env_put_value(env, v->name, v->value);
    return env;
}
