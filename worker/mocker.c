/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mocker.h"

#include <errno.h>
#include <string.h>

#include "lib/base/json_put.h"
#include "lib/base/log.h"
#include "lib/base/metric.h"
#include "lib/kube/kube_config.h"
#include "lib/net/file.h"
#include "lib/net/nats_link.h"
#include "lib/net/zmq_link.h"
#include "lib/net/tcp.h"
#include "router/discovery/broker_watch.h"
#include "router/discovery/card.h"
#include "router/discovery/model_cache.h"
#include "router/discovery/store.h"
#include "router/token/tokenizer.h"
#include "router/wire/event_bus.h"
#include "router/wire/plane_server.h"
#include "worker/bootstrap.h"
#include "worker/mock_worker.h"
#include "worker/mocker_conf.h"
#include "worker/openai_server.h"
#include "worker/output_vocab.h"
#include "worker/worker_metrics.h"
#include "router/service/system_server.h"

static const struct log_target LG = {"dynamo_mocker"};

/* Frontends that have not seen the withdrawal yet get a clear "Unknown endpoint" for so long. */
enum { LINGER_MS = 500 };

struct mocker {
    struct loop *loop;
    const struct mocker_conf *conf;
    struct kube_config *kube;
    struct metric_registry *metrics;
    struct nats_link *nats;
    struct event_bus *bus;
    struct store *brokers_in; /* where those of ZeroMQ are looked for; NULL = nowhere */
    struct broker_watch *brokers;
    struct zmq_context *zmq; /* of engine events */
    struct plane_server *plane;
    struct plane_metrics plane_metrics;
    struct system_server *system;
    char *model_folder;
    struct hub_hold *model_hold;  /* keeps it there */
    char *model_url;              /* NULL = others read the files from the folder */
    struct model_card *served;    /* whose files are served there */
    struct buf files[CARD_FILES]; /* of it */
    struct output_vocab vocab;
    struct mock_worker **workers;
    size_t n_workers;
    struct store_hub *nowhere;      /* with --openai-port: nobody looks for records */
    struct openai_server **engines; /* likewise: of each worker */
    struct timer *startup, *linger, *grace;
    bool stopping, lingered;
    loop_fn stopped;
    void *stopped_arg;
};

static void register_when_ready(void *arg);

/* --- parts ------------------------------------------------------------------------------------ */

/* A model without a usable tokenizer still gets tokens, only not readable ones. */
static void load_vocab(struct mocker *m)
{
    AUTO(mem_free) char *path = xasprintf("%s/tokenizer.json", m->model_folder);
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct err e;
    int r = file_read(path, TOKENIZER_MAX_FILE, &text, &e);

    if (r == 0)
        r = output_vocab_of(&m->vocab, buf_str(&text), &e);
    if (r == 0)
        return;
    log_warn(&LG, "answers are tokens 1000 to 1999, for want of words", LOG_STR("why", e.text));
    output_vocab_fallback(&m->vocab);
}

/* --- files for frontends of 1.x (wire.md §15.6) -------------------------------------------------- */

static int name_url(struct mocker *m, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    AUTO(buf_done) struct buf slug = BUF_NULL;
    char ip[46];

    if (!c->self_host_metadata || c->openai_port)
        return 0;
    if (!m->system)
        return err_set(e, -EINVAL, "DYN_SELF_HOST_METADATA needs DYN_SYSTEM_PORT");
    tcp_local_ip(ip, sizeof(ip));
    slug_put(&slug, str_from(c->model_name ? c->model_name : c->model_path));
    m->model_url =
        xasprintf("http://%s:%u/v1/metadata/%s/%s/%s/%s/_base", c->tcp_host ? c->tcp_host : ip,
                  system_server_port(m->system), c->ns, c->component, c->endpoint, buf_cstr(&slug));
    return 0;
}

/* All workers have the same files. */
static int serve_files(struct mocker *m, const struct model_card *card, struct err *e)
{
    int r = 0;

    if (!m->model_url || m->served)
        return 0;
    for (size_t i = 0; r == 0 && i < CARD_FILES; i++) {
        const char *url = model_card_file(card, i)->path;
        AUTO(mem_free)
        char *path = url ? xasprintf("%s%s", m->model_folder, strrchr(url, '/')) : NULL;

        r = path ? file_read(path, TOKENIZER_MAX_FILE, &m->files[i], e) : 0;
    }
    if (r == 0)
        m->served = model_card_ref(card);
    return r;
}

