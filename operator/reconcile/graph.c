/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DynamoGraphDeployment: everything that belongs to the graph as a whole, and one
 * DynamoComponentDeployment per service. What those become is component.c's business.
 */
#include "operator/reconcile/reconcile.h"

#include <errno.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/net/loop.h"
#include "operator/api/check.h"
#include "operator/api/graph.h"
#include "operator/ctrl/stamp.h"
#include "operator/plan/status.h"
#include "operator/reconcile/adapters.h"
#include "operator/reconcile/apply.h"
#include "operator/reconcile/flips.h"

static const struct log_target LG = {"dynamo_operator::graph"};

/* What a graph may own and a later plan leave out. Claims are not here: they hold data. */
static const struct kube_kind *const pruned[] = {
    &KIND_DCD, &KIND_CONFIG_MAP, &KIND_DGDSA, &KIND_ROLE_BINDING, &KIND_ROLE, &KIND_SERVICE_ACCOUNT,
};

/*
 * The routing configuration goes first: a flip must not wait for anything, not even for a claim that
 * the user was to provide.
 */
static int apply_routing(struct apply *a, const struct object_set *set, const struct pass *pass,
                         bool create, struct err *e)
{
    static const struct kube_kind *const routing[] = {&KIND_CONFIG_MAP};
    int r = create ? apply_wave(a, set, routing, ARRAY_LEN(routing), e)
                   : apply_correct(a, set, routing, ARRAY_LEN(routing), e);

    if (a->routing_changed)
        flips_begin(a->rc->flips, object_uid(a->owner), pass->seen_ms);
    return r;
}

/*
 * What pods need to start goes out together with their components: by the time that a component has
 * made a pod of it, it is there. The API server refuses a binding of a role that is not; components
 * do not wait for it.
 */
static int apply_children(struct apply *a, const struct object_set *set, struct err *e)
{
    static const struct kube_kind *const claims[] = {&KIND_PVC};
    static const struct kube_kind *const most[] = {&KIND_DCD, &KIND_CONFIG_MAP, &KIND_ROLE,
                                                   &KIND_SERVICE_ACCOUNT, &KIND_DGDSA};
    static const struct kube_kind *const bindings[] = {&KIND_ROLE_BINDING};
    int r = apply_wave(a, set, claims, ARRAY_LEN(claims), e), r_bindings;
    struct err binding_error;

    if (r != 0)
        return r;
    r = apply_wave(a, set, most, ARRAY_LEN(most), e);
    if (r > 0)
        return r;
    /* Those components that were not refused need it all the same. */
    r_bindings = apply_wave(a, set, bindings, ARRAY_LEN(bindings), &binding_error);
    if (r == 0 && r_bindings < 0)
        return err_set(e, r_bindings, "%s", binding_error.text);
    return r ? r : r_bindings;
}

static int apply_graph(struct apply *a, const struct object_set *set, const struct pass *pass,
                       struct err *e)
{
    AUTO(json_free) struct json *claims = cache_get_all(a->rc->cache, &KIND_PVC, pass->ns);
    const char *missing = graph_missing_pvc(a->owner, claims);
    int r = apply_routing(a, set, pass, missing != NULL, e);

    if (r != 0)
        return r;
    if (missing) {
        AUTO(mem_free) char *text = status_missing_pvc(missing);

        return err_set(e, -ENOENT, "%s", text);
    }
    r = apply_children(a, set, e);
    if (r == 0)
        r = adapters_follow(a, e);
    if (r == 0 && set->blocked)
        return err_set(e, -ENOTSUP, "%s", set->blocked);
    return r == 0 ? apply_prune(a, set, pruned, ARRAY_LEN(pruned), e) : r;
}

/* When all frontends have followed a flip: how long it took. When one refuses: why. */
static void tell_flip(const struct apply *a, const struct routing_view *routing)
{
    AUTO(mem_free) char *message = NULL;
    bool refused = routing->refused[0];
    uint64_t since_ms;

    if (!routing->mode || (routing->n_applied < routing->n_pods && !refused) ||
        !flips_end(a->rc->flips, object_uid(a->owner), &since_ms))
        return;
    message =
        refused ? xasprintf("Routing mode %s (generation %jd) is not applied: %s", routing->mode,
                            (intmax_t)routing->generation, routing->refused)
                : xasprintf("Routing mode %s (generation %jd) applied by %zu of %zu pods in %ju ms",
                            routing->mode, (intmax_t)routing->generation, routing->n_applied,
                            routing->n_pods, (uintmax_t)(clock_now_ns() / 1000000 - since_ms));
    recorder_tell(a->rc->recorder, a->kind, a->owner, refused,
                  refused ? "RoutingRefused" : "RoutingApplied", message);
    log_info(&LG, message, LOG_STR("namespace", object_namespace(a->owner)),
             LOG_STR("name", object_name(a->owner)));
}

