/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/adapter.h"

#include "operator/api/graph.h"

static const char *service_of(const struct json *adapter)
{
    const char *name = json_get_cstr(json_path(adapter, "spec", "dgdRef", NULL), "serviceName");

    return name ? name : "";
}

struct json *adapter_graph_patch(const struct json *adapter, const struct json *dgd)
{
    const struct json *service = graph_service(dgd, service_of(adapter));
    struct json *patch, *services;
    int64_t replicas;

    if (!service_has_adapter(service) ||
        !json_get_i64(json_get(adapter, "spec"), "replicas", &replicas) ||
        replicas == service_replicas(service))
        return NULL;
    patch = json_new_object();
    services = json_need_object(json_need_object(patch, "spec"), "services");
    json_set_i64(json_need_object(services, service_of(adapter)), "replicas", replicas);
    return patch;
}

struct json *adapter_status(const struct json *adapter, const char *scaled_at)
{
    const struct json *present = json_get(adapter, "status");
    const char *graph = json_get_cstr(json_path(adapter, "spec", "dgdRef", NULL), "name");
    struct json *status = json_is_object(present) ? json_dup(present) : json_new_object();
    AUTO(mem_free)
    char *selector = xasprintf(GRAPH_LABEL_GRAPH "=%s," GRAPH_LABEL_COMPONENT "=%s",
                               graph ? graph : "", service_of(adapter));
    int64_t replicas = 0;

    (void)json_get_i64(json_get(adapter, "spec"), "replicas", &replicas);
    json_set_i64(status, "replicas", replicas);
    json_set_cstr(status, "selector", selector);
    if (scaled_at)
        json_set_cstr(status, "lastScaleTime", scaled_at);
    return status;
}