static bool on_file(void *arg, struct str path, struct str *ret_bytes)
{
    const struct mocker *m = arg;

    for (size_t i = 0; m->served && i < CARD_FILES; i++) {
        const char *url = model_card_file(m->served, i)->path;

        if (!url || !str_is(path, strstr(url, "/v1/metadata/") + strlen("/v1/metadata/")))
            continue;
        *ret_bytes = buf_str(&m->files[i]);
        return true;
    }
    return false;
}

static int build_card(const struct mocker *m, const struct bootstrap_server *b,
                      struct model_card **ret, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    char ip[46];
    const struct model_card_spec spec = {
        .dir = m->model_folder,
        .url = m->model_url,
        .name = c->model_name ? c->model_name : c->model_path,
        .kv_cache_block_size = (uint32_t)c->block_size,
        .context_length = (uint32_t)c->context_length,
        .migration_limit = (uint32_t)c->migration_limit,
        .total_kv_blocks = c->n_blocks,
        .max_num_seqs = c->max_num_seqs,
        .max_num_batched_tokens = c->max_num_batched_tokens,
        .dp_size = (uint32_t)c->dp_size,
        .flags = c->role == MOCKER_PREFILL ? MODEL_PREFILL : 0,
        .is_decode = c->role == MOCKER_DECODE,
        .local_indexer = c->local_indexer && c->has_events && c->role != MOCKER_DECODE,
        .tool_call_parser = c->tool_call_parser,
        .reasoning_parser = c->reasoning_parser,
        .bootstrap_host = !b            ? NULL
                          : c->tcp_host ? c->tcp_host
                                        : ip,
        .bootstrap_port = b ? bootstrap_server_port(b) : 0,
    };
    int r;

    tcp_local_ip(ip, sizeof(ip));
    r = model_card_build(ret, &spec, e);
    return r < 0 ? err_wrap(e, r, "model card of '%s'", c->model_path) : 0;
}

/* Blocks, as start-up may: nothing is served without its files. */
static int find_model(struct mocker *m, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    const struct model_places places = {.hub_cache = c->hub_cache,
                                        .endpoint = c->hf_endpoint,
                                        .token = c->hf_token,
                                        .offline = c->hf_offline,
                                        .kept_bytes = c->model_cache_mb << 20};

    return model_folder_get(&places, c->model_path, &m->model_folder, &m->model_hold, e);
}

static void on_nats_state(void *arg, bool up)
{
    struct mocker *m = arg;

    if (!up) {
        log_warn(&LG, "NATS is away: events are dropped until it is back");
        return;
    }
    log_info(&LG, "NATS is connected");
    for (size_t i = 0; i < m->n_workers; i++)
        mock_worker_link_up(m->workers[i]);
    register_when_ready(m);
}

static int need_nats(struct mocker *m, struct err *e)
{
    const struct nats_link_conf conf = {
        .servers = m->conf->nats_server,
        .user = m->conf->nats_user,
        .password = m->conf->nats_password,
        .token = m->conf->nats_token,
        .nkey = m->conf->nats_nkey,
        .credentials_file = m->conf->nats_credentials,
        .tls = {m->conf->nats_tls_ca, m->conf->nats_tls_cert, m->conf->nats_tls_key,
                m->conf->nats_tls_unverified},
        .name = "dynamo-mocker",
        .state = on_nats_state,
        .arg = m,
    };
    int r;

    if (m->nats)
        return 0;
    r = nats_link_start(&m->nats, m->loop, &conf, e);
    return r < 0 ? err_wrap(e, r, "NATS") : 0;
}

static int start_plane(struct mocker *m, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    bool http = c->request_plane == PLANE_HTTP;
    struct plane_server_conf conf = {
        .kind = (enum plane_kind)c->request_plane,
        .host = http && c->http_rpc_host ? c->http_rpc_host : c->tcp_host,
        .port = (uint16_t)(http ? c->http_rpc_port : c->tcp_port),
        .root = c->http_rpc_root,
        .frame_max = c->tcp_message_max,
        .running_max = c->plane_running_max,
        .waiting_max = c->plane_waiting_max,
        .tls = &c->plane_tls,
    };
    int r = 0;

    if (c->openai_port)
        return 0;
    if (conf.kind == PLANE_NATS)
        r = need_nats(m, e);
    conf.nats = m->nats;
    if (r == 0)
        r = plane_server_new(&m->plane, m->loop, &conf, e);
    m->plane_metrics = plane_metrics_of(m->metrics, c->plane_running_max, c->plane_waiting_max);
    return r < 0 ? err_wrap(e, r, "request plane") : 0;
}

