/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/status.h"

#include <stdio.h>
#include <string.h>

#include "operator/api/graph.h"
#include "operator/plan/restart.h"

/* --- conditions ------------------------------------------------------------------------------ */

struct condition {
    const char *type;
    const char *status; /* "True", "False", "Unknown" */
    const char *reason;
    const char *message;
};

static struct json *find_condition(const struct json *status, const char *type)
{
    JSON_FOREACH (condition, json_get(status, "conditions")) {
        const char *t = json_get_cstr(condition, "type");

        if (t && strcmp(t, type) == 0)
            return condition;
    }
    return NULL;
}

struct json *status_condition(const struct json *object, const char *type)
{
    return find_condition(json_get(object, "status"), type);
}

bool status_condition_is(const struct json *object, const char *type, const char *value)
{
    const char *status = json_get_cstr(status_condition(object, type), "status");

    return status && strcmp(status, value) == 0;
}

static void put_condition(struct json *status, const struct json *object, const struct condition *c,
                          const char *now)
{
    struct json *condition = find_condition(status, c->type);
    const char *before = json_get_cstr(condition, "status");

    if (!condition)
        condition = json_add(json_need_array(status, "conditions"), json_new_object());
    if (!before || strcmp(before, c->status) != 0)
        json_set_cstr(condition, "lastTransitionTime", now);
    json_set_cstr(condition, "type", c->type);
    json_set_cstr(condition, "status", c->status);
    json_set_cstr(condition, "reason", c->reason);
    json_set_cstr(condition, "message", c->message);
    json_set_i64(condition, "observedGeneration", object_generation(object));
}

static void remove_condition(struct json *status, const char *type)
{
    struct json *list = json_get(status, "conditions");
    const struct json *condition = find_condition(status, type);
    size_t i = 0;

    JSON_FOREACH (each, list) {
        if (each == condition) {
            (void)json_free(json_take_at(list, i));
            return;
        }
        i++;
    }
}

/* A copy to work on: what others wrote stays. */
static struct json *present_status(const struct json *object)
{
    const struct json *status = json_get(object, "status");

    return json_is_object(status) ? json_dup(status) : json_new_object();
}

/* --- components ------------------------------------------------------------------------------ */

static int64_t count(const struct json *status, const char *key)
{
    int64_t n = 0;

    (void)json_get_i64(status, key, &n);
    return n;
}

bool deployment_is_ready(const struct json *deployment)
{
    const struct json *spec = json_get(deployment, "spec");
    const struct json *status = json_get(deployment, "status");
    int64_t want = service_replicas(spec);
    bool paused = false;

    if (json_get_bool(spec, "paused", &paused) && paused)
        return false;
    if (count(status, "observedGeneration") < object_generation(deployment))
        return false;
    if (want == 0)
        return true;
    return count(status, "updatedReplicas") >= want && count(status, "availableReplicas") >= want &&
           count(status, "replicas") == want &&
           status_condition_is(deployment, "Available", "True");
}

/* status.service, of which the graph shows a copy under status.services. */
static struct json *service_status(const struct json *deployment)
{
    static const char *const counts[] = {"availableReplicas", "readyReplicas", "replicas",
                                         "updatedReplicas"};
    struct json *service = json_new_object();

    json_set_cstr(service, "componentKind", "Deployment");
    json_set_cstr(service, "componentName", object_name(deployment));
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        json_set_i64(service, counts[i], count(json_get(deployment, "status"), counts[i]));
    return service;
}

