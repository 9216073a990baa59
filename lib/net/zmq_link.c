/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libzmq tells through a file descriptor that something changed, once: what it was must be asked
 * and taken until there is nothing left, and any call on the socket may swallow the signal. So each
 * link is drained when its descriptor is readable, and once more at the end of a turn in which it
 * was used.
 */
#include "lib/net/zmq_link.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <zmq.h>

#include "lib/net/uv_lib.h"

enum {
    QUEUE_MAX = 100000,
    BATCH_MAX = 1024, /* messages delivered before other events of the loop have their turn */
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 5000,
    ALIVE_IDLE_S = 30, /* a peer that vanished without a word is noticed after a minute */
    ALIVE_EVERY_S = 10,
    ALIVE_COUNT = 3,
};

struct zmq_context {
    struct loop *loop;
    void *zmq;
    uint64_t next_id;
    size_t n_links;
};

/* A libzmq socket whose descriptor is polled. */
struct polled {
    uv_poll_t uv; /* first: the handle is the allocation */
    struct zmq_link *link;
    void *socket;
    void (*drain)(struct zmq_link *z);
};

struct zmq_link {
    struct zmq_context *context;
    struct zmq_link_conf conf;
    struct polled *messages, *monitor;
    bool draining;  /* a drain is deferred or posted */
    bool freed;     /* within a callback of its own, or while a drain is under way */
    unsigned depth; /* callbacks that run */
    struct zmq_link_stats stats;
};

static const int SOCKET_TYPES[] = {
    [ZMQ_KIND_PUB] = ZMQ_PUB,   [ZMQ_KIND_SUB] = ZMQ_SUB,       [ZMQ_KIND_XPUB] = ZMQ_XPUB,
    [ZMQ_KIND_XSUB] = ZMQ_XSUB, [ZMQ_KIND_DEALER] = ZMQ_DEALER, [ZMQ_KIND_ROUTER] = ZMQ_ROUTER,
};

static int fail(struct err *e, const char *what)
{
    int r = -zmq_errno();

    return err_set(e, r < 0 && r > -4096 ? r : -EIO, "zmq: %s: %s", what,
                   zmq_strerror(zmq_errno()));
}

int zmq_context_new(struct zmq_context **ret, struct loop *l, struct err *e)
{
    void *zmq = zmq_ctx_new();
    struct zmq_context *c;

    if (!zmq)
        return fail(e, "context");
    (void)zmq_ctx_set(zmq, ZMQ_MAX_SOCKETS, 65535);
    c = xcalloc(1, sizeof(*c));
    c->loop = l;
    c->zmq = zmq;
    *ret = c;
    return 0;
}

struct zmq_context *zmq_context_free(struct zmq_context *c)
{
    if (!c)
        return NULL;
    assert(c->n_links == 0);
    while (zmq_ctx_term(c->zmq) != 0 && zmq_errno() == EINTR)
        ;
    free(c);
    return NULL;
}

/* --- receiving ------------------------------------------------------------------------------------ */

static void link_release(struct zmq_link *z)
{
    if (z->freed && z->depth == 0 && !z->draining)
        free(z);
}

static void close_frames(zmq_msg_t *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)zmq_msg_close(&parts[i]);
}

/* One whole message, its first frames in @parts; 0 when there is none. All frames are counted. */
static size_t receive(void *socket, zmq_msg_t parts[ZMQ_LINK_FRAMES_MAX])
{
    size_t n = 0;
    bool more = true;

    while (more) {
        zmq_msg_t spare, *at = n < ZMQ_LINK_FRAMES_MAX ? &parts[n] : &spare;

        (void)zmq_msg_init(at);
        if (zmq_msg_recv(at, socket, ZMQ_DONTWAIT) < 0) {
            (void)zmq_msg_close(at);
            close_frames(parts, MIN(n, (size_t)ZMQ_LINK_FRAMES_MAX));
            return 0;
        }
        more = zmq_msg_more(at);
        if (at == &spare)
            (void)zmq_msg_close(&spare);
        n++;
    }
    return n;
}

static void later(void *arg);

/* At the end of the turn; or in the next, after whatever else the loop has to do. */
static void drain_later(struct zmq_link *z, void (*when)(struct loop *, loop_fn, void *))
{
    if (z->draining || z->freed)
        return;
    z->draining = true;
    when(z->context->loop, later, z);
}

