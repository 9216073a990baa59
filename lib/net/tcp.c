/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/tcp.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/net/tls_client.h"
#include "lib/net/tls_server.h"
#include "lib/net/uv_lib.h"

enum {
    LISTEN_BACKLOG = 4096,
    CLOSE_FLUSH_MS = 5000,
    KEEPALIVE_S = 60,       /* finds hosts that vanished without a word */
    BUF_KEEP_BYTES = 65536, /* an idle connection holds no more than this */
};

enum conn_state {
    CONN_CONNECTING,
    CONN_OPEN,
    CONN_ENDED,    /* `closed` was called, the owner has not closed yet */
    CONN_FLUSHING, /* the owner has closed, bytes are left */
    CONN_GONE,     /* handed to libuv for closing */
};

/*
 * Bytes go: tcp_write → `out` → kernel (uv_try_write at the end of the turn). What the kernel does
 * not take moves to `sending`, which libuv holds until it is written; then `out` has its next go.
 * With TLS they wait in `plain` before, so that what is written in one turn makes few records.
 */
struct tcp {
    uv_tcp_t uv; /* first: callbacks get it back by cast */
    struct loop *loop;
    struct tcp_handlers on;
    void *arg;
    enum conn_state state;
    bool broken;    /* nothing more can be sent */
    bool paused;    /* by the owner */
    bool flush_due; /* a deferred flush is on its way */
    bool writing;   /* `sending` is with libuv */
    bool peer_fin, fin_wanted, fin_started, fin_sent;
    struct buf out, sending;
    struct tls_session *tls; /* NULL = none */
    bool tls_up;             /* its handshake has ended well */
    struct timer *tls_limit; /* until then, where there is one */
    uint64_t tls_limit_ms;
    char *tls_why; /* what TLS did not like */
    struct buf plain;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct timer *flush_limit;
    char peer[INET6_ADDRSTRLEN + 16];
};

struct tcp_listener {
    uv_tcp_t uv; /* first: callbacks get it back by cast */
    struct loop *loop;
    tcp_accept_fn accepted;
    void *arg;
    uint16_t port;
};

static uv_stream_t *stream(struct tcp *c)
{
    return (uv_stream_t *)&c->uv;
}

/* --- addresses ------------------------------------------------------------------------------- */

static int parse_address(const char *ip, uint16_t port, struct sockaddr_storage *ret, struct err *e)
{
    if (uv_ip4_addr(ip, port, (struct sockaddr_in *)ret) == 0 ||
        uv_ip6_addr(ip, port, (struct sockaddr_in6 *)ret) == 0)
        return 0;
    return err_set(e, -EINVAL, "'%s' is not a numeric IP address", ip);
}

static void format_address(const struct sockaddr_storage *a, char *out, size_t size)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    bool v6 = a->ss_family == AF_INET6;
    uint16_t port = v6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                       : ((const struct sockaddr_in *)a)->sin_port;

    (void)uv_ip_name((const struct sockaddr *)a, ip, sizeof(ip));
    (void)snprintf(out, size, v6 ? "[%s]:%u" : "%s:%u", ip, ntohs(port));
}

/* The kernel picks the source when a datagram socket is connected; nothing is sent. */
static bool source_towards(const char *target, char *ret_text, size_t size)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);
    bool found = false;
    int fd;

    if (parse_address(target, 9, &a, NULL) < 0)
        return false;
    fd = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &len) == 0)
        found = uv_ip_name((struct sockaddr *)&a, ret_text, size) == 0;
    (void)close(fd);
    return found;
}

void tcp_raise_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

void tcp_local_ip(char *ret_text, size_t size)
{
    if (!source_towards("192.0.2.0", ret_text, size) &&
        !source_towards("2001:db8::", ret_text, size))
        (void)snprintf(ret_text, size, "127.0.0.1");
}

/* --- the end of a connection ----------------------------------------------------------------- */

static void conn_free(void *arg)
{
    struct tcp *c = arg;

    buf_done(&c->out);
    buf_done(&c->sending);
    buf_done(&c->plain);
    tls_session_free(c->tls);
    free(c->tls_why);
    free(c);
}

static void on_gone(uv_handle_t *h)
{
    struct tcp *c = (struct tcp *)h;

    /* Behind a flush that may still be queued for this connection. */
    loop_defer(c->loop, conn_free, c);
}

static void destroy(struct tcp *c)
{
    if (c->state == CONN_GONE)
        return;
    c->state = CONN_GONE;
    c->on = (struct tcp_handlers){0};
    c->flush_limit = timer_free(c->flush_limit);
    c->tls_limit = timer_free(c->tls_limit);
    uv_close((uv_handle_t *)&c->uv, on_gone);
}

