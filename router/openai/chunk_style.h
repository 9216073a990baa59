/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the frontends of 0.9.0 and of 1.6.1 write the same answer: all in which their chunks and
 * bodies differ, their text included (README.md has the table). For chunk.c and who chooses between them.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

struct chunk_delta;
struct chunk_end;

struct chunk_style {
    bool is_of_1;          /* 1.6.1's: for worker_answer.c, which has tables of what differs */
    const char *chat_tail; /* of a chat's chunk: between the model's name and its usage */
    const char *chat_no_usage;
    bool tells_empty;        /* an item that adds nothing makes a chunk, too */
    bool tells_details;      /* of completion tokens */
    bool tells_null_details; /* of a chat's usage; completions have them in both */
    bool tells_dp_ranks;     /* beside the ids of workers */
    bool tells_any_worker;   /* also of workers that were not chosen by their caches */
    bool named_call_stops;   /* a stream that had to be one call ends with "stop" */
    /* What they make of tokens. */
    bool stops_behind_min; /* the token that reaches min_tokens does not stop yet */
    bool counts_to_stop;   /* usage leaves out an item's tokens behind the one that stopped */
    bool tells_broken_end; /* a character that the end cuts off is U+FFFD */
    bool hides_special;    /* special tokens have no text, unless that is asked for */
    int lost_status;       /* of answers whose worker was lost, or would not begin */
    bool stop_leaves_text; /* empty, where a stop string left none */
    /* The members of a delta; @first of its choice. */
    void (*put_delta)(struct buf *out, const struct chunk_delta *d, bool first);
    /* What follows the delta or message of a chat's choice. */
    void (*put_end)(struct buf *out, const struct chunk_delta *d, const struct chunk_end *end);
    void (*put_message)(struct buf *out, const struct chunk_delta *whole);
    void (*put_error)(struct buf *out, int status, struct str text);
};

extern const struct chunk_style CHUNKS_OF_0_9, CHUNKS_OF_1;
/* The latter with thoughts in `reasoning` instead of `reasoning_content`. */
extern const struct chunk_style CHUNKS_OF_1_SHORT;

/* A JSON string, or null. */
void chunk_put_string(struct buf *out, struct str text);
