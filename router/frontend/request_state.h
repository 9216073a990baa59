/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a request, for request.c and request_output.c only.
 */
#pragma once

#include "lib/base/arena.h"
#include "lib/base/digest.h"
#include "lib/net/http_server.h"
#include "router/frontend/chunk.h"
#include "router/frontend/request.h"
#include "router/sched/sequences.h"
#include "router/token/detok.h"
#include "router/token/stop.h"
#include "router/wire/engine_output.h"

enum { REQUEST_ATTEMPTS = 4, TEXT_BYTES_MAX = 64 << 20 };

/* The steps, in order; each is a function step_<name>(). */
#define REQUEST_STEPS(X)                                                                           \
    X(tokenize) /* the prompt becomes ids, on a pool thread when it is long */                     \
    X(check)    /* does it fit the context? */                                                     \
    X(route)    /* choose and book a worker */                                                     \
    X(send)     /* hand it over and wait for its items */

enum request_step {
#define STEP_ENUM(name) STEP_##name,
    REQUEST_STEPS(STEP_ENUM)
#undef STEP_ENUM
};

struct request {
    struct serving *s;
    struct http_exchange *x;
    struct model *m;
    struct arena *arena;
    struct openai_request in;
    char id[UUID_TEXT_SIZE];
    enum request_step step;
    bool in_pool, gone; /* the client left while a pool thread works on it */

    /* tokenize */
    struct buf prompt_text;
    struct token_ids prompt;
    struct tm now;
    struct tokenizer_scratch *scratch;
    int tokenize_r;
    struct err tokenize_error;

    /* route */
    uint64_t *local, *sequence;
    size_t n_blocks;
    bool pinned;
    uint64_t pin;
    struct route_decision decision;
    struct booking *booking;
    uint64_t failed[REQUEST_ATTEMPTS]; /* workers that did, in order */
    size_t n_failed;
    size_t first_avoided; /* those before it had their turn and may be asked again */
    struct timer *pause;  /* before all are asked again */

    /* answer */
    struct plane_stream *stream;
    struct engine_output_reader reader;
    bool decoding; /* detok and stop are set up */
    struct detok detok;
    struct stop_rules rules;
    struct stop stop;
    struct chunk chunk;
    struct buf out;  /* chunks of this turn */
    struct buf text; /* all of it, when the answer is not streamed */
    bool begun;      /* the head of the stream is on its way */
    bool ended;      /* a finish reason was seen */
    struct chunk_end end;
    uint64_t n_items, n_output, n_output_blocks;
    struct usage usage;

    uint64_t t_start_ns, t_first_ns, t_last_ns;
    struct metric *inflight, *queued;
    bool is_queued;
};

/* request.c */
void request_fail(struct request *rq, int status, const char *format, ...) PRINTF_LIKE(3, 4);
void request_finish(struct request *rq);
void request_retry(struct request *rq, const char *reason);
/* request_output.c: what the worker's stream calls. */
extern const struct plane_handlers REQUEST_STREAM_HANDLERS;
/* Ends decoding and gives its memory back. */
void request_output_done(struct request *rq);
