/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http_server.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

#include "lib/base/buf.h"
#include "lib/base/list.h"
#include "lib/base/metric.h"
#include "lib/net/tcp.h"

enum {
    CONNECTIONS_MAX = 4096,
    HEAD_BYTES = 16384,
    BODY_BYTES = 1 << 20,
    IDLE_MS = 60000,
    REQUEST_IDLES = 20,     /* a body that trickles must be there after so many times idle_ms */
    LINGER_MS = 2000,       /* for the peer to read a refusal before we drop what it still sends */
    PIPELINE_BYTES = 65536, /* read ahead while an answer is pending */
    KEEP_BYTES = 65536,     /* buffer memory that an idle connection keeps */
};

static const struct metric_desc REFUSED = {
    .name = "commutator_http_connections_refused_total",
    .help = "Connections refused because as many as may be were open",
    .type = METRIC_COUNTER};

struct route {
    struct str method, path; /* method empty = any */
    bool prefix;
    http_handler handle;
    size_t body_bytes;
};

struct http_server {
    struct loop *loop;
    struct http_server_conf conf;
    struct route *routes;
    struct tcp_listener *listener;
    uint16_t port;
    struct list connections;
    size_t n_connections;
    struct metric *refused; /* connections; NULL = not counted */
    struct timer *sweep;
    bool stopping;
    time_t dated; /* that `date` is of */
    char date[sizeof("date: Sun, 06 Nov 1994 08:49:37 GMT\r\n")];
    loop_fn drained;
    void *drained_arg;
};

enum conn_state {
    CONN_READING,   /* idle, or a request is coming in */
    CONN_ANSWERING, /* the exchange belongs to a handler */
    CONN_LINGERING, /* refused and shut down; reads to the end so that the peer sees the answer */
    CONN_CLOSED,    /* memory goes after the turn */
};

struct http_exchange {
    struct conn *conn; /* that it is a part of */
    struct http1_request request;
    struct buf body;  /* that a handler put in place of what came */
    struct buf extra; /* header lines that the handler added */
    struct buf head;  /* of a stream, until its first bytes */
    loop_fn gone, drained, silent;
    void *gone_arg, *drained_arg, *silent_arg;
    struct timer *silence; /* NULL = nobody wants to know of it */
    uint64_t silence_ms, written_ms;
    bool keep_alive;
    bool linger;
    bool no_body; /* HEAD, 204, 304 */
    bool streaming, chunked;
};

/*
 * One exchange at a time. Bytes gather in `in`. While its first `used` bytes are the request being
 * answered nothing moves them; what comes in the meantime waits in `later`.
 */
struct conn {
    struct list link;
    struct http_server *server;
    struct tcp *tcp;
    struct http1_parser *parser;
    enum conn_state state;
    bool serving; /* serve() is on the stack */
    bool paused;
    struct buf in, later;
    size_t used;
    uint64_t started_ms; /* first byte of the request */
    uint64_t deadline_ms;
    struct http_exchange x;
};

/* --- the end of a connection ----------------------------------------------------------------- */

static void conn_free(void *arg)
{
    struct conn *c = arg;

    http1_parser_free(c->parser);
    buf_done(&c->in);
    buf_done(&c->later);
    buf_done(&c->x.body);
    buf_done(&c->x.extra);
    buf_done(&c->x.head);
    free(c);
}

static void conn_close(struct conn *c)
{
    struct http_server *s = c->server;

    if (c->state == CONN_CLOSED)
        return;
    c->state = CONN_CLOSED;
    c->x.silence = timer_free(c->x.silence);
    c->tcp = tcp_close(c->tcp);
    list_remove(&c->link);
    s->n_connections--;
    if (s->stopping && !s->n_connections && s->drained) {
        loop_defer(s->loop, s->drained, s->drained_arg);
        s->drained = NULL;
    }
    /* Behind everything that is already deferred for this connection. */
    loop_defer(s->loop, conn_free, c);
}

