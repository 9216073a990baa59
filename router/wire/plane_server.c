/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's life:
 *
 *     frame ── ack ── wait ── connect home ── handshake ── handler ── prologue ── items ── final,
 *                                 └ fails: dropped                          sentinel, wait for FIN
 *
 * What ends is unlinked at once and freed at the end of the turn.
 */
#include "router/wire/plane_server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/log.h"
#include "router/wire/control.h"
#include "router/wire/plane_server_inner.h"
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

enum request_state {
    REQUEST_WAITING, /* others run */
    REQUEST_CALLING, /* connecting home */
    REQUEST_SERVED,  /* with the handler */
    REQUEST_OVER,    /* ended; waiting for the frontend's FIN */
    REQUEST_GONE,
};

struct plane_request {
    struct plane_server *server;
    struct list in_server;
    struct plane_handler handler;
    struct buf payload; /* the two-part message; what follows points into it or into scratch */
    struct buf scratch;
    struct control control;
    struct buf said; /* the texts of trace */
    struct trace_headers trace;
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

static void request_begin(struct plane_request *rq);

/* --- requests: end ---------------------------------------------------------------------------- */

static void request_free(void *arg)
{
    struct plane_request *rq = arg;

    buf_done(&rq->payload);
    buf_done(&rq->scratch);
    buf_done(&rq->said);
    buf_done(&rq->in);
    free(rq);
}

/* Those who begin may end at once, and would let in others from within. */
static void let_in(struct plane_server *s)
{
    if (s->letting_in)
        return;
    s->letting_in = true;
    while (!list_empty(&s->waiting) && s->stats.running < s->conf.running_max)
        request_begin(LIST_ENTRY(s->waiting.next, struct plane_request, in_server));
    s->letting_in = false;
}

/* It is none of those that are counted any more. */
static void request_leave(struct plane_request *rq)
{
    if (rq->state == REQUEST_WAITING)
        rq->server->stats.waiting--;
    else if (rq->state != REQUEST_OVER)
        rq->server->stats.running--;
}

static void request_gone(struct plane_request *rq)
{
    if (rq->state == REQUEST_GONE)
        return;
    request_leave(rq);
    rq->state = REQUEST_GONE;
    rq->home = rq->given_up ? tcp_abort(rq->home) : tcp_close(rq->home);
    rq->deadline = timer_free(rq->deadline);
    list_remove(&rq->in_server);
    loop_defer(rq->server->loop, request_free, rq);
    let_in(rq->server);
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
                 LOG_STR("why", tcp_why(rq->home, error)));
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

static int home_of(const struct plane_request *rq, struct plane_address *ret, struct err *e)
{
    int r = plane_address_parse(rq->control.address, ret, e);

    if (r == 0 && ret->kind != PLANE_TCP)
        r = err_set(e, -EINVAL, "'%.*s' is no address to call home to",
                    STR_ARG(str_head(rq->control.address, 128)));
    return r;
}

static int request_parse(struct plane_request *rq, struct err *e)
{
    struct plane_address home;
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
    return home_of(rq, &home, e);
}

/* Nobody can be told: the ack is out and there is no address to call. */
static void request_drop(struct plane_request *rq, const struct err *e)
{
    rq->server->stats.bad_requests++;
    log_warn(&LG, "request dropped", LOG_STR("why", e->text));
    request_gone(rq);
}

/* Its turn has come. */
static void request_begin(struct plane_request *rq)
{
    static const struct tcp_handlers home_handlers = {
        .connected = on_home_connected,
        .received = on_home_received,
        .drained = on_home_drained,
        .closed = on_home_closed,
    };
    struct plane_server *s = rq->server;
    struct plane_address home;
    struct err e;
    int r = home_of(rq, &home, &e);

    request_leave(rq);
    rq->state = REQUEST_CALLING;
    s->stats.running++;
    list_remove(&rq->in_server);
    list_append(&s->requests, &rq->in_server);
    if (r == 0)
        r = tcp_connect_tls(&rq->home, s->loop, home.ip, home.port, s->tls.client, &home_handlers,
                            rq, &e);
    if (r < 0) {
        request_drop(rq, &e);
        return;
    }
    rq->deadline = timer_new(s->loop, on_request_deadline, rq);
    timer_start(rq->deadline, s->conf.call_home_ms);
}

/* The control message is read as a whole once the request is taken; this word is of every one that can be. */
static bool is_answered_by_tcp(struct str payload)
{
    struct two_part m;
    size_t used;

    return two_part_decode(payload, payload.len, &m, &used, NULL) != 0 ||
           str_has(m.header, STR("\"tcp_server\""));
}

const char *plane_server_refusal(struct plane_server *s, struct str payload)
{
    if (!is_answered_by_tcp(payload)) {
        s->stats.bad_requests++;
        return "Server unavailable: response plane mismatch: this worker answers over tcp";
    }
    if (s->stats.running < s->conf.running_max || s->stats.waiting < s->conf.waiting_max)
        return NULL;
    s->stats.overloaded++;
    return "Server overloaded: worker at capacity";
}

/* What is too long to be handed on is not kept either. */
static struct str keep(struct plane_request *rq, struct str value)
{
    size_t at = rq->said.len;

