/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/event_channels.h"

#include "router/discovery/instances.h"
#include "router/discovery/store.h"
#include "router/wire/event_bus.h"

void event_channel_follow(struct event_bus *bus, const struct event_channel *ch, bool there)
{
    struct event_channel_info info = {.ns = ch->ns,
                                      .component = ch->component,
                                      .endpoint = ch->endpoint,
                                      .topic = ch->topic,
                                      .publisher_id = ch->publisher_id,
                                      .address = ch->address};

    info.kind = ch->transport == TRANSPORT_ZMQ          ? EVENT_CHANNEL_ZMQ
                : ch->transport == TRANSPORT_ZMQ_BROKER ? EVENT_CHANNEL_BROKER
                                                        : EVENT_CHANNEL_NATS;
    if (bus && there)
        event_bus_put_channel(bus, &info);
    else if (bus)
        event_bus_remove_channel(bus, &info);
}

int event_channel_announce(struct store *s, const struct event_channel_info *ch, bool there,
                           struct err *e)
{
    const struct record rec = {.kind = RECORD_EVENT_CHANNEL,
                               .ns = str_from(ch->ns),
                               .component = str_from(ch->component),
                               .endpoint = str_from(ch->endpoint),
                               .topic = str_from(ch->topic),
                               .instance_id = ch->publisher_id,
                               .transport =
                                   ch->kind == EVENT_CHANNEL_ZMQ ? TRANSPORT_ZMQ : TRANSPORT_NATS,
                               .address = str_from(ch->address)};

    if (there)
        return store_publish(s, &rec, e);
    store_withdraw(s, &rec);
    return 0;
}
