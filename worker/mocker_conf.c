/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mocker_conf.h"

#include <errno.h>
#include <string.h>

#include "lib/base/json_pull.h"
#include "lib/net/file.h"
#include "router/discovery/model_cache.h"
#include "router/wire/plane_address.h"

enum { ARGS_FILE_MAX = 1 << 20 };

static const char *const ROLES[] = {"agg", "prefill", "decode", NULL};
static const char *const KUBE_MODES[] = {"pod", "container", NULL};
static const char *const TIMINGS[] = {"reference", "saturating", NULL};
static const char *const PUBLISH_AS[] = {"component", "endpoint", NULL};
#define AT(member) offsetof(struct mocker_conf, member)
/* clang-format off */
static const struct conf_field FIELDS[] = {
    {"model-path", NULL, NULL, NULL, CONF_STR, AT(model_path), NULL, 0, 0, NULL,
     "directory of the model: config.json, tokenizer.json, …; or its name at the hub"},
    {"model-name", NULL, NULL, NULL, CONF_STR, AT(model_name), NULL, 0, 0, NULL,
     "name towards clients (default: the path)"},
    {"endpoint", NULL, NULL, NULL, CONF_STR, AT(endpoint_text), NULL, 0, 0, NULL,
     "dyn://namespace.component.endpoint (default: dyn://$DYN_NAMESPACE.backend.generate)"},
    {"num-gpu-blocks-override", "num-gpu-blocks", NULL, NULL, CONF_U64, AT(n_blocks), "16384", 2, 16777216, NULL,
     "KV blocks of the cache"},
    {"block-size", NULL, NULL, NULL, CONF_U64, AT(block_size), "64", 1, 65536, NULL,
     "tokens of a KV block"},
    {"max-num-seqs", NULL, NULL, NULL, CONF_U64, AT(max_num_seqs), "256", 1, 1000000, NULL,
     "sequences running at once"},
    {"max-num-batched-tokens", NULL, NULL, NULL, CONF_U64, AT(max_num_batched_tokens), "8192", 1, 100000000, NULL,
     "tokens of one pass"},
    {"enable-prefix-caching", NULL, NULL, NULL, CONF_BOOL, AT(prefix_caching), "true", 0, 0, NULL,
     "reuse KV blocks"},
    {"enable-chunked-prefill", NULL, NULL, NULL, CONF_BOOL, AT(chunked_prefill), "true", 0, 0, NULL,
     "split long prompts over passes"},
    {"watermark", NULL, NULL, NULL, CONF_F64, AT(watermark), "0.01", 0, 0.99, NULL,
     "share of the blocks that admission leaves free"},
    {"speedup-ratio", NULL, NULL, NULL, CONF_F64, AT(speedup_ratio), "1.0", 0, 1e9, NULL,
     "divides all durations; 0 = no delays"},
    {"decode-timing", NULL, NULL, NULL, CONF_ENUM, AT(decode_timing), "reference", 0, 0, TIMINGS,
     "reference | saturating: the reference's decode time falls to 0 above 36,000 active tokens"},
    {"data-parallel-size", NULL, NULL, NULL, CONF_U64, AT(dp_size), "1", 1, 64, NULL,
     "ranks, each an engine of its own"},
    {"startup-time", NULL, NULL, NULL, CONF_DURATION, AT(startup_ms), "0", 0, 0, NULL,
     "seconds before the worker registers"},
    {"num-workers", NULL, NULL, NULL, CONF_U64, AT(n_workers), "1", 1, MOCKER_WORKERS_MAX, NULL,
     "workers in this process, each with an id of its own"},
    {"extra-engine-args", NULL, NULL, NULL, CONF_STR, AT(extra_engine_args), NULL, 0, 0, NULL,
     "JSON file of engine options; wins over flags"},
    {"enable-local-indexer", NULL, "DYN_LOCAL_INDEXER", NULL, CONF_BOOL, AT(local_indexer), "true", 0, 0, NULL,
     "answer recovery queries of routers; without it KV events go into JetStream"},
    {"publish-as", NULL, NULL, NULL, CONF_ENUM, AT(publish_as), "component", 0, 0, PUBLISH_AS,
     "component | endpoint: whose routers hear KV events and load, those of 0.9.0 or of 1.x; ours hear either"},
    {"kv-events", NULL, NULL, NULL, CONF_BOOL, AT(kv_events), "true", 0, 0, NULL,
     "publish KV events and load"},
    {"eos-probability", NULL, NULL, NULL, CONF_F64, AT(eos_probability), "0", 0, 1, NULL,
     "chance of each token to be the end of the sequence"},
    {"context-length", "max-model-len", NULL, NULL, CONF_U64, AT(context_length), "0", 0, 4294967295, NULL,
     "tokens of prompt and answer; 0 = from the model"},
    {"migration-limit", NULL, NULL, NULL, CONF_U64, AT(migration_limit), "0", 0, 1000, NULL,
     "how often frontends may move a broken stream"},
    {"dyn-tool-call-parser", NULL, NULL, NULL, CONF_STR, AT(tool_call_parser), NULL, 0, 0, NULL,
     "tool-call parser that the card names"},
    {"dyn-reasoning-parser", NULL, NULL, NULL, CONF_STR, AT(reasoning_parser), NULL, 0, 0, NULL,
     "reasoning parser that the card names"},
    {"seed", NULL, NULL, NULL, CONF_U64, AT(seed), "0", 0, 0, NULL,
     "of the output tokens; 0 = from the instance id"},
    {"max-waiting", NULL, NULL, NULL, CONF_U64, AT(waiting_max), "4096", 1, 1000000, NULL,
     "requests that may wait; more are refused"},
    {"store-kv", NULL, "DYN_STORE_KV", NULL, CONF_STR, AT(store_kv), "etcd", 0, 0, NULL,
     "discovery without Kubernetes: etcd | file"},
    {"discovery-backend", NULL, "DYN_DISCOVERY_BACKEND", NULL, CONF_STR, AT(discovery_backend), NULL, 0, 0, NULL,
     "kubernetes | etcd | file | kv_store (default: what --store-kv says)"},
    {"request-plane", NULL, "DYN_REQUEST_PLANE", NULL, CONF_ENUM, AT(request_plane), "tcp", 0, 0, PLANE_WORDS,
     "what carries requests"},
    {"event-plane", NULL, "DYN_EVENT_PLANE", NULL, CONF_STR, AT(event_plane), "nats", 0, 0, NULL,
     "nats | zmq | none"},
    {NULL, NULL, "DYN_ZMQ_BROKER_URL", NULL, CONF_STR, AT(zmq_brokers), NULL, 0, 0, NULL,
     "publish to brokers: xsub=tcp://h:p[;...] , xpub=tcp://h:p[;...]"},
    {NULL, NULL, "DYN_ZMQ_BROKER_ENABLED", NULL, CONF_BOOL, AT(zmq_find_brokers), "false", 0, 0, NULL,
     "publish to the brokers that discovery knows"},
    {"disaggregation-mode", NULL, NULL, NULL, CONF_ENUM, AT(role), "agg", 0, 0, ROLES,
     "agg | prefill | decode: compute prompts and answer, only the one, or only the other"},
    {"is-prefill-worker", NULL, NULL, NULL, CONF_BOOL, AT(is_prefill), "false", 0, 0, NULL,
     "the same as --disaggregation-mode prefill"},
    {"is-decode-worker", NULL, NULL, NULL, CONF_BOOL, AT(is_decode), "false", 0, 0, NULL,
     "the same as --disaggregation-mode decode"},
    {"planner-profile-data", NULL, NULL, NULL, CONF_STR, AT(profile_data), NULL, 0, 0, NULL, NULL},
    {"bootstrap-ports", NULL, NULL, NULL, CONF_STR, AT(bootstrap_ports_text), NULL, 0, 0, NULL,
     "a comma list, one port a worker: where decode workers wait for prompts that a prefill worker computes"},
    {"zmq-kv-events-ports", NULL, NULL, NULL, CONF_STR, AT(engine_ports_text), NULL, 0, 0, NULL,
     "a comma list, one port a worker (ranks count up): KV events on the wire of engines (vLLM), too"},
    {"zmq-replay-ports", NULL, NULL, NULL, CONF_STR, AT(engine_replay_ports_text), NULL, 0, 0, NULL,
     "likewise: where batches of theirs that were missed can be had again"},
    {"openai-port", NULL, NULL, NULL, CONF_U64, AT(openai_port), "0", 0, 65535, NULL,
     "stand for an engine without the Dynamo runtime: the OpenAI API on this port (workers count up), as vllm serve"},
    {NULL, NULL, "DYN_NAMESPACE", NULL, CONF_STR, AT(ns_env), "dynamo", 0, 0, NULL, "namespace"},
    {NULL, NULL, "DYN_FILE_KV", NULL, CONF_STR, AT(file_kv), NULL, 0, 0, NULL, "root of file discovery"},
    ETCD_CONF_FIELDS(struct mocker_conf, etcd),
#include "lib/net/nats_options.inc"
    {NULL, NULL, "DYN_NATS_STREAM_MAX_AGE", NULL, CONF_DURATION, AT(stream_max_age_ms), "3600", 0, 0, NULL,
     "how long a stream that we make keeps events"},
#include "router/wire/plane_options.inc"
#include "router/service/system_options.inc"
    {NULL, NULL, "DYN_SELF_HOST_METADATA", NULL, CONF_BOOL, AT(self_host_metadata), "false", 0, 0, NULL,
     "serve the model's files there and name them so in the card, as 1.x does (0.9 frontends cannot read it)"},
    {NULL, NULL, "DYN_TCP_RPC_HOST", NULL, CONF_STR, AT(tcp_host), NULL, 0, 0, NULL, "address of the request plane"},
    {NULL, NULL, "DYN_TCP_RPC_PORT", NULL, CONF_U64, AT(tcp_port), "0", 0, 65535, NULL, "its port"},
    {NULL, NULL, "DYN_HTTP_RPC_HOST", NULL, CONF_STR, AT(http_rpc_host), NULL, 0, 0, NULL,
     "address of the request plane over HTTP (default: that of TCP)"},
    {NULL, NULL, "DYN_HTTP_RPC_PORT", NULL, CONF_U64, AT(http_rpc_port), "8888", 0, 65535, NULL, "its port; 0 = a free one"},
    {NULL, NULL, "DYN_HTTP_RPC_ROOT_PATH", NULL, CONF_STR, AT(http_rpc_root), "/v1/rpc", 0, 0, NULL, "above its endpoints"},
    {NULL, NULL, "DYN_TCP_MAX_MESSAGE_SIZE", NULL, CONF_U64, AT(tcp_message_max), "33554432", 1024, 1073741824, NULL, "bytes of one request"},
    {NULL, NULL, "DYN_TCP_WORKER_POOL_SIZE", NULL, CONF_U64, AT(tcp_pool_size), "7500", 1, 1000000, NULL, "requests at once"},
    {NULL, NULL, "DYN_TCP_WORK_QUEUE_SIZE", NULL, CONF_U64, AT(tcp_queue_size), "6000", 1, 1000000, NULL,
     "requests beyond, acknowledged and waiting (and one more, as in 1.6.1); the rest are refused"},
    {NULL, NULL, "DYN_ENGINE_REQUEST_LIMIT", NULL, CONF_U64, AT(request_limit), NULL, 1, 1000000, NULL,
     "requests at once, instead of DYN_TCP_WORKER_POOL_SIZE"},
    {NULL, NULL, "DYN_DYNAMO_REQUEST_QUEUE_LIMIT", NULL, CONF_U64, AT(request_queue_limit), "16", 0, 1000000, NULL,
     "with it: requests beyond, at least 2"},
    {NULL, NULL, "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT", NULL, CONF_DURATION, AT(grace_ms), "30", 0, 0, NULL, "for running streams at shutdown"},
    {NULL, NULL, "POD_NAME", NULL, CONF_STR, AT(pod_name), NULL, 0, 0, NULL, "names the instance in Kubernetes"},
    {NULL, NULL, "POD_UID", NULL, CONF_STR, AT(pod_uid), NULL, 0, 0, NULL, "owner of its record"},
    {NULL, NULL, "POD_NAMESPACE", NULL, CONF_STR, AT(pod_namespace), NULL, 0, 0, NULL, "where its record lives"},
    {NULL, NULL, "DYN_KUBE_DISCOVERY_MODE", NULL, CONF_ENUM, AT(of_container), "pod", 0, 0, KUBE_MODES,
     "pod | container: whose record it is; that of container main bears the pod's name, others add theirs"},
    {NULL, NULL, "CONTAINER_NAME", NULL, CONF_STR, AT(container), NULL, 0, 0, NULL, "of this container, for that"},
    {NULL, NULL, "KUBECONFIG", NULL, CONF_STR, AT(kubeconfig), NULL, 0, 0, NULL, NULL},
    {NULL, NULL, "KUBERNETES_SERVICE_HOST", NULL, CONF_STR, AT(kube_host), NULL, 0, 0, NULL, NULL},
    {NULL, NULL, "KUBERNETES_SERVICE_PORT", NULL, CONF_STR, AT(kube_port), NULL, 0, 0, NULL, NULL},
    {NULL, NULL, "HF_HOME", NULL, CONF_STR, AT(hf_home), NULL, 0, 0, NULL,
     "models named as at the hub are looked for, and downloaded to, hub/ below it"},
    {NULL, NULL, "HF_HUB_CACHE", NULL, CONF_STR, AT(hf_hub_cache), NULL, 0, 0, NULL,
     "that folder itself (default: ~/.cache/huggingface/hub)"},
    {NULL, NULL, "HF_ENDPOINT", NULL, CONF_STR, AT(hf_endpoint), NULL, 0, 0, NULL,
     "base URL of the model hub, or its mirror; unset = nothing is downloaded"},
    {NULL, NULL, "HF_TOKEN", NULL, CONF_STR, AT(hf_token), NULL, 0, 0, NULL, "token for it"},
    {NULL, NULL, "COMMUTATOR_MODEL_CACHE_MB", NULL, CONF_U64, AT(model_cache_mb), "4096", 1, 1e9, NULL,
     "of what is downloaded for models, at most so much stays on disk, in MB"},
    {NULL, NULL, "HF_HUB_OFFLINE", NULL, CONF_BOOL, AT(hf_offline), "false", 0, 0, NULL,
     "download nothing"},
    {NULL, NULL, "DYN_LOG", NULL, CONF_STR, AT(log_filter), NULL, 0, 0, NULL, "log filter"},
    {NULL, NULL, "DYN_LOGGING_JSONL", NULL, CONF_BOOL, AT(log_jsonl), "false", 0, 0, NULL, "log lines as JSON"},
};
/* clang-format on */

