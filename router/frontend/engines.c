/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/engines.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "lib/base/metric.h"
#include "lib/base/strmap.h"
#include "lib/net/http_client.h"
#include "lib/net/zmq_link.h"
#include "router/engine/stock_engine.h"
#include "router/sync/engine_source.h"
#include "router/sync/kv_intake.h"

static const struct log_target LG = {"commutator::engine"};

enum { CONNECTIONS_MAX = 16384, NUMBER_TEXT = 24 };

/* KV events of a pool's engines. */
struct feed {
    struct engines *engines;
    struct kv_intake *intake;
    struct map64 workers; /* worker id -> struct heard */
};

/* An engine: a source for each of its ranks. */
struct heard {
    struct engine_source **ranks;
    uint32_t n;
    bool size_is_assumed; /* nobody has said how long its blocks are */
};

struct engines {
    struct engines_conf conf;
    struct http_client *http;
    struct zmq_context *zmq;
    struct engine_directory *directory;
    struct strmap *feeds; /* model name -> struct feed */
    struct metric_family *known, *requests, *usage;
    struct timer *learn; /* a block size that events showed */
};

/* --- KV events -------------------------------------------------------------------------------- */

static void on_event(void *arg, const struct kv_event *ev, uint64_t sent_ms)
{
    const struct feed *fd = arg;

    kv_intake_event(fd->intake, ev, sent_ms);
}

static void on_filtered(void *arg, enum kv_filter why)
{
    const struct feed *fd = arg;

    kv_intake_filtered(fd->intake, why);
    if (why == KV_FILTER_BLOCK_SIZE && !timer_active(fd->engines->learn))
        timer_start(fd->engines->learn, 0); /* outside of the source's callback */
}

static void heard_free(struct heard *h)
{
    if (!h)
        return;
    for (uint32_t i = 0; i < h->n; i++)
        engine_source_free(h->ranks[i]);
    free(h->ranks);
    free(h);
}

/* The first engine whose events are of another size than was assumed; the others have their turn. */
static void learn(void *arg)
{
    struct engines *en = arg;
    struct str name;
    void *value;

    for (size_t at = 0; strmap_next(en->feeds, &at, &name, &value);) {
        const struct feed *fd = value;
        uint64_t id, heard;

        for (size_t i = 0; map64_next(&fd->workers, &i, &id, &heard);) {
            const struct heard *h = (const struct heard *)(uintptr_t)heard;
            uint32_t size =
                h->n && h->size_is_assumed ? engine_source_stats(h->ranks[0]).other_block_size : 0;

            if (!size)
                continue;
            timer_start(en->learn, 0);
            engine_directory_learn_block_size(en->directory, id, size);
            return;
        }
    }
}

static void feed_free(void *value)
{
    struct feed *fd = value;
    uint64_t id, heard;
    size_t at = 0;

    if (!fd)
        return;
    while (map64_next(&fd->workers, &at, &id, &heard))
        heard_free((struct heard *)(uintptr_t)heard);
    map64_done(&fd->workers);
    kv_intake_free(fd->intake);
    free(fd);
}

static void hear(struct feed *fd, struct pool *p, const struct worker *w)
{
    const struct stock_engine *en = w->engine;
    uint32_t n = MAX(w->card->dp_size, 1u);
    struct heard *h = xcalloc(1, sizeof(*h));
    struct err e;

    h->size_is_assumed = en->block_size == 0;
    h->ranks = xcalloc(n, sizeof(struct engine_source *));
    for (; h->n < n; h->n++) {
        AUTO(mem_free) char *events = engine_endpoint_of_rank(en->events, h->n);
        AUTO(mem_free)
        char *replay = en->replay ? engine_endpoint_of_rank(en->replay, h->n) : NULL;
        const struct engine_source_conf conf = {
            .loop = fd->engines->conf.loop,
            .zmq = fd->engines->zmq,
            .endpoint = events,
            .replay = replay,
            .worker_id = w->id,
            .dp_rank = w->card->dp_start + h->n,
            .block_size = scheduler_block_size(p->scheduler),
            .adapter = w->card->lora_name ? w->card->lora_name : "",
            .salts_first = true,
            .event = on_event,
            .filtered = on_filtered,
            .arg = fd,
        };

        if (engine_source_start(&h->ranks[h->n], &conf, &e) == 0)
            continue;
        log_error(&LG, "no KV events of this engine", LOG_STR("url", w->address),
                  LOG_STR("why", e.text));
        break;
    }
    map64_put_ptr(&fd->workers, w->id, h);
}

static void forget(struct feed *fd, uint64_t worker_id)
{
    uint64_t heard;

    if (map64_remove(&fd->workers, worker_id, &heard))
        heard_free((struct heard *)(uintptr_t)heard);
    kv_intake_remove_worker(fd->intake, worker_id);
}

void engines_pool_added(struct engines *en, struct pool *p)
{
    const struct kv_intake_conf conf = {.loop = en->conf.loop,
                                        .scheduler = p->scheduler,
                                        .metrics = en->conf.metrics,
                                        .ns = p->ns,
                                        .component = p->component,
                                        .endpoint = p->endpoint};
    struct feed *fd = xcalloc(1, sizeof(*fd));
    struct err e;

    fd->engines = en;
    if (kv_intake_start(&fd->intake, &conf, &e) < 0) {
        log_error(&LG, "no KV events for this model", LOG_STR("model", p->model),
                  LOG_STR("why", e.text));
        free(fd);
        return;
    }
    feed_free(strmap_set(en->feeds, str_from(p->model), fd));
}

void engines_pool_removed(struct engines *en, struct pool *p)
{
    feed_free(strmap_remove(en->feeds, str_from(p->model)));
}

