/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_kinds.h"

#define NVIDIA "nvidia.com", "v1alpha1"
#define RBAC "rbac.authorization.k8s.io", "v1"

const struct kube_kind KIND_DGD = {NVIDIA, "DynamoGraphDeployment", "dynamographdeployments"};
const struct kube_kind KIND_DCD = {NVIDIA, "DynamoComponentDeployment",
                                   "dynamocomponentdeployments"};
const struct kube_kind KIND_DGDSA = {NVIDIA, "DynamoGraphDeploymentScalingAdapter",
                                     "dynamographdeploymentscalingadapters"};
const struct kube_kind KIND_DWM = {NVIDIA, "DynamoWorkerMetadata", "dynamoworkermetadatas"};
const struct kube_kind KIND_DEPLOYMENT = {"apps", "v1", "Deployment", "deployments"};
const struct kube_kind KIND_SERVICE = {"", "v1", "Service", "services"};
const struct kube_kind KIND_CONFIG_MAP = {"", "v1", "ConfigMap", "configmaps"};
const struct kube_kind KIND_PVC = {"", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"};
const struct kube_kind KIND_POD = {"", "v1", "Pod", "pods"};
const struct kube_kind KIND_SECRET = {"", "v1", "Secret", "secrets"};
const struct kube_kind KIND_SERVICE_ACCOUNT = {"", "v1", "ServiceAccount", "serviceaccounts"};
const struct kube_kind KIND_ROLE = {RBAC, "Role", "roles"};
const struct kube_kind KIND_ROLE_BINDING = {RBAC, "RoleBinding", "rolebindings"};
const struct kube_kind KIND_EVENT = {"", "v1", "Event", "events"};
const struct kube_kind KIND_LEASE = {"coordination.k8s.io", "v1", "Lease", "leases"};
const struct kube_kind KIND_ENDPOINT_SLICE = {"discovery.k8s.io", "v1", "EndpointSlice",
                                              "endpointslices"};
const struct kube_kind KIND_INGRESS = {"networking.k8s.io", "v1", "Ingress", "ingresses"};
