/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers as OpenAI clients read them: stream chunks and folded bodies (wire.md §8.7, 8.8).
 *
 * What all chunks of a request share is written once; a token then costs two copies and the
 * escaping of its text. Key order is the reference's. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/frontend/openai.h"

struct usage {
    uint64_t prompt_tokens, completion_tokens;
    struct str details_json; /* prompt_tokens_details as the engine gave it; empty = none */
};

/* How an answer ended; finish "" = not yet. */
struct chunk_end {
    const char *finish;          /* "stop", "length", "content_filter" */
    struct str stop_reason_json; /* string or integer; empty = none */
    struct str timing_json;      /* of nvext, when the worker is told; empty = none */
};

/* Embedded by value; chunk_done() frees. */
struct chunk {
    enum api api;
    struct buf before, after; /* of a chunk, around its text */
    struct buf head, tail;    /* of every JSON body: up to "choices", and from "created" on */
    struct buf worker; /* {"worker_id":…} for nvext, without its last brace; empty = none */
};

/* @id is the request id, @created seconds since the epoch. */
void chunk_init(struct chunk *c, enum api api, struct str id, struct str model, uint64_t created);
void chunk_done(struct chunk *c);
DEFINE_CLEANUP_EMBEDDED(struct chunk, chunk_done)

/* One "data: …" line with @text (a NULL pointer is a null content). @usage NULL = null. */
void chunk_put_text(const struct chunk *c, struct buf *out, struct str text,
                    const struct usage *usage);
void chunk_put_end(const struct chunk *c, struct buf *out, const struct chunk_end *end,
                   const struct usage *usage);
/* The chunk without choices that stream_options.include_usage asks for. */
void chunk_put_usage(const struct chunk *c, struct buf *out, const struct usage *usage);
void chunk_put_done(struct buf *out); /* data: [DONE] */
/* Every chunk from now on tells in nvext which worker answers. */
void chunk_tell_worker(struct chunk *c, uint64_t worker_id);
/* An error in the midst of a stream: an event that no client overlooks. */
void chunk_put_error(struct buf *out, int status, struct str text);
/* The body of an answer that is not streamed. */
void chunk_put_folded(const struct chunk *c, struct buf *out, struct str text,
                      const struct chunk_end *end, const struct usage *usage);