/* A state is worth an event when it is entered. */
static void tell_state(const struct apply *a, const struct json *status)
{
    const char *before = json_cstr(json_path(a->owner, "status", "state", NULL));
    const char *now = json_get_cstr(status, "state");
    AUTO(json_free) struct json *holder = json_new_object();
    const struct json *ready;
    const char *reason, *message;

    if (!now || (before && strcmp(before, now) == 0) || strcmp(now, "pending") == 0)
        return;
    (void)json_set(holder, "status", json_dup(status));
    ready = status_condition(holder, "Ready");
    reason = json_get_cstr(ready, "reason");
    message = json_get_cstr(ready, "message");
    if (strcmp(now, "successful") == 0)
        reason = "Ready";
    else if (!reason || strcmp(reason, "ValidationFailed") != 0)
        reason = "ReconcileError";
    recorder_tell(a->rc->recorder, a->kind, a->owner, strcmp(now, "failed") == 0, reason,
                  message ? message : now);
}

/*
 * A graph that is ready, with a component that has not yet looked at what this pass wrote: its word
 * comes in a moment, and with it the next pass. Until then nothing is known that would be worth a
 * status; a flip, which changes no pod, would else make every graph unready for some milliseconds.
 */
static bool is_between(const struct apply *a, const struct graph_view *view)
{
    const char *state = json_cstr(json_path(a->owner, "status", "state", NULL));

    if (view->error || view->invalid || !state || strcmp(state, "successful") != 0)
        return false;
    JSON_FOREACH (dcd, view->components)
        if (status_condition_is(dcd, "Available", "True") && !component_is_settled(dcd))
            return true;
    return false;
}

static int report(struct apply *a, struct graph_view *view, struct err *e)
{
    AUTO(json_free)
    struct json *components = cache_get_owned(a->rc->cache, &KIND_DCD, object_uid(a->owner));
    struct json *status;
    char now[STAMP_SIZE];
    int r;

    stamp_format(clock_wall_ms(), now);
    view->now = now;
    view->components = components;
    if (is_between(a, view))
        return 0;
    status = graph_status(a->owner, view);
    tell_state(a, status);
    r = apply_status(a, status, e);
    if (r == 0)
        tell_flip(a, &view->routing);
    return r;
}

static int report_invalid(struct apply *a, const struct problems *problems, struct err *e)
{
    AUTO(mem_free) char *text = problems_text(problems);
    struct graph_view view = {.invalid = text};

    return report(a, &view, e);
}

static int reconcile_valid(struct apply *a, const struct pass *pass, struct err *e)
{
    AUTO(json_free)
    struct json *maps = cache_get_owned(a->rc->cache, &KIND_CONFIG_MAP, object_uid(a->owner));
    AUTO(json_free)
    struct json *components = cache_get_owned(a->rc->cache, &KIND_DCD, object_uid(a->owner));
    const struct plan_inputs inputs = {.routing = maps, .components = components};
    AUTO(object_set_free) struct object_set *set = graph_plan(a->rc->plan, &inputs, a->owner);
    struct graph_view view = {.want = set};
    struct err apply_error, status_error;
    int r, r_status;

    r = apply_graph(a, set, pass, &apply_error);
    if (r == CONTROLLER_AGAIN)
        return r;
    view.error = r < 0 ? apply_error.text : NULL;
    view.routing = flips_view(a->rc->cache, set);
    r_status = report(a, &view, &status_error);
    if (r < 0)
        return err_set(e, r, "%s", apply_error.text);
    return r_status < 0 ? err_set(e, r_status, "%s", status_error.text) : 0;
}

int graph_reconcile(const struct reconciler *rc, const struct pass *pass, struct err *e)
{
    AUTO(json_free) struct json *dgd = cache_get(rc->cache, &KIND_DGD, pass->ns, pass->name);
    AUTO(problems_done) struct problems problems = PROBLEMS_NULL;
    struct apply a = {.rc = rc, .kind = &KIND_DGD, .owner = dgd};

    if (!dgd)
        return 0; /* its children go with it by their ownerReferences */
    /* Whoever still created children now would race with the garbage collector. */
    if (object_is_deleted(dgd))
        return apply_release(&a, e);
    check_graph(dgd, &problems);
    if (problems.n)
        return report_invalid(&a, &problems, e);
    return reconcile_valid(&a, pass, e);
}
