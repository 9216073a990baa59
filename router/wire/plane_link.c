/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooled connections to workers. A link carries one unacknowledged frame; it is idle, connecting
 * or waiting for an ack. A pool exists while it has links or queued streams.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/log.h"
#include "router/wire/plane_client_inner.h"
#include "router/wire/tcp_frame.h"

static const struct log_target LG = {"dynamo_runtime::pipeline::network::egress"};

struct plane_pool {
    struct plane_client *client;
    struct plane_address address;
    char key[PLANE_IP_SIZE + 16];
    struct list links; /* all */
    struct list idle;  /* last used first */
    struct list queue; /* streams */
    size_t n_links;
};

struct plane_link {
    struct plane_pool *pool;
    struct list in_pool, in_idle;
    struct tcp *conn;
    struct plane_stream *stream; /* whose frame is under way; NULL while idle */
    struct buf in;
    size_t n_sent;
    bool connected;
    bool orphan; /* its stream ended well before the ack came: the response overtook it */
};

static void pool_serve(struct plane_pool *p);

/* --- pools ------------------------------------------------------------------------------------ */

static void key_put(char *out, size_t size, const struct plane_address *a)
{
    (void)snprintf(out, size, "%s %u", a->ip, a->port);
}

static struct plane_pool *pool_need(struct plane_client *c, const struct plane_address *a)
{
    char key[PLANE_IP_SIZE + 16];
    struct plane_pool *p;

    key_put(key, sizeof(key), a);
    p = strmap_get(c->pools, str_from(key));
    if (p)
        return p;
    p = xcalloc(1, sizeof(*p));
    p->client = c;
    p->address = *a;
    p->address.path = STR_NULL;
    memcpy(p->key, key, sizeof(key));
    list_init(&p->links);
    list_init(&p->idle);
    list_init(&p->queue);
    (void)strmap_set(c->pools, str_from(key), p);
    return p;
}

static void pool_free(void *arg)
{
    free(arg);
}

static void pool_drop_if_empty(struct plane_pool *p)
{
    if (p->n_links || !list_empty(&p->queue))
        return;
    if (strmap_get(p->client->pools, str_from(p->key)) != p)
        return; /* dropped before */
    (void)strmap_remove(p->client->pools, str_from(p->key));
    loop_defer(p->client->loop, pool_free, p);
}

/* --- links ------------------------------------------------------------------------------------ */

static void link_free(void *arg)
{
    struct plane_link *k = arg;

    buf_done(&k->in);
    free(k);
}

static void link_drop(struct plane_link *k)
{
    struct plane_pool *p = k->pool;

    k->conn = tcp_abort(k->conn);
    list_remove(&k->in_pool);
    list_remove(&k->in_idle);
    p->n_links--;
    p->client->stats.connections--;
    loop_defer(p->client->loop, link_free, k);
}

static void link_send(struct plane_link *k)
{
    k->n_sent++;
    plane_stream_expect(k->stream, WAIT_ACK);
    tcp_write(k->conn, buf_str(&k->stream->frame));
}

static void link_give(struct plane_link *k, struct plane_stream *s)
{
    list_remove(&k->in_idle);
    k->stream = s;
    s->link = k;
    if (k->connected)
        link_send(k);
}

static void on_connected(void *arg)
{
    struct plane_link *k = arg;

    k->connected = true;
    if (k->stream)
        link_send(k);
}

/* Back to the pool: the next queued stream, or idle. */
static void link_release(struct plane_link *k)
{
    if (k->stream) {
        k->stream->link = NULL;
        k->stream->pool = NULL;
    }
    k->stream = NULL;
    k->orphan = false;
    list_prepend(&k->pool->idle, &k->in_idle);
    pool_serve(k->pool);
}

static void link_fail(struct plane_link *k, const char *what, const char *why)
{
    struct plane_stream *s = k->stream;
    struct plane_pool *p = k->pool;
    AUTO(mem_free)
    char *text = xasprintf("%s %s:%u: %s", what, p->address.ip, p->address.port, why);
    /* The worker may have closed an idle connection just when it was taken into use. */
    bool again = s && k->n_sent > 1 && !s->resent;

    k->stream = NULL;
    link_drop(k);
    if (s)
        s->link = NULL;
    if (again) {
        s->resent = true;
        list_prepend(&p->queue, &s->in_queue);
    }
    pool_serve(p);
    if (s && !again)
        plane_stream_fail(s, PLANE_UNREACHABLE, text);
}