static void put_readiness(struct json *status, const struct json *dcd,
                          const struct component_view *view)
{
    bool ready = deployment_is_ready(view->deployment) &&
                 service_replicas(json_get(view->deployment, "spec")) == view->want_replicas;
    bool explained = !ready && view->waiting && view->waiting[0];
    AUTO(mem_free)
    char *message = xasprintf("Deployment is %sready%s%s", ready ? "" : "not ",
                              explained ? ": " : "", explained ? view->waiting : "");
    struct condition available = {"Available", ready ? "True" : "False",
                                  ready ? "DeploymentReady" : "DeploymentNotReady", message};
    struct condition component = {"DynamoComponentReady", ready ? "True" : "False",
                                  ready ? "ComponentReady" : "ComponentNotReady",
                                  ready ? "DynamoComponent is ready"
                                        : "DynamoComponent is not ready"};

    put_condition(status, dcd, &available, view->now);
    put_condition(status, dcd, &component, view->now);
    json_set(status, "service", service_status(view->deployment));
    json_set_i64(status, "observedGeneration", object_generation(dcd));
}

struct json *component_status(const struct json *dcd, const struct component_view *view)
{
    struct json *status = present_status(dcd);
    AUTO(mem_free)
    char *invalid = xasprintf("Validation failed: %s", view->invalid ? view->invalid : "");
    AUTO(mem_free)
    char *failed = xasprintf("Failed to reconcile DynamoComponentDeployment: %s",
                             view->error ? view->error : "");
    struct condition valid = {"Valid", "True", "ValidationPassed",
                              "DynamoComponentDeployment spec is valid"};
    struct condition refused = {"Valid", "False", "ValidationFailed", invalid};
    struct condition broken = {"Available", "False", "Reconciling", failed};

    json_need_array(status, "conditions");
    put_condition(status, dcd, view->invalid ? &refused : &valid, view->now);
    if (view->error)
        put_condition(status, dcd, &broken, view->now);
    else if (!view->invalid)
        put_readiness(status, dcd, view);
    return status;
}

/* --- graphs ---------------------------------------------------------------------------------- */

bool component_is_settled(const struct json *dcd)
{
    return status_condition_is(dcd, "Available", "True") &&
           count(json_get(dcd, "status"), "observedGeneration") >= object_generation(dcd);
}

/* Settled, and with the spec that the graph wants. */
static bool component_is_ready(const struct json *dcd, const struct json *want)
{
    return component_is_settled(dcd) &&
           json_contains(json_get(dcd, "spec"), json_get(want, "spec"));
}

/* What the component says beyond "not ready". */
static const char *component_reason(const struct json *dcd)
{
    static const char plain[] = "Deployment is not ready";
    const struct json *available = status_condition(dcd, "Available");
    const char *message = json_get_cstr(available, "message");

    if (!message || status_condition_is(dcd, "Available", "True") || strcmp(message, plain) == 0)
        message = status_condition_is(dcd, "Valid", "False")
                      ? json_get_cstr(status_condition(dcd, "Valid"), "message")
                      : NULL;
    else if (strncmp(message, plain, sizeof(plain) - 1) == 0)
        message += sizeof(plain) - 1 + strlen(": ");
    return message;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(object_name((*(const struct planned *const *)a)->object),
                  object_name((*(const struct planned *const *)b)->object));
}

/* The planned components by name, NULL at the end. */
static const struct planned **components_by_name(const struct object_set *want)
{
    const struct planned **all = xcalloc(want->n + 1, sizeof(*all));
    size_t n = 0;

    for (size_t i = 0; i < want->n; i++) {
        if (want->at[i].kind == &KIND_DCD)
            all[n++] = &want->at[i];
    }
    qsort(all, n, sizeof(*all), by_name);
    return all;
}

/* Collects status.services, and who is not ready for which reason into @missing. */
static void put_services(struct json *status, const struct graph_view *view, struct buf *missing)
{
    AUTO(mem_free) const struct planned **all = components_by_name(view->want);
    AUTO(json_free) struct json *services = json_new_object();

    for (size_t i = 0; all[i]; i++) {
        const char *name = object_name(all[i]->object);
        const char *key = json_get_cstr(json_get(all[i]->object, "spec"), "serviceName");
        const struct json *dcd = json_get(view->components, name);
        const struct json *service = json_path(dcd, "status", "service", NULL);
        const char *reason = component_reason(dcd);

        if (service)
            json_set(services, key, json_dup(service));
        if (component_is_ready(dcd, all[i]->object))
            continue;
        buf_printf(missing, "%s%s: Component deployment not ready - Available condition not true",
                   missing->len ? "; " : "", name);
        if (reason)
            buf_printf(missing, " (%s)", reason);
    }
    json_set(status, "services", json_len(services) ? TAKE(services) : NULL);
}

