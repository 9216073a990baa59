/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a request, for the files of a request only.
 */
#pragma once

#include "lib/base/arena.h"
#include "lib/base/digest.h"
#include "lib/net/http_server.h"
#include "router/openai/dialect.h"
#include "router/frontend/prefill.h"
#include "router/frontend/program_gate.h"
#include "router/frontend/prompt_make.h"
#include "router/frontend/request.h"
#include "router/frontend/request_form.h"
#include "router/frontend/request_lookup.h"
#include "router/frontend/request_reply.h"
#include "router/frontend/router_metrics.h"
#include "router/sched/decision_record.h"
#include "router/sched/sequences.h"
#include "router/token/detok.h"
#include "router/token/stop.h"
#include "router/wire/engine_output.h"
#include "router/wire/trace_context.h"

enum { REQUEST_ATTEMPTS = 4, TEXT_BYTES_MAX = 64 << 20 };

/* The steps, in order; each is a function step_<name>(). */
#define REQUEST_STEPS(X)                                                                           \
    X(tokenize) /* the prompt becomes ids, on a pool thread when it is long */                     \
    X(check)    /* does it fit the context? */                                                     \
    X(lookup)   /* ask the router that keeps the index, where there is one */                      \
    X(tell)     /* only say who would be chosen */                                                 \
    X(programs) /* wait until there is room for the program that it belongs to */                  \
    X(admit)    /* wait until there is room for it */                                              \
    X(prefill)  /* by a worker that does nothing else, when there are such */                      \
    X(route)    /* choose and book a worker */                                                     \
    X(send)     /* hand it over and wait for its items */

enum request_step {
#define STEP_ENUM(name) STEP_##name,
    REQUEST_STEPS(STEP_ENUM)
#undef STEP_ENUM
};

enum step_result { STEP_MORE, STEP_WAIT, STEP_DONE };

struct request {
    struct serving *s;
    const struct request_form *form;
    struct http_exchange *x;
    struct model *m;
    struct arena *arena;
    struct openai_request in;
    struct request_batch *batch; /* whose choice it makes; NULL = it answers alone */
    uint32_t choice;
    char id[UUID_TEXT_SIZE];
    struct trace_context trace;
    struct http_span span; /* how it came; what became of it, only its end knows */
    enum request_step step;
    bool in_pool, gone; /* the client left while a pool thread works on it */

    /* tokenize */
    struct buf prompt_text;
    struct token_ids prompt;
    struct tm now;
    struct tokenizer_scratch *scratch;
    struct prompt_reuse reuse;
    struct prompt_media media; /* its images; what is routed by where there are some */
    struct chat_extras extras; /* beside them, of chats for workers of tokens */
    int tokenize_r;
    struct err tokenize_error;
    struct request_lookup lookup;
    struct program_waiter program;
    struct admission_ticket ticket; /* of admit */

    /* prefill */
    struct prefill *prefill; /* NULL = the worker that answers computes the prompt */
    bool bypasses;           /* …although there are prefill workers: bypass_pin has it cached */
    struct worker_rank bypass_pin;

    /* route */
    struct http_call *tokenizing;         /* an engine does it */
    size_t isl_guess;                     /* when nobody can: tokens, by the length of the text */
    uint64_t *local, *sequence, *tracked; /* tracked NULL = sequence */
    size_t n_blocks;
    bool pinned;
    uint32_t pin_rank;
    uint64_t pin;
    struct route_decision decision;
    struct router_times times;
    uint64_t decision_seq; /* of its record; 0 = none, or told how it went */
    struct booking *booking;
    struct attempt_span attempt;
    struct affinity_hold session;      /* while it is booked */
    uint64_t failed[REQUEST_ATTEMPTS]; /* workers that did, in order */
    size_t n_failed, first_avoided;    /* those before the latter may be asked again */
    struct timer *pause;               /* before all are asked again */

    /* migration */
    struct token_ids said; /* by the worker that answers; empty when it could not move */
    uint64_t n_replayed;   /* tokens of the answer that have become part of the prompt */
    uint64_t n_migrations;
    bool immovable;     /* it got too long for that */
    bool moved;         /* chunks do not name the new worker yet */
    uint64_t t_lost_ns; /* when its worker failed and none went on yet; 0 = not now */
    bool lost_early;    /* then: before its first token */