/* The client has left, or the server goes away, with the answer outstanding or not. */
static void conn_lost(struct conn *c)
{
    loop_fn gone = c->state == CONN_ANSWERING ? c->x.gone : NULL;

    c->x.gone = c->x.drained = NULL;
    conn_close(c);
    if (gone)
        gone(c->x.gone_arg);
}

/* --- answers --------------------------------------------------------------------------------- */

static void serve(struct conn *c);

static void serve_later(void *arg)
{
    serve(arg);
}

/* Bytes that belong to no request yet. */
static size_t unread(const struct conn *c)
{
    return c->in.len - c->used + c->later.len;
}

static void finish(struct http_exchange *x)
{
    struct conn *c = x->conn;
    struct http_server *s = c->server;

    x->gone = x->drained = NULL;
    x->silence = timer_free(x->silence);
    if (x->linger && !s->stopping) {
        c->state = CONN_LINGERING;
        c->deadline_ms = loop_now_ms(s->loop) + LINGER_MS;
        tcp_shutdown(c->tcp);
    } else if (!x->keep_alive || (s->stopping && !unread(c))) {
        conn_close(c); /* a stream may have promised to keep it before we were told to stop */
    } else {
        c->state = CONN_READING;
        c->deadline_ms = loop_now_ms(s->loop) + s->conf.idle_ms;
        /* Not at once: the handler may still look at its request. */
        if (!c->serving && (unread(c) || c->in.cap > KEEP_BYTES))
            loop_defer(s->loop, serve_later, c);
    }
    if (c->paused && c->tcp) {
        c->paused = false;
        tcp_resume(c->tcp);
    }
}

void http_add_header(struct http_exchange *x, const char *name, struct str value)
{
    buf_put_cstr(&x->extra, name);
    buf_put_cstr(&x->extra, ": ");
    for (size_t i = 0; i < value.len; i++) {
        unsigned char byte = (unsigned char)value.ptr[i];

        /* A value may come from a request: it must not be able to end its line. */
        buf_put_char(&x->extra, byte < ' ' || byte == 0x7f ? ' ' : value.ptr[i]);
    }
    buf_put_cstr(&x->extra, "\r\n");
}

static void put_status_line(struct buf *out, int status)
{
    buf_put_cstr(out, "HTTP/1.1 ");
    buf_put_u64dec(out, (uint64_t)status);
    buf_put_char(out, ' ');
    buf_put_cstr(out, http_status_text(status));
    buf_put_cstr(out, "\r\n");
}

/* Written once a second, in English whatever the locale (RFC 9110, 5.6.7). */
static void put_date(struct http_server *s, struct buf *out)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = (time_t)(clock_wall_ms() / 1000);
    char rest[sizeof(" 1994 08:49:37 GMT\r\n")];
    struct tm utc;

    if (now != s->dated) {
        s->dated = now;
        (void)gmtime_r(&now, &utc);
        (void)strftime(rest, sizeof(rest), " %Y %H:%M:%S GMT\r\n", &utc);
        (void)snprintf(s->date, sizeof(s->date), "date: %s, %02d %s%s", days[utc.tm_wday],
                       utc.tm_mday, months[utc.tm_mon], rest);
    }
    buf_put_cstr(out, s->date);
}

static void echo_header(struct http_exchange *x, const char *name)
{
    struct str value = http1_header_get(&x->request, name);

    if (value.len)
        http_add_header(x, name, value);
}

/* All of the head but its length, coding and last line. */
static void begin_head(struct http_exchange *x, int status, const char *content_type)
{
    struct conn *c = x->conn;

    assert(c->state == CONN_ANSWERING && !x->streaming); /* else answered twice, or after `gone` */
    if (c->server->stopping)
        x->keep_alive = false;
    if (status == 204 || status == 304)
        x->no_body = true;
    buf_clear(&x->head);
    put_status_line(&x->head, status);
    if (content_type) {
        buf_put_cstr(&x->head, "content-type: ");
        buf_put_cstr(&x->head, content_type);
        buf_put_cstr(&x->head, "\r\n");
    }
    if (c->server->conf.echo)
        echo_header(x, c->server->conf.echo);
    buf_put_str(&x->head, buf_str(&x->extra));
    if (c->server->conf.dated)
        put_date(c->server, &x->head);
}

