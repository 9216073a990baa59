/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What engines publish of their KV cache (vLLM, SGLang; router.md §2.7): MessagePack of a batch,
 *
 *     [ts, [event, …], rank]      or      {"ts": …, "events": […], "data_parallel_rank": …}
 *
 * and of its events, arrays with their type first or maps with a "type". What is missing behind has
 * its default, what is more is skipped. A hash is a 64-bit integer, a negative one taken bit for
 * bit; an event with hashes of another kind is told as one that cannot be used. Readers reuse their
 * memory; one thread per reader.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/engine_media.h"
#include "router/wire/kv_event.h"
#include "router/wire/optional.h"

struct err;

enum { ENGINE_TOKENS_MAX = 1 << 22 /* of one event */ };

struct engine_event {
    enum kv_event_kind kind;
    bool raw_hashes;     /* neither its hashes nor its parent are numbers: none is given */
    enum kv_tier tier;   /* absent = device */
    bool main_attention; /* of the cache group that prefixes are looked up in */
    struct opt_u64 parent_hash;
    const uint64_t *hashes; /* stored, removed */
    size_t n_hashes;
    const uint32_t *tokens; /* stored */
    size_t n_tokens;
    uint64_t block_size; /* stored */
    struct str lora_name;
    /* Stored: the salt of its prompt, as SGLang and ai-dynamo's worker of vLLM say it; and as vLLM says
     * it itself, of a prompt's first block alone. */
    struct str salt, first_salt;
    /* Stored: the media of its blocks, in their order; those of block_mm_infos, or else those that vLLM's keys
     * name. */
    const struct engine_medium *media;
    size_t n_media;
    bool media_of_keys;
};

struct engine_batch {
    double ts; /* s since the epoch */
    struct opt_u64 dp_rank;
    size_t n_unknown; /* events of a type that is not known, which were left out */
};

/* Embedded by value; zero-initialised is ready. */
struct engine_reader {
    uint64_t *hashes;
    size_t cap_hashes;
    uint32_t *tokens;
    size_t cap_tokens;
    struct engine_media media; /* .padded_only may be set before use */
    uint64_t main_groups;      /* bits: cache groups seen to be of the main kind */
    uint64_t other_groups;
};

void engine_reader_done(struct engine_reader *r);
DEFINE_CLEANUP_EMBEDDED(struct engine_reader, engine_reader_done)

typedef void (*engine_event_fn)(void *arg, const struct engine_batch *b,
                                const struct engine_event *ev); /* borrowed during the call */

/*
 * Calls @fn for each event in order. -EBADMSG / -EMSGSIZE: those before the bad one have been
 * reported. *ret (may be NULL) is written on success.
 */
MUST_CHECK int engine_batch_decode(struct engine_reader *r, struct str payload, engine_event_fn fn,
                                   void *arg, struct engine_batch *ret, struct err *e);

/* Writes a batch of @n_events, followed by them, then its end, in the form of vLLM 0.31 and 0.32. */
void engine_batch_begin_put(struct buf *out, double ts, uint32_t n_events);
void engine_event_put(struct buf *out, const struct engine_event *ev);
void engine_batch_end_put(struct buf *out, uint32_t dp_rank);