/* The peer or an error (negative) has ended the connection. */
static void end(struct tcp *c, int error)
{
    if (error)
        c->broken = true;
    if (c->state == CONN_FLUSHING)
        destroy(c);
    if (c->state >= CONN_ENDED)
        return;
    c->state = CONN_ENDED;
    c->tls_limit = timer_free(c->tls_limit);
    (void)uv_read_stop(stream(c));
    if (c->broken)
        buf_clear(&c->out);
    if (c->on.closed)
        c->on.closed(c->arg, error);
}

/* --- writing --------------------------------------------------------------------------------- */

static void flush(struct tcp *c);

static void on_shutdown(uv_shutdown_t *req, int status)
{
    struct tcp *c = CONTAINER_OF(req, struct tcp, shutdown);

    c->fin_sent = true;
    if (c->state != CONN_GONE && (status < 0 || c->peer_fin))
        end(c, status);
}

/* The kernel has everything. @some: and there was something. */
static void sent(struct tcp *c, bool some)
{
    if (c->out.cap > BUF_KEEP_BYTES)
        buf_done(&c->out);
    if (c->state == CONN_FLUSHING) {
        destroy(c);
        return;
    }
    if (c->fin_wanted && !c->fin_started) {
        c->fin_started = true;
        (void)uv_shutdown(&c->shutdown, stream(c), on_shutdown);
    }
    if (some && c->state == CONN_OPEN && c->on.drained)
        c->on.drained(c->arg);
}

static void on_written(uv_write_t *req, int status)
{
    struct tcp *c = CONTAINER_OF(req, struct tcp, write);

    c->writing = false;
    buf_done(&c->sending);
    if (c->state == CONN_GONE)
        return;
    if (status < 0)
        end(c, status);
    else if (c->out.len || c->plain.len)
        flush(c);
    else
        sent(c, true);
}

static void encrypt(struct tcp *c)
{
    tls_session_send(c->tls, &c->plain, &c->out);
    if (c->plain.cap > BUF_KEEP_BYTES)
        buf_done(&c->plain);
    if ((c->fin_wanted || c->state == CONN_FLUSHING) && !c->plain.len)
        tls_session_end(c->tls, &c->out);
}

static void flush(struct tcp *c)
{
    uv_buf_t bytes;
    int n;

    if (c->writing || c->broken || c->state == CONN_CONNECTING || c->state == CONN_GONE)
        return;
    if (c->tls)
        encrypt(c);
    if (!c->out.len) {
        sent(c, false);
        return;
    }
    bytes = (uv_buf_t){buf_data(&c->out), c->out.len};
    n = uv_try_write(stream(c), &bytes, 1);
    if (n == UV_EAGAIN)
        n = 0;
    if (n < 0) {
        end(c, n);
        return;
    }
    buf_consume(&c->out, (size_t)n);
    if (!c->out.len) {
        sent(c, true);
        return;
    }
    c->sending = c->out;
    c->out = BUF_NULL;
    c->writing = true;
    bytes = (uv_buf_t){buf_data(&c->sending), c->sending.len};
    n = uv_write(&c->write, stream(c), &bytes, 1, on_written);
    if (n < 0) {
        c->writing = false;
        end(c, n);
    }
}

static void flush_deferred(void *arg)
{
    struct tcp *c = arg;

    c->flush_due = false;
    flush(c);
}

static void flush_later(struct tcp *c)
{
    if (c->flush_due || c->writing || c->state == CONN_CONNECTING)
        return; /* on_written and on_connected see to it */
    c->flush_due = true;
    loop_defer(c->loop, flush_deferred, c);
}

void tcp_write(struct tcp *c, struct str data)
{
    if (c->broken || c->state > CONN_OPEN || c->fin_wanted || !data.len)
        return;
    buf_put_str(c->tls ? &c->plain : &c->out, data);
    flush_later(c);
}

void tcp_shutdown(struct tcp *c)
{
    if (c->state > CONN_OPEN)
        return;
    c->fin_wanted = true;
    flush_later(c);
}

size_t tcp_backlog(const struct tcp *c)
{
    size_t held = c->writing ? uv_stream_get_write_queue_size((const uv_stream_t *)&c->uv) : 0;

    return c->plain.len + c->out.len + held;
}

/* --- reading --------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    /* libuv hands the bytes over before it asks again, so that one buffer serves the loop. */
    *ret = uv_buf_init(loop_scratch(((struct tcp *)h)->loop), LOOP_SCRATCH_BYTES);
}

static void on_fin(struct tcp *c)
{
    c->peer_fin = true;
    (void)uv_read_stop(stream(c));
    if (!c->on.peer_done) {
        end(c, 0);
        return;
    }
    c->on.peer_done(c->arg);
    if (c->fin_sent && c->state == CONN_OPEN)
        end(c, 0);
}

