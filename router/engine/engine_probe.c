/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_probe.h"

#include <stdio.h>

#include "lib/base/json_put.h"
#include "lib/base/log.h"
#include "lib/net/http_client.h"
#include "lib/net/zmq_link.h"
#include "router/engine/stock_engine.h"

static const struct log_target LG = {"commutator::engine"};

enum {
    PERIOD_MS = 1000,
    ANSWER_MS = 5000,
    HANDSHAKE_MS = 1500,
    ANSWER_BYTES_MAX = 8 << 20,
    MODELS_EVERY = 2, /* periods */
    FAILURES_MAX = 3,
};

struct engine_probe {
    struct engine_probe_conf conf;
    struct timer *timer;
    struct http_call *call;
    struct buf body;
    void (*answered)(struct engine_probe *p, int status); /* 0 = no answer */
    char why[512];
    char *authorization; /* a header; NULL = none */
    bool up, asking;     /* asking: the chain of questions to an engine that is new */
    unsigned failures, periods;
    uint32_t n_ranks; /* that it has shown; 0 = it is not up */
    struct engine_models models;
    struct engine_load_report load;
    struct engine_server_info info;
    struct engine_event_sources sources;
    bool barred;       /* it wants a key that it was not shown; said once */
    bool told_sources; /* it has said where its events are, or that it has none */
    bool tokenizes;
    uint32_t sample[ENGINE_SAMPLE_MAX];
    size_t n_sample;
    char *events, *replay;
    struct zmq_link *sub, *dealer; /* while ports are tried */
    bool sub_there, dealer_there;
};

/* --- questions -------------------------------------------------------------------------------- */

static void on_data(void *arg, struct str bytes)
{
    struct engine_probe *p = arg;

    if (p->body.len + bytes.len <= ANSWER_BYTES_MAX)
        buf_put_str(&p->body, bytes);
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct engine_probe *p = arg;

    p->call = NULL;
    if (error < 0)
        (void)snprintf(p->why, sizeof(p->why), "%s", why);
    else
        (void)snprintf(p->why, sizeof(p->why), "status %d", status);
    p->answered(p, error < 0 ? 0 : status);
}

static void ask(struct engine_probe *p, const char *path, struct str body,
                void (*answered)(struct engine_probe *p, int status))
{
    const char *const headers[] = {"content-type: application/json", p->authorization, NULL};
    AUTO(mem_free) char *url = xasprintf("%s%s", p->conf.spec->url, path);
    const struct http_call_spec spec = {.method = body.len ? "POST" : "GET",
                                        .url = url,
                                        .headers = headers + (body.len ? 0 : 1),
                                        .body = body,
                                        .total_ms = ANSWER_MS,
                                        .data = on_data,
                                        .done = on_done,
                                        .arg = p};

    buf_clear(&p->body);
    p->answered = answered;
    p->call = http_client_start(p->conf.http, &spec);
}

static void again_later(struct engine_probe *p)
{
    timer_start(p->timer, p->conf.period_ms ? p->conf.period_ms : PERIOD_MS);
}

static void failed(struct engine_probe *p)
{
    p->asking = false;
    again_later(p);
    if (++p->failures < FAILURES_MAX || !p->up)
        return;
    p->up = false;
    p->n_ranks = 0;
    p->conf.lost(p->conf.arg, p->why);
}

/* --- the chain -------------------------------------------------------------------------------- */

static uint32_t block_size_of(const struct engine_probe *p)
{
    return p->conf.spec->block_size ? p->conf.spec->block_size
           : p->load.block_size     ? p->load.block_size
                                    : p->info.page_size;
}

/* However they are told: a rank has no gauges until it has computed something. */
static uint32_t ranks_of(const struct engine_probe *p)
{
    const uint32_t told[] = {p->load.n_ranks, p->info.dp_size, p->n_ranks,
                             p->told_sources ? p->sources.n_ranks : 0};
    uint32_t most = 1;

    for (size_t i = 0; i < ARRAY_LEN(told); i++)
        most = MAX(most, told[i]);
    return most;
}

