/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read access to the kinds of nvidia.com/v1alpha1 as JSON trees: names, defaults and the few
 * words that several places must agree on.
 *
 * A "service" is one entry of a DynamoGraphDeployment's spec.services, or the spec of a
 * DynamoComponentDeployment: both have the same shape. Everything is borrowed from the tree, takes
 * NULL and objects with holes, and is pure. Source: operator.md §1.1-1.4, 2.3.
 */
#pragma once

#include "lib/base/json_tree.h"

#define GRAPH_LABEL_COMPONENT "nvidia.com/dynamo-component"
#define GRAPH_LABEL_NAMESPACE "nvidia.com/dynamo-namespace"
#define GRAPH_LABEL_GRAPH "nvidia.com/dynamo-graph-deployment-name"
#define GRAPH_LABEL_TYPE "nvidia.com/dynamo-component-type"
#define GRAPH_LABEL_SUB_TYPE "nvidia.com/dynamo-sub-component-type"
#define GRAPH_LABEL_SELECTOR "nvidia.com/selector"
#define GRAPH_LABEL_METRICS "nvidia.com/metrics-enabled"
#define GRAPH_LABEL_MODEL_HASH "nvidia.com/dynamo-base-model-hash"
#define GRAPH_LABEL_DISCOVERY "nvidia.com/dynamo-discovery-backend"
#define GRAPH_LABEL_DISCOVERABLE "nvidia.com/dynamo-discovery-enabled"
/* The finalizer of the reference operator. We set none, but remove it when we find it. */
#define GRAPH_FINALIZER "nvidia.com/finalizer"

/* Of any object. "" when absent. */
const char *object_name(const struct json *object) __attribute__((returns_nonnull));
const char *object_namespace(const struct json *object) __attribute__((returns_nonnull));
const char *object_uid(const struct json *object) __attribute__((returns_nonnull));
int64_t object_generation(const struct json *object);                 /* 0 when absent */
bool object_is_deleted(const struct json *object);                    /* has a deletionTimestamp */
const char *object_label(const struct json *object, const char *key); /* may be NULL */
const char *object_annotation(const struct json *object, const char *key); /* may be NULL */

/* spec.services of a DynamoGraphDeployment; NULL when there are none. */
struct json *graph_services(const struct json *dgd);
struct json *graph_service(const struct json *dgd, const char *name); /* may be NULL */
struct json *graph_pvcs(const struct json *dgd);                      /* may be NULL */
/* Whether the operator creates this entry of spec.pvcs; otherwise it must exist already. */
bool graph_pvc_is_created(const struct json *pvc);

/* "<dgd>-<service in lower case>": DCD, Deployment, Service, scaling adapter. Owned. */
char *graph_child_name(const char *dgd, const char *service) __attribute__((returns_nonnull));
/* "<dgd>-<service in lower case>-routing": the ConfigMap of a Frontend's routing. Owned. */
char *graph_routing_name(const char *dgd, const char *service) __attribute__((returns_nonnull));
/* The Dynamo namespace: "dynamo", or "<namespace>-<dgd>". Owned. */
char *graph_dynamo_namespace(const struct json *service, const char *ns, const char *dgd)
    __attribute__((returns_nonnull));
/* First 8 hex digits of sha256 of the model's name. */
enum { GRAPH_MODEL_HASH_SIZE = 9 };
void graph_model_hash(const char *model, char ret_hash[GRAPH_MODEL_HASH_SIZE]);

int64_t service_replicas(const struct json *service); /* absent is 1 */
const char *service_type(const struct json *service) __attribute__((returns_nonnull)); /* or "" */
bool service_is_frontend(const struct json *service);
bool service_is_worker(const struct json *service);   /* worker, prefill or decode */
int64_t service_nodes(const struct json *service);    /* nodes of one replica, 1 unless multinode */
bool service_has_adapter(const struct json *service); /* scalingAdapter.enabled */
const char *service_model(const struct json *service); /* modelRef.name; may be NULL */