const struct conf_spec MOCKER_SPEC = {
    "dynamo-mocker",
    "A worker without a GPU: speaks the worker protocol, models an engine's timing and KV cache.",
    FIELDS,
    ARRAY_LEN(FIELDS),
    false,
};

/* --- extra engine args ------------------------------------------------------------------------ */

static const struct {
    const char *key, *flag;
} EXTRA[] = {
    {"num_gpu_blocks", "num-gpu-blocks-override"},
    {"block_size", "block-size"},
    {"max_num_seqs", "max-num-seqs"},
    {"max_num_batched_tokens", "max-num-batched-tokens"},
    {"enable_prefix_caching", "enable-prefix-caching"},
    {"enable_chunked_prefill", "enable-chunked-prefill"},
    {"watermark", "watermark"},
    {"speedup_ratio", "speedup-ratio"},
    {"dp_size", "data-parallel-size"},
    {"startup_time", "startup-time"},
    {"is_prefill", "is-prefill-worker"},
    {"is_decode", "is-decode-worker"},
    {"planner_profile_data", "planner-profile-data"},
    {"enable_local_indexer", "enable-local-indexer"},
    {"bootstrap_port", "bootstrap-ports"},
};

static int apply_extra(struct mocker_conf *c, struct str key, struct str value, struct err *e)
{
    if (value.len >= 2 && value.ptr[0] == '"')
        value = str_slice(value.ptr + 1, value.len - 2);
    if (str_is(value, "null"))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(EXTRA); i++)
        if (str_is(key, EXTRA[i].key))
            return conf_set(&MOCKER_SPEC, c, str_from(EXTRA[i].flag), value, e);
    return err_set(e, -EINVAL, "unknown key '%.*s'", STR_ARG(key));
}

