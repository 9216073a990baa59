/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/http_options.h"

#include "lib/base/log.h"
#include "router/frontend/policy_file.h"
#include "router/sched/policy.h"
#include "router/sched/worker_selection.h"

static const struct log_target LG = {"commutator::router::select"};

enum { FIELDS_MAX = 96 };

#define AT(member) offsetof(struct http_options, member)

/* What every service has, but for the default of its port. */
#define PORT(default_port)                                                                         \
    {                                                                                              \
        .flag = "port", .type = CONF_U64, .offset = AT(port), .initial = (default_port),           \
        .max = 65535, .help = "port to listen on, 0 = a free one"                                  \
    }
#define HOST                                                                                       \
    {                                                                                              \
        .flag = "host", .type = CONF_STR, .offset = AT(host), .initial = "0.0.0.0",                \
        .help = "address to listen on"                                                             \
    }
#define REPLICA_SYNC                                                                               \
    {.flag = "replica-sync-port",                                                                  \
     .type = CONF_U64,                                                                             \
     .offset = AT(replica_port),                                                                   \
     .min = 1,                                                                                     \
     .max = 65535,                                                                                 \
     .help = "ZeroMQ port on which other services hear what this one places"},                     \
    {                                                                                              \
        .flag = "replica-sync-peers", .type = CONF_STR, .offset = AT(replica_peers),               \
        .help = "such ports of others, \"tcp://host:port,…\""                                    \
    }

static const struct conf_field SELECT[] = {
    PORT("8092"),
    HOST,
    {.flag = "threads", .type = CONF_U64, .offset = AT(threads), .initial = "4", .help = NULL},
    {.flag = "indexer-peers",
     .type = CONF_STR,
     .offset = AT(peers),
     .help = "URLs of services whose /dump tells what workers hold, a comma list"},
    {.flag = "selection-cache-ttl-secs",
     .type = CONF_DURATION,
     .offset = AT(cache_ttl_ms),
     .initial = "120",
     .help = "how long a selection may be reserved by its id"},
    {.flag = "selection-cache-max-entries",
     .type = CONF_U64,
     .offset = AT(cache_entries),
     .initial = "4096",
     .max = 1e7,
     .help = "selections that wait for that"},
    {.flag = "selection-cache-max-bytes",
     .type = CONF_U64,
     .offset = AT(cache_bytes),
     .initial = "268435456",
     .max = 1e12,
     .help = "their memory"},
    REPLICA_SYNC,
};

static const struct conf_field INDEX[] = {
    PORT("8090"),
    HOST,
    {.flag = "threads", .type = CONF_U64, .offset = AT(threads), .initial = "4", .help = NULL},
    {.flag = "block-size",
     .type = CONF_U64,
     .offset = AT(block_size),
     .min = 1,
     .max = 65536,
     .help = "tokens of a KV block of the workers of --workers"},
    {.flag = "workers",
     .type = CONF_STR,
     .offset = AT(workers),
     .help = "workers to follow from the start: \"id[:rank]=tcp://host:port,…\""},
    {.flag = "model-name",
     .type = CONF_STR,
     .offset = AT(model_name),
     .initial = "default",
     .help = "their model"},
    {.flag = "routing-group",
     .alias = "tenant-id",
     .type = CONF_STR,
     .offset = AT(routing_group),
     .initial = "default",
     .help = "their routing group"},
    {.flag = "peers",
     .type = CONF_STR,
     .offset = AT(peers),
     .help = "URLs of other indexers, whose /dump is taken over at the start, a comma list"},
    {.flag = "access-log",
     .type = CONF_STR,
     .offset = AT(access_log),
     .help = "file for one line of JSON per request"},
    {.flag = "trace-id-header",
     .type = CONF_STR,
     .offset = AT(trace_id_header),
     .initial = "x-trace-id",
     .help = "request header whose value is in it"},
    {.flag = "access-log-local-time",
     .type = CONF_BOOL,
     .offset = AT(access_log_local),
     .help = "its times are those of the local zone"},
    {.env = "DYN_KV_INDEXER_TEST_ENDPOINTS",
     .type = CONF_BOOL,
     .offset = AT(test_endpoints),
     .initial = "false",
     .help = "serve /test/pause_listener and /test/resume_listener, for tests"},
};

static const struct conf_field SLOTS[] = {
    PORT("8091"),
    HOST,
    REPLICA_SYNC,
};

