/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What routers tell each other of the requests that they have placed: the topic
 * active_sequences_events (router.md §2.10, wire.md §7.5; both generations were captured).
 *
 * 0.9.0 publishes under the component of the workers and writes {request_id, worker, data,
 * router_id}, with data "Free", "MarkPrefillCompleted" or
 * {"AddRequest":{token_sequence, isl, overlap, expected_output_tokens}}. 1.x publishes under their
 * endpoint, adds lora_name, and its AddRequest is {token_sequence, track_prefill_tokens,
 * expected_output_tokens, prefill_load_hint:{initial_effective_prefill_tokens,
 * expected_prefill_duration}}. Over NATS a message is one event; over ZMQ from publisher to
 * subscriber 1.x sends {"events":[…]} and takes nothing else. All of these are read, and arrays.
 *
 * Structs are maps with names. Readers reuse their memory and hand out views; limits are checked
 * before anything is stored. One thread per reader.
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
    SEQUENCE_EVENT_BYTES_MAX = 4 << 20,  /* of one message */
    SEQUENCE_EVENT_BLOCKS_MAX = 1 << 18, /* of one event */
    SEQUENCE_EVENT_BATCH_MAX = 4096,     /* events of one message */
    SEQUENCE_EVENT_ID_MAX = 256,         /* bytes of a request id */
};

enum sequence_event_kind { SEQUENCE_ADD, SEQUENCE_PREFILL_DONE, SEQUENCE_FREE };
enum sequence_event_form { SEQUENCE_FORM_0_9, SEQUENCE_FORM_1_X };

struct sequence_event {
    struct str request_id;
    uint64_t worker_id;
    uint32_t dp_rank;
    enum sequence_event_kind kind;
    uint64_t router_id;
    enum sequence_event_form form; /* that it was read in */
    /* Of SEQUENCE_ADD. */
    const uint64_t *sequence; /* sequence hashes of its blocks; NULL = not tracked */
    size_t n_sequence;
    struct opt_u64 isl, overlap_blocks; /* 0.9.0 only */
    struct opt_u64 prefill_tokens;      /* 1.x only: what is not cached; unset = not tracked */
    struct opt_u64 expected_output_tokens;
};

/* Embedded by value; zero-initialised is ready. */
struct sequence_event_reader {
    uint64_t *sequence;
    size_t cap;
};

void sequence_event_reader_done(struct sequence_event_reader *r);
DEFINE_CLEANUP_EMBEDDED(struct sequence_event_reader, sequence_event_reader_done)

typedef void (*sequence_event_fn)(void *arg, const struct sequence_event *ev); /* borrowed */

/* Calls @fn for each event in order. -EBADMSG / -EMSGSIZE: those before the bad one were reported. */
MUST_CHECK int sequence_events_decode(struct sequence_event_reader *r, struct str payload,
                                      sequence_event_fn fn, void *arg, struct err *e);
/* The 0.9.0 form writes isl and overlap_blocks, the 1.x form prefill_tokens; unset counts as 0. */
void sequence_event_put(struct buf *out, const struct sequence_event *ev,
                        enum sequence_event_form form);
/* {"events":[@ev]}, in the 1.x form. */
void sequence_list_put(struct buf *out, const struct sequence_event *ev);

/*
 * Ours: a router with replica sync says every few seconds that it is there, under a topic that the
 * reference does not know, and that it leaves.
 */
#define TOPIC_ROUTER_PRESENCE "commutator_router_presence"

struct router_presence {
    uint64_t router_id;
    bool leaving;
};
MUST_CHECK int router_presence_decode(struct str payload, struct router_presence *ret,
                                      struct err *e);
void router_presence_put(struct buf *out, const struct router_presence *p);