static int load_extra(struct mocker_conf *c, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct json_pull p;
    struct str key, value;
    int r = file_read(c->extra_engine_args, ARGS_FILE_MAX, &text, e);

    if (r < 0)
        return err_wrap(e, r, "--extra-engine-args");
    json_pull_init(&p, buf_str(&text));
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key) && json_pull_skip(&p, &value)) {
            r = apply_extra(c, key, value, e);
            if (r < 0)
                return err_wrap(e, r, "--extra-engine-args '%s'", c->extra_engine_args);
        }
    }
    r = json_pull_end(&p, e);
    return r < 0 ? err_wrap(e, r, "--extra-engine-args '%s'", c->extra_engine_args) : 0;
}

/* --- derived values --------------------------------------------------------------------------- */

static bool is_name(struct str s, bool dots)
{
    for (size_t i = 0; i < s.len; i++) {
        char ch = s.ptr[i];

        if (!((ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '-' || ch == '_' ||
              (dots && ch == '.')))
            return false;
    }
    return s.len > 0;
}

/* The last two parts are component and endpoint; a namespace may hold dots. */
static int parse_endpoint(struct mocker_conf *c, struct err *e)
{
    AUTO(mem_free)
    char *initial =
        xasprintf("%s.%s.generate", c->ns_env, c->role == MOCKER_PREFILL ? "prefill" : "backend");
    struct str all = str_from(c->endpoint_text ? c->endpoint_text : initial), s = all;
    struct str parts[2]; /* endpoint, component */

    if (str_starts(s, STR("dyn://")))
        s = str_skip(s, 6);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        size_t dot = s.len;

        while (dot > 0 && s.ptr[dot - 1] != '.')
            dot--;
        if (dot == 0)
            return err_set(e, -EINVAL, "endpoint '%.*s' is not dyn://namespace.component.endpoint",
                           STR_ARG(all));
        parts[i] = str_skip(s, dot);
        s = str_head(s, dot - 1);
    }
    if (!is_name(s, true) || !is_name(parts[1], false) || !is_name(parts[0], false))
        return err_set(e, -EINVAL, "endpoint '%.*s': names are made of a-z, 0-9, '-' and '_'",
                       STR_ARG(all));
    c->ns = str_dup(s);
    c->component = str_dup(parts[1]);
    c->endpoint = str_dup(parts[0]);
    return 0;
}

