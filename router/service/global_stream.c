/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/global_stream.h"

#include <string.h>

#include "lib/base/log.h"
#include "router/service/pool_routers.h"
#include "router/wire/control.h"
#include "router/wire/plane_client.h"
#include "router/wire/plane_server.h"
#include "router/wire/trace_context.h"

static const struct log_target LG = {"commutator::global_router"};

enum {
    ATTEMPTS = 4,             /* in one pool */
    BACKLOG_HIGH = 256 << 10, /* beyond it the pool is not read until the frontend has caught up */
};

struct global_stream {
    struct list link;
    struct global_pools *g;
    const struct pool_set *set;
    struct plane_request *request;
    struct plane_stream *stream;
    struct trace_context trace;
    uint64_t start_ns;
    size_t *order, n_order, at; /* pools that are asked in turn, and the one of now */
    uint64_t router;            /* asked now */
    uint64_t failed[ATTEMPTS];  /* of this pool */
    size_t n_failed, n_items;
    bool started; /* the frontend has our prologue */
};

static struct str request_id(const struct global_stream *s)
{
    return plane_request_id(s->request);
}

static const char *namespace_of(const struct global_stream *s)
{
    return s->set->namespaces[s->order[s->at]];
}

static const struct call_metrics *calls_of(const struct global_stream *s)
{
    return &s->g->calls[s->set->kind];
}

static struct metric *of_pool(struct metric_family *f, const struct global_stream *s)
{
    return metric_with(f, POOL_KIND_WORDS[s->set->kind], namespace_of(s));
}

/* --- ways out --------------------------------------------------------------------------------- */

static void stream_free(struct global_stream *s)
{
    struct global_pools *g = s->g;

    s->stream = plane_stream_cancel(s->stream);
    list_remove(&s->link);
    call_over(calls_of(s), clock_now_ns() - s->start_ns);
    g->n_streams--;
    free(s->order);
    free(s);
    if (g->ended)
        g->ended(g->arg);
}

/* Words for the frontend: an error prologue where none was sent yet, else an error item. */
static void fail(struct global_stream *s, const char *why)
{
    log_warn(&LG, "request failed", LOG_VIEW("request_id", request_id(s)), LOG_STR("why", why));
    metric_add(s->g->refused, 1);
    if (s->started) {
        plane_request_error(s->request, str_from(why));
        plane_request_finish(s->request);
    } else {
        plane_request_refuse(s->request, str_from(why));
    }
    stream_free(s);
}

static void on_cancelled(void *arg)
{
    struct global_stream *s = arg;

    metric_add(calls_of(s)->cancelled, 1);
    plane_request_abort(s->request);
    stream_free(s);
}

static void on_drained(void *arg)
{
    struct global_stream *s = arg;

    if (s->stream)
        plane_stream_resume(s->stream);
}

/* --- the pool's stream ------------------------------------------------------------------------ */

static bool ask(struct global_stream *s);

/* False: no pool is left. */
static bool ask_faster(struct global_stream *s, const char *why)
{
    while (s->at + 1 < s->n_order) {
        log_warn(&LG, "pool failed, asking a faster one", LOG_VIEW("request_id", request_id(s)),
                 LOG_STR("namespace", namespace_of(s)), LOG_STR("why", why));
        s->at++;
        s->n_failed = 0;
        if (ask(s))
            return true;
        metric_add(of_pool(s->g->failed, s), 1);
    }
    return false;
}

/* Nothing has come from this pool. @again: another router of it may do. */
static void next(struct global_stream *s, bool again, const char *why)
{
    metric_add(of_pool(s->g->failed, s), 1);
    if (again) {
        pool_routers_failed(s->g->routers, namespace_of(s), s->router);
        s->failed[s->n_failed++] = s->router;
        again = s->n_failed < ATTEMPTS && ask(s);
    }
    if (!again && !ask_faster(s, why))
        fail(s, why);
}

static void on_started(void *arg)
{
    struct global_stream *s = arg;

    if (!s->started)
        plane_request_start(s->request);
    s->started = true;
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct global_stream *s = arg;

    if (s->n_items == 0 && item->is_error && s->at + 1 < s->n_order) {
        AUTO(mem_free) char *why = str_dup(item->error);

        s->stream = plane_stream_cancel(s->stream);
        next(s, false, why);
        return;
    }
    s->n_items++;
    call_answered(calls_of(s), item->raw.len);
    plane_request_item_raw(s->request, item->raw);
}

