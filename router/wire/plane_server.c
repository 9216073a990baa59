/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's life:
 *
 *     frame ── ack ── connect home ── handshake ── handler ── prologue ── items ── final, sentinel
 *                          └ fails: dropped                                   └── wait for FIN
 *
 * What ends is unlinked at once and freed at the end of the turn.
 */
#include "router/wire/plane_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "lib/net/tcp.h"
#include "router/wire/control.h"
#include "router/wire/plane_address.h"
#include "router/wire/tcp_frame.h"
#include "router/wire/two_part.h"

static const struct log_target LG = {"dynamo_runtime::pipeline::network::ingress"};

enum {
    DEFAULT_CALL_HOME_MS = 5000,
    DEFAULT_LINGER_MS = 10000,
    DEFAULT_RUNNING_MAX = 7500,
    DEFAULT_CONNECTIONS_MAX = 4096,
    WORD_BYTES_MAX = 4096,        /* of what a frontend may send on a response stream */
    BACKLOG_BYTES_MAX = 64 << 20, /* a frontend that takes nothing for so long is given up */
};

struct handler {
    plane_serve_fn fn;
    void *arg;
};

struct plane_server {
    struct loop *loop;
    struct plane_server_conf conf;
    char address[PLANE_IP_SIZE + 16];
    struct tcp_listener *listener;
    struct strmap *handlers; /* path → struct handler */
    struct list conns;
    struct list requests;
    struct buf out; /* the frame being written */
    struct plane_server_stats stats;
};

/* A connection from a frontend, carrying request frames. */
struct server_conn {
    struct plane_server *server;
    struct list in_server;
    struct tcp *conn;
    struct buf in;
    bool dead;
};

enum request_state {
    REQUEST_CALLING, /* connecting home */
    REQUEST_SERVED,  /* with the handler */
    REQUEST_OVER,    /* ended; waiting for the frontend's FIN */
    REQUEST_GONE,
};

struct plane_request {
    struct plane_server *server;
    struct list in_server;
    struct handler handler;
    struct buf payload; /* the two-part message; what follows points into it or into scratch */
    struct buf scratch;
    struct control control;
    struct str body;
    struct tcp *home;
    struct buf in;
    struct timer *deadline;
    enum request_state state;
    bool cancelled;
    bool given_up; /* the frontend takes nothing; `cancelled` follows this turn */
    struct plane_request_handlers on;
    void *arg;
};

/* --- requests: end ---------------------------------------------------------------------------- */

static void request_free(void *arg)
{
    struct plane_request *rq = arg;

    buf_done(&rq->payload);
    buf_done(&rq->scratch);
    buf_done(&rq->in);
    free(rq);
}

static void request_gone(struct plane_request *rq)
{
    if (rq->state == REQUEST_GONE)
        return;
    if (rq->state != REQUEST_OVER)
        rq->server->stats.running--;
    rq->state = REQUEST_GONE;
    rq->home = rq->given_up ? tcp_abort(rq->home) : tcp_close(rq->home);
    rq->deadline = timer_free(rq->deadline);
    list_remove(&rq->in_server);
    loop_defer(rq->server->loop, request_free, rq);
}

/* The frontend wants no more, or is no more. */
static void request_cancel(struct plane_request *rq)
{
    if (rq->state != REQUEST_SERVED || rq->cancelled)
        return;
    rq->cancelled = true;
    rq->server->stats.cancelled++;
    if (rq->on.cancelled)
        rq->on.cancelled(rq->arg);
}

static void cancel_deferred(void *arg)
{
    request_cancel(arg);
}

/* --- requests: the connection home ------------------------------------------------------------ */

static bool is_writable(const struct plane_request *rq)
{
    return rq->state == REQUEST_SERVED && !rq->cancelled && !rq->given_up;
}

static void frame_write(struct plane_request *rq, struct str header, struct str body)
{
    struct buf *out = &rq->server->out;

    if (!is_writable(rq))
        return;
    buf_clear(out);
    two_part_put(out, header, body);
    tcp_write(rq->home, buf_str(out));
}

static void on_home_connected(void *arg)
{
    struct plane_request *rq = arg;
    AUTO(buf_done) struct buf handshake = BUF_NULL;

    timer_stop(rq->deadline);
    rq->state = REQUEST_SERVED;
    handshake_put(&handshake, rq->control.subject);
    frame_write(rq, buf_str(&handshake), STR_NULL);
    rq->handler.fn(rq->handler.arg, rq);
}

static void on_home_received(void *arg, struct str data)
{
    struct plane_request *rq = arg;
    struct two_part m;
    size_t used;
    int r;

    if (rq->in.len + data.len > WORD_BYTES_MAX) {
        request_cancel(rq);
        return;
    }
    buf_put_str(&rq->in, data);
    while ((r = two_part_decode(buf_str(&rq->in), WORD_BYTES_MAX, &m, &used, NULL)) == 0) {
        enum control_word w = control_word_of(m.header);

        buf_consume(&rq->in, used);
        if (w == WORD_STOP || w == WORD_KILL)
            request_cancel(rq);
    }
    if (r < 0)
        request_cancel(rq);
}