void engines_worker_put(struct engines *en, struct pool *p, const struct worker *w)
{
    struct feed *fd = strmap_get(en->feeds, str_from(p->model));

    if (!fd)
        return;
    forget(fd, w->id);
    kv_intake_put_worker(fd->intake,
                         &(struct kv_intake_worker){.worker_id = w->id,
                                                    .address = "",
                                                    .dp_start = w->card->dp_start,
                                                    .dp_size = w->card->dp_size,
                                                    .block_size = w->engine->block_size});
    if (w->engine->events)
        hear(fd, p, w);
}

static void rank_text(char ret[NUMBER_TEXT], uint64_t n)
{
    (void)snprintf(ret, NUMBER_TEXT, "%" PRIu64, n);
}

static void drop_gauges(struct engines *en, const struct pool *p, const struct worker *w)
{
    char id[NUMBER_TEXT], rank[NUMBER_TEXT];

    rank_text(id, w->id);
    for (uint32_t i = 0; i < w->card->dp_size; i++) {
        rank_text(rank, i);
        metric_drop(en->requests, metric_with(en->requests, p->model, id, rank, "running"));
        metric_drop(en->requests, metric_with(en->requests, p->model, id, rank, "waiting"));
        metric_drop(en->usage, metric_with(en->usage, p->model, id, rank));
    }
}

void engines_worker_removed(struct engines *en, struct pool *p, const struct worker *w)
{
    struct feed *fd = strmap_get(en->feeds, str_from(p->model));

    if (fd)
        forget(fd, w->id);
    drop_gauges(en, p, w);
}

/* --- load ------------------------------------------------------------------------------------- */

static void on_load(void *arg, const struct served_model *m, const struct worker *w, uint32_t rank,
                    const struct engine_rank_load *load)
{
    struct engines *en = arg;
    struct pool *p = en->conf.pool_of(en->conf.arg, m);
    char id[NUMBER_TEXT], number[NUMBER_TEXT];

    if (!p)
        return;
    rank_text(id, w->id);
    rank_text(number, rank);
    metric_set(metric_with(en->requests, p->model, id, number, "running"), (double)load->running);
    metric_set(metric_with(en->requests, p->model, id, number, "waiting"), (double)load->waiting);
    if (!load->has_usage)
        return;
    metric_set(metric_with(en->usage, p->model, id, number), load->usage);
    if (w->card->total_kv_blocks)
        scheduler_report_load(p->scheduler, (struct worker_rank){w->id, w->card->dp_start + rank},
                              (uint64_t)(load->usage * (double)w->card->total_kv_blocks + 0.5));
}

void engines_measure(struct engines *en)
{
    size_t all, up;

    engine_directory_count(en->directory, &all, &up);
    metric_set(metric_with(en->known, "up"), (double)up);
    metric_set(metric_with(en->known, "down"), (double)(all - up));
}

static void on_directory(void *arg, const struct instances_event *ev)
{
    struct engines *en = arg;

    en->conf.event(en->conf.arg, ev);
}

/* --- life ------------------------------------------------------------------------------------- */

static void make_metrics(struct engines *en)
{
    static const struct metric_desc known = {
        .name = "commutator_engines",
        .help = "Plain OpenAI servers that are known, by whether they answer",
        .type = METRIC_GAUGE,
        .labels = {"state"}};
    static const struct metric_desc requests = {
        .name = "commutator_engine_requests",
        .help = "Requests of whatever origin that an engine reports",
        .type = METRIC_GAUGE,
        .labels = {"model", "worker_id", "dp_rank", "state"}};
    static const struct metric_desc usage = {
        .name = "commutator_engine_kv_usage",
        .help = "Share of its KV cache that an engine reports in use",
        .type = METRIC_GAUGE,
        .labels = {"model", "worker_id", "dp_rank"}};

    en->known = metric_family(en->conf.metrics, &known);
    en->requests = metric_family(en->conf.metrics, &requests);
    en->usage = metric_family(en->conf.metrics, &usage);
}

int engines_start(struct engines **ret, const struct engines_conf *conf, struct err *e)
{
    AUTO(engines_free) struct engines *en = xcalloc(1, sizeof(*en));
    const struct http_client_conf http = {.connections_max = CONNECTIONS_MAX};
    struct engine_directory_conf directory = {.loop = conf->loop,
                                              .urls = conf->urls,
                                              .api_key = conf->api_key,
                                              .kube = conf->kube,
                                              .kube_ns = conf->kube_ns,
                                              .ns = conf->ns,
                                              .model_root = conf->model_root,
                                              .event = on_directory,
                                              .load = on_load,
                                              .arg = en};
    int r;

    en->conf = *conf;
    en->feeds = strmap_new();
    en->learn = timer_new(conf->loop, learn, en);
    make_metrics(en);
    r = http_client_new(&en->http, conf->loop, &http, e);
    if (r == 0)
        r = zmq_context_new(&en->zmq, conf->loop, e);
    directory.http = en->http;
    directory.zmq = en->zmq;
    if (r == 0)
        r = engine_directory_start(&en->directory, &directory, e);
    if (r < 0)
        return err_wrap(e, r, "engines");
    *ret = TAKE(en);
    return 0;
}

struct engines *engines_free(struct engines *en)
{
    if (!en)
        return NULL;
    timer_free(en->learn);
    engine_directory_free(en->directory);
    strmap_free_with(en->feeds, feed_free);
    http_client_free(en->http);
    zmq_context_free(en->zmq);
    free(en);
    return NULL;
}

struct http_client *engines_http(const struct engines *en)
{
    return en->http;
}
