/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/event_bus.h"

#include <errno.h>

#include "lib/base/digest.h"
#include "lib/base/json_pull.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "lib/net/nats_link.h"
#include "lib/net/tcp.h"
#include "lib/net/zmq_link.h"
#include "router/wire/fields.h"

static const struct log_target LG = {"dynamo_runtime::transports::event_plane"};

enum { SCOPES = 3, ZMQ_PARTS = 4, BROKER_ENDPOINTS_MAX = 64 };

/* A set of endpoints, small. */
struct endpoints {
    char **at;
    size_t n;
};

/* An EventChannel of discovery, or the configured brokers. */
struct channel {
    struct list link;
    char *ns, *component, *endpoint, *topic;
    uint64_t publisher_id;
    enum event_channel_kind kind;
    char *address;
    struct endpoints xpub, xsub; /* to hear from; to publish to */
};

struct event_bus {
    struct event_bus_conf conf;
    struct zmq_context *zmq; /* NULL = NATS */
    bool brokered;
    bool told_other; /* of a worker on the other plane */
    struct list channels;
    struct list subscriptions, outlets;
    struct event_bus_stats stats;
};

/* What a subscription of several brokers has seen: a ring of keys and a set of them. */
struct seen {
    struct map64 set;
    uint64_t *ring;
    size_t at;
};

struct event_subscription {
    struct list link;
    struct event_bus *bus;
    struct event_handlers handlers;
    char *ns, *component, *endpoint, *topic;
    char *subjects[SCOPES]; /* of the topic, in every scope that holds it */
    size_t n_subjects;
    uint64_t nats_ids[SCOPES];
    size_t n_nats_ids;
    struct zmq_link *zmq;
    struct seen seen;
};

struct event_outlet {
    struct list link;
    struct event_bus *bus;
    char *ns, *component, *endpoint, *topic;
    char *subject;
    char *address; /* what its record says */
    struct zmq_link *zmq;
    bool announced;
    uint64_t publisher_id, sequence;
    struct buf envelope, frame;
};

/* --- endpoints and channels ----------------------------------------------------------------------- */

static void endpoints_add(struct endpoints *set, struct str endpoint)
{
    if (set->n == BROKER_ENDPOINTS_MAX || endpoint.len == 0)
        return;
    set->at = xreallocarray(set->at, set->n + 1, sizeof(*set->at));
    set->at[set->n++] = str_dup(endpoint);
}

static void endpoints_done(struct endpoints *set)
{
    for (size_t i = 0; i < set->n; i++)
        free(set->at[i]);
    free(set->at);
    *set = (struct endpoints){0};
}

static void endpoints_pull(struct json_pull *p, struct buf *scratch, struct endpoints *set)
{
    struct str one;

    if (!json_pull_array(p))
        return;
    while (json_pull_element(p)) {
        text_pull(p, scratch, &one);
        endpoints_add(set, one);
    }
}

/* {"xsub_endpoints":[…],"xpub_endpoints":[…]}; what cannot be read leaves the sets as they are. */
static void broker_pull(struct channel *ch)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str json = str_from(ch->address), key;
    struct json_pull p;

    (void)buf_reserve(&scratch, json.len); /* views into it must not move */
    json_pull_init(&p, json);
    if (!json_pull_object(&p))
        return;
    while (json_pull_key(&p, &key)) {
        if (str_is(key, "xsub_endpoints"))
            endpoints_pull(&p, &scratch, &ch->xsub);
        else if (str_is(key, "xpub_endpoints"))
            endpoints_pull(&p, &scratch, &ch->xpub);
        else
            skip_pull(&p);
    }
}

static struct channel *channel_new(const struct event_channel_info *info)
{
    struct channel *ch = xcalloc(1, sizeof(*ch));