/* What was last reported stays when nothing is asked for any more. */
static void put_restart(struct json *status, const struct json *dgd, const struct graph_view *view)
{
    struct json *restart = restart_status(dgd, view->components);

    if (restart)
        json_set(status, "restart", restart);
}

static void put_ready(struct json *status, const struct json *dgd, const struct graph_view *view,
                      const char *state, const struct condition *ready)
{
    json_set_cstr(status, "state", state);
    put_condition(status, dgd, ready, view->now);
}

static void put_routing(struct json *status, const struct json *dgd, const struct graph_view *view)
{
    const struct routing_view *r = &view->routing;
    bool all = r->n_applied == r->n_pods;
    AUTO(mem_free)
    char *message = xasprintf("mode %s, generation %lld, applied by %zu of %zu pods%s%s",
                              r->mode ? r->mode : "", (long long)r->generation, r->n_applied,
                              r->n_pods, r->refused[0] ? ": " : "", r->refused);
    const char *unless = r->refused[0] ? "Refused" : "Applying";
    struct condition applied = {"RoutingApplied", all ? "True" : "False", all ? "Applied" : unless,
                                message};

    if (r->mode)
        put_condition(status, dgd, &applied, view->now);
    else
        remove_condition(status, "RoutingApplied");
}

struct json *graph_status(const struct json *dgd, const struct graph_view *view)
{
    struct json *status = present_status(dgd);
    AUTO(buf_done) struct buf text = BUF_NULL, missing = BUF_NULL;
    struct condition ready = {"Ready", "False", "", ""};

    if (view->invalid) {
        buf_printf(&text, "Validation failed: %s", view->invalid);
        ready.reason = "ValidationFailed";
        ready.message = buf_cstr(&text);
        put_ready(status, dgd, view, "failed", &ready);
        return status;
    }
    if (view->want && !view->error) {
        put_services(status, view, &missing);
        put_restart(status, dgd, view);
    }
    if (view->error) {
        ready.reason = "failed_to_reconcile_the_resources";
        ready.message = view->error;
    } else if (missing.len) {
        buf_printf(&text, "Resources not ready: %s", buf_cstr(&missing));
        ready.reason = "some_resources_are_not_ready";
        ready.message = buf_cstr(&text);
    } else {
        ready.status = "True";
        ready.reason = "all_resources_are_ready";
        ready.message = "All resources are ready";
    }
    put_ready(status, dgd, view,
              view->error   ? "failed"
              : missing.len ? "pending"
                            : "successful",
              &ready);
    put_routing(status, dgd, view);
    return status;
}

char *status_apply_failure(const struct kube_kind *kind, const char *text)
{
    if (kind == &KIND_DCD)
        return xasprintf("failed to reconcile Dynamo components deployments: failed to sync the "
                         "DynamoComponentDeployment: %s",
                         text);
    if (kind == &KIND_DEPLOYMENT)
        return xasprintf("failed to reconcile the resources: failed to create or update the "
                         "deployment: create or update deployment: %s",
                         text);
    if (kind == &KIND_SERVICE)
        return xasprintf("failed to create or update the service: %s", text);
    if (kind == &KIND_INGRESS)
        return xasprintf("failed to create or update the ingress: %s", text);
    if (kind == &KIND_PVC)
        return xasprintf("failed to reconcile top-level PVCs: %s", text);
    return xasprintf("failed to reconcile %s: %s", kind->kind, text);
}

char *status_missing_pvc(const char *name)
{
    return xasprintf("failed to reconcile top-level PVCs: PersistentVolumeClaim \"%s\" not found",
                     name);
}
