/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/routing.h"

#include <stdio.h>
#include <string.h>

#include "operator/api/graph.h"
#include "operator/plan/framework.h"
#include "operator/plan/merge.h"
#include "operator/plan/names.h"
#include "operator/plan/object.h"

bool plan_is_routing_variable(const char *name)
{
    static const char *const single[] = {"DYN_OVERLAP_SCORE_WEIGHT", "DYN_USE_KV_EVENTS",
                                         "DYN_DECODE_FALLBACK", "DYN_BUSY_THRESHOLD",
                                         "DYN_ENCODER_CUDA_TO_CPU_RATIO"};
    struct str s = str_from(name);

    if (str_starts(s, STR("DYN_ROUTER_")) || str_starts(s, STR("DYN_KV_")) ||
        str_starts(s, STR("COMMUTATOR_ROUTER_")) || str_starts(s, STR("DYN_SHARED_CACHE_")))
        return true;
    if (str_starts(s, STR("DYN_ACTIVE_")) && str_has(s, STR("_THRESHOLD")))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(single); i++) {
        if (str_is(s, single[i]))
            return true;
    }
    return false;
}

bool plan_is_our_frontend(const struct plan_config *config, const struct json *service)
{
    const struct json *main = json_path(service, "extraPodSpec", "mainContainer", NULL);
    bool has_command = json_len(json_get(main, "command")) > 0;
    bool has_args = json_len(json_get(main, "args")) > 0;
    AUTO(json_free) struct json *as_run = json_new_object();

    if (!service_is_frontend(service) || !config->frontend_image || !config->frontend_image[0] ||
        config->frontend_override == PLAN_OVERRIDE_NEVER)
        return false;
    if (!has_command && !has_args)
        return true;

    /* Without a command the default one is python3, so that the args name the module. */
    json_set(as_run, "command", json_dup(json_get(main, "command")));
    if (!has_command)
        json_add(json_need_array(as_run, "command"), json_new_cstr("python3"));
    json_set(as_run, "args", json_dup(json_get(main, "args")));
    return framework_runs_module(as_run, "dynamo.frontend");
}

bool plan_is_live_frontend(const struct plan_config *config, const struct json *service)
{
    const char *account = json_get_cstr(json_get(service, "extraPodSpec"), "serviceAccountName");

    return plan_is_our_frontend(config, service) && !(account && account[0]) &&
           plan_uses_kubernetes_discovery(config, json_get(service, "annotations"));
}

struct json *routing_user_env(const struct json *spec)
{
    struct json *env = json_new_array();

    env_put_all(env, json_path(spec, "extraPodSpec", "mainContainer", "env", NULL));
    env_put_all(env, json_get(spec, "envs"));
    return env;
}

/* The literal value of an entry that a ConfigMap can carry, or NULL. */
static const char *plain_value(const struct json *entry)
{
    const char *value = json_get_cstr(entry, "value");

    if (json_is_object(json_get(entry, "valueFrom")))
        return NULL;
    if (!value)
        return "";
    return strstr(value, "$(") ? NULL : value;
}

void routing_take(struct json *env, struct json *data)
{
    size_t i = 0;

    for (struct json *entry = json_first(env); entry;) {
        const char *name = json_get_cstr(entry, "name");
        const char *value = plain_value(entry);
        struct json *next = json_next(entry);

        if (name && value && plan_is_routing_variable(name)) {
            json_set_cstr(data, name, value);
            (void)json_free(json_take_at(env, i));
        } else {
            i++;
        }
        entry = next;
    }
}

struct json *routing_config_map(const struct json *dgd, const char *service,
                                const struct json *spec, const struct json *present)
{
    AUTO(json_free) struct json *env = routing_user_env(spec);
    AUTO(mem_free) char *name = graph_routing_name(object_name(dgd), service);
    AUTO(mem_free) char *generation = xasprintf("%lld", (long long)object_generation(dgd));
    struct json *map = object_new(&KIND_CONFIG_MAP, object_namespace(dgd), name);
    struct json *data = json_need_object(map, "data");
    const char *kept = object_annotation(present, PLAN_ROUTING_GENERATION);

    routing_take(env, data);
    object_put_label(map, GRAPH_LABEL_COMPONENT, service);
    object_put_label(map, GRAPH_LABEL_GRAPH, object_name(dgd));
    object_put_label(map, GRAPH_LABEL_NAMESPACE, json_get_cstr(spec, "dynamoNamespace"));
    /* The generation says since when this configuration holds, so it moves with the data only. */
    object_put_annotation(map, PLAN_ROUTING_GENERATION,
                          kept && json_equal(json_get(present, "data"), data) ? kept : generation);
    object_put_owner(map, &KIND_DGD, dgd);
    return map;
}
