/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model said, on its way to the client. For the files of requests only.
 */
#pragma once

#include "router/openai/chunk.h"
#include "router/openai/logprobs.h"
#include "router/openai/reply.h"

struct api_error;
struct request;

/* request.c: request_fail() with an error that may name a field. */
void request_fail_as(struct request *rq, const struct api_error *e);
/* What is to be one chunk. */
struct reply_chunk {
    bool has_any, has_text;
    struct buf text, thoughts, calls;
};

struct request_reply {
    struct reply *parser; /* NULL = all of it is content */
    bool opened;          /* the prompt ends with the mark that begins thoughts */
    struct logprobs logprobs;
    struct buf thoughts,
        calls; /* all of them, when the answer is not streamed; else thoughts that no
                                   event has told yet */
    struct reply_chunk next;
    bool in_block; /* another call joins those of next */
    uint32_t n_calls;
    uint64_t n_read;    /* tokens whose text the parser has */
    bool told_thoughts; /* the engine counts reasoning tokens itself */
};

/* Whether the prompt, whose text is there yet, leaves thoughts for the answer to go on with. */
void request_look_at_end(struct request *rq);
void request_reply_start(struct request *rq);
void request_reply_done(struct request *rq);
void request_reply_push(struct request *rq, struct str text);
/* The next token of an item, which stands for @piece in the text. */
void request_reply_logprobs(struct request *rq, struct logprobs_item *it, uint32_t id,
                            struct str piece);
/* The last text, what was held back, and the end, whose reason may be another then. */
void request_reply_end(struct request *rq, struct str text);
void request_reply_put_folded(struct request *rq, struct buf *out);
void request_reply_put_choice(struct request *rq, struct buf *out);
/* The events that nvext.annotations asks for, at the head of the stream. */
void request_annotate(struct request *rq);
