/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/bootstrap.h"

#include <errno.h>
#include <string.h>

#include "lib/base/list.h"
#include "lib/base/map64.h"
#include "lib/net/tcp.h"

enum { ROOM_BYTES = 8, CONNECTIONS_MAX = 4096, READY_MAX = 65536 };

static const char READY_BYTE = 0x01;

static uint64_t room_of(const uint8_t bytes[ROOM_BYTES])
{
    uint64_t room = 0;

    for (size_t i = ROOM_BYTES; i-- > 0;)
        room = room << 8 | bytes[i];
    return room;
}

/* --- prefill side ------------------------------------------------------------------------------
 */

/* A connection: it sends its room, then waits. */
struct guest {
    struct list link; /* in the server's guests, oldest first */
    struct bootstrap_server *server;
    struct tcp *tcp;
    uint8_t bytes[ROOM_BYTES];
    size_t n_bytes;
    uint64_t since_ms;
};

/* A finished room that nobody has asked for yet. */
struct ready {
    struct list link; /* in the server's finished, oldest first */
    uint64_t room, since_ms;
};

struct bootstrap_server {
    struct loop *loop;
    struct tcp_listener *listener;
    struct list guests, finished;
    struct map64 ready; /* room -> struct ready */
    size_t n_guests;
    struct timer *sweep;
    struct bootstrap_stats stats;
};

static void guest_drop(struct guest *g)
{
    list_remove(&g->link);
    g->server->n_guests--;
    tcp_close(g->tcp);
    free(g);
}

static void ready_drop(struct bootstrap_server *s, struct ready *r)
{
    list_remove(&r->link);
    (void)map64_remove(&s->ready, r->room, NULL);
    free(r);
}

static void serve(struct guest *g)
{
    g->server->stats.served++;
    tcp_write(g->tcp, str_slice(&READY_BYTE, 1));
    guest_drop(g);
}

static void on_received(void *arg, struct str data)
{
    struct guest *g = arg;
    size_t n = MIN(data.len, ROOM_BYTES - g->n_bytes);
    struct ready *r;

    memcpy(g->bytes + g->n_bytes, data.ptr, n);
    g->n_bytes += n;
    if (g->n_bytes < ROOM_BYTES)
        return;
    r = map64_find_ptr(&g->server->ready, room_of(g->bytes));
    if (!r)
        return;
    ready_drop(g->server, r);
    serve(g);
}

static void on_closed(void *arg, int error)
{
    (void)error;
    guest_drop(arg);
}

static void on_accepted(void *arg, struct tcp *take_conn)
{
    static const struct tcp_handlers handlers = {.received = on_received, .closed = on_closed};
    struct bootstrap_server *s = arg;
    struct guest *g;

    if (s->n_guests == CONNECTIONS_MAX) {
        s->stats.refused++;
        tcp_abort(take_conn);
        return;
    }
    g = xcalloc(1, sizeof(*g));
    g->server = s;
    g->tcp = take_conn;
    g->since_ms = loop_now_ms(s->loop);
    list_append(&s->guests, &g->link);
    s->n_guests++;
    tcp_set_handlers(g->tcp, &handlers, g);
}

/* Both lists are in order of age. */
static void on_sweep(void *arg)
{
    struct bootstrap_server *s = arg;
    uint64_t now = loop_now_ms(s->loop);

    LIST_FOREACH (g, &s->guests, struct guest, link) {
        if (now - g->since_ms < BOOTSTRAP_WAIT_MS)
            break;
        s->stats.timed_out++;
        guest_drop(g);
    }
    LIST_FOREACH (r, &s->finished, struct ready, link) {
        if (now - r->since_ms < BOOTSTRAP_WAIT_MS)
            break;
        s->stats.forgotten++;
        ready_drop(s, r);
    }
}

int bootstrap_server_start(struct bootstrap_server **ret, struct loop *l, const char *host,
                           uint16_t port, struct err *e)
{
    AUTO(bootstrap_server_free) struct bootstrap_server *s = xcalloc(1, sizeof(*s));
    int r;

    s->loop = l;
    list_init(&s->guests);
    list_init(&s->finished);
    s->sweep = timer_new(l, on_sweep, s);
    r = tcp_listen(&s->listener, l, host, port, on_accepted, s, e);
    if (r < 0)
        return r;
    timer_start_repeat(s->sweep, 1000);
    *ret = TAKE(s);
    return 0;
}

