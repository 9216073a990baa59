/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/global_options.h"

#include <errno.h>

#define AT(member) offsetof(struct global_options, member)

static const struct conf_field OWN[] = {
    {.flag = "config",
     .env = "DYN_GLOBAL_ROUTER_CONFIG",
     .type = CONF_STR,
     .offset = AT(pools_file),
     .help = "JSON file of the pools and of who gets which; required"},
    {.flag = "model-name",
     .env = "DYN_GLOBAL_ROUTER_MODEL_NAME",
     .type = CONF_STR,
     .offset = AT(route.base.model_name),
     .help = "name of the model, as its workers have it; required"},
    {.flag = "model-path",
     .type = CONF_STR,
     .offset = AT(route.base.model_path),
     .help = "directory of its files, or its name at the hub (default: the model's name)"},
    {.flag = "namespace",
     .env = "DYN_NAMESPACE",
     .type = CONF_STR,
     .offset = AT(route.base.ns),
     .initial = "dynamo",
     .help = "where this router registers"},
    {.flag = "component-name",
     .env = "DYN_GLOBAL_ROUTER_COMPONENT_NAME",
     .type = CONF_STR,
     .offset = AT(component),
     .initial = "global_router",
     .help = "as which component"},
    {.flag = "default-ttft-target-ms",
     .alias = "default-ttft-target",
     .env = "DYN_GLOBAL_ROUTER_DEFAULT_TTFT_TARGET_MS",
     .env_alias = "DYN_GLOBAL_ROUTER_DEFAULT_TTFT_TARGET",
     .type = CONF_F64,
     .offset = AT(ttft_ms),
     .help = "time to first token that a request without nvext.router.ttft_target wants"},
    {.flag = "default-itl-target-ms",
     .alias = "default-itl-target",
     .env = "DYN_GLOBAL_ROUTER_DEFAULT_ITL_TARGET_MS",
     .env_alias = "DYN_GLOBAL_ROUTER_DEFAULT_ITL_TARGET",
     .type = CONF_F64,
     .offset = AT(itl_ms),
     .help = "time between tokens that one without itl_target wants"},
};

/* Beginnings of names: discovery, request plane, files of models, logs. */
static const char *const TAKEN[] = {
    "store-kv",
    "discovery-",
    "DYN_FILE_KV",
    "ETCD_",
    "COMMUTATOR_DISCOVERY_MISMATCH",
    "request-plane",
    "response-plane",
    "tcp-tls-",
    "DYN_TCP_",
    "DYN_HTTP_RPC_",
    "DYN_HTTP_REQUEST_TIMEOUT",
    "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS",
    "NATS_",
    "DYN_NATS_REQUEST_TIMEOUT_SECS",
    "POD_",
    "COMMUTATOR_CALL_HOME_TIMEOUT",
    "first-token-timeout",
    "output-gap-timeout",
    "DYN_SYSTEM_",
    "HF_",
    "DYN_LOG",
};

static bool is_taken(const struct conf_field *f)
{
    struct str name = str_from(f->flag ? f->flag : f->env);

    for (size_t i = 0; i < ARRAY_LEN(TAKEN); i++)
        if (str_starts(name, str_from(TAKEN[i])))
            return true;
    return false;
}

const struct conf_spec *global_options_spec(void)
{
    static struct conf_spec spec = {
        .program = "dynamo-router global",
        .summary = "Hands each request to the router of one of several pools of workers.",
    };
    const struct conf_spec *route = route_options_spec();
    struct conf_field *fields;

    if (spec.fields)
        return &spec;
    spec.fields = fields = xcalloc(ARRAY_LEN(OWN) + route->n_fields, sizeof(*fields));
    for (size_t i = 0; i < ARRAY_LEN(OWN); i++)
        fields[spec.n_fields++] = OWN[i];
    for (size_t i = 0; i < route->n_fields; i++)
        if (is_taken(&route->fields[i]))
            fields[spec.n_fields++] = route->fields[i];
    return &spec;
}

int global_options_derive(struct global_options *o, struct err *e)
{
    struct frontend_conf *base = &o->route.base;

    if (!o->pools_file || !*o->pools_file)
        return err_set(e, -EINVAL, "--config is needed");
    if (!base->model_name || !*base->model_name)
        return err_set(e, -EINVAL, "--model-name is needed");
    o->route.ns = xstrdup(base->ns);
    return system_options_derive(&o->route.system, SYSTEM_PORT_MAX, e);
}

void global_options_done(struct global_options *o)
{
    route_options_done(&o->route);
}
