/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DynamoComponentDeployment: one service of a graph, or one that a user made by itself. Its
 * Deployment, Services and Ingress.
 */
#include "operator/reconcile/reconcile.h"

#include <errno.h>
#include <string.h>

#include "lib/net/loop.h"
#include "operator/api/check.h"
#include "operator/api/graph.h"
#include "operator/ctrl/stamp.h"
#include "operator/plan/status.h"
#include "operator/reconcile/apply.h"

static const struct kube_kind *const access[] = {&KIND_SERVICE, &KIND_INGRESS};
static const struct kube_kind *const pruned[] = {&KIND_INGRESS, &KIND_SERVICE, &KIND_DEPLOYMENT};

/* Why pods do not run: the first of those with a reason (see cache.h), or NULL. Owned. */
static char *waiting_reason(struct cache *cache, const struct json *deployment)
{
    AUTO(json_free)
    struct json *pods = cache_get_all(cache, &KIND_POD, object_namespace(deployment));
    const struct json *first = NULL;

    JSON_FOREACH (pod, pods) {
        const char *selector = object_label(pod, GRAPH_LABEL_SELECTOR);

        if (selector && strcmp(selector, object_name(deployment)) == 0 &&
            (!first || strcmp(object_name(pod), object_name(first)) < 0))
            first = pod;
    }
    if (!first)
        return NULL;
    return xasprintf("pod %s: %s", object_name(first), json_get_cstr(first, "waiting"));
}

/*
 * A Deployment that no controller has looked at yet says nothing about its component; the first
 * status waits for it. That spares one write per component, and it comes within milliseconds.
 */
static bool is_too_early(const struct json *dcd, const struct component_view *view)
{
    int64_t observed;

    return !view->error && !view->invalid && !json_get(dcd, "status") && view->deployment &&
           !json_get_i64(json_get(view->deployment, "status"), "observedGeneration", &observed);
}

static void tell_failure(const struct apply *a, const struct component_view *view)
{
    const char *text = view->invalid ? view->invalid : view->error;

    if (text)
        recorder_tell(a->rc->recorder, a->kind, a->owner, true,
                      view->invalid ? "ValidationFailed" : "ReconcileError", text);
}

static int report(struct apply *a, struct component_view *view, struct err *e)
{
    AUTO(json_free)
    struct json *deployment = cache_get(a->rc->cache, &KIND_DEPLOYMENT, object_namespace(a->owner),
                                        object_name(a->owner));
    AUTO(mem_free) char *waiting = NULL;
    char now[STAMP_SIZE];
    size_t before = a->n_written;
    int r;

    stamp_format(clock_wall_ms(), now);
    view->now = now;
    view->deployment = deployment;
    if (is_too_early(a->owner, view))
        return 0;
    if (deployment && !deployment_is_ready(deployment))
        waiting = waiting_reason(a->rc->cache, deployment);
    view->waiting = waiting;
    r = apply_status(a, component_status(a->owner, view), e);
    if (a->n_written > before)
        tell_failure(a, view);
    return r;
}

static int report_invalid(struct apply *a, const struct problems *problems, struct err *e)
{
    AUTO(mem_free) char *text = problems_text(problems);
    struct component_view view = {.invalid = text};

    return report(a, &view, e);
}

/* {"secret": ["registry", ...]} of the namespace. */
static struct json *pull_secrets(struct cache *cache, const char *ns)
{
    AUTO(json_free) struct json *secrets = cache_get_all(cache, &KIND_SECRET, ns);
    struct json *out = json_new_object();

    JSON_FOREACH (secret, secrets)
        (void)json_set(out, json_key(secret), json_take(secret, "registries"));
    return out;
}

/* First by name of the accounts that the cluster's owner provides for components, or NULL. Owned. */
static char *component_account(struct cache *cache, const char *ns)
{
    AUTO(json_free) struct json *accounts = cache_get_all(cache, &KIND_SERVICE_ACCOUNT, ns);
    const char *first = NULL;

    JSON_FOREACH (account, accounts) {
        const char *label = object_label(account, "nvidia.com/dynamo-component-pod");

        if (label && strcmp(label, "true") == 0 && (!first || strcmp(json_key(account), first) < 0))
            first = json_key(account);
    }
    return first ? xstrdup(first) : NULL;
}

static bool serves(const struct json *service, const char *model)
{
    const char *its = service_model(service);

    return its && strcmp(its, model) == 0;
}

/*
 * The Service of a model belongs to the first component by name that serves it, the same in every
 * run: the others leave it to that one until it has had its turn.
 */