    ch->ns = xstrdup(info->ns);
    ch->component = xstrdup(info->component);
    ch->endpoint = xstrdup(info->endpoint);
    ch->topic = xstrdup(info->topic);
    ch->address = xstrdup(info->address);
    ch->publisher_id = info->publisher_id;
    ch->kind = info->kind;
    if (info->kind == EVENT_CHANNEL_ZMQ)
        endpoints_add(&ch->xpub, str_from(info->address));
    else if (info->kind == EVENT_CHANNEL_BROKER)
        broker_pull(ch);
    return ch;
}

static void channel_free(struct channel *ch)
{
    list_remove(&ch->link);
    free(ch->ns);
    free(ch->component);
    free(ch->endpoint);
    free(ch->topic);
    free(ch->address);
    endpoints_done(&ch->xpub);
    endpoints_done(&ch->xsub);
    free(ch);
}

static bool channel_is(const struct channel *ch, const struct event_channel_info *info)
{
    return ch->publisher_id == info->publisher_id && strcmp(ch->ns, info->ns) == 0 &&
           strcmp(ch->component, info->component) == 0 &&
           strcmp(ch->endpoint, info->endpoint) == 0 && strcmp(ch->topic, info->topic) == 0 &&
           strcmp(ch->address, info->address) == 0;
}

/* "xsub=a;b , xpub=c": the configured brokers as one channel. */
static int brokers_parse(struct channel *ch, struct str text, struct err *e)
{
    struct str part, one;

    for (bool more = true; more;) {
        struct str list, key;
        struct endpoints *set;

        more = str_cut(&text, ',', &part);
        list = str_trim(part);
        (void)str_cut(&list, '=', &key);
        set = str_is(key, "xsub") ? &ch->xsub : str_is(key, "xpub") ? &ch->xpub : NULL;
        if (!set)
            return err_set(e, -EINVAL, "brokers: '%.*s' is not xsub=… or xpub=…", STR_ARG(part));
        for (bool again = true; again;) {
            again = str_cut(&list, ';', &one);
            endpoints_add(set, str_trim(one));
        }
    }
    if (!ch->xsub.n || !ch->xpub.n)
        return err_set(e, -EINVAL, "brokers: both xsub=… and xpub=… are needed");
    return 0;
}

/* --- connections ---------------------------------------------------------------------------------- */

static bool in_scope(const char *of_channel, const char *wanted)
{
    return *of_channel == '\0' || (wanted && strcmp(of_channel, wanted) == 0);
}

static bool hears(const struct event_subscription *s, const struct channel *ch)
{
    if (ch->kind == EVENT_CHANNEL_BROKER)
        return s->bus->brokered;
    return ch->kind == EVENT_CHANNEL_ZMQ && !s->bus->brokered && strcmp(ch->ns, s->ns) == 0 &&
           strcmp(ch->topic, s->topic) == 0 && in_scope(ch->component, s->component) &&
           in_scope(ch->endpoint, s->endpoint);
}

/* Whether a channel that stays needs what one that goes has used. */
static bool still_heard(const struct event_subscription *s, const char *endpoint)
{
    LIST_FOREACH (ch, &s->bus->channels, struct channel, link)
        for (size_t i = 0; hears(s, ch) && i < ch->xpub.n; i++)
            if (strcmp(ch->xpub.at[i], endpoint) == 0)
                return true;
    return false;
}

static void connect_all(struct zmq_link *z, const struct endpoints *set)
{
    struct err e;

    for (size_t i = 0; i < set->n; i++)
        if (zmq_link_connect(z, set->at[i], &e) < 0)
            log_warn(&LG, "cannot connect", LOG_STR("endpoint", set->at[i]),
                     LOG_STR("why", e.text));
}

static void add_channel(struct event_bus *b, struct channel *ch)
{
    list_append(&b->channels, &ch->link);
    LIST_FOREACH (s, &b->subscriptions, struct event_subscription, link)
        if (hears(s, ch))
            connect_all(s->zmq, &ch->xpub);
    LIST_FOREACH (o, &b->outlets, struct event_outlet, link)
        if (b->brokered)
            connect_all(o->zmq, &ch->xsub);
}