static void on_home_drained(void *arg)
{
    struct plane_request *rq = arg;

    if (rq->state == REQUEST_SERVED && !rq->cancelled && rq->on.drained)
        rq->on.drained(rq->arg);
}

static void on_home_closed(void *arg, int error)
{
    struct plane_request *rq = arg;

    if (rq->state == REQUEST_CALLING) {
        rq->server->stats.home_unreachable++;
        log_warn(&LG, "frontend cannot be reached for the response",
                 LOG_VIEW("request_id", rq->control.id), LOG_VIEW("address", rq->control.address),
                 LOG_STR("why", error ? strerrordesc_np(-error) : "closed"));
        request_gone(rq);
    } else if (rq->state == REQUEST_OVER) {
        request_gone(rq);
    } else {
        request_cancel(rq);
    }
}

/* Connecting took too long, or the FIN after the sentinel did not come. */
static void on_request_deadline(void *arg)
{
    struct plane_request *rq = arg;

    if (rq->state == REQUEST_CALLING)
        on_home_closed(rq, -ETIMEDOUT);
    else
        request_gone(rq);
}

/* --- requests: begin -------------------------------------------------------------------------- */

static int request_parse(struct plane_request *rq, struct plane_address *ret_home, struct err *e)
{
    struct two_part m;
    size_t used;
    int r;

    r = two_part_decode(buf_str(&rq->payload), rq->payload.len, &m, &used, e);
    if (r == TWO_PART_MORE)
        return err_set(e, -EBADMSG, "the request is cut short");
    if (r < 0)
        return r;
    r = control_parse(m.header, &rq->scratch, &rq->control, e);
    if (r < 0)
        return r;
    if (rq->control.payload_codec.len && !str_is(rq->control.payload_codec, "json"))
        return err_set(e, -ENOTSUP, "payload codec '%.*s'",
                       STR_ARG(str_head(rq->control.payload_codec, 32)));
    rq->body = m.body;
    return plane_address_parse(rq->control.address, ret_home, e);
}

static void request_begin(struct plane_server *s, const struct handler *handler, struct str payload)
{
    static const struct tcp_handlers home_handlers = {
        .connected = on_home_connected,
        .received = on_home_received,
        .drained = on_home_drained,
        .closed = on_home_closed,
    };
    struct plane_request *rq = xcalloc(1, sizeof(*rq));
    struct plane_address home;
    struct err e;
    int r;

    rq->server = s;
    rq->handler = *handler;
    list_append(&s->requests, &rq->in_server);
    s->stats.running++;
    s->stats.requests++;
    buf_put_str(&rq->payload, payload);
    r = request_parse(rq, &home, &e);
    if (r == 0)
        r = tcp_connect(&rq->home, s->loop, home.ip, home.port, &home_handlers, rq, &e);
    if (r < 0) {
        /* Nobody can be told: the ack is out and there is no address to call. */
        s->stats.bad_requests++;
        log_warn(&LG, "request dropped", LOG_STR("why", e.text));
        request_gone(rq);
        return;
    }
    rq->deadline = timer_new(s->loop, on_request_deadline, rq);
    timer_start(rq->deadline, s->conf.call_home_ms);
}

/* --- connections from frontends --------------------------------------------------------------- */

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
    struct plane_server *s = k->server;
    const struct handler *handler;

    if (!str_is_utf8(f->path)) {
        ack(k, "Invalid endpoint path", STR_NULL);
        return;
    }
    handler = strmap_get(s->handlers, f->path);
    if (!handler) {
        s->stats.unknown_endpoints++;
        ack(k, "Unknown endpoint: ", f->path);
    } else if (s->stats.running >= s->conf.running_max) {
        s->stats.overloaded++;
        ack(k, "Server overloaded: worker at capacity", STR_NULL);
    } else {
        ack(k, "", STR_NULL);
        request_begin(s, handler, f->payload);
    }
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
    tcp_set_handlers(take_conn, &handlers, k);
}

/* --- the server ------------------------------------------------------------------------------- */

static int server_listen(struct plane_server *s, struct err *e)
{
    char ip[PLANE_IP_SIZE];
    const char *host = s->conf.host && *s->conf.host ? s->conf.host : NULL;
    bool is_v6;
    int r;

    if (host)
        (void)snprintf(ip, sizeof(ip), "%s", host);
    else
        tcp_local_ip(ip, sizeof(ip));
    is_v6 = strchr(ip, ':') != NULL;
    if (!host)
        host = is_v6 ? "::" : "0.0.0.0";
    r = tcp_listen(&s->listener, s->loop, host, s->conf.port, on_accept, s, e);
    if (r < 0)
        return err_wrap(e, r, "request plane: listen on %s", host);
    (void)snprintf(s->address, sizeof(s->address), is_v6 ? "[%s]:%u" : "%s:%u", ip,
                   tcp_listener_port(s->listener));
    s->conf.host = NULL; /* was the caller's */
    return 0;
}