/* Without a local indexer KV events go into JetStream, whatever carries the rest. */
static int start_events(struct mocker *m, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    struct event_bus_conf conf = {.loop = m->loop,
                                  .host = c->tcp_host,
                                  .brokers = c->zmq_brokers,
                                  .find_brokers = c->zmq_find_brokers};
    int r = 0;

    if (c->n_engine_ports)
        r = zmq_context_new(&m->zmq, m->loop, e);
    if (r < 0 || !c->has_events)
        return r;
    if (!c->events_on_zmq || !c->local_indexer)
        r = need_nats(m, e);
    conf.nats = c->events_on_zmq ? NULL : m->nats;
    return r < 0 ? r : event_bus_new(&m->bus, &conf, e);
}

static int open_store(struct mocker *m, struct store **ret, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    const struct kube_config_env env = {c->kubeconfig, c->kube_host, c->kube_port};
    struct store_kube_conf kube = {.ns = c->pod_namespace,
                                   .pod_name = c->pod_name,
                                   .pod_uid = c->pod_uid,
                                   .container = c->of_container ? c->container : NULL};
    int r;

    if (c->discovery == MOCKER_NOWHERE) {
        *ret = store_mem_new(m->nowhere, m->loop);
        return 0;
    }
    if (c->discovery == MOCKER_FILE)
        return store_file_new(ret, m->loop, c->file_kv, e);
    if (c->discovery == MOCKER_ETCD)
        return store_etcd_new(ret, m->loop, &c->etcd, e);
    r = kube_config_load(&m->kube, &env, e);
    if (r < 0)
        return r;
    kube.config = m->kube;
    return store_kube_new(ret, m->loop, &kube, e);
}

static int find_brokers(struct mocker *m, struct err *e)
{
    int r = 0;

    if (!m->bus || !m->conf->events_on_zmq || !m->conf->zmq_find_brokers)
        return 0;
    r = open_store(m, &m->brokers_in, e);
    return r < 0 ? err_wrap(e, r, "discovery")
                 : broker_watch_start(&m->brokers, m->brokers_in, m->bus, e);
}

/* --- workers ---------------------------------------------------------------------------------- */

static void check_drained(struct mocker *m);

static void on_ended(void *arg)
{
    check_drained(arg);
}

static struct engine_conf engine_conf_of(const struct mocker *m)
{
    const struct mocker_conf *c = m->conf;

    return (struct engine_conf){
        .block_size = (uint32_t)c->block_size,
        .n_blocks = c->n_blocks,
        .max_num_seqs = c->max_num_seqs,
        .max_num_batched_tokens = c->max_num_batched_tokens,
        .waiting_max = c->waiting_max,
        .prefix_caching = c->prefix_caching,
        .chunked_prefill = c->chunked_prefill,
        .watermark = c->watermark,
        .speedup_ratio = c->speedup_ratio,
        .decode_timing = (enum decode_timing)c->decode_timing,
        .eos_probability = c->eos_probability,
        .vocab = m->vocab.ids,
        .n_vocab = m->vocab.n,
    };
}

static int start_bootstrap(const struct mocker *m, struct bootstrap_server **ret, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    const char *host = c->tcp_host ? c->tcp_host : "0.0.0.0";
    int r;

    if (c->role != MOCKER_PREFILL || !c->n_bootstrap_ports)
        return 0;
    r = bootstrap_server_start(ret, m->loop, host, c->bootstrap_ports[m->n_workers], e);
    return r < 0 ? err_wrap(e, r, "bootstrap port") : 0;
}

static int start_engine(struct mocker *m, size_t i, struct model_card *card, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    const struct openai_server_conf conf = {.loop = m->loop,
                                            .host = c->system.host,
                                            .port = (uint16_t)(c->openai_port + i),
                                            .worker = m->workers[i],
                                            .card = card,
                                            .root = m->model_folder,
                                            .block_size = (uint32_t)c->block_size,
                                            .dp_size = (uint32_t)c->dp_size,
                                            .n_blocks = c->n_blocks,
                                            .prefix_caching = c->prefix_caching};

    return c->openai_port ? openai_server_start(&m->engines[i], &conf, e) : 0;
}

