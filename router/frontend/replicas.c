/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/replicas.h"

#include <string.h>

#include "lib/base/list.h"
#include "lib/base/log.h"
#include "router/discovery/instances.h"
#include "router/frontend/pool.h"
#include "router/sync/replica.h"
#include "router/wire/kv_event.h"

static const struct log_target LG = {"commutator::frontend"};

struct member {
    struct list link;
    struct pool *pool;
    struct replica *replica; /* NULL = off */
};

struct replicas {
    struct loop *loop;
    struct metric_registry *metrics;
    struct event_bus *bus;
    uint64_t router_id;
    struct list members;
};

static void start(struct replicas *r, struct member *m)
{
    const struct pool *p = m->pool;
    const struct replica_conf conf = {.loop = r->loop,
                                      .bus = r->bus,
                                      .scheduler = p->scheduler,
                                      .affinity = p->affinity,
                                      .metrics = r->metrics,
                                      .ns = p->ns,
                                      .component = p->component,
                                      .endpoint = p->endpoint,
                                      .router_id = r->router_id};
    struct err e;

    if (replica_start(&m->replica, &conf, &e) < 0)
        log_error(&LG, "no replica sync for this model", LOG_STR("model", p->model),
                  LOG_STR("why", e.text));
    else
        log_info(&LG, "replica sync", LOG_STR("model", p->model),
                 LOG_STR("component", p->component), LOG_U64("router_id", r->router_id));
}

void replicas_switch(struct replicas *r, struct event_bus *bus)
{
    if (r->bus == bus)
        return;
    r->bus = bus;
    LIST_FOREACH (m, &r->members, struct member, link) {
        m->replica = replica_free(m->replica);
        if (bus)
            start(r, m);
    }
}

void replicas_add(struct replicas *r, struct pool *p)
{
    struct member *m = xcalloc(1, sizeof(*m));

    m->pool = p;
    list_append(&r->members, &m->link);
    if (r->bus)
        start(r, m);
}

static void member_free(struct member *m)
{
    list_remove(&m->link);
    replica_free(m->replica);
    free(m);
}

void replicas_remove(struct replicas *r, const struct pool *p)
{
    LIST_FOREACH (m, &r->members, struct member, link)
        if (m->pool == p)
            member_free(m);
}

void replicas_channel_gone(struct replicas *r, const struct event_channel *ch)
{
    if (strcmp(ch->topic, TOPIC_ACTIVE_SEQUENCES) != 0)
        return;
    LIST_FOREACH (m, &r->members, struct member, link)
        if (m->replica && strcmp(ch->ns, m->pool->ns) == 0 &&
            strcmp(ch->component, m->pool->component) == 0)
            replica_publisher_gone(m->replica, ch->publisher_id);
}

struct replicas *replicas_new(struct loop *l, struct metric_registry *metrics, uint64_t router_id)
{
    struct replicas *r = xcalloc(1, sizeof(*r));

    r->loop = l;
    r->metrics = metrics;
    r->router_id = router_id;
    list_init(&r->members);
    return r;
}

struct replicas *replicas_free(struct replicas *r)
{
    if (!r)
        return NULL;
    LIST_FOREACH (m, &r->members, struct member, link)
        member_free(m);
    free(r);
    return NULL;
}