static void drain(struct zmq_link *z)
{
    zmq_msg_t parts[ZMQ_LINK_FRAMES_MAX];
    struct str frames[ZMQ_LINK_FRAMES_MAX];
    size_t n;

    for (size_t i = 0; !z->freed; i++) {
        if (i == BATCH_MAX) {
            drain_later(z, loop_post);
            return;
        }
        n = receive(z->messages->socket, parts);
        if (n == 0)
            return;
        if (n > ZMQ_LINK_FRAMES_MAX) {
            z->stats.dropped_in++;
            close_frames(parts, ZMQ_LINK_FRAMES_MAX);
            continue;
        }
        z->stats.received++;
        for (size_t k = 0; k < n; k++)
            frames[k] = str_slice(zmq_msg_data(&parts[k]), zmq_msg_size(&parts[k]));
        if (z->conf.received)
            z->conf.received(z->conf.arg, frames, n);
        close_frames(parts, n);
    }
}

/* A PUB socket has nothing to receive, but subscriptions to take note of. */
static void drain_events(struct zmq_link *z)
{
    int events;
    size_t size = sizeof(events);

    (void)zmq_getsockopt(z->messages->socket, ZMQ_EVENTS, &events, &size);
}

/* An event is two frames: number and value, then the endpoint. */
static void drain_monitor(struct zmq_link *z)
{
    zmq_msg_t parts[ZMQ_LINK_FRAMES_MAX];
    size_t n;

    while (!z->freed && (n = receive(z->monitor->socket, parts)) > 0) {
        z->stats.connects++;
        if (n == 2)
            z->conf.connected(z->conf.arg,
                              str_slice(zmq_msg_data(&parts[1]), zmq_msg_size(&parts[1])));
        close_frames(parts, MIN(n, (size_t)ZMQ_LINK_FRAMES_MAX));
    }
}

static void run_drain(struct zmq_link *z, const struct polled *p)
{
    z->depth++;
    p->drain(z);
    if (!z->freed && z->monitor && p != z->monitor)
        z->monitor->drain(z);
    z->depth--;
    link_release(z);
}

static void later(void *arg)
{
    struct zmq_link *z = arg;

    z->draining = false;
    if (z->freed)
        link_release(z);
    else
        run_drain(z, z->messages);
}

static void on_poll(uv_poll_t *uv, int status, int events)
{
    struct polled *p = (struct polled *)uv;

    (void)status;
    (void)events;
    run_drain(p->link, p);
}

/* --- sockets -------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *uv)
{
    free(uv);
}

/* The descriptor is libzmq's: polling ends before the socket does. */
static void polled_free(struct polled *p)
{
    if (!p)
        return;
    (void)uv_poll_stop(&p->uv);
    (void)zmq_close(p->socket);
    uv_close((uv_handle_t *)&p->uv, on_closed);
}

/* Takes @take_socket, also when it fails. */
static int polled_new(struct polled **ret, struct zmq_link *z, void *take_socket,
                      void (*drain_fn)(struct zmq_link *z), struct err *e)
{
    struct polled *p;
    int fd;
    size_t size = sizeof(fd);

    if (zmq_getsockopt(take_socket, ZMQ_FD, &fd, &size) != 0) {
        (void)zmq_close(take_socket);
        return fail(e, "descriptor");
    }
    p = xcalloc(1, sizeof(*p));
    p->link = z;
    p->socket = take_socket;
    p->drain = drain_fn;
    if (uv_poll_init(loop_uv(z->context->loop), &p->uv, fd) != 0) {
        (void)zmq_close(take_socket);
        free(p);
        return err_set(e, -EMFILE, "zmq: cannot poll");
    }
    (void)uv_poll_start(&p->uv, UV_READABLE, on_poll);
    *ret = p;
    return 0;
}

static void *socket_new(struct zmq_context *c, int type)
{
    static const struct {
        int option, value;
    } OPTIONS[] = {
        {ZMQ_LINGER, 0},
        {ZMQ_SNDHWM, QUEUE_MAX},
        {ZMQ_RCVHWM, QUEUE_MAX},
        {ZMQ_RECONNECT_IVL, RETRY_MIN_MS},
        {ZMQ_RECONNECT_IVL_MAX, RETRY_MAX_MS},
        {ZMQ_TCP_KEEPALIVE, 1},
        {ZMQ_TCP_KEEPALIVE_IDLE, ALIVE_IDLE_S},
        {ZMQ_TCP_KEEPALIVE_INTVL, ALIVE_EVERY_S},
        {ZMQ_TCP_KEEPALIVE_CNT, ALIVE_COUNT},
        {ZMQ_IPV6, 1},
    };
    int64_t bytes = ZMQ_LINK_FRAME_BYTES_MAX;
    void *s = zmq_socket(c->zmq, type);

    for (size_t i = 0; s && i < ARRAY_LEN(OPTIONS); i++)
        (void)zmq_setsockopt(s, OPTIONS[i].option, &OPTIONS[i].value, sizeof(int));
    if (s)
        (void)zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &bytes, sizeof(bytes));
    return s;
}

