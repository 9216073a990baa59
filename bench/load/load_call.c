/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/load_call.h"

#include <errno.h>

enum { CONNECT_MS = 5000 };

struct load_call {
    struct http_call *http;
    struct chat_stream *stream;
    struct latency *gaps;
    struct load_result result;
    uint64_t last_ns; /* of a chunk */
    void (*done)(void *arg, const struct load_result *r, struct str text);
    void *arg;
};

const char *load_outcome_name(enum load_outcome o)
{
    static const char *const names[LOAD_OUTCOMES] = {
        "ok", "connect", "timeout", "http_4xx", "http_5xx", "broken", "error_event", "malformed",
    };

    return names[o];
}

static void call_free(struct load_call *c)
{
    chat_stream_free(c->stream);
    free(c);
}

static void on_head(void *arg, int status)
{
    struct load_call *c = arg;

    c->result.status = status;
}

/* Chunks that arrive together have no time between them: that is what the client sees. */
static void on_data(void *arg, struct str bytes)
{
    struct load_call *c = arg;
    uint64_t now = clock_now_ns();
    size_t n;

    if (c->result.status != 200)
        return;
    n = chat_stream_feed(c->stream, bytes);
    c->result.n_chunks += n;
    for (size_t i = 0; i < n; i++) {
        if (c->result.first_ns == 0)
            c->result.first_ns = now;
        else
            latency_add(c->gaps, now - c->last_ns);
        c->last_ns = now;
    }
}

static enum load_outcome outcome_of(const struct load_call *c, int status, int error)
{
    if (error == -ETIMEDOUT)
        return LOAD_TIMEOUT;
    if (status == 0)
        return LOAD_CONNECT;
    if (status >= 400 && status < 500)
        return LOAD_CLIENT;
    if (status != 200)
        return LOAD_SERVER;
    if (chat_stream_fault(c->stream) == CHAT_ERROR_EVENT)
        return LOAD_ERROR_EVENT;
    if (chat_stream_fault(c->stream) == CHAT_MALFORMED)
        return LOAD_MALFORMED;
    return error < 0 || !chat_stream_done(c->stream) || !chat_stream_finished(c->stream)
               ? LOAD_BROKEN
               : LOAD_OK;
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct load_call *c = arg;
    struct load_result *r = &c->result;

    (void)why;
    r->end_ns = clock_now_ns();
    r->status = status > 0 ? status : r->status;
    r->outcome = outcome_of(c, r->status, error);
    r->usage = chat_stream_usage(c->stream);
    r->worker = chat_stream_worker(c->stream);
    c->done(c->arg, r, chat_stream_text(c->stream));
    call_free(c);
}

struct load_call *load_call_start(const struct load_call_spec *spec)
{
    static const char *const headers[] = {"Content-Type: application/json",
                                          "Accept: text/event-stream", NULL};
    struct load_call *c = xcalloc(1, sizeof(*c));
    const struct http_call_spec call = {
        .method = "POST",
        .url = spec->url,
        .headers = headers,
        .body = spec->body,
        .connect_ms = CONNECT_MS,
        .total_ms = spec->timeout_ms,
        .head = on_head,
        .data = on_data,
        .done = on_done,
        .arg = c,
    };

    c->stream = chat_stream_new(spec->keep_text);
    c->gaps = spec->gaps;
    c->done = spec->done;
    c->arg = spec->arg;
    c->result.start_ns = clock_now_ns();
    c->http = http_client_start(spec->http, &call);
    return c;
}

struct load_call *load_call_cancel(struct load_call *c)
{
    if (!c)
        return NULL;
    http_call_cancel(c->http);
    call_free(c);
    return NULL;
}