struct bootstrap_server *bootstrap_server_free(struct bootstrap_server *s)
{
    if (!s)
        return NULL;
    if (s->listener)
        tcp_listener_close(s->listener);
    timer_free(s->sweep);
    LIST_FOREACH (g, &s->guests, struct guest, link)
        guest_drop(g);
    LIST_FOREACH (r, &s->finished, struct ready, link)
        ready_drop(s, r);
    map64_done(&s->ready);
    free(s);
    return NULL;
}

uint16_t bootstrap_server_port(const struct bootstrap_server *s)
{
    return tcp_listener_port(s->listener);
}

void bootstrap_server_ready(struct bootstrap_server *s, uint64_t room)
{
    struct ready *r;

    LIST_FOREACH (g, &s->guests, struct guest, link)
        if (g->n_bytes == ROOM_BYTES && room_of(g->bytes) == room) {
            serve(g);
            return;
        }
    if (map64_find(&s->ready, room))
        return;
    if (s->ready.len == READY_MAX) {
        s->stats.forgotten++;
        ready_drop(s, LIST_ENTRY(s->finished.next, struct ready, link));
    }
    r = xcalloc(1, sizeof(*r));
    r->room = room;
    r->since_ms = loop_now_ms(s->loop);
    list_append(&s->finished, &r->link);
    map64_put_ptr(&s->ready, room, r);
}

struct bootstrap_stats bootstrap_server_stats(const struct bootstrap_server *s)
{
    struct bootstrap_stats stats = s->stats;

    stats.waiting = s->n_guests;
    stats.ready = s->ready.len;
    return stats;
}

/* --- decode side -------------------------------------------------------------------------------
 */

struct bootstrap_fetch {
    struct tcp *tcp;
    struct timer *timer;
    uint64_t room;
    void (*done)(void *arg, int error);
    void *arg;
};

struct bootstrap_fetch *bootstrap_fetch_cancel(struct bootstrap_fetch *f)
{
    if (!f)
        return NULL;
    timer_free(f->timer);
    tcp_close(f->tcp);
    free(f);
    return NULL;
}

static void fetch_end(struct bootstrap_fetch *f, int error)
{
    void (*done)(void *arg, int error) = f->done;
    void *arg = f->arg;

    bootstrap_fetch_cancel(f);
    done(arg, error);
}

static void fetch_connected(void *arg)
{
    struct bootstrap_fetch *f = arg;
    uint8_t bytes[ROOM_BYTES];

    for (size_t i = 0; i < ROOM_BYTES; i++)
        bytes[i] = (uint8_t)(f->room >> 8 * i);
    tcp_write(f->tcp, str_slice((const char *)bytes, ROOM_BYTES));
}

static void fetch_received(void *arg, struct str data)
{
    fetch_end(arg, data.len && data.ptr[0] == READY_BYTE ? 0 : -EPROTO);
}

static void fetch_closed(void *arg, int error)
{
    fetch_end(arg, error ? error : -ECONNRESET);
}

static void fetch_late(void *arg)
{
    fetch_end(arg, -ETIMEDOUT);
}

int bootstrap_fetch_start(struct bootstrap_fetch **ret, struct loop *l, const char *ip,
                          uint16_t port, uint64_t room, void (*done)(void *arg, int error),
                          void *arg, struct err *e)
{
    static const struct tcp_handlers handlers = {
        .connected = fetch_connected, .received = fetch_received, .closed = fetch_closed};
    struct bootstrap_fetch *f = xcalloc(1, sizeof(*f));
    int r;

    *f = (struct bootstrap_fetch){.room = room, .done = done, .arg = arg};
    r = tcp_connect(&f->tcp, l, ip, port, &handlers, f, e);
    if (r < 0) {
        free(f);
        return r;
    }
    f->timer = timer_new(l, fetch_late, f);
    timer_start(f->timer, BOOTSTRAP_WAIT_MS);
    *ret = f;
    return 0;
}
