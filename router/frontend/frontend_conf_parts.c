/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What parts of the process are configured with, out of the options, and what of these goes together.
 */
#include "router/frontend/frontend_conf.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "lib/base/json_pull.h"
#include "router/frontend/policy_file.h"
#include "router/wire/plane_address.h"

static struct nats_link_conf nats_of(const struct frontend_conf *c, const char *program)
{
    return (struct nats_link_conf){
        .servers = c->nats_server,
        .user = c->nats_user,
        .password = c->nats_password,
        .token = c->nats_token,
        .nkey = c->nats_nkey,
        .credentials_file = c->nats_credentials,
        .tls = {c->nats_tls_ca, c->nats_tls_cert, c->nats_tls_key, c->nats_tls_unverified},
        .name = program};
}

struct plane_client_conf frontend_conf_plane(const struct frontend_conf *c, const char *program)
{
    const char *reached = c->pod_ip ? c->pod_ip : c->tcp_rpc_host;

    return (struct plane_client_conf){.advertise_ip = c->home_host ? c->home_host : reached,
                                      .listen_host = c->home_host,
                                      .listen_port = (uint16_t)c->home_port,
                                      .connect_ms = c->connect_ms,
                                      .ack_ms = c->ack_ms,
                                      .nats_ack_ms = c->nats_ack_ms,
                                      .http_ack_ms = c->http_ack_ms,
                                      .call_home_ms = c->call_home_ms,
                                      .first_item_ms = c->first_token_ms,
                                      .gap_ms = c->gap_ms,
                                      .pool_max = c->pool_max,
                                      .nats = nats_of(c, program),
                                      .tls = &c->plane_tls,
                                      .nats_early = c->request_plane == PLANE_NATS};
}

struct kv_events_conf frontend_conf_events(const struct frontend_conf *c, const char *program)
{
    return (struct kv_events_conf){
        .nats = nats_of(c, program),
        .zmq = c->event_plane == EVENT_PLANE_ZMQ,
        .brokers = c->zmq_brokers,
        .find_brokers = c->zmq_find_brokers,
        .stream_max_age_s = c->stream_max_age_ms / 1000,
        .snapshot_threshold = c->snapshot_threshold,
        .reset_states = c->reset_states,
        .index_folder = c->index_folder,
        .index_period_ms = c->index_period_ms,
    };
}

bool frontend_conf_is_routing(struct str env_name)
{
    return str_starts(env_name, STR("DYN_ROUTER_")) || str_starts(env_name, STR("DYN_KV_")) ||
           str_starts(env_name, STR("COMMUTATOR_ROUTER_")) ||
           str_is(env_name, "DYN_ENCODER_CUDA_TO_CPU_RATIO") ||
           str_starts(env_name, STR("DYN_SHARED_CACHE_")) ||
           (str_starts(env_name, STR("DYN_ACTIVE_")) && str_has(env_name, STR("_THRESHOLD")));
}

/* Each key of the JSON object is a variable of the table, in lower case and without its head. */
static int set_bypass(struct frontend_conf *c, struct str key, struct str value, struct err *e)
{
    static const char *const keys[] = {"policy", "eff_isl_threshold", "eff_isl_ratio_threshold",
                                       "prefill_busy_threshold", "decode_busy_threshold"};
    AUTO(mem_free) char *name = xasprintf("DYN_ROUTER_CONDITIONAL_DISAGG_%.*s", STR_ARG(key));

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (!str_is(key, keys[i]))
            continue;
        for (char *at = name; *at; at++)
            if (*at >= 'a' && *at <= 'z')
                *at = (char)(*at - 'a' + 'A');
        if (value.len >= 2 && value.ptr[0] == '"')
            value = str_slice(value.ptr + 1, value.len - 2);
        return str_is(value, "null") ? 0
                                     : conf_set(&FRONTEND_CONF_SPEC, c, str_from(name), value, e);
    }
    return err_set(e, -EINVAL, "unknown key '%.*s'", STR_ARG(key));
}

static int load_bypass(struct frontend_conf *c, struct err *e)
{
    struct json_pull p;
    struct str key, value;
    int r = 0;

    json_pull_init(&p, str_from(c->bypass_json));
    if (json_pull_object(&p))
        while (r == 0 && json_pull_key(&p, &key) && json_pull_skip(&p, &value))
            r = set_bypass(c, key, value, e);
    if (r == 0)
        r = json_pull_end(&p, e);
    return r < 0 ? err_wrap(e, r, "--router-conditional-disagg-config") : 0;
}

static bool wants_nats_tls(const struct frontend_conf *c)
{
    return c->nats_tls_ca || c->nats_tls_cert || c->nats_tls_unverified;
}

/* Routes are compared with what is asked for as it is, without its query. */
static int check_paths(const struct frontend_conf *c, struct err *e)
{
    for (size_t i = 0; i < FRONTEND_PATHS; i++)
        if (c->paths[i][0] != '/' || strpbrk(c->paths[i], "*?# "))
            return err_set(e, -EINVAL, "DYN_HTTP_SVC_*_PATH: '%s' is not a path", c->paths[i]);
    return 0;
}