static void on_tls_limit(void *arg)
{
    struct tcp *c = arg;

    c->tls_why = xstrdup("TLS: the handshake takes too long");
    end(c, -ETIMEDOUT);
}

static void tls_begin(struct tcp *c)
{
    if (c->tls_limit_ms) {
        c->tls_limit = timer_new(c->loop, on_tls_limit, c);
        timer_start(c->tls_limit, c->tls_limit_ms);
    }
    tls_session_begin(c->tls, &c->out);
}

/* The first bytes behind the handshake may come with its last ones. */
static void check_tls_up(struct tcp *c)
{
    if (c->tls_up || !tls_session_is_up(c->tls))
        return;
    c->tls_up = true;
    c->tls_limit = timer_free(c->tls_limit);
    if (c->state == CONN_OPEN && c->on.connected)
        c->on.connected(c->arg);
}

static void decrypt(struct tcp *c, struct str bytes)
{
    AUTO(buf_done) struct buf plain = BUF_NULL;
    struct err e;
    int r = tls_session_receive(c->tls, bytes, &plain, &c->out, &e);

    if (r < 0)
        c->tls_why = xstrdup(e.text);
    check_tls_up(c);
    if (c->out.len || c->plain.len)
        flush(c); /* before the end: the alert that says why */
    if (plain.len && c->state == CONN_OPEN && c->on.received)
        c->on.received(c->arg, buf_str(&plain));
    if (c->state == CONN_GONE || r == 0)
        return;
    if (r < 0)
        end(c, r);
    else if (!c->peer_fin)
        on_fin(c);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *bytes)
{
    struct tcp *c = (struct tcp *)s;

    if (n > 0 && c->tls)
        decrypt(c, str_slice(bytes->base, (size_t)n));
    else if (n > 0 && c->on.received)
        c->on.received(c->arg, str_slice(bytes->base, (size_t)n));
    else if (n == UV_EOF)
        on_fin(c);
    else if (n < 0)
        end(c, (int)n);
}

static void read_if_wanted(struct tcp *c)
{
    if (c->state == CONN_OPEN && !c->paused && !c->peer_fin && c->on.received)
        (void)uv_read_start(stream(c), on_alloc, on_read);
}

void tcp_pause(struct tcp *c)
{
    c->paused = true;
    if (c->state == CONN_OPEN)
        (void)uv_read_stop(stream(c));
}

void tcp_resume(struct tcp *c)
{
    c->paused = false;
    read_if_wanted(c);
}

void tcp_set_handlers(struct tcp *c, const struct tcp_handlers *h, void *arg)
{
    c->on = *h;
    c->arg = arg;
    read_if_wanted(c);
}

const char *tcp_peer(const struct tcp *c)
{
    return c->peer;
}

const char *tcp_why(const struct tcp *c, int error)
{
    if (c->tls_why)
        return c->tls_why;
    return error ? strerrordesc_np(-error) : "closed by the peer";
}

/* --- life ------------------------------------------------------------------------------------ */

void tcp_start_tls(struct tcp *c, struct tls_server *t)
{
    if (!t)
        return;
    c->tls = tls_server_session(t);
    c->tls_limit_ms = tls_server_handshake_ms(t);
    tls_begin(c);
}

static void on_flush_limit(void *arg)
{
    destroy(arg);
}

struct tcp *tcp_close(struct tcp *c)
{
    if (!c)
        return NULL;
    c->on = (struct tcp_handlers){0};
    if (c->broken || c->state == CONN_CONNECTING || (!tcp_backlog(c) && !c->tls)) {
        destroy(c);
        return NULL;
    }
    c->state = CONN_FLUSHING;
    (void)uv_read_stop(stream(c));
    flush(c);
    if (c->state == CONN_FLUSHING) {
        c->flush_limit = timer_new(c->loop, on_flush_limit, c);
        timer_start(c->flush_limit, CLOSE_FLUSH_MS);
    }
    return NULL;
}

struct tcp *tcp_abort(struct tcp *c)
{
    if (c)
        destroy(c);
    return NULL;
}

static struct tcp *conn_new(struct loop *l)
{
    struct tcp *c = xcalloc(1, sizeof(*c));

    c->loop = l;
    (void)uv_tcp_init(loop_uv(l), &c->uv); /* makes no socket yet, so cannot fail */
    return c;
}

static void conn_opened(struct tcp *c)
{
    c->state = CONN_OPEN;
    (void)uv_tcp_nodelay(&c->uv, 1);
    (void)uv_tcp_keepalive(&c->uv, 1, KEEPALIVE_S);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct tcp *c = CONTAINER_OF(req, struct tcp, connect);

    if (c->state == CONN_GONE)
        return;
    if (status < 0) {
        end(c, status);
        return;
    }
    conn_opened(c);
    if (c->tls)
        tls_begin(c);
    else if (c->on.connected)
        c->on.connected(c->arg);
    read_if_wanted(c);
    if (c->state == CONN_OPEN && (c->out.len || c->fin_wanted))
        flush_later(c);
}

