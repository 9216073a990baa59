/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexes beyond this process: those of other routers in place of ours (--use-remote-indexer,
 * sync/remote_index.h), and ours for others (--serve-indexer, sync/index_server.h), with discovery and
 * the request plane. For the frontend and for dynamo-router. One loop thread.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct frontend_conf;
struct indexes;
struct instances_event;
struct metric_registry;
struct plane_client;
struct plane_server;
struct remote_index;
struct scheduler;
struct store;

/* All borrowed. */
struct indexes_conf {
    struct loop *loop;
    const struct frontend_conf *options;
    const char *program; /* for NATS */
    struct plane_client *plane;
    struct plane_server *server; /* NULL: one of its own, when one is needed */
    struct store *store;
    struct metric_registry *metrics;
    uint64_t router_id;
};

MUST_CHECK int indexes_start(struct indexes **ret, const struct indexes_conf *conf, struct err *e);
struct indexes *indexes_free(struct indexes *x);
DEFINE_CLEANUP(struct indexes *, indexes_free)
/* NULL: indexes are our own. */
struct remote_index *indexes_remote(const struct indexes *x);
/* What discovery says of others' indexes; other events are passed over. */
void indexes_event(struct indexes *x, const struct instances_event *ev);
/* A scheduler of ours has come, goes, or has another configuration; nothing unless they are served. */
void indexes_add(struct indexes *x, const char *ns, const char *component, const char *model,
                 struct scheduler *scheduler);
void indexes_remove(struct indexes *x, const struct scheduler *scheduler);
void indexes_refresh(struct indexes *x);
/* Before the end: others are told that ours are served no more. */
void indexes_withdraw(struct indexes *x);
