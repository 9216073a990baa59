/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_publisher.h"

#include "lib/base/log.h"
#include "lib/base/msgpack.h"
#include "lib/net/nats_js.h"
#include "router/wire/event_bus.h"

static const struct log_target LG = {"dynamo_llm::kv_router::publisher"};

struct event_publisher {
    struct event_outlet *kv, *load; /* NULL without a bus */
    struct nats_js *js;             /* NULL: not into JetStream */
    struct nats_link *stream_nats;
    char *stream, *stream_subject;
    uint64_t stream_max_age_s;
    bool stream_made; /* what is sent before is lost */
    struct buf payload;
    bool in_batches; /* 1.x reads events of an endpoint as arrays of them */
    uint64_t sent, dropped;
    void (*ready)(void *arg);
    void *arg;
};

/* --- JetStream ------------------------------------------------------------------------------------ */

/* One that is there with other settings is as good: any answer but none. */
static void on_stream(void *arg, const struct js_answer *a)
{
    struct event_publisher *p = arg;

    if (a->code == JS_LOST) {
        log_warn(&LG, "the stream of KV events cannot be made yet", LOG_STR("stream", p->stream),
                 LOG_STR("why", a->why));
        event_publisher_link_up(p);
    } else {
        p->stream_made = true;
        if (p->ready)
            p->ready(p->arg);
    }
}

void event_publisher_link_up(struct event_publisher *p)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    AUTO(mem_free) char *subject = NULL;

    if (!p->js)
        return;
    subject = xasprintf("$JS.API.STREAM.CREATE.%s", p->stream);
    event_stream_config_put(&body, p->stream, p->stream_max_age_s);
    nats_js_forget(p->js, p);
    nats_js_ask(p->js, &(struct nats_outgoing){.subject = subject, .payload = buf_str(&body)},
                on_stream, p);
}

static int open_stream(struct event_publisher *p, const struct event_publisher_conf *conf,
                       struct err *e)
{
    AUTO(buf_done) struct buf name = BUF_NULL;

    event_stream_put(&name, conf->ns, conf->component);
    p->stream = buf_take_cstr(&name);
    p->stream_subject = xasprintf("%s.%s", p->stream, TOPIC_KV_EVENTS);
    p->stream_nats = conf->stream_nats;
    p->stream_max_age_s = conf->stream_max_age_s;
    return nats_js_new(&p->js, conf->loop, conf->stream_nats, e);
}

/* --- life ----------------------------------------------------------------------------------------- */

int event_publisher_new(struct event_publisher **ret, const struct event_publisher_conf *conf,
                        struct err *e)
{
    AUTO(event_publisher_free) struct event_publisher *p = xcalloc(1, sizeof(*p));
    const struct event_topic kv = {conf->ns, conf->component, conf->endpoint, TOPIC_KV_EVENTS};
    const struct event_topic load = {conf->ns, conf->endpoint ? conf->component : NULL,
                                     conf->endpoint, TOPIC_KV_METRICS};
    int r = 0;

    p->in_batches = conf->endpoint != NULL;
    p->ready = conf->ready;
    p->arg = conf->arg;
    if (conf->bus)
        r = event_outlet_new(&p->load, conf->bus, &load, conf->worker_id, e);
    if (r == 0 && conf->kv && conf->stream_nats)
        r = open_stream(p, conf, e);
    else if (r == 0 && conf->kv && conf->bus)
        r = event_outlet_new(&p->kv, conf->bus, &kv, conf->worker_id, e);
    if (r < 0)
        return r;
    event_publisher_link_up(p);
    *ret = TAKE(p);
    return 0;
}

struct event_publisher *event_publisher_free(struct event_publisher *p)
{
    if (!p)
        return NULL;
    event_outlet_free(p->kv);
    event_outlet_free(p->load);
    nats_js_free(p->js);
    free(p->stream);
    free(p->stream_subject);
    buf_done(&p->payload);
    free(p);
    return NULL;
}

/* --- events --------------------------------------------------------------------------------------- */

static void count(struct event_publisher *p, bool sent)
{
    if (sent)
        p->sent++;
    else
        p->dropped++;
}

void event_publisher_kv(struct event_publisher *p, const struct kv_event *ev)
{
    buf_clear(&p->payload);
    if (p->js) {
        kv_event_put_json(&p->payload, ev);
        count(p, p->stream_made && nats_link_publish(p->stream_nats, p->stream_subject,
                                                     buf_str(&p->payload)) == 0);
        return;
    }
    if (p->in_batches)
        msgpack_put_array(&p->payload, 1);
    kv_event_put(&p->payload, ev);
    count(p, p->kv && event_outlet_send(p->kv, buf_str(&p->payload)) == 0);
}

void event_publisher_load(struct event_publisher *p, const struct active_load *load)
{
    buf_clear(&p->payload);
    active_load_put(&p->payload, load);
    count(p, p->load && event_outlet_send(p->load, buf_str(&p->payload)) == 0);
}

uint64_t event_publisher_dropped(const struct event_publisher *p)
{
    return p->dropped;
}

uint64_t event_publisher_sent(const struct event_publisher *p)
{
    return p->sent;
}

bool event_publisher_channel(const struct event_publisher *p, size_t i,
                             struct event_channel_info *ret)
{
    const struct event_outlet *const outlets[] = {p->load, p->kv};

    return i < ARRAY_LEN(outlets) && outlets[i] && event_outlet_channel(outlets[i], ret);
}