static void end_head(struct http_exchange *x)
{
    if (!x->keep_alive)
        buf_put_cstr(&x->head, "connection: close\r\n");
    else if (x->request.minor == 0)
        buf_put_cstr(&x->head, "connection: keep-alive\r\n");
    buf_put_cstr(&x->head, "\r\n");
}

static void send_head(struct http_exchange *x)
{
    tcp_write(x->conn->tcp, buf_str(&x->head));
    buf_clear(&x->head);
}

void http_respond(struct http_exchange *x, int status, const char *content_type, struct str body)
{
    begin_head(x, status, content_type);
    if (status != 204) {
        buf_put_cstr(&x->head, "content-length: ");
        buf_put_u64dec(&x->head, body.len);
        buf_put_cstr(&x->head, "\r\n");
    }
    end_head(x);
    send_head(x);
    if (!x->no_body)
        tcp_write(x->conn->tcp, body);
    finish(x);
}

void http_stream_begin(struct http_exchange *x, int status, const char *content_type)
{
    /* HTTP/1.0 knows no chunks: there the end of the connection ends the body. */
    x->chunked = x->request.minor > 0;
    if (!x->chunked)
        x->keep_alive = false;
    begin_head(x, status, content_type);
    if (x->chunked && !(status == 204 || status == 304))
        buf_put_cstr(&x->head, "transfer-encoding: chunked\r\n");
    end_head(x);
    x->streaming = true;
}

static void put_chunk(struct http_exchange *x, struct str data)
{
    static const char digits[] = "0123456789abcdef";
    struct tcp *tcp = x->conn->tcp;
    char size[18];
    size_t at = sizeof(size);

    if (!x->chunked) {
        tcp_write(tcp, data);
        return;
    }
    size[--at] = '\n';
    size[--at] = '\r';
    for (size_t left = data.len; left; left >>= 4)
        size[--at] = digits[left & 15];
    tcp_write(tcp, str_slice(size + at, sizeof(size) - at));
    tcp_write(tcp, data);
    tcp_write(tcp, STR("\r\n"));
}

bool http_stream_has_begun(const struct http_exchange *x)
{
    return x->streaming;
}

void http_stream_write(struct http_exchange *x, struct str data)
{
    assert(x->streaming);
    send_head(x);
    if (data.len && !x->no_body)
        put_chunk(x, data);
    x->written_ms = loop_now_ms(x->conn->server->loop);
}

void http_stream_end(struct http_exchange *x)
{
    assert(x->streaming);
    send_head(x);
    if (x->chunked && !x->no_body)
        tcp_write(x->conn->tcp, STR("0\r\n\r\n"));
    finish(x);
}

void http_stream_abort(struct http_exchange *x)
{
    x->gone = x->drained = NULL;
    conn_close(x->conn);
}

size_t http_stream_backlog(const struct http_exchange *x)
{
    return tcp_backlog(x->conn->tcp) + x->head.len;
}

void http_on_drained(struct http_exchange *x, loop_fn drained, void *arg)
{
    x->drained = drained;
    x->drained_arg = arg;
}

static void on_silence(void *arg)
{
    struct http_exchange *x = arg;
    uint64_t now_ms = loop_now_ms(x->conn->server->loop), due_ms = x->written_ms + x->silence_ms;

    if (now_ms < due_ms) {
        timer_start(x->silence, due_ms - now_ms);
        return;
    }
    timer_start(x->silence, x->silence_ms);
    x->silent(x->silent_arg);
}