static void tell_found(struct engine_probe *p)
{
    uint32_t block = block_size_of(p);
    uint32_t ranks = ranks_of(p);
    struct engine_found f = {.models = &p->models,
                             .block_size = block,
                             .dp_size = ranks,
                             .total_blocks = p->load.total_blocks,
                             .events = p->events,
                             .replay = p->replay,
                             .tokenizes = p->tokenizes,
                             .sample = p->sample,
                             .n_sample = p->n_sample};

    if (!f.total_blocks && block)
        f.total_blocks = p->info.max_tokens / block;
    p->asking = false;
    p->failures = 0;
    p->up = true;
    p->n_ranks = ranks;
    again_later(p);
    p->conf.found(p->conf.arg, &f);
}

static char *endpoint_of(const struct engine_probe *p, uint16_t port)
{
    return port ? xasprintf("tcp://%s:%u", p->conf.spec->host, port) : NULL;
}

static void set_events(struct engine_probe *p, char *take_events, char *take_replay)
{
    free(p->events);
    free(p->replay);
    p->events = take_events;
    p->replay = take_replay;
}

static void end_trying(struct engine_probe *p)
{
    p->sub = zmq_link_free(p->sub);
    p->dealer = zmq_link_free(p->dealer);
    set_events(p, p->sub_there ? endpoint_of(p, ENGINE_EVENTS_PORT) : NULL,
               p->sub_there && p->dealer_there ? endpoint_of(p, ENGINE_REPLAY_PORT) : NULL);
    tell_found(p);
}

static void on_sub(void *arg, struct str endpoint)
{
    struct engine_probe *p = arg;

    (void)endpoint;
    p->sub_there = true;
    if (p->dealer_there)
        timer_start(p->timer, 0); /* outside of this callback */
}

static void on_dealer(void *arg, struct str endpoint)
{
    struct engine_probe *p = arg;

    (void)endpoint;
    p->dealer_there = true;
    if (p->sub_there)
        timer_start(p->timer, 0);
}

static void on_frames(void *arg, const struct str *frames, size_t n)
{
    (void)arg;
    (void)frames;
    (void)n;
}

/* Only a publisher shakes hands with a subscriber, only a replay socket with a dealer. */
static bool try_ports(struct engine_probe *p)
{
    const struct zmq_link_conf sub = {
        .kind = ZMQ_KIND_SUB, .received = on_frames, .connected = on_sub, .arg = p};
    const struct zmq_link_conf dealer = {
        .kind = ZMQ_KIND_DEALER, .received = on_frames, .connected = on_dealer, .arg = p};
    AUTO(mem_free) char *events = endpoint_of(p, ENGINE_EVENTS_PORT);
    AUTO(mem_free) char *replay = endpoint_of(p, ENGINE_REPLAY_PORT);
    struct err e;

    p->sub_there = p->dealer_there = false;
    if (!p->conf.zmq || zmq_link_new(&p->sub, p->conf.zmq, &sub, &e) < 0 ||
        zmq_link_new(&p->dealer, p->conf.zmq, &dealer, &e) < 0 ||
        zmq_link_connect(p->sub, events, &e) < 0 || zmq_link_connect(p->dealer, replay, &e) < 0)
        return false;
    timer_start(p->timer, HANDSHAKE_MS);
    return true;
}

static void find_events(struct engine_probe *p)
{
    const struct engine_spec *s = p->conf.spec;

    if (s->events)
        set_events(p, xstrdup(s->events), s->replay ? xstrdup(s->replay) : NULL);
    else if (s->no_events)
        set_events(p, NULL, NULL);
    else if (p->told_sources)
        set_events(p, endpoint_of(p, p->sources.events_port),
                   endpoint_of(p, p->sources.replay_port));
    else if (p->info.has_events)
        set_events(p, endpoint_of(p, p->info.events_port), endpoint_of(p, p->info.replay_port));
    else if (try_ports(p))
        return;
    else
        set_events(p, NULL, NULL);
    tell_found(p);
}

static void on_tokens(struct engine_probe *p, int status)
{
    p->n_sample =
        status == 200 ? engine_tokens_read(buf_str(&p->body), p->sample, ENGINE_SAMPLE_MAX) : 0;
    p->tokenizes = p->n_sample > 0;
    find_events(p);
}

static void ask_tokens(struct engine_probe *p)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);

    json_put_object(&j);
    json_put_key(&j, "model");
    json_put_cstr(&j, p->models.at[0].id);
    json_put_key(&j, "prompt");
    json_put_cstr(&j, ENGINE_SAMPLE);
    json_put_object_end(&j);
    ask(p, "/tokenize", buf_str(&body), on_tokens);
}