static void drop_channel(struct event_bus *b, struct channel *ch)
{
    list_remove(&ch->link);
    LIST_FOREACH (s, &b->subscriptions, struct event_subscription, link)
        for (size_t i = 0; hears(s, ch) && i < ch->xpub.n; i++)
            if (!still_heard(s, ch->xpub.at[i]))
                zmq_link_disconnect(s->zmq, ch->xpub.at[i]);
    LIST_FOREACH (o, &b->outlets, struct event_outlet, link)
        for (size_t i = 0; b->brokered && i < ch->xsub.n; i++)
            zmq_link_disconnect(o->zmq, ch->xsub.at[i]);
    channel_free(ch);
}

/* Said once: it is most often a variable that one side has and the other lacks. */
static void compare_planes(struct event_bus *b, const struct event_channel_info *info)
{
    bool other = b->zmq ? info->kind == EVENT_CHANNEL_NATS : info->kind != EVENT_CHANNEL_NATS;

    if (!other || b->told_other || strcmp(info->topic, TOPIC_KV_EVENTS) != 0)
        return;
    b->told_other = true;
    log_warn(&LG, "a worker publishes its KV events on another event plane than this router hears",
             LOG_STR("ours", b->zmq ? "zmq" : "nats"), LOG_STR("its", b->zmq ? "nats" : "zmq"),
             LOG_STR("component", info->component), LOG_STR("hint", "DYN_EVENT_PLANE"));
}

static bool is_own(const struct event_bus *b, uint64_t publisher_id)
{
    LIST_FOREACH (o, &b->outlets, struct event_outlet, link)
        if (b->conf.not_to_self && o->publisher_id == publisher_id)
            return true;
    return false;
}

void event_bus_put_channel(struct event_bus *b, const struct event_channel_info *info)
{
    bool broker = info->kind == EVENT_CHANNEL_BROKER;

    compare_planes(b, info);
    if (!b->zmq || info->kind == EVENT_CHANNEL_NATS ||
        (broker && (!b->conf.find_brokers || strcmp(info->component, "zmq_broker") != 0)) ||
        is_own(b, info->publisher_id))
        return;
    add_channel(b, channel_new(info));
}

void event_bus_remove_channel(struct event_bus *b, const struct event_channel_info *info)
{
    LIST_FOREACH (ch, &b->channels, struct channel, link) {
        if (channel_is(ch, info)) {
            drop_channel(b, ch);
            return;
        }
    }
}

/* --- hearing -------------------------------------------------------------------------------------- */

/* The time is part of the key: a pod that restarts counts from 0 again under the same id. */
static bool seen_before(struct seen *seen, const struct event_envelope *ev)
{
    uint64_t key = ev->publisher_id * UINT64_C(0x9E3779B97F4A7C15);
    bool is_new;

    key = (key ^ key >> 29 ^ ev->sequence) * UINT64_C(0xBF58476D1CE4E5B9);
    key = (key ^ key >> 32 ^ ev->published_at) * UINT64_C(0x94D049BB133111EB);
    if (!seen->ring)
        seen->ring = xcalloc(EVENT_SEEN_MAX, sizeof(*seen->ring));
    (void)map64_put(&seen->set, key, &is_new);
    if (!is_new)
        return true;
    if (seen->set.len > EVENT_SEEN_MAX)
        (void)map64_remove(&seen->set, seen->ring[seen->at], NULL);
    seen->ring[seen->at] = key;
    seen->at = (seen->at + 1) % EVENT_SEEN_MAX;
    return false;
}

static void complain(struct event_subscription *s, const struct err *e)
{
    s->bus->stats.bad++;
    if (s->handlers.bad)
        s->handlers.bad(s->handlers.arg, e);
}

static void on_envelope(struct event_subscription *s, struct str bytes)
{
    struct event_envelope ev;
    struct err e;

    s->bus->stats.received++;
    if (event_envelope_decode(bytes, &ev, &e) < 0) {
        complain(s, &e);
        return;
    }
    if (!str_is(ev.topic, s->topic) || is_own(s->bus, ev.publisher_id))
        return;
    if (s->bus->brokered && seen_before(&s->seen, &ev))
        s->bus->stats.twice++;
    else
        s->handlers.event(s->handlers.arg, &ev);
}