static int choose_discovery(struct mocker_conf *c, struct err *e)
{
    struct str backend = str_from(c->discovery_backend);

    if (c->openai_port) {
        c->discovery = MOCKER_NOWHERE;
        return 0;
    }
    if (backend.len == 0 || str_is(backend, "kv_store"))
        backend = str_from(c->store_kv);
    if (str_is(backend, "kubernetes")) {
        c->discovery = MOCKER_KUBERNETES;
        if (!c->pod_name || !c->pod_uid)
            return err_set(e, -EINVAL, "Kubernetes discovery needs POD_NAME and POD_UID");
        if (c->of_container && !c->container)
            return err_set(e, -EINVAL, "DYN_KUBE_DISCOVERY_MODE=container needs CONTAINER_NAME");
        if (c->n_workers > 1)
            return err_set(e, -EINVAL,
                           "Kubernetes discovery names an instance by its pod: "
                           "--num-workers must be 1, not %llu",
                           (unsigned long long)c->n_workers);
        return 0;
    }
    c->discovery = str_is(backend, "file") ? MOCKER_FILE : MOCKER_ETCD;
    if (c->discovery == MOCKER_FILE || str_is(backend, "etcd"))
        return 0;
    return err_set(e, -ENOTSUP, "discovery '%.*s' is not supported: use kubernetes, etcd or file",
                   STR_ARG(backend));
}