static int open_monitor(struct zmq_link *z, struct err *e)
{
    AUTO(mem_free)
    char *name = xasprintf("inproc://monitor-%" PRIu64, z->context->next_id++);
    void *s;

    if (zmq_socket_monitor(z->messages->socket, name, ZMQ_EVENT_HANDSHAKE_SUCCEEDED) != 0)
        return fail(e, "monitor");
    s = socket_new(z->context, ZMQ_PAIR);
    if (!s)
        return fail(e, "monitor");
    if (zmq_connect(s, name) != 0) {
        (void)fail(e, "monitor");
        (void)zmq_close(s);
        return -EIO;
    }
    return polled_new(&z->monitor, z, s, drain_monitor, e);
}

int zmq_link_new(struct zmq_link **ret, struct zmq_context *c, const struct zmq_link_conf *conf,
                 struct err *e)
{
    AUTO(zmq_link_free) struct zmq_link *z = xcalloc(1, sizeof(*z));
    void *s = socket_new(c, SOCKET_TYPES[conf->kind]);
    int r;

    z->context = c;
    z->conf = *conf;
    c->n_links++;
    if (!s)
        return fail(e, "socket");
    r = polled_new(&z->messages, z, s, conf->kind == ZMQ_KIND_PUB ? drain_events : drain, e);
    if (r == 0 && conf->connected)
        r = open_monitor(z, e);
    if (r < 0)
        return r;
    drain_later(z, loop_defer);
    *ret = TAKE(z);
    return 0;
}

struct zmq_link *zmq_link_free(struct zmq_link *z)
{
    if (!z)
        return NULL;
    z->context->n_links--;
    polled_free(TAKE(z->monitor));
    polled_free(TAKE(z->messages));
    z->freed = true;
    link_release(z);
    return NULL;
}

int zmq_link_connect(struct zmq_link *z, const char *endpoint, struct err *e)
{
    if (zmq_connect(z->messages->socket, endpoint) != 0)
        return fail(e, endpoint);
    drain_later(z, loop_defer);
    return 0;
}

void zmq_link_disconnect(struct zmq_link *z, const char *endpoint)
{
    (void)zmq_disconnect(z->messages->socket, endpoint);
    drain_later(z, loop_defer);
}

int zmq_link_bind(struct zmq_link *z, const char *endpoint, uint16_t *ret_port, struct err *e)
{
    char bound[256];
    size_t size = sizeof(bound);
    struct str s;
    uint64_t port;

    if (zmq_bind(z->messages->socket, endpoint) != 0 ||
        zmq_getsockopt(z->messages->socket, ZMQ_LAST_ENDPOINT, bound, &size) != 0)
        return fail(e, endpoint);
    s = str_from(bound);
    while (s.len > 0 && str_index(s, ':') < s.len)
        s = str_skip(s, str_index(s, ':') + 1);
    if (!str_parse_u64(s, &port) || port > UINT16_MAX)
        return err_set(e, -EINVAL, "zmq: bound to %s, which has no port", bound);
    if (ret_port)
        *ret_port = (uint16_t)port;
    drain_later(z, loop_defer);
    return 0;
}

int zmq_link_subscribe(struct zmq_link *z, struct str prefix, struct err *e)
{
    if (zmq_setsockopt(z->messages->socket, ZMQ_SUBSCRIBE, prefix.ptr ? prefix.ptr : "",
                       prefix.len) != 0)
        return fail(e, "subscribe");
    drain_later(z, loop_defer);
    return 0;
}

int zmq_link_send(struct zmq_link *z, const struct str *frames, size_t n_frames)
{
    drain_later(z, loop_defer);
    for (size_t i = 0; i < n_frames; i++) {
        int flags = ZMQ_DONTWAIT | (i + 1 < n_frames ? ZMQ_SNDMORE : 0);

        /* Only a first frame can be refused: the rest of a message goes where it went. */
        if (zmq_send(z->messages->socket, frames[i].ptr ? frames[i].ptr : "", frames[i].len,
                     flags) < 0) {
            z->stats.dropped_out++;
            return -EAGAIN;
        }
    }
    z->stats.sent++;
    return 0;
}

struct zmq_link_stats zmq_link_stats(const struct zmq_link *z)
{
    return z->stats;
}