static void on_nats(void *arg, const struct nats_message *m)
{
    on_envelope(arg, m->payload);
}

/* A broker brings what 0.9 published under the topic's own name, and what 1.6 did under the subject. */
static bool is_of_topic(const struct event_subscription *s, struct str name)
{
    if (str_is(name, s->topic))
        return true;
    for (size_t i = 0; s->bus->brokered && i < s->n_subjects; i++)
        if (str_is(name, s->subjects[i]))
            return true;
    return false;
}

static void on_zmq(void *arg, const struct str *frames, size_t n)
{
    struct event_subscription *s = arg;
    struct str envelope;
    struct err e;

    if (n != ZMQ_PARTS) {
        (void)err_set(&e, -EBADMSG, "event of %zu parts, not %d", n, ZMQ_PARTS);
        complain(s, &e);
    } else if (!is_of_topic(s, frames[0])) {
        return; /* a longer topic that begins as ours */
    } else if (event_frame_parse(frames[3], &envelope, &e) < 0) {
        complain(s, &e);
    } else {
        on_envelope(s, envelope);
    }
}

static void on_joined(void *arg, struct str endpoint)
{
    struct event_subscription *s = arg;
    uint64_t id = 0;

    LIST_FOREACH (ch, &s->bus->channels, struct channel, link)
        if (ch->kind == EVENT_CHANNEL_ZMQ && hears(s, ch) && str_is(endpoint, ch->address))
            id = ch->publisher_id;
    if (s->handlers.joined)
        s->handlers.joined(s->handlers.arg, id);
}

static int subscribe_zmq(struct event_subscription *s, struct err *e)
{
    const struct zmq_link_conf conf = {
        .kind = ZMQ_KIND_SUB, .received = on_zmq, .connected = on_joined, .arg = s};
    int r = zmq_link_new(&s->zmq, s->bus->zmq, &conf, e);

    if (r == 0)
        r = zmq_link_subscribe(s->zmq, str_from(s->topic), e);
    for (size_t i = 0; r == 0 && s->bus->brokered && i < s->n_subjects; i++)
        r = zmq_link_subscribe(s->zmq, str_from(s->subjects[i]), e);
    if (r < 0)
        return r;
    LIST_FOREACH (ch, &s->bus->channels, struct channel, link)
        if (hears(s, ch))
            connect_all(s->zmq, &ch->xpub);
    return 0;
}

static void name_subjects(struct event_subscription *s)
{
    const char *const parts[SCOPES][2] = {
        {NULL, NULL}, {s->component, NULL}, {s->component, s->endpoint}};
    size_t n = !s->component ? 1 : !s->endpoint ? 2 : 3;

    for (size_t i = 0; i < n; i++) {
        AUTO(buf_done) struct buf subject = BUF_NULL;

        event_subject_put(&subject, s->ns, parts[i][0], parts[i][1], s->topic);
        s->subjects[s->n_subjects++] = buf_take_cstr(&subject);
    }
}

static int subscribe_nats(struct event_subscription *s, struct err *e)
{
    for (size_t i = 0; i < s->n_subjects; i++) {
        int r = nats_link_subscribe(s->bus->conf.nats, s->subjects[i], on_nats, s,
                                    &s->nats_ids[s->n_nats_ids], e);

        if (r < 0)
            return err_wrap(e, r, "subscribe to %s", s->subjects[i]);
        s->n_nats_ids++;
    }
    return 0;
}

static char *dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