static void on_batch_end(void *arg)
{
    struct global_stream *s = arg;

    if (s->stream && plane_request_backlog(s->request) > BACKLOG_HIGH)
        plane_stream_pause(s->stream);
}

static void on_finished(void *arg)
{
    struct global_stream *s = arg;

    s->stream = NULL;
    plane_request_finish(s->request);
    stream_free(s);
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct global_stream *s = arg;

    s->stream = NULL;
    if (s->n_items == 0) {
        next(s, plane_failure_is_retryable(kind), text);
        return;
    }
    plane_request_abort(s->request);
    stream_free(s);
}

/* The router of the pool whose turn it is; false = there is none. */
static bool ask(struct global_stream *s)
{
    static const struct plane_handlers handlers = {.started = on_started,
                                                   .item = on_item,
                                                   .finished = on_finished,
                                                   .failed = on_failed,
                                                   .batch_end = on_batch_end};
    const struct pool_router *to =
        pool_routers_next(s->g->routers, namespace_of(s), s->failed, s->n_failed);
    struct plane_header headers[TRACE_HEADERS_MAX];
    struct plane_call call = {
        .id = request_id(s), .body = plane_request_body(s->request), .headers = headers};

    if (!to)
        return false;
    s->router = to->id;
    metric_add(of_pool(s->g->sent, s), 1);
    call.address = str_from(to->address);
    call.n_headers = trace_context_headers(&s->trace, headers);
    s->stream = plane_client_send(s->g->plane, &call, &handlers, s);
    return true;
}

/* --- entry ------------------------------------------------------------------------------------ */

static void tell_choice(const struct global_stream *s, const struct pool_question *q)
{
    log_info(&LG, "pool chosen", LOG_VIEW("request_id", request_id(s)),
             LOG_STR("kind", POOL_KIND_WORDS[s->set->kind]), LOG_U64("tokens", q->n_tokens),
             q->ttft_ms.set ? LOG_F64("ttft_target_ms", q->ttft_ms.v) : LOG_NONE,
             q->itl_ms.set ? LOG_F64("itl_target_ms", q->itl_ms.v) : LOG_NONE,
             q->priority.set ? LOG_I64("priority", q->priority.v) : LOG_NONE,
             LOG_U64("pool", s->order[0]), LOG_STR("namespace", namespace_of(s)),
             LOG_U64("pools_to_ask", s->n_order));
}

static void choose(struct global_stream *s, const struct pool_question *q)
{
    s->order = xcalloc(s->set->n, sizeof(*s->order));
    s->n_order = pool_set_order(s->set, pool_set_choose(s->set, q), s->g->pools->retries, s->order);
    tell_choice(s, q);
}

void global_stream_serve(struct global_pools *g, enum pool_kind kind, struct plane_request *rq)
{
    static const struct plane_request_handlers handlers = {.cancelled = on_cancelled,
                                                           .drained = on_drained};
    const struct trace_headers told = plane_request_trace(rq);
    struct global_stream *s = xcalloc(1, sizeof(*s));
    struct pool_question q;
    struct err e;

    s->g = g;
    s->set = &g->pools->sets[kind];
    s->request = rq;
    trace_context_init(&s->trace, &told, NULL);
    list_append(&g->streams, &s->link);
    g->n_streams++;
    s->start_ns = clock_now_ns();
    call_begun(calls_of(s), plane_request_body(rq).len);
    plane_request_set_handlers(rq, &handlers, s);
    if (pool_question_parse(plane_request_body(rq), &q, &e) < 0) {
        fail(s, e.text);
        return;
    }
    q.ttft_ms = q.ttft_ms.set ? q.ttft_ms : g->ttft_ms;
    q.itl_ms = q.itl_ms.set ? q.itl_ms : g->itl_ms;
    choose(s, &q);
    if (!ask(s))
        next(s, false, "no instances found for the router of the pool");
}

void global_streams_abort(struct global_pools *g)
{
    LIST_FOREACH (s, &g->streams, struct global_stream, link) {
        plane_request_abort(s->request);
        stream_free(s);
    }
}
