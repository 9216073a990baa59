/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live table of models and workers, built from a store (wire.md §2.7, 8.1).
 *
 *     store ── put/gone ──▶ records ── end of turn ──▶ new immutable table ── difference ──▶ events
 *
 * Only Endpoint records are routed to; a card makes a model of them, in either order of arrival.
 * A model is served by the endpoint of its oldest card; a card whose mdc_sum differs from that of
 * the model is refused (logged once), its worker stays in the pool. A bad record is logged once
 * and counted, and takes nothing else with it; a bad change keeps the last good content.
 *
 * One loop owns it; instances_table() may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/ref.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/discovery/card.h"
#include "router/discovery/records.h"
#include "router/discovery/store.h"

struct worker {
    uint64_t id;             /* instance id */
    char *address;           /* tcp transport: "ip:port/<id hex>/<endpoint>" */
    struct model_card *card; /* the worker's own card, else the model's */
};

struct served_model {
    char *name;
    bool is_prefill; /* serves prefill of the model of the same name; not for clients */
    struct model_card *card;
    char *ns, *component, *endpoint;
    struct worker *workers; /* ascending id; may be empty */
    size_t n_workers;
};

struct event_channel {
    char *ns, *component, *endpoint, *topic; /* "" where it has none */
    uint64_t publisher_id;
    enum transport transport;
    char *address;
};

/* Immutable. */
struct model_table {
    struct ref ref;
    uint64_t version;            /* counts up */
    struct served_model *models; /* by name, then is_prefill */
    size_t n_models;
    struct event_channel *channels;
    size_t n_channels;
};

struct model_table *model_table_ref(const struct model_table *t) __attribute__((returns_nonnull));
struct model_table *model_table_unref(struct model_table *t);
DEFINE_CLEANUP(struct model_table *, model_table_unref)
/* Borrowed; NULL when absent. */
const struct served_model *model_table_find(const struct model_table *t, struct str name,
                                            bool is_prefill);
const struct worker *served_model_worker(const struct served_model *m, uint64_t id);

enum instances_change {
    MODEL_ADDED,   /* its workers follow as WORKER_ADDED */
    MODEL_REMOVED, /* its workers went before as WORKER_REMOVED */
    WORKER_ADDED,
    WORKER_REMOVED,
    WORKER_CHANGED, /* address or card */
    CHANNEL_ADDED,
    CHANNEL_REMOVED,
};

/* Members point into the new table, or for removals into the old one: borrowed during the call. */
struct instances_event {
    enum instances_change change;
    const struct served_model *model;    /* MODEL_*, WORKER_* */
    const struct worker *worker;         /* WORKER_* */
    const struct event_channel *channel; /* CHANNEL_* */
};

struct instances_conf {
    const char *ns_filter; /* NULL, "" and "dynamo" = every namespace; else exact */
    void (*event)(void *arg, const struct instances_event *ev); /* may be NULL */
    /* After the events of one turn; the new table is in force. May be NULL. */
    void (*changed)(void *arg, const struct model_table *t);
    void *arg;
};

struct instances_stats {
    size_t records, models, workers;
    uint64_t bad_records, refused_cards, unknown_records;
};

struct instances;

/* Becomes the watcher of @store (borrowed, must outlive it). */
MUST_CHECK int instances_new(struct instances **ret, struct loop *l, struct store *store,
                             const struct instances_conf *conf, struct err *e);
struct instances *instances_free(struct instances *ix);
DEFINE_CLEANUP(struct instances *, instances_free)
/* Any thread: the table in force, a reference for the caller. */
struct model_table *instances_table(const struct instances *ix) __attribute__((returns_nonnull));
/* Whether the store has reported all it had at the start, and its state since. */
bool instances_synced(const struct instances *ix);
bool instances_store_up(const struct instances *ix);
struct instances_stats instances_stats(const struct instances *ix);
