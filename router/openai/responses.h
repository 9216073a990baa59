/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of /v1/responses as 1.6.1 writes them: the object, and the events of a stream.
 *
 * Made from what a chat's chunks are made from. An answer is a list of items: one message, which all
 * content joins, and a call of a function each. Thoughts are counted and not told, as there. Pure.
 */
#pragma once

#include "lib/base/digest.h"
#include "router/openai/api_error.h"
#include "router/openai/chunk.h"
#include "router/openai/dialect.h"
#include "router/openai/responses_read.h"

/* Of one answer. Embedded by value; responses_done() frees. */
struct responses {
    struct responses_echo echo; /* borrowed, as the model's name */
    struct str model;
    char id[UUID_TEXT_SIZE], message_id[UUID_TEXT_SIZE]; /* without dashes */
    uint64_t created, seq;
    bool has_message;
    size_t message_at, n_calls; /* items count from 0: calls as they came, the message among them */
    struct buf said;            /* by the message */
    struct buf calls,
        call_ids; /* JSON as chunks have it, with commas between; UUID_TEXT_SIZE each */
};

void responses_init(struct responses *r, const struct responses_echo *echo, struct str model,
                    uint64_t created);
void responses_done(struct responses *r);
DEFINE_CLEANUP_EMBEDDED(struct responses, responses_done)

/* The events that open a stream; what each delta causes; and those that close it. One that fails
 * before it was opened is opened then. */
void responses_put_begin(struct responses *r, struct buf *out);
void responses_put_delta(struct responses *r, struct buf *out, const struct chunk_delta *d);
void responses_put_end(struct responses *r, struct buf *out, const struct dialect_end *end);
/* The body of an answer that is not streamed, with what @chunk was told of workers. */
void responses_put_body(struct responses *r, struct buf *out, const struct chunk_delta *whole,
                        const struct chunk *chunk, const struct dialect_end *end);

/* The same for requests; @self is what responses_new() made. */
extern const struct dialect RESPONSES;
struct responses *responses_new(const struct responses_echo *echo, struct str model,
                                uint64_t created);