static void on_closed(void *arg, int error)
{
    struct plane_link *k = arg;
    const char *why = tcp_why(k->conn, error);

    /* What callers are told is a kind; whose certificate is wrong, only this says. */
    if (!k->connected && k->pool->client->tls.client)
        log_warn(&LG, "no TLS with a worker", LOG_STR("address", tcp_peer(k->conn)),
                 LOG_STR("why", why));
    if (k->connected)
        link_fail(k, "connection to", error ? why : "closed by the worker");
    else
        link_fail(k, "connect to", why);
}

static void on_received(void *arg, struct str data)
{
    struct plane_link *k = arg;
    struct plane_stream *s = k->stream;
    AUTO(mem_free) char *refusal = NULL;
    struct str text;
    struct err e;
    size_t used;
    int r;

    buf_put_str(&k->in, data);
    r = tcp_ack_decode(buf_str(&k->in), &text, &used, &e);
    if (r == TCP_FRAME_MORE)
        return;
    if (r < 0 || (!s && !k->orphan) || k->in.len > used) {
        link_fail(k, "connection to", r < 0 ? e.text : "bytes that nobody asked for");
        return;
    }
    if (text.len)
        refusal = str_dup(text);
    buf_clear(&k->in);
    link_release(k);
    if (!s)
        return;
    if (refusal)
        plane_stream_fail(s, PLANE_REFUSED, refusal);
    else
        plane_stream_acked(s);
}

static const struct tcp_handlers link_handlers = {
    .connected = on_connected,
    .received = on_received,
    .closed = on_closed,
};

static void link_open(struct plane_pool *p, struct plane_stream *s)
{
    struct plane_link *k = xcalloc(1, sizeof(*k));
    struct err e;

    k->pool = p;
    if (tcp_connect_tls(&k->conn, p->client->loop, p->address.ip, p->address.port,
                        p->client->tls.client, &link_handlers, k, &e) < 0) {
        free(k);
        s->pool = NULL;
        plane_stream_fail_later(s, PLANE_UNREACHABLE, e.text);
        return;
    }
    list_append(&p->links, &k->in_pool);
    p->n_links++;
    p->client->stats.connections++;
    link_give(k, s);
}

static void pool_serve(struct plane_pool *p)
{
    while (!list_empty(&p->queue)) {
        struct plane_stream *s = LIST_ENTRY(p->queue.next, struct plane_stream, in_queue);

        /* A stream whose reused connection broke takes a new one: its siblings broke as well. */
        if (!list_empty(&p->idle) && !s->resent) {
            list_remove(&s->in_queue);
            link_give(LIST_ENTRY(p->idle.next, struct plane_link, in_idle), s);
        } else if (p->n_links < p->client->conf.pool_max) {
            list_remove(&s->in_queue);
            link_open(p, s);
        } else {
            break;
        }
    }
    pool_drop_if_empty(p);
}

void plane_pool_send(struct plane_client *c, struct plane_stream *s, const struct plane_address *a)
{
    struct plane_pool *p = pool_need(c, a);

    s->pool = p;
    list_append(&p->queue, &s->in_queue);
    pool_serve(p);
}

void plane_link_detach(struct plane_stream *s, bool drop)
{
    struct plane_pool *p = s->pool;
    struct plane_link *k = s->link;

    list_remove(&s->in_queue);
    s->link = NULL;
    s->pool = NULL;
    if (k) {
        k->stream = NULL;
        k->orphan = !drop;
        if (drop)
            link_drop(k);
    }
    if (p)
        pool_serve(p);
}

static void pool_clear(struct plane_pool *p, bool all)
{
    LIST_FOREACH (k, &p->links, struct plane_link, in_pool)
        if (all || list_linked(&k->in_idle))
            link_drop(k);
    pool_drop_if_empty(p);
}

void plane_pools_free(struct plane_client *c)
{
    struct str key;
    void *pool;

    for (size_t at = 0; strmap_next(c->pools, &at, &key, &pool);)
        pool_clear(pool, true);
}

void plane_pool_forget(struct plane_client *c, const struct plane_address *a)
{
    char key[PLANE_IP_SIZE + 16];
    struct plane_pool *p;

    key_put(key, sizeof(key), a);
    p = strmap_get(c->pools, str_from(key));
    if (p)
        pool_clear(p, false);
}