static int choose_planes(struct mocker_conf *c, struct err *e)
{
    struct str events = str_from(c->event_plane);

    if (c->request_plane == PLANE_HTTP && c->n_workers > 1)
        return err_set(e, -EINVAL,
                       "request plane http: its URLs name no instance, so --num-workers must be 1");
    c->events_on_zmq = str_is(events, "zmq");
    if (!c->events_on_zmq && !str_is(events, "nats") && !str_is(events, "none"))
        return err_set(e, -ENOTSUP, "event plane '%s' is not supported: use nats, zmq or none",
                       c->event_plane);
    c->has_events = c->kv_events && c->prefix_caching && !c->openai_port && !str_is(events, "none");
    return 0;
}

static int refuse_unsupported(const struct mocker_conf *c, struct err *e)
{
    if (c->profile_data)
        return err_set(e, -ENOTSUP, "--planner-profile-data is not supported");
    if (c->publish_as == MOCKER_TO_ENDPOINT && !c->local_indexer)
        return err_set(e, -ENOTSUP,
                       "--publish-as endpoint: routers of 1.x do not read JetStream, so it is not "
                       "without the local indexer");
    if (!c->model_path)
        return err_set(e, -EINVAL, "--model-path is needed");
    if (c->openai_port && c->role != MOCKER_AGGREGATED)
        return err_set(e, -ENOTSUP, "--openai-port is for workers that do everything");
    if (c->openai_port && c->openai_port + c->n_workers - 1 > UINT16_MAX)
        return err_set(e, -EINVAL, "--openai-port: no ports are left for %llu workers",
                       (unsigned long long)c->n_workers);
    return 0;
}

