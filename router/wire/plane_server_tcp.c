/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections from frontends that carry request frames (wire.md §4.4).
 */
#include "router/wire/plane_server_inner.h"
#include "router/wire/tcp_frame.h"

struct server_conn {
    struct plane_server *server;
    struct list in_server;
    struct tcp *conn;
    struct buf in;
    bool dead;
};

static void conn_free(void *arg)
{
    struct server_conn *k = arg;

    buf_done(&k->in);
    free(k);
}

static void conn_close(struct server_conn *k)
{
    if (k->dead)
        return;
    k->dead = true;
    k->conn = tcp_close(k->conn);
    list_remove(&k->in_server);
    k->server->stats.connections--;
    loop_defer(k->server->loop, conn_free, k);
}

static void ack(struct server_conn *k, const char *text, struct str detail)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf whole = BUF_NULL;

    buf_put_cstr(&whole, text);
    buf_put_str(&whole, detail);
    tcp_ack_put(&out, buf_str(&whole));
    tcp_write(k->conn, buf_str(&out));
}

static void frame_serve(struct server_conn *k, const struct tcp_frame *f)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct plane_server *s = k->server;
    const struct plane_handler *handler;
    struct trace_headers trace;
    const char *refusal;

    if (!str_is_utf8(f->path)) {
        ack(k, "Invalid endpoint path", STR_NULL);
        return;
    }
    handler = strmap_get(s->handlers, f->path);
    if (!handler) {
        s->stats.unknown_endpoints++;
        ack(k, "Unknown endpoint: ", f->path);
        return;
    }
    refusal = plane_server_refusal(s, f->payload);
    ack(k, refusal ? refusal : "", STR_NULL);
    if (refusal)
        return;
    trace_headers_parse(&trace, f->headers, &scratch);
    plane_server_begin(s, handler, f->payload, &trace);
}

static void on_conn_received(void *arg, struct str data)
{
    struct server_conn *k = arg;
    struct tcp_frame f;
    struct err e;
    size_t used;
    int r;

    buf_put_str(&k->in, data);
    while ((r = tcp_frame_decode(buf_str(&k->in), k->server->conf.frame_max, &f, &used, &e)) == 0) {
        frame_serve(k, &f);
        buf_consume(&k->in, used);
    }
    if (r < 0) {
        ack(k, "Read error: ", str_from(e.text));
        conn_close(k);
        return;
    }
    if (!k->in.len)
        buf_done(&k->in);
}

static void on_conn_closed(void *arg, int error)
{
    (void)error;
    conn_close(arg);
}

static void on_accept(void *arg, struct tcp *take_conn)
{
    static const struct tcp_handlers handlers = {
        .received = on_conn_received,
        .closed = on_conn_closed,
    };
    struct plane_server *s = arg;
    struct server_conn *k;

    if (s->stats.connections >= s->conf.connections_max) {
        (void)tcp_abort(take_conn);
        return;
    }
    k = xcalloc(1, sizeof(*k));
    k->server = s;
    k->conn = take_conn;
    list_append(&s->conns, &k->in_server);
    s->stats.connections++;
    tcp_start_tls(take_conn, s->tls.server);
    tcp_set_handlers(take_conn, &handlers, k);
}

int plane_server_tcp_start(struct plane_server *s, const char *host, struct err *e)
{
    return tcp_listen(&s->listener, s->loop, host, s->conf.port, on_accept, s, e);
}

void plane_server_tcp_stop(struct plane_server *s)
{
    s->listener = tcp_listener_close(s->listener);
    LIST_FOREACH (k, &s->conns, struct server_conn, in_server)
        conn_close(k);
}
