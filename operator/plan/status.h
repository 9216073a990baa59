/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status of graphs and components from what is seen of their children.
 *
 * Pure: time comes in as text, and lastTransitionTime changes only when a condition's status does,
 * so that the same view gives the same status and nothing has to be written.
 * Source: operator.md §1.3, 1.4; operator-observed.md §3; captures. Thread safe.
 */
#pragma once

#include "lib/base/json_tree.h"
#include "operator/plan/plan.h"

/* What the frontends of a graph say about the routing configuration that they run. */
struct routing_view {
    const char *mode;   /* "kv"; NULL when the graph has no live Frontend: no condition then */
    int64_t generation; /* of the DynamoGraphDeployment that brought this configuration */
    size_t n_applied;   /* pods that run it */
    size_t n_pods;
    char refused[256]; /* why a pod keeps the configuration before this one; empty: none does */
};

struct graph_view {
    const struct json *components; /* {"<name>": DynamoComponentDeployment}, as stored */
    const struct object_set *want; /* of graph_plan(); NULL when validation failed */
    const char *invalid;           /* problems_text(); NULL when valid */
    const char *error;             /* this pass failed; NULL when it went through */
    struct routing_view routing;
    const char *now; /* RFC 3339, UTC, whole seconds */
};

struct component_view {
    const struct json *deployment; /* as stored; NULL when absent */
    int64_t want_replicas;         /* of the plan */
    const char *invalid;
    const char *error;
    const char *waiting; /* why pods are not scheduled or do not start; NULL when unknown */
    const char *now;
};

/*
 * The whole new status; owned. Equal to the present one (json_equal) when nothing has to be
 * written. Conditions of other writers are kept.
 */
struct json *graph_status(const struct json *dgd, const struct graph_view *view)
    __attribute__((returns_nonnull));
struct json *component_status(const struct json *dcd, const struct component_view *view)
    __attribute__((returns_nonnull));

/* Deployment is observed, complete and available; desired 0 is ready. */
bool deployment_is_ready(const struct json *deployment);
/* Available for the spec that the component has now. */
bool component_is_settled(const struct json *dcd);
/* Borrowed; NULL when there is none of that type. */
struct json *status_condition(const struct json *object, const char *type);
bool status_condition_is(const struct json *object, const char *type, const char *value);

/* The texts of graph_view.error and component_view.error for what may go wrong. Owned. */
char *status_apply_failure(const struct kube_kind *kind, const char *text)
    __attribute__((returns_nonnull));
char *status_missing_pvc(const char *name) __attribute__((returns_nonnull));
