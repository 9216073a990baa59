/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live routing configuration: the routing variables of a Frontend travel in a ConfigMap.
 *
 * The pod reads them by envFrom and our frontend watches the ConfigMap, so that a change of the
 * mode changes no pod template. envFrom is weaker than env, so what is in the ConfigMap must not
 * stay in env; what only env can express (valueFrom, $(NAME)) stays there.
 * Source: architecture.md, "Live routing configuration". Pure.
 */
#pragma once

#include "lib/base/json_tree.h"
#include "operator/plan/plan.h"

/* Name of the variable by which a frontend learns which ConfigMap to watch. */
#define ROUTING_CONFIG_MAP_VARIABLE "COMMUTATOR_ROUTING_CONFIGMAP"

/* What the user gives a container: mainContainer.env, then spec.envs of a component. Owned. */
struct json *routing_user_env(const struct json *spec) __attribute__((returns_nonnull));
/* Moves what belongs into the ConfigMap from @env to the object *data, {"NAME": "value"}. */
void routing_take(struct json *env, struct json *data);
/* The ConfigMap of one component; @present is what is there now, or NULL. Owned. */
struct json *routing_config_map(const struct json *dgd, const char *service,
                                const struct json *spec, const struct json *present)
    __attribute__((returns_nonnull));