/* Routing and logs. */
static bool is_shared(const struct conf_field *f)
{
    size_t first = offsetof(struct http_options, base.route);
    struct str env = str_from(f->env);

    if (str_is(env, "DYN_LOG") || str_is(env, "DYN_LOGGING_JSONL"))
        return true;
    if (f->flag && (str_ends(str_from(f->flag), STR("-records")) ||
                    str_starts(str_from(f->flag), STR("record-decisions")) ||
                    str_starts(str_from(f->flag), STR("router-tracking-"))))
        return true;
    return f->offset >= first && f->offset < first + sizeof(struct route_conf) &&
           !(f->flag && str_is(str_from(f->flag), "router-mode"));
}

static bool is_of_queue_or_policy(const struct conf_field *f)
{
    static const char *const flags[] = {"router-policy-config", "router-prefill-policy",
                                        "router-decode-policy", "router-queue-threshold",
                                        "router-queue-policy",  "router-queue-limit",
                                        "router-queue-patience"};

    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        if (f->flag && str_is(str_from(f->flag), flags[i]))
            return true;
    return false;
}

/* @routes: the service routes, so its users may want to say how. */
static void fill(struct conf_spec *spec, struct conf_field *fields, const struct conf_field *own,
                 size_t n_own, bool routes)
{
    if (spec->n_fields > 0)
        return;
    spec->fields = fields;
    for (size_t i = 0; i < n_own; i++)
        fields[spec->n_fields++] = own[i];
    for (size_t i = 0; i < FRONTEND_CONF_SPEC.n_fields && spec->n_fields < FIELDS_MAX; i++) {
        if (!is_shared(&FRONTEND_CONF_SPEC.fields[i]) &&
            !(routes && is_of_queue_or_policy(&FRONTEND_CONF_SPEC.fields[i])))
            continue;
        fields[spec->n_fields] = FRONTEND_CONF_SPEC.fields[i];
        if (routes && str_is(str_from(fields[spec->n_fields].flag), "router-policy"))
            fields[spec->n_fields].initial = POLICY_DYNAMO_1.name; /* that of the service's model */
        if (str_is(str_from(fields[spec->n_fields].flag), "router-session-affinity-ttl-secs")) {
            fields[spec->n_fields].alias = "session-affinity-ttl-secs";
            fields[spec->n_fields].help =
                "requests with one session_id stay with a worker until unused so long; 0 = off";
        }
        if (!routes && !str_starts(str_from(fields[spec->n_fields].env), STR("DYN_LOG")))
            fields[spec->n_fields].help = NULL; /* a default that must be there */
        spec->n_fields++;
    }
}

const struct conf_spec *select_options_spec(void)
{
    static struct conf_field fields[FIELDS_MAX];
    static struct conf_spec spec = {
        .program = "dynamo-router select",
        .summary =
            "Chooses workers for gateways that send the requests themselves: JSON over HTTP."};

    fill(&spec, fields, SELECT, ARRAY_LEN(SELECT), true);
    return &spec;
}

int select_options_derive(struct http_options *o, struct err *e)
{
    struct route_conf *route = &o->base.route;
    int r = policy_file_apply_to_service(&o->base, e);

    if (r == 0)
        r = frontend_conf_check_load_model(&o->base, e);
    if (r < 0)
        return r;
    if (route->selectors[ROUTE_PREFILL].given || route->selectors[ROUTE_DECODE].given)
        log_warn(&LG, "what is selected for prefill and decode is not heeded: here is one stage");
    worker_selection_apply(route, ROUTE_AGGREGATED);
    return 0;
}

const struct conf_spec *index_options_spec(void)
{
    static struct conf_field fields[FIELDS_MAX];
    static struct conf_spec spec = {
        .program = "dynamo-router index",
        .summary = "Tells which worker holds how much of a prompt: JSON over HTTP."};

    fill(&spec, fields, INDEX, ARRAY_LEN(INDEX), false);
    return &spec;
}

const struct conf_spec *slots_options_spec(void)
{
    static struct conf_field fields[FIELDS_MAX];
    static struct conf_spec spec = {
        .program = "dynamo-router slots",
        .summary = "Keeps account of requests whose workers others choose: JSON over HTTP."};

    fill(&spec, fields, SLOTS, ARRAY_LEN(SLOTS), false);
    return &spec;
}
