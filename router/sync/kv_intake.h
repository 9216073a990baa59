/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events and load reports of one pool's workers into its scheduler (router.md §2, wire.md §7).
 *
 * Hears the event bus; other sources hand their events in. A message that cannot be read is counted
 * and dropped; what it said before the bad part stays. event_order decides what is applied when and
 * what the workers are asked; kv_recovery asks.
 *
 * One loop thread, that of the scheduler.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "router/kv/worker_table.h"

struct event_bus;
struct kv_event;
struct kv_intake;
struct plane_client;
struct scheduler;

/* All borrowed. */
struct kv_intake_conf {
    struct loop *loop;
    struct event_bus *bus;      /* NULL: events come from elsewhere */
    struct plane_client *plane; /* NULL: workers cannot be asked */
    struct scheduler *scheduler;
    struct metric_registry *metrics;
    const char *ns, *component, *endpoint;
};

struct kv_intake *kv_intake_free(struct kv_intake *k);
DEFINE_CLEANUP(struct kv_intake *, kv_intake_free)
MUST_CHECK int kv_intake_start(struct kv_intake **ret, const struct kv_intake_conf *conf,
                               struct err *e);

/* A worker that is there, new or changed. */
struct kv_intake_worker {
    uint64_t worker_id;
    const char *address; /* of its generate endpoint: "ip:port/<id hex>/generate" */
    const char *queries; /* of its recovery endpoints, comma separated; NULL or "" = guess */
    uint32_t dp_start, dp_size;
    uint32_t block_size; /* of its engine; 0 = unknown. Events of another size are left out */
    bool askable;        /* it has a local indexer, as far as its card says */
};
void kv_intake_put_worker(struct kv_intake *k, const struct kv_intake_worker *w);
/* Nothing is remembered of it; its blocks are the scheduler's to drop. */
void kv_intake_remove_worker(struct kv_intake *k, uint64_t worker_id);
/* A source was away: every worker is asked for what it told meanwhile. */
void kv_intake_check(struct kv_intake *k);

/*
 * event_order_position() and event_order_resume(), for who keeps the index in a file and says so
 * first. A rank whose engine turns out to be another one than it was (event_proof.h) is asked for a
 * dump.
 */
void kv_intake_keep_proofs(struct kv_intake *k);
struct event_position;
bool kv_intake_position(const struct kv_intake *k, struct worker_rank w,
                        struct event_position *ret);
MUST_CHECK bool kv_intake_resume(struct kv_intake *k, struct worker_rank w,
                                 struct event_position at);

/* --- for sources ------------------------------------------------------------------------------ */

/* An event, or an array of them, that came as JSON: from JetStream. */
void kv_intake_json(struct kv_intake *k, struct str json);
/* One event; @sent_ms by the sender's clock, 0 = unknown. */
void kv_intake_event(struct kv_intake *k, const struct kv_event *ev, uint64_t sent_ms);

/* Why an event, or a part of it, was left out. */
enum kv_filter {
    KV_FILTER_BAD,          /* it cannot be read */
    KV_FILTER_UNKNOWN_TIER, /* a word that is not known */
    KV_FILTER_BLOCK_SIZE,   /* blocks of another size than the model's */
    KV_FILTER_ATTENTION,    /* of an attention group that is not the main one */
    KV_FILTER_RAW_HASH,     /* the engine names blocks by bytes, not by numbers */
    KV_FILTER_SALT,         /* too many blocks with salts: later ones of their prompts have none */
    KV_FILTER_DUPLICATE,
    KV_FILTER_STALE,        /* of an engine that was replaced */
    KV_FILTER_UNKNOWN_RANK, /* of a rank that the worker does not have, or of too many workers */
    N_KV_FILTERS
};
/* Counts what a source left out before it came here. */
void kv_intake_filtered(struct kv_intake *k, enum kv_filter why);