int event_bus_subscribe(struct event_subscription **ret, struct event_bus *b,
                        const struct event_topic *t, const struct event_handlers *h, struct err *e)
{
    AUTO(event_subscription_free) struct event_subscription *s = xcalloc(1, sizeof(*s));
    int r;

    s->bus = b;
    s->handlers = *h;
    s->ns = xstrdup(t->ns);
    s->component = dup_or_null(t->component);
    s->endpoint = dup_or_null(t->endpoint);
    s->topic = xstrdup(t->topic);
    name_subjects(s);
    list_append(&b->subscriptions, &s->link);
    r = b->zmq ? subscribe_zmq(s, e) : subscribe_nats(s, e);
    if (r < 0)
        return r;
    *ret = TAKE(s);
    return 0;
}

struct event_subscription *event_subscription_free(struct event_subscription *s)
{
    if (!s)
        return NULL;
    list_remove(&s->link);
    for (size_t i = 0; i < s->n_nats_ids; i++)
        nats_link_unsubscribe(s->bus->conf.nats, s->nats_ids[i]);
    zmq_link_free(s->zmq);
    for (size_t i = 0; i < s->n_subjects; i++)
        free(s->subjects[i]);
    map64_done(&s->seen.set);
    free(s->seen.ring);
    free(s->ns);
    free(s->component);
    free(s->endpoint);
    free(s->topic);
    free(s);
    return NULL;
}

/* --- publishing ----------------------------------------------------------------------------------- */

uint64_t event_publisher_id(void)
{
    return random_u64() >> 11;
}

/* A PUB socket of its own, or one that is connected to every broker. */
static int open_zmq(struct event_outlet *o, struct err *e)
{
    const struct zmq_link_conf conf = {.kind = ZMQ_KIND_PUB};
    struct event_bus *b = o->bus;
    char ip[64];
    uint16_t port;
    int r = zmq_link_new(&o->zmq, b->zmq, &conf, e);

    if (r == 0 && !b->brokered)
        r = zmq_link_bind(o->zmq, "tcp://0.0.0.0:*", &port, e);
    if (r < 0)
        return r;
    if (b->brokered) {
        LIST_FOREACH (ch, &b->channels, struct channel, link)
            connect_all(o->zmq, &ch->xsub);
        return 0;
    }
    tcp_local_ip(ip, sizeof(ip));
    o->address = xasprintf("tcp://%s:%u", b->conf.host ? b->conf.host : ip, port);
    return 0;
}

static bool announce(const struct event_outlet *o, bool there)
{
    const struct event_bus_conf *c = &o->bus->conf;
    struct event_channel_info ch;

    if (!c->announce || !o->zmq || !event_outlet_channel(o, &ch))
        return false;
    c->announce(c->arg, &ch, there);
    return true;
}

static void name_subject(struct event_outlet *o, const struct event_topic *t)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    event_subject_put(&text, t->ns, t->component, t->endpoint, NULL);
    if (!o->address)
        o->address = str_dup(buf_str(&text));
    buf_printf(&text, ".%s", t->topic);
    o->subject = buf_take_cstr(&text);
}

/* Who hears an endpoint's topic is of 1.x. */
static const char *name_on_zmq(const struct event_outlet *o)
{
    return o->bus->brokered && *o->endpoint ? o->subject : o->topic;
}

int event_outlet_new(struct event_outlet **ret, struct event_bus *b, const struct event_topic *t,
                     uint64_t publisher_id, struct err *e)
{
    AUTO(event_outlet_free) struct event_outlet *o = xcalloc(1, sizeof(*o));
    int r = 0;

    o->bus = b;
    o->publisher_id = publisher_id;
    o->ns = xstrdup(t->ns);
    o->component = xstrdup(t->component ? t->component : "");
    o->endpoint = xstrdup(t->endpoint ? t->endpoint : "");
    o->topic = xstrdup(t->topic);
    list_append(&b->outlets, &o->link);
    if (b->zmq)
        r = open_zmq(o, e);
    name_subject(o, t);
    if (r < 0)
        return err_wrap(e, r, "publisher of %s", t->topic);
    o->announced = announce(o, true);
    *ret = TAKE(o);
    return 0;
}

