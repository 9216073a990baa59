/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pod of one component: defaults of its type, the user's settings over them, and what the
 * platform adds. Source: operator.md §2.4, 2.6-2.9. Pure.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "operator/plan/plan.h"

/* One DynamoComponentDeployment, taken apart. Borrows from its arguments. */
struct component {
    const struct plan_config *config;
    const struct plan_inputs *inputs;
    const struct json *dcd;
    const struct json *spec;
    const char *ns;
    const char *name;
    const char *graph;      /* NULL when it belongs to no DynamoGraphDeployment */
    const char *service;    /* the graph's name for it */
    const char *model;      /* may be NULL */
    char *dynamo_namespace; /* owned */
    bool kubernetes_discovery;
    bool is_ours; /* a Frontend whose image we replace */
    bool is_live; /* and whose routing variables live in a ConfigMap */
};

void component_init(struct component *c, const struct plan_config *config,
                    const struct plan_inputs *inputs, const struct json *dcd);
void component_done(struct component *c);
DEFINE_CLEANUP_EMBEDDED(struct component, component_done)

/* *ret is the pod template, owned. -EINVAL in the words that status shows. */
MUST_CHECK int pod_template(struct json **ret, const struct component *c, struct err *e);
