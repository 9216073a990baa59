/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests over HTTP (wire.md §4.9): POST to the instance's URL, any 2xx is the acknowledgement.
 */
#include <errno.h>

#include "router/wire/plane_client_inner.h"
#include "router/wire/tcp_frame.h"

static void on_answer(void *arg, struct str bytes)
{
    struct plane_stream *s = arg;

    if (s->refusal.len < TCP_ACK_TEXT_MAX)
        buf_put_str(&s->refusal, str_head(bytes, TCP_ACK_TEXT_MAX - s->refusal.len));
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct plane_stream *s = arg;
    AUTO(mem_free) char *text = NULL;

    s->http = NULL;
    if (s->acked)
        return; /* it has called home */
    if (error == 0 && status >= 200 && status < 300) {
        plane_stream_acked(s);
        return;
    }
    if (error == 0)
        text = xasprintf("HTTP %d: %.*s", status, STR_ARG(buf_str(&s->refusal)));
    plane_stream_fail_later(s, error ? PLANE_UNREACHABLE : PLANE_REFUSED, text ? text : why);
}

enum { HEADERS_MAX = PLANE_CALL_HEADERS_MAX + 8 };

static void headers_put(struct buf *lines, const char *ret[HEADERS_MAX],
                        const struct plane_call *call)
{
    size_t n = 0, at[HEADERS_MAX];

    for (size_t i = 0; i < call->n_headers; i++) {
        at[i] = lines->len;
        buf_printf(lines, "%s: %.*s", call->headers[i].name, STR_ARG(call->headers[i].value));
        buf_put_char(lines, '\0');
    }
    ret[n++] = "Content-Type: application/octet-stream";
    /* Else curl would ask first whether a large body is welcome, and wait. */
    ret[n++] = "Expect:";
    for (size_t i = 0; i < call->n_headers; i++)
        ret[n++] = buf_cstr(lines) + at[i];
    ret[n] = NULL;
}

void plane_http_send(struct plane_client *c, struct plane_stream *s, const struct plane_call *call,
                     struct str url)
{
    AUTO(buf_done) struct buf lines = BUF_NULL;
    const char *headers[HEADERS_MAX];
    const struct http_client_conf conf = {.connections_max = (long)c->conf.pool_max};
    AUTO(mem_free) char *text = str_dup(url);
    const struct http_call_spec spec = {.method = "POST",
                                        .url = text,
                                        .headers = headers,
                                        .body = buf_str(&s->frame),
                                        .connect_ms = c->conf.connect_ms,
                                        .data = on_answer,
                                        .done = on_done,
                                        .arg = s};
    struct err e;

    if (!c->http && http_client_new(&c->http, c->loop, &conf, &e) < 0) {
        plane_stream_fail_later(s, PLANE_UNREACHABLE, e.text);
        return;
    }
    /* Connecting is curl's to limit; both together are not to take longer than this. */
    plane_stream_expect(s, WAIT_ACK);
    headers_put(&lines, headers, call);
    s->http = http_client_start(c->http, &spec);
}

void plane_http_detach(struct plane_stream *s)
{
    s->http = http_call_cancel(s->http);
}

void plane_http_free(struct plane_client *c)
{
    c->http = http_client_free(c->http);
}
