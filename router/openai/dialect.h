/* SPDX-License-Identifier: Apache-2.0 */
/*
 * APIs whose requests are made chats and whose answers are made from what a chat's chunks are made
 * from: /v1/responses and /v1/messages. A chat itself has none of it.
 *
 * @self is the answer at hand, of the type that the dialect's own header names.
 */
#pragma once

#include "router/openai/api_error.h"
#include "router/openai/chunk.h"

/* How an answer ended; all is borrowed. */
struct dialect_end {
    const struct chunk_end *end;    /* NULL = it did not */
    const struct usage *usage;      /* NULL = not told */
    uint64_t completed;             /* seconds since the epoch */
    struct str nvext_json;          /* of a worker that writes its own; empty = none */
    const struct api_error *failed; /* NULL = it did not; it may fail behind its end, too */
};

struct dialect {
    const char *endpoint; /* label of metrics */
    /* The events that open a stream, once; what each delta causes, with the usage so far; and those that
     * close it. One that fails before it was opened is opened then. */
    void (*put_begin)(void *self, struct buf *out);
    void (*put_delta)(void *self, struct buf *out, const struct chunk_delta *d,
                      const struct usage *usage);
    void (*put_end)(void *self, struct buf *out, const struct dialect_end *end);
    /* The body of an answer that is not streamed, with what @chunk was told of workers. */
    void (*put_body)(void *self, struct buf *out, const struct chunk_delta *whole,
                     const struct chunk *chunk, const struct dialect_end *end);
    /* The chat that the request @body was made, for workers that take chats as they are: what those of
     * tokens need not know is in it, too. */
    void (*put_chat)(struct buf *out, struct str body, struct str chat);
    /* That of an error. */
    void (*put_error)(struct buf *out, const struct api_error *e);
    void (*free)(void *self); /* takes NULL */
};
