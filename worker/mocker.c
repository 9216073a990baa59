/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mocker.h"

#include <errno.h>

#include "lib/base/json_put.h"
#include "lib/base/log.h"
#include "lib/base/metric.h"
#include "lib/kube/kube_config.h"
#include "lib/net/file.h"
#include "lib/net/nats_link.h"
#include "router/discovery/card.h"
#include "router/discovery/store.h"
#include "router/token/tokenizer.h"
#include "router/wire/plane_server.h"
#include "worker/mock_worker.h"
#include "worker/mocker_conf.h"
#include "worker/output_vocab.h"
#include "worker/system_server.h"

static const struct log_target LG = {"dynamo_mocker"};

/* Frontends that have not seen the withdrawal yet get a clear "Unknown endpoint" for so long. */
enum { LINGER_MS = 500 };

struct mocker {
    struct loop *loop;
    const struct mocker_conf *conf;
    struct kube_config *kube;
    struct metric_registry *metrics;
    struct nats_link *nats;
    struct plane_server *plane;
    struct system_server *system;
    struct model_card *card;
    struct output_vocab vocab;
    struct mock_worker **workers;
    size_t n_workers;
    struct timer *startup, *linger, *grace;
    bool stopping, lingered;
    loop_fn stopped;
    void *stopped_arg;
};

/* --- parts ------------------------------------------------------------------------------------ */