int plane_server_new(struct plane_server **ret, struct loop *l,
                     const struct plane_server_conf *conf, struct err *e)
{
    AUTO(plane_server_free) struct plane_server *s = xcalloc(1, sizeof(*s));
    struct plane_server_conf *c = &s->conf;
    int r;

    s->loop = l;
    *c = conf ? *conf : (struct plane_server_conf){0};
    c->call_home_ms = c->call_home_ms ? c->call_home_ms : DEFAULT_CALL_HOME_MS;
    c->linger_ms = c->linger_ms ? c->linger_ms : DEFAULT_LINGER_MS;
    c->frame_max = c->frame_max ? c->frame_max : TCP_FRAME_DEFAULT_MAX;
    c->running_max = c->running_max ? c->running_max : DEFAULT_RUNNING_MAX;
    c->connections_max = c->connections_max ? c->connections_max : DEFAULT_CONNECTIONS_MAX;
    list_init(&s->conns);
    list_init(&s->requests);
    s->handlers = strmap_new();
    r = server_listen(s, e);
    if (r < 0)
        return r;
    *ret = TAKE(s);
    return 0;
}

static void server_free(void *arg)
{
    struct plane_server *s = arg;

    (void)strmap_free_with(s->handlers, free);
    buf_done(&s->out);
    free(s);
}

struct plane_server *plane_server_free(struct plane_server *s)
{
    if (!s)
        return NULL;
    s->listener = tcp_listener_close(s->listener);
    LIST_FOREACH (k, &s->conns, struct server_conn, in_server)
        conn_close(k);
    LIST_FOREACH (rq, &s->requests, struct plane_request, in_server)
        request_gone(rq);
    /* Behind the connections and requests that end this turn and still point here. */
    loop_defer(s->loop, server_free, s);
    return NULL;
}

const char *plane_server_address(const struct plane_server *s)
{
    return s->address;
}

void plane_server_register(struct plane_server *s, const char *path, plane_serve_fn fn, void *arg)
{
    struct handler *h = xcalloc(1, sizeof(*h));

    *h = (struct handler){fn, arg};
    free(strmap_set(s->handlers, str_from(path), h));
}

void plane_server_unregister(struct plane_server *s, const char *path)
{
    free(strmap_remove(s->handlers, str_from(path)));
}

size_t plane_server_running(const struct plane_server *s)
{
    return s->stats.running;
}

struct plane_server_stats plane_server_stats(const struct plane_server *s)
{
    return s->stats;
}

/* --- one request ------------------------------------------------------------------------------ */

struct str plane_request_id(const struct plane_request *rq)
{
    return rq->control.id;
}

struct str plane_request_body(const struct plane_request *rq)
{
    return rq->body;
}

void plane_request_set_handlers(struct plane_request *rq, const struct plane_request_handlers *h,
                                void *arg)
{
    rq->on = *h;
    rq->arg = arg;
}

bool plane_request_is_cancelled(const struct plane_request *rq)
{
    return rq->cancelled;
}

size_t plane_request_backlog(const struct plane_request *rq)
{
    return rq->state == REQUEST_SERVED && !rq->cancelled ? tcp_backlog(rq->home) : 0;
}

void plane_request_start(struct plane_request *rq)
{
    frame_write(rq, STR("{\"error\":null}"), STR_NULL);
}

void plane_request_refuse(struct plane_request *rq, struct str text)
{
    AUTO(buf_done) struct buf prologue = BUF_NULL;

    prologue_put(&prologue, text);
    frame_write(rq, buf_str(&prologue), STR_NULL);
    request_gone(rq);
}

static void item_write(struct plane_request *rq, void (*put)(struct buf *, struct str),
                       struct str data)
{
    struct buf *out = &rq->server->out;
    size_t mark;

    if (!is_writable(rq))
        return;
    if (tcp_backlog(rq->home) > BACKLOG_BYTES_MAX) {
        log_warn(&LG, "frontend takes no items, given up", LOG_VIEW("request_id", rq->control.id));
        rq->given_up = true;
        loop_defer(rq->server->loop, cancel_deferred, rq); /* the caller is not ready for it here */
        return;
    }
    buf_clear(out);
    mark = two_part_begin_body(out);
    put(out, data);
    two_part_end_body(out, mark);
    tcp_write(rq->home, buf_str(out));
    rq->server->stats.items++;
}

void plane_request_item(struct plane_request *rq, struct str data)
{
    item_write(rq, wire_item_put, data);
}

void plane_request_item_raw(struct plane_request *rq, struct str raw)
{
    item_write(rq, wire_item_put_raw, raw);
}

void plane_request_error(struct plane_request *rq, struct str text)
{
    item_write(rq, wire_item_put_error, text);
}

void plane_request_finish(struct plane_request *rq)
{
    if (!is_writable(rq)) {
        request_gone(rq);
        return;
    }
    frame_write(rq, STR_NULL, STR("{\"complete_final\":true}"));
    frame_write(rq, control_word_text(WORD_SENTINEL), STR_NULL);
    rq->server->stats.running--;
    rq->state = REQUEST_OVER;
    timer_start(rq->deadline, rq->server->conf.linger_ms);
}

void plane_request_abort(struct plane_request *rq)
{
    request_gone(rq);
}