static int add_worker(struct mocker *m, struct err *e)
{
    AUTO(bootstrap_server_free) struct bootstrap_server *bootstrap = NULL;
    AUTO(model_card_unref) struct model_card *card = NULL;
    const struct mocker_conf *c = m->conf;
    struct mock_worker_conf conf = {
        .loop = m->loop,
        .plane = m->plane,
        .bus = m->bus,
        .zmq = m->zmq,
        .stream_nats = c->local_indexer ? NULL : m->nats,
        .stream_max_age_s = c->stream_max_age_ms / 1000,
        .metrics = m->metrics,
        .ns = c->ns,
        .component = c->component,
        .endpoint = c->endpoint,
        .engine = engine_conf_of(m),
        .dp_size = (uint32_t)c->dp_size,
        .to_endpoint = c->publish_as == MOCKER_TO_ENDPOINT,
        .ended = on_ended,
        .arg = m,
    };
    int r = start_bootstrap(m, &bootstrap, e);

    if (c->n_engine_ports)
        conf.engine_port = c->engine_ports[m->n_workers];
    if (c->n_engine_replay_ports)
        conf.engine_replay_port = c->engine_replay_ports[m->n_workers];
    if (r == 0)
        r = build_card(m, bootstrap, &card, e);
    if (r == 0)
        r = serve_files(m, card, e);
    if (r < 0)
        return r;
    r = open_store(m, &conf.take_store, e);
    if (r < 0)
        return err_wrap(e, r, "discovery");
    conf.card = card;
    conf.local_indexer = card->local_indexer;
    conf.take_bootstrap = TAKE(bootstrap);
    conf.seed = c->seed ? c->seed + m->n_workers : conf.take_store->instance_id;
    r = mock_worker_new(&m->workers[m->n_workers], &conf, e);
    if (r < 0)
        return r;
    return start_engine(m, m->n_workers++, card, e);
}

static int register_all(struct mocker *m, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < m->n_workers && r == 0; i++)
        if (!mock_worker_is_registered(m->workers[i]))
            r = mock_worker_register(m->workers[i], e);
    return r;
}

/* Nobody is to find workers that are starting, or that NATS does not know yet. */
static bool may_register(const struct mocker *m)
{
    return m->plane && !m->stopping && !timer_active(m->startup) &&
           m->n_workers == m->conf->n_workers &&
           (m->conf->request_plane != PLANE_NATS || nats_link_stats(m->nats).up);
}

static void register_when_ready(void *arg)
{
    struct mocker *m = arg;
    struct err e;

    if (may_register(m) && register_all(m, &e) < 0)
        log_error(&LG, "cannot register", LOG_STR("why", e.text));
}

/* --- system server ---------------------------------------------------------------------------- */

static bool is_ready(void *arg)
{
    const struct mocker *m = arg;

    for (size_t i = 0; i < m->n_workers && m->plane; i++)
        if (!mock_worker_is_registered(m->workers[i]))
            return false;
    return !m->stopping || m->plane;
}

static void measure(void *arg)
{
    const struct mocker *m = arg;

    for (size_t i = 0; i < m->n_workers; i++)
        mock_worker_measure(m->workers[i]);
    if (m->plane)
        plane_metrics_set(&m->plane_metrics, plane_server_stats(m->plane));
}

static void put_metadata(void *arg, struct buf *out)
{
    static const struct {
        const char *key;
        enum record_kind kind;
    } maps[] = {{"endpoints", RECORD_ENDPOINT},
                {"model_cards", RECORD_MODEL},
                {"event_channels", RECORD_EVENT_CHANNEL},
                {"event_sources", RECORD_EVENT_SOURCE}};
    const struct mocker *m = arg;
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    for (size_t k = 0; k < ARRAY_LEN(maps); k++) {
        json_put_key(&j, maps[k].key);
        json_put_object(&j);
        for (size_t i = 0; i < m->n_workers; i++)
            mock_worker_put_records(m->workers[i], maps[k].kind, &j);
        json_put_object_end(&j);
    }
    json_put_object_end(&j);
}

static int start_system(struct mocker *m, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    const struct system_server_conf conf = {
        .options = &c->system,
        .ns = c->ns,
        .component = c->component,
        .endpoint = c->endpoint,
        .metrics = m->metrics,
        .ready = is_ready,
        .measure = measure,
        .put_metadata = c->discovery == MOCKER_KUBERNETES ? put_metadata : NULL,
        .file = on_file,
        .arg = m,
    };

    return system_server_start(&m->system, m->loop, &conf, e);
}

