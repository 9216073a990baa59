/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker: an instance id, its discovery records, its endpoints on the shared plane server, and
 * one engine model per data-parallel rank (wire.md §6).
 *
 *     plane request ──▶ engine of the rank ──▶ items ──▶ plane
 *                            └── block events ──▶ ring, event plane
 *
 * A prefill worker makes one token of a prompt and says in disaggregated_params how to get the rest;
 * a decode worker that is given such params, or the room of a bootstrap rendezvous, computes no
 * prompt, and publishes no KV events. One that is given neither computes the prompt itself.
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
#include "router/wire/engine_output.h"
#include "router/wire/engine_request.h"

struct arena;
struct bootstrap_server;
struct event_bus;
struct metric_registry;
struct nats_link;
struct mock_worker;
struct plane_server;
struct zmq_context;

struct mock_worker_conf {
    struct loop *loop;
    struct store *take_store;   /* owned by the worker from the call on; its instance id names it */
    struct plane_server *plane; /* borrowed, shared; NULL: jobs come by mock_worker_submit() */
    struct event_bus *bus;      /* borrowed; NULL = no events */
    struct nats_link *stream_nats; /* as event_publisher_conf has it */
    uint64_t stream_max_age_s;
    struct metric_registry *metrics;
    const char *ns, *component, *endpoint;
    struct model_card *card; /* borrowed; says whether it is a prefill or a decode worker */
    struct zmq_context *zmq; /* borrowed; of engine events */
    uint16_t engine_port, engine_replay_port; /* of rank 0, counting up; 0 = none */
    struct bootstrap_server *take_bootstrap;  /* of a prefill worker, may be NULL */
    struct engine_conf engine;
    uint32_t dp_size;
    uint64_t seed;
    bool local_indexer;
    bool to_endpoint; /* events are told as 1.x tells them (wire.md §15.7), else as 0.9.0 */
    void (*ended)(void *arg); /* a request has ended */
    void *arg;
};

/* Starts its engines and its endpoints; nobody can find it yet. */
MUST_CHECK int mock_worker_new(struct mock_worker **ret, const struct mock_worker_conf *conf,
                               struct err *e);
/* Breaks what runs, so that frontends see it. */
struct mock_worker *mock_worker_free(struct mock_worker *w);
DEFINE_CLEANUP(struct mock_worker *, mock_worker_free)

/* Publishes its records; it takes requests since mock_worker_new(). */
MUST_CHECK int mock_worker_register(struct mock_worker *w, struct err *e);
/* Takes no requests any more and withdraws its records; what runs goes on. */
void mock_worker_unregister(struct mock_worker *w);

/*
 * How a job answers, whatever plane it came by. `finished` or `failed` is called last, unless the job
 * is cancelled or the worker freed; the handle is dead then.
 */
struct mock_job;
struct mock_answer {
    void (*item)(void *arg, struct mock_worker *w, const struct engine_output *o);
    void (*finished)(void *arg);
    void (*failed)(void *arg, const char *why);
    void (*broken)(void *arg); /* the worker is freed */
};
/* Takes the arena that @rq borrows from, in every case. No callback comes from within it. */
MUST_CHECK int mock_worker_submit(struct mock_worker *w, struct arena *take_arena,
                                  const struct engine_request *rq, const struct mock_answer *answer,
                                  void *arg, struct mock_job **ret, struct err *e);
/* The asker has gone. NULL in, NULL out. */
struct mock_job *mock_job_cancel(struct mock_job *j);
/* Of one rank, below dp_size. */
struct engine_load mock_worker_load(const struct mock_worker *w, uint32_t rank);
/* NATS is up (again). */
void mock_worker_link_up(struct mock_worker *w);
bool mock_worker_is_registered(const struct mock_worker *w);
size_t mock_worker_running(const struct mock_worker *w);
uint64_t mock_worker_id(const struct mock_worker *w);

/* Brings the gauges up to date, before they are printed. */
void mock_worker_measure(struct mock_worker *w);
/* Members of the Kubernetes record's three maps (wire.md §2.6): all records of one kind. */
struct json_put;
void mock_worker_put_records(struct mock_worker *w, enum record_kind kind, struct json_put *j);
