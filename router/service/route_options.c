/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/route_options.h"

#include <errno.h>

#include "lib/base/mem.h"
#include "router/frontend/policy_file.h"
#include "router/sched/worker_selection.h"

#define AT(member) offsetof(struct route_options, member)

static const struct conf_field OWN[] = {
    {.flag = "endpoint",
     .env = "DYN_ROUTER_ENDPOINT",
     .type = CONF_STR,
     .offset = AT(endpoint_text),
     .help = "whose workers to route to: namespace.component.endpoint; required"},
    {.flag = "block-size",
     .alias = "router-block-size",
     .env = "DYN_ROUTER_BLOCK_SIZE",
     .type = CONF_U64,
     .offset = AT(block_size),
     .initial = "128",
     .min = 1,
     .max = 65536,
     .help = "tokens of a KV block; must be the engine's"},
    {.flag = "namespace",
     .env = "DYN_NAMESPACE",
     .type = CONF_STR,
     .offset = AT(base.ns),
     .help = "where this router registers; unset = the endpoint's namespace"},
    {.env = "DYN_NAMESPACE_WORKER_SUFFIX",
     .type = CONF_STR,
     .offset = AT(worker_suffix),
     .help = "the workers' namespace is that of the endpoint, '-' and this"},
#include "router/service/system_options.inc"
    {.env = "DYN_TCP_RPC_PORT",
     .type = CONF_U64,
     .offset = AT(tcp_port),
     .max = 65535,
     .help = "port of the request plane, 0 = a free one"},
    {.env = "DYN_HTTP_RPC_HOST",
     .type = CONF_STR,
     .offset = AT(http_host),
     .help = "address of the request plane over HTTP (default: that of TCP)"},
    {.env = "DYN_HTTP_RPC_PORT",
     .type = CONF_U64,
     .offset = AT(http_port),
     .initial = "8888",
     .max = 65535,
     .help = "its port, 0 = a free one"},
    {.env = "DYN_HTTP_RPC_ROOT_PATH",
     .type = CONF_STR,
     .offset = AT(http_root),
     .initial = "/v1/rpc",
     .help = "above its endpoints"},
};

/* Of the frontend alone: it serves HTTP, reads models, has modes and is configured while it runs. What
 * ends in '_' is how names begin. */
static const char *const NOT_HERE[] = {
    "namespace",
    "http-host",
    "http-port",
    "router-mode",
    "DYN_ENCODER_CUDA_TO_CPU_RATIO",
    "kv-cache-block-size",
    "model-root",
    "engine-url",
    "model-name",
    "model-path",
    "metrics-prefix",
    "interactive",
    "kserve-grpc-server",
    "dyn-chat-processor",
    "http-connections-max",
    "requests-max",
    "routing-file",
    "enforce-disagg",
    "router-session-affinity-ttl-secs",
    "router-session-affinity-mode",
    "tls-cert-path",
    "tls-key-path",
    "tls-client-ca-cert-path",
    "enable-anthropic-api",
    "strip-anthropic-preamble",
    "enable-streaming-tool-dispatch",
    "enable-streaming-reasoning-dispatch",
    "reasoning-field-name",
    "DYN_RUNTIME_INHIBITED_DURATION_SECS",
    "DYN_HTTP_BODY_LIMIT_MB",
    "DYN_HTTP_SVC_",
    "DYN_METRICS_",
    "DYN_DISABLE_FRONTEND_",
    "DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS",
    "DYN_ENABLE_FORCE_INCLUDE_USAGE",
    "COMMUTATOR_ROUTING_CONFIGMAP",
};

static bool is_here(const struct conf_field *f)
{
    struct str name = str_from(f->flag ? f->flag : f->env);

    for (size_t i = 0; i < ARRAY_LEN(NOT_HERE); i++)
        if (str_is(name, NOT_HERE[i]) ||
            (str_ends(str_from(NOT_HERE[i]), STR("_")) && str_starts(name, str_from(NOT_HERE[i]))))
            return false;
    return true;
}

const struct conf_spec *route_options_spec(void)
{
    static struct conf_spec spec = {
        .program = "dynamo-router route",
        .summary = "Routes the requests of other components to the workers of one endpoint.",
    };
    struct conf_field *fields;

    if (spec.fields)
        return &spec;
    spec.fields = fields = xcalloc(ARRAY_LEN(OWN) + FRONTEND_CONF_SPEC.n_fields, sizeof(*fields));
    for (size_t i = 0; i < ARRAY_LEN(OWN); i++)
        fields[spec.n_fields++] = OWN[i];
    for (size_t i = 0; i < FRONTEND_CONF_SPEC.n_fields; i++)
        if (is_here(&FRONTEND_CONF_SPEC.fields[i]))
            fields[spec.n_fields++] = FRONTEND_CONF_SPEC.fields[i];
    return &spec;
}

/* --- derived ---------------------------------------------------------------------------------- */

static bool is_name(struct str s, bool dots)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
              (dots && c == '.')))
            return false;
    }
    return s.len > 0;
}

/* Cuts the part behind the last dot off @s. */
static struct str take_last(struct str *s)
{
    size_t dot = s->len;
    struct str last;

    while (dot > 0 && s->ptr[dot - 1] != '.')
        dot--;
    last = str_skip(*s, dot);
    *s = str_head(*s, dot ? dot - 1 : 0);
    return last;
}

/* The last two parts are component and endpoint; a namespace may hold dots. */
int endpoint_name_parse(const char *text, struct endpoint_name *ret, struct err *e)
{
    struct str s = str_from(text);

    if (s.len == 0)
        return err_set(e, -EINVAL, "--endpoint is needed: namespace.component.endpoint");
    if (str_starts(s, STR("dyn://")))
        s = str_skip(s, 6);
    ret->endpoint = take_last(&s);
    ret->component = take_last(&s);
    ret->ns = s;
    if (!is_name(s, true) || !is_name(ret->component, false) || !is_name(ret->endpoint, false))
        return err_set(e, -EINVAL, "--endpoint: '%s' is not namespace.component.endpoint", text);
    return 0;
}

static int parse_endpoint(struct route_options *o, struct err *e)
{
    const char *suffix = o->worker_suffix;
    struct endpoint_name n;
    int r = endpoint_name_parse(o->endpoint_text, &n, e);

    if (r < 0)
        return r;
    o->ns = o->base.ns && *o->base.ns ? xstrdup(o->base.ns) : str_dup(n.ns);
    o->worker_ns = suffix && *suffix ? xasprintf("%.*s-%s", STR_ARG(n.ns), suffix) : str_dup(n.ns);
    o->component = str_dup(n.component);
    o->endpoint = str_dup(n.endpoint);
    return 0;
}

int route_options_derive(struct route_options *o, struct err *e)
{
    int r = system_options_derive(&o->system, SYSTEM_PORT_MAX, e);

    o->base.route.mode = ROUTE_KV;
    if (r == 0)
        r = policy_file_apply_to_service(&o->base, e);
    if (r == 0)
        r = frontend_conf_check_load_model(&o->base, e);
    worker_selection_apply(&o->base.route, ROUTE_AGGREGATED);
    if (r == 0)
        r = frontend_conf_settle_index(&o->base, e);
    return r < 0 ? r : parse_endpoint(o, e);
}

void route_options_done(struct route_options *o)
{
    free(o->ns);
    free(o->worker_ns);
    free(o->component);
    free(o->endpoint);
}
