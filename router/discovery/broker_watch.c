/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/broker_watch.h"

#include <stdlib.h>

#include "lib/base/strmap.h"
#include "router/discovery/records.h"
#include "router/discovery/store.h"
#include "router/wire/event_bus.h"

struct broker {
    char *ns, *component, *topic, *address;
    uint64_t id;
};

struct broker_watch {
    struct store *store;
    struct event_bus *bus;
    struct strmap *brokers; /* by their keys in the store */
};

static void broker_free(void *arg)
{
    struct broker *b = arg;

    free(b->ns);
    free(b->component);
    free(b->topic);
    free(b->address);
    free(b);
}

static struct event_channel_info info_of(const struct broker *b)
{
    return (struct event_channel_info){.ns = b->ns,
                                       .component = b->component,
                                       .endpoint = "",
                                       .topic = b->topic,
                                       .publisher_id = b->id,
                                       .kind = EVENT_CHANNEL_BROKER,
                                       .address = b->address};
}

static void on_gone(void *arg, struct str key, enum store_end how)
{
    const struct broker_watch *w = arg;
    struct broker *b = strmap_remove(w->brokers, key);
    struct event_channel_info info;

    (void)how;
    if (!b)
        return;
    info = info_of(b);
    event_bus_remove_channel(w->bus, &info);
    broker_free(b);
}

static void on_put(void *arg, struct str key, struct str json)
{
    const struct broker_watch *w = arg;
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct event_channel_info info;
    struct record rec;
    struct broker *b;

    on_gone(arg, key, STORE_END_TOLD); /* told anew, it may be elsewhere */
    if (record_parse(json, &scratch, &rec, NULL) != 0 || rec.kind != RECORD_EVENT_CHANNEL ||
        rec.transport != TRANSPORT_ZMQ_BROKER)
        return;
    b = xcalloc(1, sizeof(*b));
    b->ns = str_dup(rec.ns);
    b->component = str_dup(rec.component);
    b->topic = str_dup(rec.topic);
    b->address = str_dup(rec.address);
    b->id = rec.instance_id;
    (void)strmap_set(w->brokers, key, b);
    info = info_of(b);
    event_bus_put_channel(w->bus, &info);
}

int broker_watch_start(struct broker_watch **ret, struct store *store, struct event_bus *bus,
                       struct err *e)
{
    static const struct store_watcher watcher = {.put = on_put, .gone = on_gone};
    AUTO(broker_watch_free) struct broker_watch *w = xcalloc(1, sizeof(*w));
    int r;

    w->bus = bus;
    w->brokers = strmap_new();
    r = store_watch(store, &watcher, w, e);
    if (r < 0)
        return r;
    w->store = store;
    *ret = TAKE(w);
    return 0;
}

struct broker_watch *broker_watch_free(struct broker_watch *w)
{
    if (!w)
        return NULL;
    if (w->store)
        store_unwatch(w->store);
    strmap_free_with(w->brokers, broker_free);
    free(w);
    return NULL;
}
