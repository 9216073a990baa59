/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that the parts of a plan share. Source: operator.md §2.3, 2.4.
 */
#pragma once

#include <stdbool.h>

struct json;
struct plan_config;

#define DISCOVERY_ACCOUNT_SUFFIX "-k8s-service-discovery"
#define PLANNER_ACCOUNT "planner-serviceaccount"
#define ANNOTATION_ENABLE_METRICS "nvidia.com/enable-metrics"
#define ANNOTATION_BASE_MODEL "nvidia.com/dynamo-base-model"
#define ANNOTATION_STRATEGY "nvidia.com/deployment-strategy"
#define ANNOTATION_MAX_SURGE "nvidia.com/deployment-rolling-update-max-surge"
#define ANNOTATION_MAX_UNAVAILABLE "nvidia.com/deployment-rolling-update-max-unavailable"
#define ANNOTATION_RESTART "nvidia.com/restartAt"
#define ANNOTATION_DEBUG "nvidia.com/enable-debug-mode"
#define ANNOTATION_NO_PULL_SECRETS "nvidia.com/disable-image-pull-secret-discovery"

/* Whether pods find each other through the API server; @annotations of the object may say so. */
bool plan_uses_kubernetes_discovery(const struct plan_config *config,
                                    const struct json *annotations);