int mocker_system_port(const struct mocker *m)
{
    return m->system ? system_server_port(m->system) : -1;
}

/* --- life ------------------------------------------------------------------------------------- */

static void on_linger(void *arg)
{
    struct mocker *m = arg;

    m->lingered = true;
    check_drained(m);
    if (m->stopped)
        timer_start(m->linger,
                    LINGER_MS); /* of those that fail before a worker sees them nobody tells */
}

static void on_grace(void *arg)
{
    struct mocker *m = arg;
    loop_fn stopped = TAKE(m->stopped);

    log_warn(&LG, "streams are cut: the grace time is over");
    if (stopped)
        stopped(m->stopped_arg);
}

static void check_drained(struct mocker *m)
{
    loop_fn stopped;

    if (!m->stopping || !m->lingered)
        return;
    for (size_t i = 0; i < m->n_workers; i++)
        if (mock_worker_running(m->workers[i]) > 0)
            return;
    if (m->plane && plane_server_running(m->plane) + plane_server_waiting(m->plane) > 0)
        return;
    stopped = TAKE(m->stopped);
    if (stopped)
        stopped(m->stopped_arg);
}

int mocker_start(struct mocker **ret, struct loop *l, const struct mocker_conf *conf, struct err *e)
{
    AUTO(mocker_free) struct mocker *m = xcalloc(1, sizeof(*m));
    int r;

    m->loop = l;
    m->conf = conf;
    m->metrics = metric_registry_new();
    m->startup = timer_new(l, register_when_ready, m);
    m->linger = timer_new(l, on_linger, m);
    m->grace = timer_new(l, on_grace, m);
    m->workers = xcalloc(conf->n_workers, sizeof(struct mock_worker *));
    m->engines = xcalloc(conf->n_workers, sizeof(struct openai_server *));
    m->nowhere = store_hub_new();
    r = find_model(m, e);
    if (r == 0)
        r = start_plane(m, e);
    if (r == 0)
        r = start_events(m, e);
    if (r == 0)
        r = find_brokers(m, e);
    if (r < 0)
        return r;
    load_vocab(m);
    r = start_system(m, e);
    if (r == 0)
        r = name_url(m, e);
    while (r == 0 && m->n_workers < conf->n_workers)
        r = add_worker(m, e);
    if (r == 0 && conf->startup_ms == 0 && may_register(m))
        r = register_all(m, e);
    if (r < 0)
        return r;
    if (conf->startup_ms > 0)
        timer_start(m->startup, conf->startup_ms);
    *ret = TAKE(m);
    return 0;
}

void mocker_stop(struct mocker *m, loop_fn done, void *arg)
{
    if (m->stopping) {
        timer_start(m->grace, 0);
        return;
    }
    m->stopping = true;
    m->stopped = done;
    m->stopped_arg = arg;
    log_info(&LG, "stopping: running streams may finish");
    system_server_end_start(m->system);
    for (size_t i = 0; i < m->n_workers; i++)
        mock_worker_unregister(m->workers[i]);
    for (size_t i = 0; i < m->n_workers; i++)
        openai_server_stop(m->engines[i]);
    timer_start(m->linger, LINGER_MS);
    timer_start(m->grace, m->conf->grace_ms);
}

struct mocker *mocker_free(struct mocker *m)
{
    if (!m)
        return NULL;
    m->stopping = false; /* what is cut below drains nothing */
    system_server_free(m->system);
    for (size_t i = 0; i < m->n_workers; i++)
        mock_worker_free(m->workers[i]);
    for (size_t i = 0; i < m->n_workers; i++)
        openai_server_free(m->engines[i]);
    free(m->workers);
    free(m->engines);
    broker_watch_free(m->brokers);
    store_free(m->brokers_in);
    store_hub_free(m->nowhere);
    event_bus_free(m->bus);
    zmq_context_free(m->zmq);
    plane_server_free(m->plane);
    nats_link_free(m->nats);
    timer_free(m->startup);
    timer_free(m->linger);
    timer_free(m->grace);
    loop_settle(m->loop); /* a write to the API server */
    output_vocab_done(&m->vocab);
    metric_registry_free(m->metrics);
    kube_config_free(m->kube);
    for (size_t i = 0; i < CARD_FILES; i++)
        buf_done(&m->files[i]);
    model_card_unref(m->served);
    free(m->model_url);
    free(m->model_folder);
    hub_hold_free(m->model_hold);
    free(m);
    return NULL;
}
