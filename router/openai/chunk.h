/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers as OpenAI clients read them: stream chunks and folded bodies (wire.md §8.7, 8.8).
 *
 * What all chunks of a request share is written once; a token then costs two copies and the
 * escaping of its text. Key order is the reference's; in what its generations differ: chunk_style.h.
 * Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/openai/chunk_style.h"
#include "router/openai/openai.h"

/* Details are objects as the engine gave them, of which members that clients know are told;
 * empty = none. */
struct usage {
    uint64_t prompt_tokens, completion_tokens;
    struct str prompt_details_json, completion_details_json;
    struct opt_u64 reasoning_tokens; /* beats that of the details */
};

/* How an answer ended; finish "" = not yet. */
struct chunk_end {
    const char *finish;          /* "stop", "length", "content_filter", "tool_calls" */
    struct str stop_reason_json; /* string or integer; empty = none */
    struct str timing_json;      /* of nvext, when the worker is told; empty = none */
    struct str prompt_ids_json;  /* of nvext; empty = none */
};

/* What one chunk adds to the answer, or all of it. Members named *_json are JSON; empty = none. */
struct chunk_delta {
    struct str text;          /* content, or text of a completion; a NULL pointer is null */
    struct str reasoning;     /* chat only; empty = none */
    struct str calls_json;    /* chat only: the items of tool_calls */
    struct str logprobs_json; /* of the choice */
};

/* Embedded by value; chunk_done() frees. */
struct chunk {
    enum api api;
    const struct chunk_style *style;
    bool begun;               /* the choice has a chunk */
    uint32_t index;           /* of the choice */
    struct buf before, after; /* of a chunk, around its text */
    struct buf head, tail;    /* of every JSON body: up to "choices", and from "created" on */
    struct buf worker;        /* members of nvext; empty = none */
    bool tells_ids;           /* of the tokens of the answer, in nvext */
    struct buf ids;           /* those that no chunk has told, with commas between */
};

/* @id is the request id, @created seconds since the epoch. Of choice 0; chunk_choose() before the
 * first chunk makes it another one. */
void chunk_init(struct chunk *c, enum api api, const struct chunk_style *style, struct str id,
                struct str model, uint64_t created);
void chunk_choose(struct chunk *c, uint32_t index);
void chunk_done(struct chunk *c);
DEFINE_CLEANUP_EMBEDDED(struct chunk, chunk_done)

/* One "data: …" line. @usage NULL = not told. Nothing at all if the style has no empty chunks, and
 * this would be one that is not the first of a chat. */
void chunk_put_delta(struct chunk *c, struct buf *out, const struct chunk_delta *delta,
                     const struct usage *usage);
/* The same with nothing but text. */
void chunk_put_text(struct chunk *c, struct buf *out, struct str text, const struct usage *usage);
/* The last one, with what the last item said, as the reference makes a chunk of an item. */
void chunk_put_end(struct chunk *c, struct buf *out, const struct chunk_delta *delta,
                   const struct chunk_end *end, const struct usage *usage);
/* The chunk without choices that stream_options.include_usage asks for. */
void chunk_put_usage(const struct chunk *c, struct buf *out, const struct usage *usage);
void chunk_put_done(struct buf *out); /* data: [DONE] */
/* Events before the chunk that has them (1.6.1's "dispatch"): each call that is whole, and thoughts
 * that have ended. */
void chunk_put_calls_event(const struct chunk *c, struct buf *out, struct str calls_json);
void chunk_put_thoughts_event(const struct chunk *c, struct buf *out, struct str thoughts);
/* Who computed the prompt and who answers; ranks are told in mode kv alone. */
struct chunk_workers {
    uint64_t prefill_id, decode_id;
    bool has_ranks;
    uint32_t prefill_rank, decode_rank;
    bool no_decode; /* who computed the prompt ended the answer */
};
/* Every chunk from now on tells of them in nvext. */
void chunk_tell_workers(struct chunk *c, const struct chunk_workers *w);
/* And then the prompt's ids: who asked for a worker may send them there itself. */
void chunk_tell_tokens(struct chunk *c, const uint32_t *ids, size_t n);
/* Chunks and bodies tell the ids of tokens from now on; these belong to the next one. */
void chunk_tell_ids(struct chunk *c, const uint32_t *ids, size_t n);
/* An error in the midst of a stream: an event that no client overlooks. */
static inline void chunk_put_error(const struct chunk_style *style, struct buf *out, int status,
                                   struct str text)
{
    style->put_error(out, status, text);
}
/* What the client asked to be told, as an event of its own: a JSON string in a comment line. */
void chunk_put_annotation(struct buf *out, const char *name, struct str text);
/* The two parts of such a body: one choice; and all around the choices, which have commas between. */
void chunk_put_choice(const struct chunk *c, struct buf *out, const struct chunk_delta *whole,
                      const struct chunk_end *end);
void chunk_put_body(const struct chunk *c, struct buf *out, struct str choices,
                    const struct chunk_end *end, const struct usage *usage);
/* nvext with its comma, as the last member of a body, for what was asked to be told; else nothing.
 * @end NULL = no timing. */
void chunk_put_nvext(const struct chunk *c, struct buf *out, const struct chunk_end *end);
/* The body of an answer that is not streamed. */
void chunk_put_folded(const struct chunk *c, struct buf *out, const struct chunk_delta *whole,
                      const struct chunk_end *end, const struct usage *usage);
