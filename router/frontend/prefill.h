/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefill of one request by a worker that does nothing else (router.md §5.1, wire.md §8.12).
 *
 *     start ──▶ choose, book, send one token's worth of the request
 *                 │ the worker has a bootstrap endpoint (SGLang)      │ it has none (vLLM, TRT-LLM)
 *                 ▼                                                   ▼
 *               AHEAD: the decode begins now; both workers          WAITING: its stream is read to the
 *                 │    are told a room where they meet                │      end for disaggregated_params
 *                 │ stream ends                                       │
 *                 └────────────────────▶ READY ◀──────────────────────┘ go()
 *
 * A worker that fails is passed over and the next one asked, PREFILL_ATTEMPTS in all, then FAILED: the
 * owner decodes alone or gives up. The reference lets a decode worker wait for a prompt that an
 * AHEAD prefill will never bring; here lost() ends that decode before it begins anew with another
 * prefill worker and another room. The same happens when a decode breaks off before its first token: a
 * prefill worker may die after its answer and before its blocks were fetched. With the first token
 * the prompt has arrived, and what becomes of the prefill is of no matter: the owner says so with
 * prefill_delivered().
 *
 * A worker that the decode waits for may find that nothing follows, when the first token already ends
 * the text: of workers of 1.x that is the answer, which answered() is told, and nobody decodes.
 *
 * The booking and the stream on the prefill worker are owned here and given back once, on every way
 * out. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/frontend/pool.h"
#include "router/frontend/serving.h"
#include "router/frontend/spans.h"
#include "router/wire/engine_request.h"
#include "router/wire/trace_context.h"

enum { PREFILL_ATTEMPTS = 3 };

enum prefill_state { PREFILL_AHEAD, PREFILL_WAITING, PREFILL_READY, PREFILL_FAILED };

/* Everything is borrowed until prefill_free(). */
struct prefill_conf {
    struct serving *s;
    struct pool *pool;
    const char *id; /* of the request */
    const struct trace_context *trace;
    struct router_times *times;    /* of hashing the prompt */
    const char *label;             /* of the model, for metrics and records */
    struct route_request request;  /* pinned or not */
    const struct pool *hashed_for; /* whose blocks its hashes are of */
    struct str salt;               /* of its hashes */
    /* The request as a worker would get it that does everything. */
    void (*fill)(void *arg, struct engine_request *ret);
    /*
     * Called from the loop, never from prefill_start(). go(), answered() and failed() may free the
     * prefill; after lost() one of them follows.
     */
    void (*go)(void *arg); /* the decode may begin: prefill_fill_decode() says with what */
    /* NULL = a decode follows in any case. Else WAITING ended with @item, readable, which tells why. */
    void (*answered)(void *arg, struct str item);
    void (*lost)(void *arg); /* a decode that began gets no prompt: end it */
    void (*failed)(void *arg);
    void *arg;
};

struct prefill;

struct prefill *prefill_new(const struct prefill_conf *conf);
struct prefill *prefill_free(struct prefill *p); /* NULL in, NULL out; tells the worker to stop */
DEFINE_CLEANUP(struct prefill *, prefill_free)

/* Once. AHEAD or WAITING; or FAILED, when nobody could be asked. */
enum prefill_state prefill_start(struct prefill *p);
enum prefill_state prefill_state(const struct prefill *p);
/* What FAILED, or an attempt before: a word for metrics and logs. */
const char *prefill_reason(const struct prefill *p);
/* AHEAD, READY: what the decode worker, @of_1 or not, needs to know, and that overlap means nothing for it. */
void prefill_fill_decode(const struct prefill *p, bool of_1, struct engine_request *rq);
/* AHEAD, READY: the decode failed without a token, as if without its prompt. lost() and the rest. */
void prefill_refused(struct prefill *p);
void prefill_delivered(struct prefill *p);

/* The decision in force: who prefills, and what it had cached. */
const struct route_decision *prefill_decision(const struct prefill *p);
static inline const struct route_candidate *prefill_chosen(const struct prefill *p)
{
    const struct route_decision *d = prefill_decision(p);

    return &d->candidates[d->chosen];
}
uint64_t prefill_started_ns(const struct prefill *p);

/*
 * A room number whose remainder by @dp_size is @dp_rank: engines with several ranks find the rank in
 * it (router.md §5.1). At most 2^63 - 1.
 */
uint64_t prefill_room(uint64_t random, uint32_t dp_rank, uint32_t dp_size);
