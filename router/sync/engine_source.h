/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events straight from one engine's publisher (vLLM, SGLang; router.md §2.7), without a worker's
 * runtime between: for one (worker, rank).
 *
 *     engine PUB    ── [topic, sequence, batch] ──▶ SUB ──▶ events, ids counted here
 *     engine ROUTER ◀── [empty, first sequence] ─── DEALER, for what was missed
 *                   ─── [empty, sequence, batch] … [empty, -1, empty] ──▶
 *                                       (1.x mockers put two empty parts first)
 *
 * Asked for again is what the engine's buffer holds: at every new connection, and when a sequence
 * number jumps; meanwhile live batches wait (bounded). What cannot be had any more is counted, and
 * the stream goes on. When numbers fall, or the engine lacks the last batch that we have, it is a
 * new one: a "cleared" is given out first. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "router/sync/kv_intake.h"

struct engine_source;
struct kv_event;
struct zmq_context;

struct engine_source_conf {
    struct loop *loop;
    struct zmq_context *zmq; /* borrowed */
    const char *endpoint,
        *replay;       /* "tcp://host:port"; @replay NULL = the engine has none; copied */
    const char *topic; /* prefix; NULL = any; copied */
    uint64_t worker_id;
    uint32_t dp_rank; /* of batches that do not name theirs */
    uint32_t block_size;
    const char *adapter; /* blocks of that LoRA adapter only, "" = of none; NULL = all; copied */
    /* As in vLLM itself: a salt tells the first block of a prompt apart, and all images that keys name
     * count; else, as in ai-dynamo 1.6.1, a salt tells all blocks apart, also those whose event has
     * none, by their parent's, and only the keys count that have the form of its own names. */
    bool salts_first;
    void (*event)(void *arg, const struct kv_event *ev, uint64_t sent_ms);
    void (*filtered)(void *arg, enum kv_filter why); /* may be NULL */
    void *arg;
};

struct engine_source_stats {
    uint64_t batches, replayed;
    uint64_t gaps;             /* jumps of the sequence number */
    uint64_t lost;             /* … whose batches could not be had again */
    uint64_t restarts;         /* falls of it */
    uint32_t other_block_size; /* of events that were left out for it; 0 = none */
};

MUST_CHECK int engine_source_start(struct engine_source **ret,
                                   const struct engine_source_conf *conf, struct err *e);
/* No callback comes after it. Not from within one. */
struct engine_source *engine_source_free(struct engine_source *s);
DEFINE_CLEANUP(struct engine_source *, engine_source_free)
/*
 * Hears nothing until it is resumed: what comes meanwhile is as lost as when a connection is, and is
 * asked for again at the next one. What is known of the engine stays. Not from within a callback.
 */
void engine_source_pause(struct engine_source *s);
void engine_source_resume(struct engine_source *s);
/* Whether the engine was ever reached; after a pause, since then. */
bool engine_source_connected(const struct engine_source *s);
/* "tcp://host:port" of a data-parallel rank: ports count up from that of rank 0, as vLLM's do. */
char *engine_endpoint_of_rank(const char *endpoint, uint32_t rank) __attribute__((returns_nonnull));
struct engine_source_stats engine_source_stats(const struct engine_source *s);