/* A model without a usable tokenizer still gets tokens, only not readable ones. */
static void load_vocab(struct mocker *m)
{
    AUTO(mem_free) char *path = xasprintf("%s/tokenizer.json", m->conf->model_path);
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

static int build_card(struct mocker *m, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    const struct model_card_spec spec = {
        .dir = c->model_path,
        .name = c->model_name,
        .kv_cache_block_size = (uint32_t)c->block_size,
        .context_length = (uint32_t)c->context_length,
        .migration_limit = (uint32_t)c->migration_limit,
        .total_kv_blocks = c->n_blocks,
        .max_num_seqs = c->max_num_seqs,
        .max_num_batched_tokens = c->max_num_batched_tokens,
        .dp_size = (uint32_t)c->dp_size,
        .local_indexer = c->local_indexer && c->has_events,
        .tool_call_parser = c->tool_call_parser,
        .reasoning_parser = c->reasoning_parser,
    };
    int r = model_card_build(&m->card, &spec, e);

    return r < 0 ? err_wrap(e, r, "model card of '%s'", c->model_path) : 0;
}

static int start_plane(struct mocker *m, struct err *e)
{
    const struct plane_server_conf conf = {
        .host = m->conf->tcp_host,
        .port = (uint16_t)m->conf->tcp_port,
        .frame_max = m->conf->tcp_message_max,
        .running_max = m->conf->tcp_pool_size,
    };
    int r = plane_server_new(&m->plane, m->loop, &conf, e);

    return r < 0 ? err_wrap(e, r, "request plane") : 0;
}

static void on_nats_state(void *arg, bool up)
{
    (void)arg;
    if (up)
        log_info(&LG, "NATS is connected");
    else
        log_warn(&LG, "NATS is away: events are dropped until it is back");
}

static int start_nats(struct mocker *m, struct err *e)
{
    const struct nats_link_conf conf = {
        .servers = m->conf->nats_server,
        .user = m->conf->nats_user,
        .password = m->conf->nats_password,
        .token = m->conf->nats_token,
        .credentials_file = m->conf->nats_credentials,
        .name = "dynamo-mocker",
        .state = on_nats_state,
        .arg = m,
    };
    int r;

    if (!m->conf->has_events)
        return 0;
    r = nats_link_start(&m->nats, m->loop, &conf, e);
    return r < 0 ? err_wrap(e, r, "NATS") : 0;
}

static int open_store(struct mocker *m, struct store **ret, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    const struct kube_config_env env = {c->kubeconfig, c->kube_host, c->kube_port};
    struct store_kube_conf kube = {
        .ns = c->pod_namespace, .pod_name = c->pod_name, .pod_uid = c->pod_uid};
    int r;

    if (c->discovery == MOCKER_FILE)
        return store_file_new(ret, m->loop, c->file_kv, e);
    r = kube_config_load(&m->kube, &env, e);
    if (r < 0)
        return r;
    kube.config = m->kube;
    return store_kube_new(ret, m->loop, &kube, e);
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

static int add_worker(struct mocker *m, struct err *e)
{
    const struct mocker_conf *c = m->conf;
    struct mock_worker_conf conf = {
        .loop = m->loop,
        .plane = m->plane,
        .nats = m->nats,
        .metrics = m->metrics,
        .ns = c->ns,
        .component = c->component,
        .endpoint = c->endpoint,
        .card = m->card,
        .engine = engine_conf_of(m),
        .dp_size = (uint32_t)c->dp_size,
        .local_indexer = m->card->local_indexer,
        .ended = on_ended,
        .arg = m,
    };
    int r = open_store(m, &conf.take_store, e);

    if (r < 0)
        return err_wrap(e, r, "discovery");
    conf.seed = c->seed ? c->seed + m->n_workers : conf.take_store->instance_id;
    r = mock_worker_new(&m->workers[m->n_workers], &conf, e);
    if (r == 0)
        m->n_workers++;
    return r;
}

static int register_all(struct mocker *m, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < m->n_workers && r == 0; i++)
        r = mock_worker_register(m->workers[i], e);
    return r;
}

static void on_startup(void *arg)
{
    struct mocker *m = arg;
    struct err e;

    if (!m->stopping && register_all(m, &e) < 0)
        log_error(&LG, "cannot register", LOG_STR("why", e.text));
}

/* --- system server ---------------------------------------------------------------------------- */

static bool is_ready(void *arg)
{
    const struct mocker *m = arg;

    for (size_t i = 0; i < m->n_workers; i++)
        if (!mock_worker_is_registered(m->workers[i]))
            return false;
    return true;
}

static void measure(void *arg)
{
    const struct mocker *m = arg;

    for (size_t i = 0; i < m->n_workers; i++)
        mock_worker_measure(m->workers[i]);
}

static void put_metadata(void *arg, struct buf *out)
{
    static const struct {
        const char *key;
        enum record_kind kind;
    } maps[] = {{"endpoints", RECORD_ENDPOINT},
                {"model_cards", RECORD_MODEL},
                {"event_channels", RECORD_EVENT_CHANNEL}};
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
        .host = c->system_host,
        .port = (uint16_t)c->system_port,
        .ns = c->ns,
        .component = c->component,
        .endpoint = c->endpoint,
        .metrics = m->metrics,
        .ready = is_ready,
        .measure = measure,
        .put_metadata = c->discovery == MOCKER_KUBERNETES ? put_metadata : NULL,
        .arg = m,
    };

    return c->system_port < 0 ? 0 : system_server_start(&m->system, m->loop, &conf, e);
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
    m->startup = timer_new(l, on_startup, m);
    m->linger = timer_new(l, on_linger, m);
    m->grace = timer_new(l, on_grace, m);
    m->workers = xcalloc(conf->n_workers, sizeof(struct mock_worker *));
    r = build_card(m, e);
    if (r == 0)
        r = start_plane(m, e);
    if (r == 0)
        r = start_nats(m, e);
    if (r < 0)
        return r;
    load_vocab(m);
    while (r == 0 && m->n_workers < conf->n_workers)
        r = add_worker(m, e);
    if (r == 0)
        r = start_system(m, e);
    if (r == 0 && conf->startup_ms == 0)
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
    for (size_t i = 0; i < m->n_workers; i++)
        mock_worker_unregister(m->workers[i]);
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
    free(m->workers);
    nats_link_free(m->nats);
    plane_server_free(m->plane);
    timer_free(m->startup);
    timer_free(m->linger);
    timer_free(m->grace);
    model_card_unref(m->card);
    output_vocab_done(&m->vocab);
    metric_registry_free(m->metrics);
    kube_config_free(m->kube);
    free(m);
    return NULL;
}
