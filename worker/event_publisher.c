/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/event_publisher.h"

#include "lib/net/loop.h"
#include "lib/net/nats_link.h"

/* Each topic counts its envelopes on its own. */
struct channel {
    const char *topic;
    char *subject;
    uint64_t sequence;
};

struct event_publisher {
    struct nats_link *link;
    uint64_t worker_id;
    struct channel kv, load;
    struct buf payload, envelope;
    uint64_t sent, dropped;
};

static struct channel channel_of(const char *ns, const char *component, const char *topic)
{
    AUTO(buf_done) struct buf subject = BUF_NULL;

    event_subject_put(&subject, ns, component, NULL, topic);
    return (struct channel){.topic = topic, .subject = buf_take_cstr(&subject)};
}

struct event_publisher *event_publisher_new(struct nats_link *link, const char *ns,
                                            const char *component, uint64_t worker_id)
{
    struct event_publisher *p = xcalloc(1, sizeof(*p));

    p->link = link;
    p->worker_id = worker_id;
    p->kv = channel_of(ns, component, TOPIC_KV_EVENTS);
    p->load = channel_of(ns, NULL, TOPIC_KV_METRICS);
    return p;
}

struct event_publisher *event_publisher_free(struct event_publisher *p)
{
    if (!p)
        return NULL;
    free(p->kv.subject);
    free(p->load.subject);
    buf_done(&p->payload);
    buf_done(&p->envelope);
    free(p);
    return NULL;
}

/* A sequence number is spent even if the envelope cannot leave, so that receivers see the gap. */
static void publish(struct event_publisher *p, struct channel *ch)
{
    const struct event_envelope v = {.publisher_id = p->worker_id,
                                     .sequence = ch->sequence++,
                                     .published_at = clock_wall_ms(),
                                     .topic = str_from(ch->topic),
                                     .payload = buf_str(&p->payload)};

    buf_clear(&p->envelope);
    event_envelope_put(&p->envelope, &v);
    if (p->link && nats_link_publish(p->link, ch->subject, buf_str(&p->envelope)) == 0)
        p->sent++;
    else
        p->dropped++;
}

void event_publisher_kv(struct event_publisher *p, const struct kv_event *ev)
{
    buf_clear(&p->payload);
    kv_event_put(&p->payload, ev);
    publish(p, &p->kv);
}

void event_publisher_load(struct event_publisher *p, const struct active_load *load)
{
    buf_clear(&p->payload);
    active_load_put(&p->payload, load);
    publish(p, &p->load);
}

uint64_t event_publisher_dropped(const struct event_publisher *p)
{
    return p->dropped;
}

uint64_t event_publisher_sent(const struct event_publisher *p)
{
    return p->sent;
}
