/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live table of models and workers, built from a store (wire.md §2.7, 8.1).
 *
 *     store ── put/gone ──▶ records ── end of turn ──▶ new immutable table ── difference ──▶ events
 *
 * Only Endpoint records are routed to; a card makes a model of them, in either order of arrival.
 * A model is served by each endpoint that has a card of it: graphs that share a frontend, and the
 * generations of one that is being replaced, live in namespaces of their own. Each such set of workers
 * is a served_model, with the oldest card of its endpoint; a card that does not fit that of the model
 * (model_card_fits()) is refused (logged once), its worker stays in the pool. A bad record is
 * logged once and counted, and takes nothing else with it; a bad change keeps the last good content.
 *
 * Last known good: while the store is down nothing goes, however long. What it does not tell any more
 * once it is back, or takes away in a way that no worker's leaving explains (store.h), is kept for
 * `keep_ms` of the store being up, and then believed. A worker that really is gone is left by the
 * request path meanwhile.
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

struct stock_engine;

struct worker {
    uint64_t id;   /* instance id */
    char *address; /* on its request plane: text of plane_address.h */
    /* Addresses of its recovery endpoints, comma separated; may be "". Behind one whose rank is known
     * stand '#' and the rank. */
    char *queries;
    struct model_card *card; /* the worker's own card, else the model's */
    bool on_cpu;             /* its record says so */
    bool has_own_card;       /* what tells workers apart (bootstrap_host) is this worker's */
    bool kept;               /* the store lost it; no change to tell */
    /* NULL: a worker of Dynamo. Else a plain OpenAI server, whose address is its URL. */
    const struct stock_engine *engine;
};

struct served_model {
    char *name;
    char *set;       /* name and endpoint: one of its kind; NULL = the name is */
    bool is_prefill; /* serves prefill of the model of the same name; not for clients */
    bool is_stock;   /* its workers are plain OpenAI servers */
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

/* Of a router that serves the index of a component's workers (indexer_query.h). */
struct served_index {
    char *ns, *component, *endpoint;
    uint64_t instance_id; /* of the router */
    char *address;        /* text of plane_address.h */
};

/* Immutable. */
struct model_table {
    struct ref ref;
    uint64_t version;            /* counts up */
    struct served_model *models; /* by name, then is_prefill, then set */
    size_t n_models;
    struct event_channel *channels;
    size_t n_channels;
    struct served_index *indexes;
    size_t n_indexes;
};

struct model_table *model_table_ref(const struct model_table *t) __attribute__((returns_nonnull));
struct model_table *model_table_unref(struct model_table *t);
DEFINE_CLEANUP(struct model_table *, model_table_unref)
/* Borrowed, the first of that name; NULL when absent. */
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
    INDEX_ADDED,
    INDEX_REMOVED,
    MODEL_CHANGED, /* another card, same endpoint and blocks: its workers stay */
};

/* Members point into the new table, or for removals into the old one: borrowed during the call. */
struct instances_event {
    enum instances_change change;
    const struct served_model *model;    /* MODEL_*, WORKER_* */
    const struct worker *worker;         /* WORKER_* */
    const struct event_channel *channel; /* CHANNEL_* */
    const struct served_index *index;    /* INDEX_* */
};

struct instances_conf {
    /* NULL, "" and "dynamo" = every namespace; else this one, or all that begin with ns_prefix. */
    const char *ns_filter;
    const char *ns_prefix; /* wins over ns_filter; NULL or "" = not set */
    uint64_t keep_ms;      /* what the store lost is kept for so long; 0 = not at all */
    uint64_t keep_down_ms; /* all of it, while the store is not reachable; 0 = for ever */
    void (*event)(void *arg, const struct instances_event *ev); /* may be NULL */
    /* After the events of one turn; the new table is in force. May be NULL. */
    void (*changed)(void *arg, const struct model_table *t);
    void *arg;
};

struct instances_stats {
    size_t records, models, workers;
    size_t kept;          /* workers that are served although the store does not tell them now */
    bool given_up;        /* keep_down_ms passed: nobody is served until the store is back */
    uint64_t view_age_ms; /* since the store was last up; 0 = it is */
    uint64_t bad_records, refused_cards, unknown_records;
    uint64_t restored, dropped; /* records that were kept: told again, given up */
    uint64_t beyond_limit;      /* records that there was no room for */
    uint64_t publish_failures;  /* of our own records; each is tried again */
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
/* What a user should know although workers are served, in words. */
void instances_notes(const struct instances *ix, void (*note)(void *arg, const char *text),
                     void *arg);
