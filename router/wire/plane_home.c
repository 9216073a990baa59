/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Response streams: connections that workers make to us (wire.md §4.5, 4.6).
 *
 *     accepted ── handshake ──▶ bound to a stream ── final ──▶ draining ── sentinel or FIN ──▶
 * closed
 *
 * Frames are decoded where they arrived; only what is incomplete, or comes while the stream is
 * paused, is copied.
 */
#include <string.h>

#include "router/wire/plane_client_inner.h"
#include "router/wire/two_part.h"

enum { STRANGERS_MAX = 1024 }; /* connections beyond one per stream */
enum { HANDSHAKE_MS = 5000, DRAIN_MS = 5000, SWEEP_MS = 500, HANDSHAKE_BYTES_MAX = 4096 };

enum home_state { HOME_NEW, HOME_BOUND, HOME_DRAINING, HOME_CLOSED };

struct plane_home {
    struct plane_client *client;
    struct list in_client, in_limited;
    struct tcp *conn;
    struct plane_stream *stream; /* while HOME_BOUND */
    enum home_state state;
    bool peer_gone; /* the connection ended while frames were still unread */
    uint64_t deadline_ms;
    struct buf in;
    struct buf scratch; /* decoded strings of the frame at hand */
};

static void home_pump(void *arg);

/* --- life ------------------------------------------------------------------------------------- */

static void home_free(void *arg)
{
    struct plane_home *h = arg;

    buf_done(&h->in);
    buf_done(&h->scratch);
    free(h);
}

static void home_close(struct plane_home *h)
{
    if (h->state == HOME_CLOSED)
        return;
    h->state = HOME_CLOSED;
    h->conn = tcp_close(h->conn);
    list_remove(&h->in_client);
    list_remove(&h->in_limited);
    h->client->n_homes--;
    loop_defer(h->client->loop, home_free, h);
}

static void home_limit(struct plane_home *h, uint64_t ms)
{
    struct plane_client *c = h->client;

    /* The two limits are equal, so that appending keeps the list in order. */
    _Static_assert((int)HANDSHAKE_MS == (int)DRAIN_MS, "one list of deadlines");
    h->deadline_ms = loop_now_ms(c->loop) + ms;
    list_remove(&h->in_limited);
    list_append(&c->limited, &h->in_limited);
    if (!timer_active(c->sweep))
        timer_start_repeat(c->sweep, SWEEP_MS);
}

void plane_homes_sweep(void *client)
{
    struct plane_client *c = client;

    LIST_FOREACH (h, &c->limited, struct plane_home, in_limited) {
        if (h->deadline_ms > loop_now_ms(c->loop))
            break;
        home_close(h);
    }
    if (list_empty(&c->limited))
        timer_stop(c->sweep);
}

void plane_homes_free(struct plane_client *c)
{
    LIST_FOREACH (h, &c->homes, struct plane_home, in_client)
        home_close(h);
}

static void word_send(struct plane_home *h, enum control_word w)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    two_part_put(&out, control_word_text(w), STR_NULL);
    tcp_write(h->conn, buf_str(&out));
}

static void home_drain(struct plane_home *h)
{
    if (h->peer_gone) {
        home_close(h);
        return;
    }
    h->state = HOME_DRAINING;
    home_limit(h, DRAIN_MS);
    tcp_resume(h->conn);
}

/*
 * Tells the worker to stop, and reads on until it has: closing with bytes unread would reset the
 * connection, which can overtake the word, and which the reference's worker takes for a crash.
 */
static void home_dismiss(struct plane_home *h)
{
    word_send(h, WORD_KILL);
    tcp_shutdown(h->conn);
    home_drain(h);
}

void plane_home_detach(struct plane_stream *s, bool kill)
{
    struct plane_home *h = s->home;

    s->home = NULL;
    if (!h || h->state != HOME_BOUND)
        return;
    h->stream = NULL;
    if (kill)
        home_dismiss(h);
    else
        home_drain(h);
}

/* --- frames ----------------------------------------------------------------------------------- */

static void on_handshake(struct plane_home *h, const struct two_part *m)
{
    struct plane_client *c = h->client;
    struct str subject = STR_NULL;
    struct plane_stream *s = NULL;

    if (!m->body.len && handshake_parse(m->header, &h->scratch, &subject, NULL) == 0)
        s = strmap_remove(c->subjects, subject); /* good for one use */
    if (!s) {
        /* Cancelled or given up meanwhile: the worker need not go on. */
        c->stats.unknown_subjects++;
        if (subject.len)
            home_dismiss(h);
        else
            home_close(h);
        return;
    }
    list_remove(&h->in_limited);
    h->state = HOME_BOUND;
    h->stream = s;
    s->home = h;
    if (s->kind != PLANE_TCP && !s->acked)
        plane_stream_acked(s); /* who calls home has taken it; the acknowledgement may get lost */
    plane_stream_expect(s, WAIT_ITEM);
    if (s->paused)
        plane_home_pause(h);
}

static void on_prologue(struct plane_stream *s, struct plane_home *h, const struct two_part *m)
{
    struct str error;
    struct err e;
    int r;

    /* A handler that dies sends the sentinel at once. */
    if (control_word_of(m->header) == WORD_SENTINEL) {
        plane_stream_broken(s);
        return;
    }
    if (m->body.len) {
        plane_stream_fail(s, PLANE_PROTOCOL, "data before the prologue");
        return;
    }
    r = prologue_parse(m->header, &h->scratch, &error, &e);
    if (r < 0) {
        plane_stream_fail(s, PLANE_PROTOCOL, e.text);
    } else if (r == PROLOGUE_ERROR) {
        AUTO(mem_free) char *text = str_dup(error);

        plane_stream_fail(s, PLANE_ENGINE, text);
    } else {
        s->started = true;
        if (s->on->started)
            s->on->started(s->arg);
    }
}