    if (value.len > TRACE_VALUE_MAX)
        return STR_NULL;
    buf_put_str(&rq->said, value);
    return str_skip(buf_str(&rq->said), at);
}

static void keep_trace(struct plane_request *rq, const struct trace_headers *h)
{
    const size_t sum = h->parent.len + h->state.len + h->client_id.len + h->dynamo_id.len;

    if (!sum)
        return;
    (void)buf_reserve(&rq->said, MIN(sum, (size_t)TRACE_HEADERS_MAX * TRACE_VALUE_MAX) + 1);
    rq->trace = (struct trace_headers){.parent = keep(rq, h->parent),
                                       .state = keep(rq, h->state),
                                       .client_id = keep(rq, h->client_id),
                                       .dynamo_id = keep(rq, h->dynamo_id)};
}

void plane_server_begin(struct plane_server *s, const struct plane_handler *h, struct str payload,
                        const struct trace_headers *trace)
{
    struct plane_request *rq = xcalloc(1, sizeof(*rq));
    struct err e;

    rq->server = s;
    rq->handler = *h;
    rq->state = REQUEST_WAITING;
    list_append(&s->waiting, &rq->in_server);
    s->stats.waiting++;
    s->stats.requests++;
    buf_put_str(&rq->payload, payload);
    keep_trace(rq, trace);
    if (request_parse(rq, &e) < 0)
        request_drop(rq, &e);
    else
        let_in(s);
}

/* --- the server ------------------------------------------------------------------------------- */

void plane_server_name(struct plane_server *s, const char *ip, uint16_t port)
{
    (void)snprintf(s->address, sizeof(s->address), strchr(ip, ':') ? "[%s]:%u" : "%s:%u", ip, port);
}

static int server_listen(struct plane_server *s, struct err *e)
{
    bool http = s->conf.kind == PLANE_HTTP;
    const char *host = s->conf.host && *s->conf.host ? s->conf.host : NULL;
    char ip[PLANE_IP_SIZE];
    int r;

    if (host)
        (void)snprintf(ip, sizeof(ip), "%s", host);
    else
        tcp_local_ip(ip, sizeof(ip));
    if (!host)
        host = strchr(ip, ':') ? "::" : "0.0.0.0";
    else if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
        tcp_local_ip(ip, sizeof(ip)); /* nobody can dial that */
    r = http ? plane_server_http_start(s, host, e) : plane_server_tcp_start(s, host, e);
    if (r < 0)
        return err_wrap(e, r, "request plane: listen on %s", host);
    plane_server_name(s, ip, http ? http_server_port(s->http) : tcp_listener_port(s->listener));
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
    list_init(&s->waiting);
    s->handlers = strmap_new();
    if (c->kind == PLANE_NATS && !c->nats)
        return err_set(e, -EINVAL, "request plane nats without a link to it");
    r = plane_tls_start(&s->tls, l, c->tls, e);
    if (r == 0 && c->kind != PLANE_NATS)
        r = server_listen(s, e);
    if (r < 0)
        return r;
    c->host = c->root = NULL; /* were the caller's */
    c->tls = NULL;
    *ret = TAKE(s);
    return 0;
}

static void handler_free(void *arg)
{
    struct plane_handler *h = arg;

    if (h && h->server->conf.kind == PLANE_NATS)
        plane_server_nats_unsubscribe(h);
    free(h);
}

static void server_free(void *arg)
{
    struct plane_server *s = arg;

    buf_done(&s->out);
    free(s->root);
    free(s->routes);
    free(s);
}

struct plane_server *plane_server_free(struct plane_server *s)
{
    if (!s)
        return NULL;
    plane_server_tcp_stop(s);
    plane_server_http_stop(s);
    plane_tls_done(&s->tls);
    s->handlers = strmap_free_with(s->handlers, handler_free);
    s->letting_in = true; /* nobody any more */
    LIST_FOREACH (rq, &s->waiting, struct plane_request, in_server)
        request_gone(rq);
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

enum plane_kind plane_server_kind(const struct plane_server *s)
{
    return s->conf.kind;
}

/* What requests for it are told apart by. */
static char *key_of(const struct plane_server *s, const struct plane_endpoint *ep)
{
    switch (s->conf.kind) {
    case PLANE_NATS:
        return xasprintf("%s_%s.%s-%" PRIx64, ep->ns, ep->component, ep->name, ep->instance_id);
    case PLANE_HTTP:
        return xstrdup(ep->name);
    case PLANE_TCP:
        break;
    }
    if (ep->long_path)
        return xasprintf("%" PRIx64 "/%s/%s/%s", ep->instance_id, ep->ns, ep->component, ep->name);
    return xasprintf("%" PRIx64 "/%s", ep->instance_id, ep->name);
}

void plane_server_put_address(const struct plane_server *s, const struct plane_endpoint *ep,
                              struct buf *out)
{
    AUTO(mem_free) char *key = key_of(s, ep);