static bool leaves_model_service(struct cache *cache, const struct json *dcd)
{
    const char *ns = object_namespace(dcd), *model = service_model(json_get(dcd, "spec"));
    const char *graph = json_get_cstr(object_controller(dcd), "name");
    AUTO(json_free)
    struct json *dgd = model && graph ? cache_get(cache, &KIND_DGD, ns, graph) : NULL;
    AUTO(mem_free) char *first = NULL;
    AUTO(json_free) struct json *other = NULL;

    JSON_FOREACH (service, graph_services(dgd)) {
        AUTO(mem_free) char *name = graph_child_name(graph, json_key(service));

        if (serves(service, model) && strcmp(name, object_name(dcd)) < 0 &&
            (!first || strcmp(name, first) < 0)) {
            free(first);
            first = TAKE(name);
        }
    }
    other = first ? cache_get(cache, &KIND_DCD, ns, first) : NULL;
    return first && !json_get(other, "status");
}

static bool has_deployment(const struct apply *a)
{
    AUTO(json_free)
    struct json *owned = cache_get_owned(a->rc->cache, &KIND_DEPLOYMENT, object_uid(a->owner));

    return json_len(owned) > 0;
}

/* The way to pods without its pods: what leads to a refused Deployment goes again. */
static int withdraw_access(struct apply *a, int r, struct err *e)
{
    struct err other;

    if (r < 0 && !has_deployment(a) && apply_withdraw(a, access, ARRAY_LEN(access), &other) < 0)
        return err_set(e, r, "%s; %s", e->text, other.text);
    return r;
}

/*
 * A component whose pods were refused gets nothing that would lead to them. Of a new one that is not
 * known, but not expected either: all goes out at once.
 */
static int apply_workload(struct apply *a, const struct object_set *set, struct err *e)
{
    static const struct kube_kind *const pods[] = {&KIND_DEPLOYMENT};
    static const struct kube_kind *const all[] = {&KIND_DEPLOYMENT, &KIND_SERVICE, &KIND_INGRESS};
    int r;

    if (!json_get(a->owner, "status") && !has_deployment(a))
        return withdraw_access(a, apply_wave(a, set, all, ARRAY_LEN(all), e), e);
    r = apply_wave(a, set, pods, ARRAY_LEN(pods), e);
    return r == 0 ? apply_wave(a, set, access, ARRAY_LEN(access), e) : r;
}

static int apply_component(struct apply *a, const struct object_set *set, struct err *e)
{
    int r = apply_workload(a, set, e);

    if (r == 0 && set->blocked)
        return err_set(e, -ENOTSUP, "%s", set->blocked);
    return r == 0 ? apply_prune(a, set, pruned, ARRAY_LEN(pruned), e) : r;
}

static int reconcile_valid(struct apply *a, const struct pass *pass, struct err *e)
{
    AUTO(json_free) struct json *secrets = pull_secrets(a->rc->cache, pass->ns);
    AUTO(mem_free) char *account = component_account(a->rc->cache, pass->ns);
    const struct plan_inputs inputs = {.pull_secrets = secrets,
                                       .component_account = account,
                                       .leaves_model_service =
                                           leaves_model_service(a->rc->cache, a->owner)};
    AUTO(object_set_free) struct object_set *set = component_plan(a->rc->plan, &inputs, a->owner);
    struct component_view view = {.want_replicas = service_replicas(json_get(a->owner, "spec"))};
    struct err apply_error, status_error;
    int r, r_status;

    r = apply_component(a, set, &apply_error);
    if (r == CONTROLLER_AGAIN)
        return r;
    view.error = r < 0 ? apply_error.text : NULL;
    r_status = report(a, &view, &status_error);
    if (r < 0)
        return err_set(e, r, "%s", apply_error.text);
    return r_status < 0 ? err_set(e, r_status, "%s", status_error.text) : 0;
}

int component_reconcile(const struct reconciler *rc, const struct pass *pass, struct err *e)
{
    AUTO(json_free) struct json *dcd = cache_get(rc->cache, &KIND_DCD, pass->ns, pass->name);
    AUTO(problems_done) struct problems problems = PROBLEMS_NULL;
    struct apply a = {.rc = rc, .kind = &KIND_DCD, .owner = dcd};

    if (!dcd)
        return 0;
    if (object_is_deleted(dcd))
        return apply_release(&a, e);
    check_component(dcd, &problems);
    if (problems.n)
        return report_invalid(&a, &problems, e);
    return reconcile_valid(&a, pass, e);
}
