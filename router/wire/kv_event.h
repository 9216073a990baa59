/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event plane: envelope, KV-cache events, load and router-to-router events, of both generations
 * (wire.md §7.2, 7.5, 7.6, 15.7), as MessagePack and as the JSON of JetStream mode.
 *
 * Structs are read as maps with names or as positional arrays. Readers reuse their memory and hand
 * out views; limits are checked before anything is stored. The worker of an event is in its
 * payload: a 1.x envelope names a publisher instead. One thread per reader.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/optional.h"

struct err;

enum {
    KV_EVENT_BYTES_MAX = 16 << 20, /* of one message */
    KV_EVENT_BLOCKS_MAX = 1 << 18, /* of one event */
    KV_EVENT_BATCH_MAX = 1 << 16,  /* events of one message */
};

struct event_envelope {
    uint64_t publisher_id; /* 0.9: instance id of the worker; 1.x: of the publisher */
    uint64_t sequence;     /* from 0 per publisher */
    uint64_t published_at; /* ms since the epoch */
    struct str topic;
    struct str payload; /* MessagePack of the event */
};

MUST_CHECK int event_envelope_decode(struct str bytes, struct event_envelope *ret, struct err *e);
void event_envelope_put(struct buf *out, const struct event_envelope *v);

/* The last of the four ZMQ parts: version 1, length and envelope (wire.md §7.4). */
MUST_CHECK int event_frame_parse(struct str frame, struct str *ret_envelope, struct err *e);
void event_frame_put(struct buf *out, struct str envelope);

enum kv_event_kind { KV_STORED, KV_REMOVED, KV_CLEARED };
enum kv_tier { KV_TIER_DEVICE, KV_TIER_HOST, KV_TIER_DISK, KV_TIER_EXTERNAL, KV_TIER_UNKNOWN };
const char *kv_tier_word(enum kv_tier tier); /* "host_pinned" … */
enum kv_tier kv_tier_of(struct str word);

struct kv_block {
    uint64_t block_hash;  /* names the block; opaque */
    uint64_t tokens_hash; /* of the block's own tokens */
};

struct kv_event {
    uint64_t worker_id;
    uint64_t event_id;
    uint32_t dp_rank;
    enum kv_event_kind kind;
    enum kv_tier tier; /* absent = device; unknown too when it is not the worker that holds it */
    struct opt_u64 parent_hash;    /* stored: block before the first; unset = start of a prompt */
    const struct kv_block *blocks; /* stored, in order */
    size_t n_blocks;
    const uint64_t *removed; /* removed: block hashes */
    size_t n_removed;
};

/* Embedded by value; zero-initialised is ready. */
struct kv_event_reader {
    struct kv_block *blocks;
    size_t cap_blocks;
    uint64_t *removed;
    size_t cap_removed;
};

void kv_event_reader_done(struct kv_event_reader *r);
DEFINE_CLEANUP_EMBEDDED(struct kv_event_reader, kv_event_reader_done)

typedef void (*kv_event_fn)(void *arg, const struct kv_event *ev); /* borrowed during the call */

/*
 * Reads the payload of a kv-events message, one event or an array of them, calling @fn for each in
 * order. -EBADMSG / -EMSGSIZE: the events before the bad one have been reported.
 */
MUST_CHECK int kv_events_decode(struct kv_event_reader *r, struct str payload, kv_event_fn fn,
                                void *arg, struct err *e);
/* The same from JSON: a RouterEvent, an array of them, or an {"Events"|"TreeDump":[…]} answer. */
MUST_CHECK int kv_events_parse(struct kv_event_reader *r, struct str json, kv_event_fn fn,
                               void *arg, struct err *e);
/* In the form of 0.9.0, which 1.x reads too; other tiers than the device in that of 1.x. The tier is
 * known. */
void kv_event_put(struct buf *out, const struct kv_event *ev);
void kv_event_put_json(struct buf *out, const struct kv_event *ev);

/* --- other topics ----------------------------------------------------------------------------- */

struct active_load { /* kv_metrics */
    uint64_t worker_id;
    uint32_t dp_rank;
    struct opt_u64 active_decode_blocks, active_prefill_tokens;
    struct opt_u64 kv_used_blocks; /* 1.x; written only when set */
};
MUST_CHECK int active_load_decode(struct str payload, struct active_load *ret, struct err *e);
void active_load_put(struct buf *out, const struct active_load *v);

struct kv_hit_rate { /* kv-hit-rate */
    uint64_t worker_id;
    uint32_t dp_rank;
    uint64_t isl_blocks, overlap_blocks;
};
MUST_CHECK int kv_hit_rate_decode(struct str payload, struct kv_hit_rate *ret, struct err *e);
void kv_hit_rate_put(struct buf *out, const struct kv_hit_rate *v);

/* --- names (wire.md §7.1) --------------------------------------------------------------------- */

#define TOPIC_KV_EVENTS "kv-events"
#define TOPIC_KV_METRICS "kv_metrics"
#define TOPIC_ACTIVE_SEQUENCES "active_sequences_events"
#define TOPIC_KV_HIT_RATE "kv-hit-rate"

/*
 * "namespace.{ns}[.component.{component}[.endpoint.{endpoint}]][.{topic}]": NULL parts are left
 * out. Without a topic it is the subject_prefix of an EventChannel record.
 */
void event_subject_put(struct buf *out, const char *ns, const char *component, const char *endpoint,
                       const char *topic);
/* Stream of JetStream mode: "namespace-{ns}-component-{component}-kv-events", made a slug. */
void event_stream_put(struct buf *out, const char *ns, const char *component);
/* What $JS.API.STREAM.CREATE.<stream> is asked with (wire.md §7.6). */
void event_stream_config_put(struct buf *out, const char *stream, uint64_t max_age_s);
/* Bucket of snapshots: "namespace-{ns}-component-{component}-radix-bucket", made a slug. */
void event_bucket_put(struct buf *out, const char *ns, const char *component);