void http_on_silence(struct http_exchange *x, uint64_t ms, loop_fn silent, void *arg)
{
    assert(!x->silence && ms > 0);
    x->silent = silent;
    x->silent_arg = arg;
    x->silence_ms = ms;
    x->silence = timer_new(x->conn->server->loop, on_silence, x);
    timer_start(x->silence, ms);
}

void http_on_gone(struct http_exchange *x, loop_fn gone, void *arg)
{
    x->gone = gone;
    x->gone_arg = arg;
}

const struct http1_request *http_request(const struct http_exchange *x)
{
    return &x->request;
}

void http_request_set_body(struct http_exchange *x, struct str body)
{
    struct buf copy = BUF_NULL; /* @body may be a view of the one that was set before */

    buf_put_str(&copy, body);
    buf_done(&x->body);
    x->body = copy;
    x->request.body = buf_str(&x->body);
}

struct loop *http_exchange_loop(struct http_exchange *x)
{
    return x->conn->server->loop;
}

/* --- requests -------------------------------------------------------------------------------- */

static bool path_fits(const struct route *r, struct str path)
{
    return r->prefix ? str_starts(path, r->path) : str_eq(path, r->path);
}

static bool method_fits(const struct route *r, struct str method)
{
    return !r->method.len || str_eq(r->method, method) ||
           (str_is(method, "HEAD") && str_is(r->method, "GET"));
}

/* NULL when there is none; then *ret_allowed lists the methods that the path has. */
static const struct route *find_route(const struct http_server *s, const struct http1_request *q,
                                      struct buf *ret_allowed)
{
    for (size_t i = 0; i < s->conf.n_routes; i++) {
        const struct route *r = &s->routes[i];

        if (!path_fits(r, q->path))
            continue;
        if (method_fits(r, q->method))
            return r;
        if (ret_allowed)
            buf_printf(ret_allowed, "%s%.*s", ret_allowed->len ? ", " : "", STR_ARG(r->method));
    }
    return NULL;
}

static size_t body_limit(void *arg, const struct http1_request *head)
{
    const struct http_server *s = arg;
    const struct route *r = find_route(s, head, NULL);

    return r && r->body_bytes ? r->body_bytes : s->conf.body_bytes;
}

static void begin_exchange(struct conn *c)
{
    struct http_exchange *x = &c->x;

    c->state = CONN_ANSWERING;
    c->deadline_ms = UINT64_MAX;
    c->started_ms = 0;
    buf_clear(&x->extra);
    buf_clear(&x->head);
    x->gone = x->drained = NULL;
    x->linger = x->no_body = x->streaming = x->chunked = false;
}

static void answer_error(struct http_exchange *x, int status, const char *why)
{
    const struct http_server_conf *conf = &x->conn->server->conf;

    if (conf->on_error)
        conf->on_error(x, status, why, conf->arg);
    else
        http_respond(x, status, "text/plain; charset=utf-8", str_from(why));
}

/* Answers what is no request and lets the connection go. */
static void refuse(struct conn *c, int status, const char *why)
{
    begin_exchange(c);
    c->x.request.n_headers = 0;
    c->x.request.method = c->x.request.path = c->x.request.query = c->x.request.body = STR_NULL;
    c->x.request.minor = 1;
    c->x.keep_alive = false;
    c->x.linger = true;
    answer_error(&c->x, status, why);
}

static void dispatch(struct conn *c)
{
    AUTO(buf_done) struct buf allowed = BUF_NULL;
    struct http_exchange *x = &c->x;
    const struct route *r = find_route(c->server, &x->request, &allowed);

    x->keep_alive = x->request.keep_alive;
    x->no_body = str_is(x->request.method, "HEAD");
    if (r) {
        r->handle(x, c->server->conf.arg);
    } else if (allowed.len) {
        http_add_header(x, "allow", buf_str(&allowed));
        answer_error(x, 405, "method not allowed");
    } else {
        answer_error(x, 404, "not found");
    }
}

