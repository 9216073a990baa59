/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event plane of a process: publish and hear envelopes by topic, over core NATS or ZeroMQ
 * (wire.md §7.1 to 7.4, 15.7).
 *
 *     NATS          one subject per scope and topic
 *     ZMQ, direct   each publisher is a PUB socket, found by its EventChannel record: who hears a
 *                   topic connects to all channels of it that discovery tells (put/remove_channel)
 *     ZMQ, brokers  publishers and subscribers connect to brokers; what comes twice is dropped;
 *                   a message of 0.9 has the topic's name there, one of 1.x the subject that NATS has
 *
 * 0.9 publishes to a component or a namespace, 1.x to an endpoint. A subscription names an endpoint
 * and hears every scope that holds it. A broker does not tell scopes apart: receivers look at the
 * worker in the payload. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "router/wire/kv_event.h"

struct event_bus;
struct event_subscription;
struct event_channel_info;
struct event_outlet; /* a publisher of one topic */
struct nats_link;

struct event_bus_conf {
    struct loop *loop;
    struct nats_link *nats; /* borrowed; NULL = ZMQ */
    const char *host;       /* ZMQ: address that publishers tell; NULL = of this host */
    const char *brokers;    /* ZMQ: "xsub=tcp://h:p[;…] , xpub=tcp://h:p[;…]"; NULL = direct */
    bool find_brokers;      /* ZMQ: brokers are what discovery tells of component zmq_broker */
    /*
     * ZMQ, direct: a publisher of ours is there, or about to go; discovery must tell of it, or
     * nobody finds it. May be NULL: whoever makes an outlet sees to it.
     */
    void (*announce)(void *arg, const struct event_channel_info *ch, bool there);
    void *arg;
    bool not_to_self; /* ZMQ: subscriptions do not hear this bus's outlets; over NATS its link's */
};

struct event_bus_stats {
    uint64_t received, sent;
    uint64_t bad;     /* frames that cannot be read, or too many of them */
    uint64_t twice;   /* came by several brokers */
    uint64_t dropped; /* could not leave */
};

/* NULL parts are left out: {ns, NULL, NULL} is the namespace's scope. */
struct event_topic {
    const char *ns, *component, *endpoint, *topic;
};

enum { EVENT_SEEN_MAX = 100000 /* messages remembered, to know what several brokers bring */ };

enum event_channel_kind { EVENT_CHANNEL_NATS, EVENT_CHANNEL_ZMQ, EVENT_CHANNEL_BROKER };

/* What an EventChannel record says; empty parts are "". */
struct event_channel_info {
    const char *ns, *component, *endpoint, *topic;
    uint64_t publisher_id;
    enum event_channel_kind kind;
    const char *
        address; /* subject prefix; endpoint; of a broker: {"xsub_endpoints":[…],"xpub_endpoints":[…]} */
};

struct event_handlers {
    void (*event)(void *arg, const struct event_envelope *ev); /* borrowed during the call */
    void (*bad)(void *arg, const struct err *e);               /* may be NULL */
    /*
     * ZMQ: this publisher is heard from now on, what it said before was missed; 0 = one that
     * cannot be named. May be NULL.
     */
    void (*joined)(void *arg, uint64_t publisher_id);
    void *arg;
};

MUST_CHECK int event_bus_new(struct event_bus **ret, const struct event_bus_conf *conf,
                             struct err *e);
/* After its subscriptions and outlets. */
struct event_bus *event_bus_free(struct event_bus *b);
DEFINE_CLEANUP(struct event_bus *, event_bus_free)
struct event_bus_stats event_bus_stats(const struct event_bus *b);
/* ZMQ without brokers: 1.x words some messages differently there. */
bool event_bus_is_direct(const struct event_bus *b);
/* Changes of discovery. Copies. Without effect on NATS. */
void event_bus_put_channel(struct event_bus *b, const struct event_channel_info *ch);
void event_bus_remove_channel(struct event_bus *b, const struct event_channel_info *ch);

MUST_CHECK int event_bus_subscribe(struct event_subscription **ret, struct event_bus *b,
                                   const struct event_topic *t, const struct event_handlers *h,
                                   struct err *e);
/* No callback comes after it. */
struct event_subscription *event_subscription_free(struct event_subscription *h);
DEFINE_CLEANUP(struct event_subscription *, event_subscription_free)

/*
 * For a publisher that is no worker: random, of 53 bits as 1.x's are. JSON numbers of 64 bits do not
 * survive the Kubernetes API. No two outlets may share one: discovery would know one of them only.
 */
uint64_t event_publisher_id(void);
MUST_CHECK int event_outlet_new(struct event_outlet **ret, struct event_bus *b,
                                const struct event_topic *t, uint64_t publisher_id, struct err *e);
struct event_outlet *event_outlet_free(struct event_outlet *o);
DEFINE_CLEANUP(struct event_outlet *, event_outlet_free)
/*
 * Puts @payload (MessagePack) into an envelope and sends it. 0, or -errno when it could not leave:
 * its sequence number is spent then, so that receivers see the gap.
 */
int event_outlet_send(struct event_outlet *o, struct str payload);
/* What its EventChannel record must say; false when nothing is to be registered (brokers). */
bool event_outlet_channel(const struct event_outlet *o, struct event_channel_info *ret);