    /* answer */
    struct plane_stream *stream;
    struct relay *relay;               /* instead, when the worker is a plain OpenAI server */
    struct own_words own;              /* when it serves what is asked itself */
    struct request_text *text_answer;  /* of REQUEST_OF_TEXT; NULL before its first item */
    struct embeddings_answer *vectors; /* of REQUEST_OF_VECTORS, likewise */
    size_t *input_ends;                /* of its inputs in the prompt */
    struct engine_output_reader reader;
    bool decoding; /* detok and stop are set up */
    struct detok detok;
    struct stop_rules rules;
    struct stop stop;
    struct chunk chunk;
    struct request_reply reply;
    const struct dialect *dialect; /* of what it is asked in; NULL = a chat or its kin */
    void *told;                    /* the answer in it */
    struct buf out, text; /* chunks of this turn; all of it, when the answer is not streamed */
    bool begun;           /* the head of the stream is on its way */
    bool ended, answered_early; /* a finish reason was seen; of a prefill worker, nobody decodes */
    struct chunk_end end;
    uint64_t n_items, n_output, n_output_blocks; /* of the last, beyond the prompt's */
    struct usage usage;
    uint64_t cached_tokens; /* that the engine reported, DECISION_UNKNOWN */

    uint64_t t_start_ns, t_first_ns, t_last_ns;
    struct metric *inflight, *active, *queued, *itl, *output_total; /* itl, …: once told */
    bool is_queued;
};

/* request.c */
void request_fail(struct request *rq, int status, const char *format, ...) PRINTF_LIKE(3, 4);
void request_finish(struct request *rq);
void request_retry(struct request *rq, const char *reason);
/* What is asked of a scheduler: nothing pinned, no override. */
struct route_request request_query(const struct request *rq);
/* Workers of @pool that failed the request since all were asked. */
struct pool_avoid request_avoid(const struct request *rq, const struct pool *pool);
/* The request as a worker gets it that does everything. Borrows from @rq. */
void request_fill_engine(struct request *rq, struct engine_request *ret);
/* The same as JSON, for the worker that was chosen. */
void request_put_tokens(struct request *rq, struct buf *out);
/* Ends what was begun with the worker that answers; nothing of it has reached the client. */
void request_unroute(struct request *rq, enum decision_end how);
void request_go(struct request *rq, enum request_step step); /* with @step, from the loop */
/* Prompt tokens, as far as they are known. */
static inline size_t request_isl(const struct request *rq)
{
    return rq->prompt.len ? rq->prompt.len : rq->isl_guess;
}
/* What the request wants, by what the worker is to do (router.md §4.5). */
void request_pin(const struct request *rq, struct route_request *q);
/* Answers with what an outcome of pool_route() means. */
enum step_result request_route_failed(struct request *rq, int result);
/* Hashes rq->prompt for all who want that. */
void request_hash_prompt(struct request *rq);
const char *request_endpoint(const struct request *rq); /* a label; request_serve.c */
static inline const char *request_type(const struct request *rq)
{
    return rq->in.stream ? "stream" : "unary";
}
/* Tokens of the answer that the worker at hand has said. */
static inline uint64_t request_new_output(const struct request *rq)
{
    return rq->n_output - rq->n_replayed;
}
/* Ends it, and tells nobody but the records. */
void request_abandon(struct request *rq, enum decision_end how);
void request_resume(struct request *rq); /* the client has taken what it was sent */

enum step_result request_tell(struct request *rq);    /* request_tell.c: the step of that name */
enum step_result request_prefill(struct request *rq); /* request_prefill.c; sets the next step */
/* request_note.c: remembers and measures what became of @q in the pool that answers. */
void request_note_decision(struct request *rq, const struct route_request *q, int result);
/* The attempt that rq->decision_seq stands for has ended; nothing happens the second time. */
void request_note_end(struct request *rq, enum decision_end how);
/* Its http-request is over, unless it makes one choice of several; @outcome of struct http_span. */
void request_span_over(const struct request *rq, const char *outcome);
/* request_output.c: what the worker's stream calls. */
extern const struct plane_handlers REQUEST_STREAM_HANDLERS;
void request_take_answer(struct request *rq, struct str item); /* all, of a prefill worker */
void request_note_output(struct request *rq, size_t n); /* measures and books @n that have come */
void request_flush(struct request *rq);                 /* sends rq->out to the client */
void request_output_done(struct request *rq);           /* ends decoding, gives its memory back */
