/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves the indexes of this process to other routers (--serve-indexer; indexer_query.h).
 *
 * The endpoints of a component come with its first model and go with its last one: the question in any case,
 * the one for placements where an index of it goes by what is routed and not by KV events. Who asks for a
 * model that is not here, or tells of a worker that is not known (yet), gets an error in words.
 * Counted in commutator_router_index_requests_total{kind,outcome}. One loop thread, that of the
 * schedulers and of the server.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct index_server;
struct metric_registry;
struct plane_endpoint;
struct plane_server;
struct scheduler;

struct index_server_conf {
    struct plane_server *server; /* borrowed, outlives it */
    uint64_t instance_id;        /* of this process in discovery */
    struct metric_registry *metrics;
    /* An endpoint is served from now on, or is not any more: discovery has to know. */
    void (*announce)(void *arg, const struct plane_endpoint *ep, bool there);
    void *arg;
};

struct index_server *index_server_new(const struct index_server_conf *conf)
    __attribute__((returns_nonnull));
/* Takes all endpoints back. */
struct index_server *index_server_free(struct index_server *s);
DEFINE_CLEANUP(struct index_server *, index_server_free)

/* @scheduler is borrowed until it is removed. False: the component has a model of that name. */
MUST_CHECK bool index_server_add(struct index_server *s, const char *ns, const char *component,
                                 const char *model, struct scheduler *scheduler);
/* Of this scheduler; harmless when it was not added. */
void index_server_remove(struct index_server *s, const struct scheduler *scheduler);
/* The configuration of schedulers has changed. */
void index_server_refresh(struct index_server *s);
