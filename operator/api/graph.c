/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/api/graph.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/digest.h"

static const char *or_empty(const char *s)
{
    return s ? s : "";
}

static const char *metadata_text(const struct json *object, const char *key)
{
    return or_empty(json_get_cstr(json_get(object, "metadata"), key));
}

const char *object_name(const struct json *object)
{
    return metadata_text(object, "name");
}

const char *object_namespace(const struct json *object)
{
    return metadata_text(object, "namespace");
}

const char *object_uid(const struct json *object)
{
    return metadata_text(object, "uid");
}

int64_t object_generation(const struct json *object)
{
    int64_t generation = 0;

    (void)json_get_i64(json_get(object, "metadata"), "generation", &generation);
    return generation;
}

bool object_is_deleted(const struct json *object)
{
    return metadata_text(object, "deletionTimestamp")[0] != '\0';
}

const char *object_label(const struct json *object, const char *key)
{
    return json_get_cstr(json_path(object, "metadata", "labels", NULL), key);
}

const char *object_annotation(const struct json *object, const char *key)
{
    return json_get_cstr(json_path(object, "metadata", "annotations", NULL), key);
}

struct json *graph_services(const struct json *dgd)
{
    return json_path(dgd, "spec", "services", NULL);
}

struct json *graph_service(const struct json *dgd, const char *name)
{
    return json_get(graph_services(dgd), name);
}

struct json *graph_pvcs(const struct json *dgd)
{
    return json_path(dgd, "spec", "pvcs", NULL);
}

bool graph_pvc_is_created(const struct json *pvc)
{
    bool create = false;

    (void)json_get_bool(pvc, "create", &create);
    return create;
}

char *graph_child_name(const char *dgd, const char *service)
{
    char *name = xasprintf("%s-%s", dgd, service);

    for (char *c = name + strlen(dgd); *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return name;
}

char *graph_routing_name(const char *dgd, const char *service)
{
    AUTO(mem_free) char *child = graph_child_name(dgd, service);

    return xasprintf("%s-routing", child);
}

char *graph_dynamo_namespace(const struct json *service, const char *ns, const char *dgd)
{
    bool global = false;

    if (json_get_bool(service, "globalDynamoNamespace", &global) && global)
        return xstrdup("dynamo");
    return xasprintf("%s-%s", ns, dgd);
}

void graph_model_hash(const char *model, char ret_hash[GRAPH_MODEL_HASH_SIZE])
{
    char hex[DIGEST_HEX_SIZE];

    digest_sha256_hex(str_from(model), hex);
    memcpy(ret_hash, hex, GRAPH_MODEL_HASH_SIZE - 1);
    ret_hash[GRAPH_MODEL_HASH_SIZE - 1] = '\0';
}

int64_t service_replicas(const struct json *service)
{
    int64_t replicas = 1;

    (void)json_get_i64(service, "replicas", &replicas);
    return replicas;
}

const char *service_type(const struct json *service)
{
    return or_empty(json_get_cstr(service, "componentType"));
}

bool service_is_frontend(const struct json *service)
{
    return strcmp(service_type(service), "frontend") == 0;
}

bool service_is_worker(const struct json *service)
{
    const char *type = service_type(service);

    return strcmp(type, "worker") == 0 || strcmp(type, "prefill") == 0 ||
           strcmp(type, "decode") == 0;
}

int64_t service_nodes(const struct json *service)
{
    const struct json *multinode = json_get(service, "multinode");
    int64_t nodes = json_is_object(multinode) ? 2 : 1; /* the schema's default */

    (void)json_get_i64(multinode, "nodeCount", &nodes);
    return nodes;
}

bool service_has_adapter(const struct json *service)
{
    bool enabled = false;

    (void)json_get_bool(json_get(service, "scalingAdapter"), "enabled", &enabled);
    return enabled;
}

const char *service_model(const struct json *service)
{
    const char *name = json_get_cstr(json_get(service, "modelRef"), "name");

    return name && name[0] ? name : NULL;
}