struct event_outlet *event_outlet_free(struct event_outlet *o)
{
    if (!o)
        return NULL;
    if (o->announced)
        (void)announce(o, false);
    list_remove(&o->link);
    zmq_link_free(o->zmq);
    free(o->ns);
    free(o->component);
    free(o->endpoint);
    free(o->topic);
    free(o->subject);
    free(o->address);
    buf_done(&o->envelope);
    buf_done(&o->frame);
    free(o);
    return NULL;
}

static int send_zmq(struct event_outlet *o, uint64_t sequence)
{
    uint8_t id[8], count[8];
    struct str frames[ZMQ_PARTS];

    for (int i = 0; i < 8; i++) {
        id[i] = (uint8_t)(o->publisher_id >> (56 - 8 * i));
        count[i] = (uint8_t)(sequence >> (56 - 8 * i));
    }
    buf_clear(&o->frame);
    event_frame_put(&o->frame, buf_str(&o->envelope));
    frames[0] = str_from(name_on_zmq(o));
    frames[1] = str_slice(id, sizeof(id));
    frames[2] = str_slice(count, sizeof(count));
    frames[3] = buf_str(&o->frame);
    return zmq_link_send(o->zmq, frames, ZMQ_PARTS);
}

int event_outlet_send(struct event_outlet *o, struct str payload)
{
    const struct event_envelope v = {.publisher_id = o->publisher_id,
                                     .sequence = o->sequence++,
                                     .published_at = clock_wall_ms(),
                                     .topic = str_from(o->topic),
                                     .payload = payload};
    int r;

    buf_clear(&o->envelope);
    event_envelope_put(&o->envelope, &v);
    r = o->zmq ? send_zmq(o, v.sequence)
               : nats_link_publish(o->bus->conf.nats, o->subject, buf_str(&o->envelope));
    if (r < 0)
        o->bus->stats.dropped++;
    else
        o->bus->stats.sent++;
    return r;
}

bool event_outlet_channel(const struct event_outlet *o, struct event_channel_info *ret)
{
    if (o->zmq && o->bus->brokered)
        return false;
    *ret = (struct event_channel_info){
        .ns = o->ns,
        .component = o->component,
        .endpoint = o->endpoint,
        .topic = o->topic,
        .publisher_id = o->publisher_id,
        .kind = o->zmq ? EVENT_CHANNEL_ZMQ : EVENT_CHANNEL_NATS,
        .address = o->address,
    };
    return true;
}

/* --- life ----------------------------------------------------------------------------------------- */

int event_bus_new(struct event_bus **ret, const struct event_bus_conf *conf, struct err *e)
{
    static const struct event_channel_info configured = {.ns = "",
                                                         .component = "",
                                                         .endpoint = "",
                                                         .topic = "",
                                                         .address = "",
                                                         .kind = EVENT_CHANNEL_BROKER};
    AUTO(event_bus_free) struct event_bus *b = xcalloc(1, sizeof(*b));
    int r = 0;

    b->conf = *conf;
    list_init(&b->channels);
    list_init(&b->subscriptions);
    list_init(&b->outlets);
    if (!conf->nats) {
        b->brokered = conf->brokers || conf->find_brokers;
        r = zmq_context_new(&b->zmq, conf->loop, e);
    }
    if (r == 0 && b->zmq && conf->brokers) {
        struct channel *ch = channel_new(&configured);

        list_append(&b->channels, &ch->link);
        r = brokers_parse(ch, str_from(conf->brokers), e);
    }
    if (r < 0)
        return r;
    *ret = TAKE(b);
    return 0;
}

struct event_bus *event_bus_free(struct event_bus *b)
{
    if (!b)
        return NULL;
    LIST_FOREACH (ch, &b->channels, struct channel, link)
        channel_free(ch);
    zmq_context_free(b->zmq);
    free(b);
    return NULL;
}

bool event_bus_is_direct(const struct event_bus *b)
{
    return b->zmq && !b->brokered;
}

struct event_bus_stats event_bus_stats(const struct event_bus *b)
{
    return b->stats;
}
