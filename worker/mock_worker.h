/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker: an instance id, its discovery records, its endpoints on the shared plane server, and
 * one engine model per data-parallel rank (wire.md §6).
 *
 *     plane request ──▶ engine of the rank ──▶ items ──▶ plane
 *                            └── block events ──▶ ring, event plane
 *
 * One loop; all calls on its thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "router/discovery/card.h"
#include "router/discovery/store.h"
#include "router/sim/engine.h"

struct metric_registry;
struct mock_worker;
struct nats_link;
struct plane_server;

struct mock_worker_conf {
    struct loop *loop;
    struct store *take_store;   /* owned by the worker from the call on; its instance id names it */
    struct plane_server *plane; /* borrowed, shared */
    struct nats_link *nats;     /* borrowed; NULL = no events */
    struct metric_registry *metrics;
    const char *ns, *component, *endpoint;
    struct model_card *card; /* borrowed */
    struct engine_conf engine;
    uint32_t dp_size;
    uint64_t seed;
    bool local_indexer;
    void (*ended)(void *arg); /* a request has ended */
    void *arg;
};

/* Starts its engines; nobody can reach it yet. */
MUST_CHECK int mock_worker_new(struct mock_worker **ret, const struct mock_worker_conf *conf,
                               struct err *e);
/* Breaks what runs, so that frontends see it. */
struct mock_worker *mock_worker_free(struct mock_worker *w);
DEFINE_CLEANUP(struct mock_worker *, mock_worker_free)

/* Takes requests, then publishes its records. */
MUST_CHECK int mock_worker_register(struct mock_worker *w, struct err *e);
/* Takes no requests any more and withdraws its records; what runs goes on. */
void mock_worker_unregister(struct mock_worker *w);
bool mock_worker_is_registered(const struct mock_worker *w);
size_t mock_worker_running(const struct mock_worker *w);
uint64_t mock_worker_id(const struct mock_worker *w);

/* Brings the gauges up to date, before they are printed. */
void mock_worker_measure(struct mock_worker *w);
/* Members of the Kubernetes record's three maps (wire.md §2.6): all records of one kind. */
struct json_put;
void mock_worker_put_records(struct mock_worker *w, enum record_kind kind, struct json_put *j);