static int check_histograms(const struct frontend_conf *c, struct err *e)
{
    for (size_t i = 0; i < FRONTEND_HISTOGRAMS; i++)
        if (c->histograms[i].min >= c->histograms[i].max)
            return err_set(e, -EINVAL, "DYN_METRICS_*_MIN: %g is not below its _MAX, %g",
                           c->histograms[i].min, c->histograms[i].max);
    return 0;
}

int frontend_conf_settle_index(struct frontend_conf *c, struct err *e)
{
    if (c->serve_indexer && c->use_remote_indexer)
        return err_set(e, -EINVAL,
                       "--serve-indexer and --use-remote-indexer are mutually exclusive");
    if (c->route.approx_policy == APPROX_LRU && c->route.use_kv_events && !c->route.load_aware)
        return err_set(e, -EINVAL,
                       "--router-approximate-cache-policy lru goes without events: --no-kv-events");
    if (!c->use_remote_indexer)
        return 0;
    c->route.remote = c->route.use_kv_events ? ROUTE_REMOTE_EVENTS : ROUTE_REMOTE_WRITES;
    c->route.use_kv_events = false;
    return 0;
}

int frontend_conf_check_load_model(const struct frontend_conf *c, struct err *e)
{
    if (c->route.prefill_load_model == PREFILL_LOAD_NONE)
        return 0;
    return err_set(e, -EINVAL,
                   "--router-prefill-load-model: only none is here; ais and aic predict prompts by "
                   "a simulator of NVIDIA's, which is not");
}

static int check_absent(const struct frontend_conf *c, struct err *e)
{
    if (c->absent.console)
        return err_set(e, -EINVAL, "--interactive: there is no console here");
    if (c->absent.kserve)
        return err_set(e, -EINVAL, "--kserve-grpc-server: KServe's API is not served here");
    if (c->absent.chat_processor)
        return err_set(e, -EINVAL,
                       "--dyn-chat-processor: only dynamo is here; the others are Python");
    return 0;
}

int frontend_conf_load(struct frontend_conf *ret, int argc, char *const *argv,
                       const char *(*env)(const char *name), struct err *e)
{
    const struct bypass_conf *bypass = &ret->route.bypass;
    int r = conf_load(&FRONTEND_CONF_SPEC, ret, argc, argv, env, e);

    if (r == 0)
        r = policy_file_apply(ret, e);
    if (r == 0 && ret->bypass_json)
        r = load_bypass(ret, e);
    if (r == 0 && bypass->enabled && bypass->policy != BYPASS_ISL_BOUNDING &&
        isnan(bypass->prefill_busy))
        r = err_set(e, -EINVAL,
                    "--router-conditional-disagg: policy %s needs prefill_busy_threshold",
                    BYPASS_POLICY_WORDS[bypass->policy]);
    if (r == 0 && !ret->tls_cert != !ret->tls_key)
        r = err_set(e, -EINVAL, "--tls-cert-path and --tls-key-path need each other");
    if (r == 0 && ret->tls_client_ca && !ret->tls_cert)
        r = err_set(e, -EINVAL, "--tls-client-ca-cert-path needs --tls-cert-path");
    if (r == 0)
        r = check_paths(ret, e);
    if (r == 0)
        r = check_histograms(ret, e);
    if (r == 0)
        r = plane_tls_check(&ret->plane_tls, e);
    if (r == 0)
        r = frontend_conf_check_load_model(ret, e);
    if (r == 0)
        r = check_absent(ret, e);
    if (r == 0)
        r = response_plane_check(ret->response_plane, e);
    if (r == 0 && !ret->nats_tls_cert != !ret->nats_tls_key)
        r = err_set(e, -EINVAL,
                    "--nats-tls-client-cert-path and --nats-tls-client-key-path need each other");
    if (r == 0 && wants_nats_tls(ret) && !str_starts(str_from(ret->nats_server), STR("tls://")))
        /* As there: else nobody would notice that it is plain. */
        r = err_set(e, -EINVAL, "--nats-tls-* need a NATS_SERVER that begins with tls://");
    if (r == 0 && ret->route.load_aware)
        ret->route.mode = ROUTE_KV; /* as in 1.x */
    if (r == 0)
        r = frontend_conf_settle_index(ret, e);
    return r;
}

void frontend_conf_put_idle(const struct frontend_conf *c, struct buf *out)
{
    for (size_t i = 0; i < FRONTEND_CONF_SPEC.n_fields; i++) {
        const struct conf_field *f = &FRONTEND_CONF_SPEC.fields[i];
        bool given = false;

        for (size_t k = 0; k < FRONTEND_IDLE_WORDS; k++)
            given |= f->offset == offsetof(struct frontend_conf, idle_words[k]) && c->idle_words[k];
        for (size_t k = 0; k < FRONTEND_IDLE_FLAGS; k++)
            given |= f->offset == offsetof(struct frontend_conf, idle_flags[k]) && c->idle_flags[k];
        if (given)
            buf_printf(out, "%s--%s", out->len ? " " : "", f->flag);
    }
}
