/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What chunks that workers write themselves say, for answers that are no chats: worker_answer checks
 * and joins them, this takes the texts out. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "router/openai/chunk.h"

/* Embedded by value; worker_said_done() frees. */
struct worker_said {
    struct buf text, thoughts; /* of what was read last */
    struct buf calls;          /* likewise: items of tool_calls, with commas between */
    const char *finish;        /* the last that was told; "" = none */
    struct buf stop_json;      /* what stopped it, where nvext tells it */
    struct buf nvext;          /* the last that was told, an object */
    bool has_usage;
    struct usage usage; /* the last that was told; its details are in the buffers below */
    struct buf prompt_details, completion_details;
};

void worker_said_init(struct worker_said *s);
void worker_said_done(struct worker_said *s);
DEFINE_CLEANUP_EMBEDDED(struct worker_said, worker_said_done)

/* A chunk as worker_answer_put_chunk() writes it: all of its choices, but no calls, of which it may have
 * pieces. Returns whether it has any. */
bool worker_said_read_chunk(struct worker_said *s, struct str chunk);
/* Choices as worker_answer_put_choices() writes them: the first, or the calls of all. */
void worker_said_read_first(struct worker_said *s, struct str choices);
void worker_said_read_calls(struct worker_said *s, struct str choices);
/* Members of a chunk or a body beside its choices. */
void worker_said_read_rest(struct worker_said *s, struct str json);
/* What it told of tokens; NULL = nothing. */
const struct usage *worker_said_usage(const struct worker_said *s);