static void on_info(struct engine_probe *p, int status)
{
    struct err e;

    if (status != 200 || engine_server_info_read(buf_str(&p->body), &p->info, &e) < 0)
        p->info = (struct engine_server_info){.page_size = 0};
    ask_tokens(p);
}

/* The older name of the same. */
static void on_info_first(struct engine_probe *p, int status)
{
    if (status == 404)
        ask(p, "/get_server_info", STR_NULL, on_info);
    else
        on_info(p, status);
}

static void on_sources(struct engine_probe *p, int status)
{
    struct err e;

    p->told_sources =
        status == 200 && engine_event_sources_read(buf_str(&p->body), &p->sources, &e) == 0;
    if (status == 200 && !p->told_sources)
        log_warn(&LG, "what an engine says of its events is of no use",
                 LOG_STR("url", p->conf.spec->url), LOG_STR("why", e.text));
    ask_tokens(p);
}

static void on_config(struct engine_probe *p, int status)
{
    engine_load_read(status == 200 ? buf_str(&p->body) : STR_NULL, &p->load);
    p->info = (struct engine_server_info){.page_size = 0};
    p->told_sources = false;
    if (p->load.block_size)
        ask(p, "/kv_event_sources", STR_NULL, on_sources);
    else
        ask(p, "/server_info", STR_NULL, on_info_first);
}

/* --- the periods ------------------------------------------------------------------------------ */

static void note_barred(struct engine_probe *p, int status)
{
    bool barred = status == 401 || status == 403;

    if (barred && !p->barred)
        log_warn(&LG, "engine wants an API key that it was not shown",
                 LOG_STR("url", p->conf.spec->url), LOG_I64("status", status),
                 LOG_BOOL("shown_another", p->authorization != NULL));
    p->barred = barred;
}

static void on_models(struct engine_probe *p, int status)
{
    AUTO(engine_models_done) struct engine_models fresh = {.n = 0};
    struct engine_models old;
    struct err e;

    note_barred(p, status);
    if (status == 200 && engine_models_read(buf_str(&p->body), &fresh, &e) < 0) {
        (void)snprintf(p->why, sizeof(p->why), "%s", e.text);
        status = 0;
    }
    if (status != 200) {
        failed(p);
        return;
    }
    p->failures = 0;
    if (p->up && !p->asking && engine_models_equal(&fresh, &p->models)) {
        again_later(p);
        return;
    }
    old = p->models;
    p->models = fresh;
    fresh = old;
    p->asking = true;
    ask(p, "/metrics", STR_NULL, on_config);
}

static void ask_models(struct engine_probe *p)
{
    ask(p, "/v1/models", STR_NULL, on_models);
}

static void on_load(struct engine_probe *p, int status)
{
    struct engine_load_report r;

    if (status == 0) {
        failed(p);
        return;
    }
    engine_load_read(status == 200 ? buf_str(&p->body) : STR_NULL, &r);
    if ((r.block_size && r.block_size != p->load.block_size) || r.n_ranks > p->n_ranks) {
        p->n_ranks = MAX(p->n_ranks, r.n_ranks);
        log_info(&LG, "engine is another than it was", LOG_STR("url", p->conf.spec->url));
        p->asking = true;
        ask_models(p);
        return;
    }
    again_later(p);
    if (status == 200)
        p->conf.load(p->conf.arg, &r);
}

static void on_timer(void *arg)
{
    struct engine_probe *p = arg;

    if (p->sub || p->dealer)
        end_trying(p);
    else if (!p->up || p->periods++ % MODELS_EVERY == 0)
        ask_models(p);
    else
        ask(p, "/metrics", STR_NULL, on_load);
}

struct engine_probe *engine_probe_start(const struct engine_probe_conf *conf)
{
    struct engine_probe *p = xcalloc(1, sizeof(*p));

    p->conf = *conf;
    if (conf->api_key)
        p->authorization = xasprintf("authorization: Bearer %s", conf->api_key);
    p->timer = timer_new(conf->loop, on_timer, p);
    timer_start(p->timer, 0);
    return p;
}

struct engine_probe *engine_probe_free(struct engine_probe *p)
{
    if (!p)
        return NULL;
    timer_free(p->timer);
    (void)http_call_cancel(p->call);
    zmq_link_free(p->sub);
    zmq_link_free(p->dealer);
    engine_models_done(&p->models);
    buf_done(&p->body);
    free(p->authorization);
    free(p->events);
    free(p->replay);
    free(p);
    return NULL;
}