/* Done with the last request: turns to the bytes behind it. */
static void take_up(struct conn *c)
{
    buf_done(&c->x.body);
    buf_consume(&c->in, c->used);
    c->used = 0;
    buf_put_str(&c->in, buf_str(&c->later));
    buf_clear(&c->later);
    if (!c->in.len && c->in.cap > KEEP_BYTES)
        buf_done(&c->in);
    if (c->later.cap > KEEP_BYTES)
        buf_done(&c->later);
}

/* A request is on its way: the head has one idle_ms, the body may take longer while it moves. */
static void expect_more(struct conn *c)
{
    struct http_server *s = c->server;
    uint64_t now_ms = loop_now_ms(s->loop), idle_ms = s->conf.idle_ms;

    if (!c->started_ms) {
        c->started_ms = now_ms;
        c->deadline_ms = now_ms + idle_ms;
    }
    if (http1_in_body(c->parser))
        c->deadline_ms = MIN(now_ms, c->started_ms + (REQUEST_IDLES - 1) * idle_ms) + idle_ms;
}

static const char *refusal_text(int status)
{
    switch (status) {
    case 413:
        return "request body too large";
    case 414:
        return "request target too long";
    case 431:
        return "request head too large";
    case 501:
        return "transfer coding not supported";
    case 505:
        return "HTTP version not supported";
    default:
        return "malformed request";
    }
}

/* Takes one request out of `in`; false when it holds no whole one. */
static bool serve_one(struct conn *c)
{
    bool wants_continue = false;
    int r;

    take_up(c);
    if (!c->in.len)
        return false;
    r = http1_parse(c->parser, buf_str(&c->in), &c->x.request, &c->used, &wants_continue);
    if (wants_continue)
        tcp_write(c->tcp, STR("HTTP/1.1 100 Continue\r\n\r\n"));
    if (r == HTTP1_MORE) {
        expect_more(c);
        return false;
    }
    if (r < 0) {
        refuse(c, -r, refusal_text(-r));
        return false;
    }
    begin_exchange(c);
    dispatch(c);
    return true;
}

/* Works off what there is, until an answer is outstanding. */
static void serve(struct conn *c)
{
    c->serving = true;
    while (c->state == CONN_READING && serve_one(c))
        ;
    c->serving = false;
}

/* --- connections ----------------------------------------------------------------------------- */

static void on_received(void *arg, struct str data)
{
    struct conn *c = arg;

    if (c->state == CONN_READING) {
        take_up(c);
        buf_put_str(&c->in, data);
        serve(c);
    } else if (c->state == CONN_ANSWERING) {
        buf_put_str(&c->later, data);
        c->paused = c->later.len > PIPELINE_BYTES;
        if (c->paused)
            tcp_pause(c->tcp);
    } /* else lingering: read and dropped */
}

static void on_drained(void *arg)
{
    struct conn *c = arg;

    if (c->state == CONN_ANSWERING && c->x.drained)
        c->x.drained(c->x.drained_arg);
}

static void on_closed(void *arg, int error)
{
    (void)error; /* the handler learns that the client has gone, whatever the reason */
    conn_lost(arg);
}

static const struct tcp_handlers conn_handlers = {
    .received = on_received,
    .drained = on_drained,
    .closed = on_closed,
};

static void on_accept(void *arg, struct tcp *take_conn)
{
    struct http_server *s = arg;
    struct http1_limits limits = {s->conf.head_bytes, s->conf.body_bytes, body_limit, s};
    struct conn *c;

    if (s->conf.tls)
        tcp_start_tls(take_conn, s->conf.tls);
    if (s->n_connections >= s->conf.connections_max) {
        if (s->refused)
            metric_add(s->refused, 1);
        tcp_write(take_conn, STR("HTTP/1.1 503 Service Unavailable\r\n"
                                 "content-length: 0\r\nconnection: close\r\n\r\n"));
        tcp_close(take_conn);
        return;
    }
    c = xcalloc(1, sizeof(*c));
    c->x.conn = c;
    c->server = s;
    c->tcp = take_conn;
    c->parser = http1_parser_new(&limits);
    c->deadline_ms = loop_now_ms(s->loop) + s->conf.idle_ms;
    list_append(&s->connections, &c->link);
    s->n_connections++;
    tcp_set_handlers(take_conn, &conn_handlers, c);
}

