/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_kinds.h"

#define NVIDIA "nvidia.com", "v1alpha1"
#define RBAC "rbac.authorization.k8s.io", "v1"

/* name, group and version, kind, plural, cluster scoped */
#define KUBE_KINDS(X)                                                                              \
    X(DGD, NVIDIA, "DynamoGraphDeployment", "dynamographdeployments", false)                       \
    X(DCD, NVIDIA, "DynamoComponentDeployment", "dynamocomponentdeployments", false)               \
    X(DGDSA, NVIDIA, "DynamoGraphDeploymentScalingAdapter",                                        \
      "dynamographdeploymentscalingadapters", false)                                               \
    X(DYNAMO_MODEL, NVIDIA, "DynamoModel", "dynamomodels", false)                                  \
    X(DGDR, NVIDIA, "DynamoGraphDeploymentRequest", "dynamographdeploymentrequests", false)        \
    X(DWM, NVIDIA, "DynamoWorkerMetadata", "dynamoworkermetadatas", false)                         \
    X(DEPLOYMENT, "apps", "v1", "Deployment", "deployments", false)                                \
    X(SERVICE, "", "v1", "Service", "services", false)                                             \
    X(CONFIG_MAP, "", "v1", "ConfigMap", "configmaps", false)                                      \
    X(PVC, "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", false)                     \
    X(POD, "", "v1", "Pod", "pods", false)                                                         \
    X(SECRET, "", "v1", "Secret", "secrets", false)                                                \
    X(SERVICE_ACCOUNT, "", "v1", "ServiceAccount", "serviceaccounts", false)                       \
    X(ROLE, RBAC, "Role", "roles", false)                                                          \
    X(ROLE_BINDING, RBAC, "RoleBinding", "rolebindings", false)                                    \
    X(EVENT, "", "v1", "Event", "events", false)                                                   \
    X(LEASE, "coordination.k8s.io", "v1", "Lease", "leases", false)                                \
    X(ENDPOINT_SLICE, "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", false)          \
    X(INGRESS, "networking.k8s.io", "v1", "Ingress", "ingresses", false)                           \
    X(NODE, "", "v1", "Node", "nodes", true)

#define DEFINE_KIND(name, ...) const struct kube_kind KIND_##name = {__VA_ARGS__};
KUBE_KINDS(DEFINE_KIND)