    if (s->conf.kind == PLANE_HTTP)
        buf_printf(out, "http://%s%s/%s", s->address, s->root, key);
    else if (s->conf.kind == PLANE_NATS)
        buf_put_cstr(out, key);
    else
        buf_printf(out, "%s/%s", s->address, key);
}

void plane_server_register(struct plane_server *s, const struct plane_endpoint *ep,
                           plane_serve_fn fn, void *arg)
{
    AUTO(mem_free) char *key = key_of(s, ep);
    struct plane_handler *h = xcalloc(1, sizeof(*h));

    *h = (struct plane_handler){.server = s, .fn = fn, .arg = arg};
    handler_free(strmap_set(s->handlers, str_from(key), h));
    if (s->conf.kind == PLANE_NATS)
        plane_server_nats_subscribe(h, key);
}

void plane_server_unregister(struct plane_server *s, const struct plane_endpoint *ep)
{
    AUTO(mem_free) char *key = key_of(s, ep);

    handler_free(strmap_remove(s->handlers, str_from(key)));
}

size_t plane_server_running(const struct plane_server *s)
{
    return s->stats.running;
}

size_t plane_server_waiting(const struct plane_server *s)
{
    return s->stats.waiting;
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

struct trace_headers plane_request_trace(const struct plane_request *rq)
{
    return rq->trace;
}

void plane_request_set_handlers(struct plane_request *rq, const struct plane_request_handlers *h,
                                void *arg)
{
    rq->on = *h;
    rq->arg = arg;
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
    request_leave(rq);
    rq->state = REQUEST_OVER;
    timer_start(rq->deadline, rq->server->conf.linger_ms);
    let_in(rq->server);
}

void plane_request_abort(struct plane_request *rq)
{
    request_gone(rq);
}
