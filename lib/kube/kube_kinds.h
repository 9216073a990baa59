/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resource types that operator and router work with.
 */
#pragma once

#include "lib/kube/kube_client.h"

extern const struct kube_kind KIND_DGD, KIND_DCD, KIND_DGDSA, KIND_DWM;
extern const struct kube_kind KIND_DEPLOYMENT, KIND_SERVICE, KIND_CONFIG_MAP, KIND_PVC, KIND_POD;
extern const struct kube_kind KIND_SECRET, KIND_SERVICE_ACCOUNT, KIND_ROLE, KIND_ROLE_BINDING;
extern const struct kube_kind KIND_EVENT, KIND_LEASE, KIND_ENDPOINT_SLICE, KIND_INGRESS;