static int choose_role(struct mocker_conf *c, struct err *e)
{
    if (c->is_prefill + c->is_decode + (c->role != MOCKER_AGGREGATED) > 1)
        return err_set(e, -EINVAL,
                       "one of --is-prefill-worker, --is-decode-worker and --disaggregation-mode");
    if (c->is_prefill)
        c->role = MOCKER_PREFILL;
    if (c->is_decode)
        c->role = MOCKER_DECODE;
    return 0;
}

/* A comma list, one port for each worker; none at all is right, too. */
static int parse_ports(const struct mocker_conf *c, const char *flag, const char *text,
                       uint16_t ret_ports[MOCKER_WORKERS_MAX], size_t *ret_n, struct err *e)
{
    struct str rest = str_from(text), one;
    size_t n = 0;
    uint64_t port;

    for (bool more = rest.len > 0; more; n++) {
        more = str_cut(&rest, ',', &one);
        if (!str_parse_u64(str_trim(one), &port) || port > UINT16_MAX)
            return err_set(e, -EINVAL, "%s: '%.*s' is not a port", flag, STR_ARG(one));
        if (n < c->n_workers)
            ret_ports[n] = (uint16_t)port;
    }
    if (n && n != c->n_workers)
        return err_set(e, -EINVAL, "%s: %zu ports for %llu workers", flag, n,
                       (unsigned long long)c->n_workers);
    *ret_n = n;
    return 0;
}

static int parse_all_ports(struct mocker_conf *c, struct err *e)
{
    int r = parse_ports(c, "--bootstrap-ports", c->bootstrap_ports_text, c->bootstrap_ports,
                        &c->n_bootstrap_ports, e);

    if (r == 0)
        r = parse_ports(c, "--zmq-kv-events-ports", c->engine_ports_text, c->engine_ports,
                        &c->n_engine_ports, e);
    if (r == 0)
        r = parse_ports(c, "--zmq-replay-ports", c->engine_replay_ports_text,
                        c->engine_replay_ports, &c->n_engine_replay_ports, e);
    if (r == 0 && c->n_engine_replay_ports && !c->n_engine_ports)
        return err_set(e, -EINVAL, "--zmq-replay-ports needs --zmq-kv-events-ports");
    return r;
}

/* 1.6.1's dispatcher holds one request besides those of its queue, which has room for one at least. */
static void choose_limits(struct mocker_conf *c)
{
    c->plane_running_max = c->request_limit ? c->request_limit : c->tcp_pool_size;
    c->plane_waiting_max =
        c->request_limit ? MAX(c->request_queue_limit, UINT64_C(2)) : c->tcp_queue_size + 1;
}

int mocker_conf_load(struct mocker_conf *ret, int argc, char *const *argv,
                     const char *(*env)(const char *name), struct err *e)
{
    int r;

    *ret = (struct mocker_conf){.system.port = -1};
    r = conf_load(&MOCKER_SPEC, ret, argc, argv, env, e);
    if (r != 0)
        return r;
    ret->hub_cache = model_hub_cache(env);
    choose_limits(ret);
    if (ret->extra_engine_args)
        r = load_extra(ret, e);
    if (r == 0)
        r = choose_role(ret, e);
    if (r == 0)
        r = refuse_unsupported(ret, e);
    if (r == 0)
        r = parse_all_ports(ret, e);
    if (r == 0)
        r = parse_endpoint(ret, e);
    if (r == 0)
        r = choose_discovery(ret, e);
    if (r == 0)
        r = system_options_derive(&ret->system, SYSTEM_PORT_WORKER_MAX, e);
    if (r == 0)
        r = choose_planes(ret, e);
    if (r == 0)
        r = plane_tls_check(&ret->plane_tls, e);
    if (r == 0)
        r = response_plane_check(ret->response_plane, e);
    return r;
}

void mocker_conf_done(struct mocker_conf *c)
{
    conf_done(&MOCKER_SPEC, c);
    free(c->ns);
    free(c->component);
    free(c->endpoint);
    free(c->hub_cache);
    c->ns = c->component = c->endpoint = c->hub_cache = NULL;
}