static void on_item(struct plane_stream *s, struct plane_home *h, const struct two_part *m)
{
    struct wire_item item;
    struct err e;

    if (wire_item_parse(m->body, &h->scratch, &item, &e) < 0) {
        plane_stream_fail(s, PLANE_PROTOCOL, e.text);
        return;
    }
    if (item.final) {
        plane_stream_finish(s);
        return;
    }
    s->last_item_ms = loop_now_ms(h->client->loop);
    if (!s->item_seen) {
        s->item_seen = true;
        plane_stream_expect(s, WAIT_NEXT);
    }
    h->client->stats.items++;
    h->client->stats.item_bytes += m->body.len;
    s->on->item(s->arg, &item);
}

static void on_stream_frame(struct plane_home *h, const struct two_part *m)
{
    struct plane_stream *s = h->stream;

    if (!s->started)
        on_prologue(s, h, m);
    else if (!m->header.len)
        on_item(s, h, m);
    else if (!m->body.len && control_word_of(m->header) == WORD_SENTINEL)
        plane_stream_broken(s); /* the end without a final item */
    else
        plane_stream_fail(s, PLANE_PROTOCOL, "a control frame that only we may send");
}

static void on_frame(struct plane_home *h, const struct two_part *m)
{
    buf_clear(&h->scratch);
    if (!m->header.len && !m->body.len)
        return;
    if (h->state == HOME_NEW)
        on_handshake(h, m);
    else if (h->state == HOME_BOUND)
        on_stream_frame(h, m);
    else if (control_word_of(m->header) == WORD_SENTINEL)
        home_close(h); /* our FIN lets the worker close */
}

static bool is_readable(const struct plane_home *h)
{
    return h->state != HOME_CLOSED && !(h->state == HOME_BOUND && h->stream->paused);
}

/* Handles the whole frames at the front of @data; returns how many bytes they were. */
static size_t frames_handle(struct plane_home *h, struct str data)
{
    size_t used, total = 0,
                 max = h->state == HOME_NEW ? HANDSHAKE_BYTES_MAX : h->client->conf.frame_max;
    struct two_part m;
    struct err e;
    int r;

    while (is_readable(h)) {
        r = two_part_decode(str_skip(data, total), max, &m, &used, &e);
        if (r == TWO_PART_MORE)
            break;
        if (r < 0) {
            if (h->state == HOME_BOUND)
                plane_stream_fail(h->stream, PLANE_PROTOCOL, e.text);
            home_close(h);
            break;
        }
        on_frame(h, &m);
        max = h->client->conf.frame_max;
        total += used;
    }
    return total;
}

static void batch_end(struct plane_home *h, uint64_t items_before)
{
    struct plane_stream *s = h->state == HOME_BOUND ? h->stream : NULL;

    if (s && s->on->batch_end && h->client->stats.items != items_before)
        s->on->batch_end(s->arg);
}

static void on_received(void *arg, struct str data)
{
    struct plane_home *h = arg;
    uint64_t items = h->client->stats.items;
    size_t used;

    if (h->in.len) {
        buf_put_str(&h->in, data);
        used = frames_handle(h, buf_str(&h->in));
        buf_consume(&h->in, used);
    } else {
        used = frames_handle(h, data);
        if (used < data.len && h->state != HOME_CLOSED)
            buf_put_str(&h->in, str_skip(data, used));
    }
    if (!h->in.len)
        buf_done(&h->in);
    batch_end(h, items);
}

static void on_closed(void *arg, int error)
{
    struct plane_home *h = arg;

    (void)error;
    /* What a paused stream has not read yet is still good. */
    if (h->state == HOME_BOUND && h->stream->paused && h->in.len) {
        h->peer_gone = true;
        return;
    }
    if (h->state == HOME_BOUND)
        plane_stream_broken(h->stream);
    home_close(h);
}

/* --- back-pressure ---------------------------------------------------------------------------- */

void plane_home_pause(struct plane_home *h)
{
    tcp_pause(h->conn);
}

void plane_home_resume(struct plane_home *h)
{
    loop_defer(h->client->loop, home_pump, h);
}

/* What arrived before the pause comes first, then the socket is read again. */
static void home_pump(void *arg)
{
    struct plane_home *h = arg;
    uint64_t items = h->client->stats.items;

    if (!is_readable(h))
        return;
    if (h->in.len)
        buf_consume(&h->in, frames_handle(h, buf_str(&h->in)));
    batch_end(h, items);
    if (!is_readable(h))
        return;
    if (h->peer_gone)
        on_closed(h, 0);
    else
        tcp_resume(h->conn);
}

void plane_home_accept(void *client, struct tcp *take_conn)
{
    static const struct tcp_handlers handlers = {.received = on_received, .closed = on_closed};
    struct plane_client *c = client;
    struct plane_home *h;

    if (c->n_homes >= c->conf.streams_max + STRANGERS_MAX) {
        (void)tcp_abort(take_conn);
        return;
    }
    c->n_homes++;
    h = xcalloc(1, sizeof(*h));
    h->client = c;
    h->conn = take_conn;
    list_append(&c->homes, &h->in_client);
    home_limit(h, HANDSHAKE_MS);
    tcp_start_tls(take_conn, c->tls.server);
    tcp_set_handlers(take_conn, &handlers, h);
}
