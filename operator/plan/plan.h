/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a graph to the objects that it stands for.
 *
 *     DynamoGraphDeployment --graph_plan()--> PVCs, discovery account and role, routing ConfigMaps,
 *                                             scaling adapters, one DynamoComponentDeployment
 *                                             per service
 *     DynamoComponentDeployment --component_plan()--> Deployment, Service, model Service, Ingress
 *
 * Pure: the same values in give the same bytes out. Objects come complete (namespace, labels,
 * annotations, owner) but without the two last-applied annotations, which belong to whoever
 * applies them, and in the order in which they should be applied. What is not in the set any more
 * and carries our owner reference is to be pruned.
 * Source: operator.md §2.3-2.8, 2.12, operator-observed.md; what differs on purpose stands in
 * deviations.json. Thread safe.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/kube/kube_kinds.h"

#define PLAN_ORIGINAL_IMAGE "commutator.dev/original-image"
#define PLAN_ROUTING_GENERATION "commutator.dev/routing-generation"
#define PLAN_ROUTING_MODE "DYN_ROUTER_MODE"

enum plan_override {
    PLAN_OVERRIDE_AUTO,  /* our image replaces that of a Frontend which runs dynamo.frontend */
    PLAN_OVERRIDE_NEVER, /* every image stays */
};

/* The operator's own configuration. A string may be NULL or "", which leaves its effect out. */
struct plan_config {
    const char *discovery_backend; /* "kubernetes" (also when NULL) or "etcd" */
    const char *nats_address;
    const char *etcd_address;
    const char *model_express_url;
    const char *prometheus_endpoint;
    const char *ingress_class;
    const char *ingress_host_suffix; /* "local" when NULL */
    const char *ingress_tls_secret;
    const char *frontend_image;       /* our image; NULL overrides nothing */
    const char *frontend_pull_policy; /* of our image where it replaces another */
    enum plan_override frontend_override;
    /* ClusterRole of planners; without it graphs with a planner get no account for it. */
    const char *planner_cluster_role;
};

/* What the namespace holds already and a plan depends on. Every member may be NULL. */
struct plan_inputs {
    /* {"secret": ["https://index.example/v1/", ...]}: keys of auths of each dockerconfigjson. */
    const struct json *pull_secrets;
    /* {"name": ConfigMap}: routing ConfigMaps as they are, so that a generation stays. */
    const struct json *routing;
    /* {"name": DynamoComponentDeployment}: those of the graph as they are, for restarts in turn. */
    const struct json *components;
    /* First ServiceAccount by name with label nvidia.com/dynamo-component-pod=true. */
    const char *component_account;
    /* Another component of the graph is the one that makes the Service of their model. */
    bool leaves_model_service;
};

struct planned {
    const struct kube_kind *kind;
    struct json *object;
    bool create_only; /* created when missing, never changed: its owner may be someone else */
};

struct object_set {
    struct planned *at;
    size_t n;
    size_t cap;
    /*
     * Why the set is incomplete, in the words that status shows; NULL when complete. What is in
     * the set is to be applied all the same, and nothing is to be pruned.
     */
    char *blocked;
};

struct object_set *object_set_new(void) __attribute__((returns_nonnull));
struct object_set *object_set_free(struct object_set *s);
DEFINE_CLEANUP(struct object_set *, object_set_free)
/* Takes @object; returns it, borrowed. */
struct json *object_set_add(struct object_set *s, const struct kube_kind *kind,
                            struct json *object);
/* NULL when there is none. */
const struct planned *object_set_find(const struct object_set *s, const struct kube_kind *kind,
                                      const char *name);

/* Both expect an object that passed its check; a hole that check would report is skipped. */
struct object_set *graph_plan(const struct plan_config *config, const struct plan_inputs *inputs,
                              const struct json *dgd) __attribute__((returns_nonnull));
struct object_set *component_plan(const struct plan_config *config,
                                  const struct plan_inputs *inputs, const struct json *dcd)
    __attribute__((returns_nonnull));

/*
 * The first of spec.pvcs that must exist but is not among @claims ({"name": PVC}); NULL when all
 * do. Borrowed from @dgd.
 */
const char *graph_missing_pvc(const struct json *dgd, const struct json *claims);

/*
 * sha256 over the canonical JSON (sorted keys) of an object's spec, or, for kinds without one, of
 * everything but apiVersion, kind, metadata and status: the value of nvidia.com/last-applied-hash.
 */
enum { PLAN_HASH_SIZE = 65 };
void plan_spec_hash(const struct json *object, char ret_hex[PLAN_HASH_SIZE]);

/* Whether this service is a Frontend whose image we replace by ours. */
bool plan_is_our_frontend(const struct plan_config *config, const struct json *service);
/*
 * Whether a change of its routing variables reaches its pods without a new pod: they run our image,
 * under the account that may watch the ConfigMap.
 */
bool plan_is_live_frontend(const struct plan_config *config, const struct json *service);
/* Whether this variable is one that the live configuration carries. */
bool plan_is_routing_variable(const char *name);