/* One timer for all connections: deadlines are coarse and mostly not reached. */
static void on_sweep(void *arg)
{
    struct http_server *s = arg;
    uint64_t now_ms = loop_now_ms(s->loop);

    LIST_FOREACH (c, &s->connections, struct conn, link) {
        if (c->deadline_ms > now_ms)
            continue;
        if (c->state == CONN_READING && unread(c))
            refuse(c, 408, "request timed out");
        else
            conn_close(c);
    }
}

/* --- the server ------------------------------------------------------------------------------ */

static void copy_routes(struct http_server *s)
{
    s->routes = xcalloc(MAX(s->conf.n_routes, (size_t)1), sizeof(*s->routes));
    for (size_t i = 0; i < s->conf.n_routes; i++) {
        const struct http_route *from = &s->conf.routes[i];
        struct route *r = &s->routes[i];

        *r = (struct route){
            .method = str_from(from->method),
            .path = str_from(from->path),
            .handle = from->handle,
            .body_bytes = from->body_bytes,
        };
        r->prefix = str_ends(r->path, STR("*"));
        if (r->prefix)
            r->path.len--;
    }
    s->conf.routes = NULL; /* it was borrowed */
}

static void server_free(void *arg)
{
    struct http_server *s = arg;

    free(s->routes);
    free(s);
}

int http_server_start(struct http_server **ret, struct loop *l, const struct http_server_conf *conf,
                      struct err *e)
{
    struct http_server *s = xcalloc(1, sizeof(*s));
    int r;

    s->loop = l;
    s->conf = *conf;
    s->conf.connections_max = conf->connections_max ? conf->connections_max : CONNECTIONS_MAX;
    s->conf.head_bytes = conf->head_bytes ? conf->head_bytes : HEAD_BYTES;
    s->conf.body_bytes = conf->body_bytes ? conf->body_bytes : BODY_BYTES;
    s->conf.idle_ms = conf->idle_ms ? conf->idle_ms : IDLE_MS;
    list_init(&s->connections);
    copy_routes(s);
    if (conf->metrics)
        s->refused = metric_plain(metric_family(conf->metrics, &REFUSED));
    r = (conf->port_shared ? tcp_listen_shared : tcp_listen)(&s->listener, l, conf->host,
                                                             conf->port, on_accept, s, e);
    if (r < 0) {
        server_free(s);
        return err_wrap(e, r, "HTTP server");
    }
    s->port = tcp_listener_port(s->listener);
    s->sweep = timer_new(l, on_sweep, s);
    timer_start_repeat(s->sweep, MIN(s->conf.idle_ms / 4 + 1, (uint64_t)500));
    *ret = s;
    return 0;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_stop(struct http_server *s, loop_fn drained, void *arg)
{
    s->stopping = true;
    s->drained = drained;
    s->drained_arg = arg;
    s->listener = tcp_listener_close(s->listener);
    LIST_FOREACH (c, &s->connections, struct conn, link) {
        if (c->state == CONN_LINGERING || (c->state == CONN_READING && !unread(c)))
            conn_close(c);
    }
    if (!s->n_connections && s->drained) {
        loop_defer(s->loop, s->drained, s->drained_arg);
        s->drained = NULL;
    }
}

struct http_server *http_server_free(struct http_server *s)
{
    if (!s)
        return NULL;
    s->drained = NULL;
    s->listener = tcp_listener_close(s->listener);
    s->sweep = timer_free(s->sweep);
    while (!list_empty(&s->connections))
        conn_lost(LIST_ENTRY(s->connections.next, struct conn, link));
    loop_defer(s->loop, server_free, s); /* it may be a handler that called */
    return NULL;
}

size_t http_server_connections(const struct http_server *s)
{
    return s->n_connections;
}