int tcp_connect(struct tcp **ret, struct loop *l, const char *ip, uint16_t port,
                const struct tcp_handlers *h, void *arg, struct err *e)
{
    return tcp_connect_tls(ret, l, ip, port, NULL, h, arg, e);
}

int tcp_connect_tls(struct tcp **ret, struct loop *l, const char *ip, uint16_t port,
                    struct tls_client *t, const struct tcp_handlers *h, void *arg, struct err *e)
{
    struct sockaddr_storage a = {0};
    struct tcp *c;
    int r;

    r = parse_address(ip, port, &a, e);
    if (r < 0)
        return r;
    c = conn_new(l);
    c->on = *h;
    c->arg = arg;
    if (t) {
        c->tls = tls_client_session(t, ip);
        c->tls_limit_ms = tls_client_handshake_ms(t);
    }
    format_address(&a, c->peer, sizeof(c->peer));
    r = uv_tcp_connect(&c->connect, &c->uv, (struct sockaddr *)&a, on_connected);
    if (r < 0) {
        destroy(c); /* which leaves the memory until the end of the turn */
        return err_errno(e, r, "connect to %s", c->peer);
    }
    *ret = c;
    return 0;
}

static void on_connection(uv_stream_t *server, int status)
{
    struct tcp_listener *s = (struct tcp_listener *)server;
    struct sockaddr_storage a = {0};
    int len = sizeof(a);
    struct tcp *c;

    if (status < 0)
        return; /* out of descriptors, or the peer has gone: nothing to own */
    c = conn_new(s->loop);
    if (uv_accept(server, stream(c)) < 0 ||
        uv_tcp_getpeername(&c->uv, (struct sockaddr *)&a, &len) < 0) {
        destroy(c);
        return;
    }
    format_address(&a, c->peer, sizeof(c->peer));
    conn_opened(c);
    s->accepted(s->arg, c);
}

static void on_listener_gone(uv_handle_t *h)
{
    free(h);
}

/* Takes @s on failure. */
static int listener_open(struct tcp_listener *s, const struct sockaddr_storage *a, bool shared)
{
    struct sockaddr_storage bound = {0};
    int len = sizeof(bound), on = 1, r;
    uv_os_fd_t fd;

    r = uv_tcp_init_ex(loop_uv(s->loop), &s->uv, a->ss_family);
    if (r < 0) {
        free(s);
        return r;
    }
    if (shared) {
        r = uv_fileno((uv_handle_t *)&s->uv, &fd);
        if (r == 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0)
            r = -errno;
    }
    if (r == 0)
        r = uv_tcp_bind(&s->uv, (const struct sockaddr *)a, 0);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&s->uv, LISTEN_BACKLOG, on_connection);
    if (r == 0)
        r = uv_tcp_getsockname(&s->uv, (struct sockaddr *)&bound, &len);
    if (r < 0) {
        uv_close((uv_handle_t *)&s->uv, on_listener_gone);
        return r;
    }
    s->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                : ((struct sockaddr_in *)&bound)->sin_port);
    return 0;
}

static int listen_on(struct tcp_listener **ret, struct tcp_listener spec, const char *host,
                     uint16_t port, bool shared, struct err *e)
{
    struct sockaddr_storage a = {0};
    struct tcp_listener *s;
    int r;

    r = parse_address(host, port, &a, e);
    if (r < 0)
        return r;
    s = xcalloc(1, sizeof(*s));
    *s = spec;
    r = listener_open(s, &a, shared);
    if (r < 0)
        return err_errno(e, r, "listen on %s port %u", host, port);
    *ret = s;
    return 0;
}

int tcp_listen(struct tcp_listener **ret, struct loop *l, const char *host, uint16_t port,
               tcp_accept_fn accepted, void *arg, struct err *e)
{
    struct tcp_listener spec = {.loop = l, .accepted = accepted, .arg = arg};

    return listen_on(ret, spec, host, port, false, e);
}

int tcp_listen_shared(struct tcp_listener **ret, struct loop *l, const char *host, uint16_t port,
                      tcp_accept_fn accepted, void *arg, struct err *e)
{
    struct tcp_listener spec = {.loop = l, .accepted = accepted, .arg = arg};

    return listen_on(ret, spec, host, port, true, e);
}

struct tcp_listener *tcp_listener_close(struct tcp_listener *s)
{
    if (s)
        uv_close((uv_handle_t *)&s->uv, on_listener_gone);
    return NULL;
}

uint16_t tcp_listener_port(const struct tcp_listener *s)
{
    return s->port;
}
