/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/plane_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/json_put.h"
#include "router/wire/plane_client_inner.h"
#include "router/wire/tcp_frame.h"
#include "router/wire/two_part.h"

enum {
    DEFAULT_CONNECT_MS = 5000,
    DEFAULT_ACK_MS = 5000,
    DEFAULT_NATS_ACK_MS = 10000,
    DEFAULT_CALL_HOME_MS = 10000,
    DEFAULT_POOL_MAX = 100,
    DEFAULT_STREAMS_MAX = 65536,
};

static const char *const failure_names[] = {
    [PLANE_OVERLOADED] = "overloaded",
    [PLANE_BAD_ADDRESS] = "bad_address",
    [PLANE_UNREACHABLE] = "unreachable",
    [PLANE_NO_ACK] = "no_ack",
    [PLANE_REFUSED] = "refused",
    [PLANE_NO_CALL_HOME] = "no_call_home",
    [PLANE_NO_FIRST_ITEM] = "no_first_item",
    [PLANE_BROKEN_EARLY] = "broken_early",
    [PLANE_TOO_LARGE] = "too_large",
    [PLANE_ENGINE] = "engine",
    [PLANE_BROKEN] = "broken",
    [PLANE_STALLED] = "stalled",
    [PLANE_PROTOCOL] = "protocol",
};

bool plane_failure_is_retryable(enum plane_failure kind)
{
    return kind < PLANE_TOO_LARGE;
}

bool plane_failure_is_workers(enum plane_failure kind)
{
    return kind != PLANE_OVERLOADED && kind != PLANE_TOO_LARGE && kind != PLANE_ENGINE;
}

bool plane_failure_is_migratable(enum plane_failure kind)
{
    return kind == PLANE_BROKEN || kind == PLANE_STALLED;
}

const char *plane_failure_name(enum plane_failure kind)
{
    return failure_names[kind];
}

/* --- the end of a stream ---------------------------------------------------------------------- */

static void stream_free(void *arg)
{
    struct plane_stream *s = arg;

    buf_done(&s->frame);
    buf_done(&s->refusal);
    free(s->nats_subject);
    plane_nats_headers_free(s);
    free(s->failure_text);
    free(s);
}

/* Leaves nothing that could call back. @kill: the worker is told, if it has called home. */
static void stream_end(struct plane_stream *s, bool kill)
{
    struct plane_client *c = s->client;

    s->dead = true;
    (void)strmap_remove(c->subjects, str_from(s->subject));
    if (s->kind == PLANE_TCP)
        plane_link_detach(s, kill);
    list_remove(&s->in_queue);
    plane_http_detach(s);
    plane_home_detach(s, kill);
    s->deadline = timer_free(s->deadline);
    list_remove(&s->in_client);
    c->stats.streams--;
    loop_defer(c->loop, stream_free, s);
}

void plane_stream_fail(struct plane_stream *s, enum plane_failure kind, const char *text)
{
    s->client->stats.failed[kind]++;
    stream_end(s, true);
    s->on->failed(s->arg, kind, text);
}

static void fail_deferred(void *arg)
{
    struct plane_stream *s = arg;

    if (!s->dead)
        plane_stream_fail(s, s->failure, s->failure_text);
}

void plane_stream_fail_later(struct plane_stream *s, enum plane_failure kind, const char *text)
{
    s->failure = kind;
    free(s->failure_text);
    s->failure_text = xstrdup(text);
    loop_defer(s->client->loop, fail_deferred, s);
}

void plane_stream_finish(struct plane_stream *s)
{
    s->client->stats.finished++;
    stream_end(s, false);
    s->on->finished(s->arg);
}

void plane_stream_broken(struct plane_stream *s)
{
    plane_stream_fail(s, s->item_seen ? PLANE_BROKEN : PLANE_BROKEN_EARLY, PLANE_BROKEN_TEXT);
}

struct plane_stream *plane_stream_cancel(struct plane_stream *s)
{
    if (s && !s->dead) {
        s->client->stats.cancelled++;
        stream_end(s, true);
    }
    return NULL;
}

/* --- deadlines -------------------------------------------------------------------------------- */

static void on_deadline(void *arg)
{
    static const struct {
        enum plane_failure kind;
        const char *text;
    } ends[] = {
        [WAIT_CONNECT] = {PLANE_UNREACHABLE, "no connection to the worker in time"},
        [WAIT_ACK] = {PLANE_NO_ACK, "no acknowledgement from the worker in time"},
        [WAIT_HOME] = {PLANE_NO_CALL_HOME, "the worker did not call back in time"},
        [WAIT_ITEM] = {PLANE_NO_FIRST_ITEM, "no first item from the worker in time"},
        [WAIT_NEXT] = {PLANE_STALLED, "no further item from the worker in time"},
    };
    struct plane_stream *s = arg;
    uint64_t now = loop_now_ms(s->client->loop), gap = s->client->conf.gap_ms;

    if (s->wait == WAIT_NEXT && (s->paused || now < s->last_item_ms + gap)) {
        timer_start(s->deadline, s->paused ? gap : s->last_item_ms + gap - now);
        return;
    }
    if (s->first_by_ms && now >= s->first_by_ms && s->wait < WAIT_ITEM)
        s->wait = WAIT_ITEM;
    plane_stream_fail(s, ends[s->wait].kind, ends[s->wait].text);
}

void plane_stream_expect(struct plane_stream *s, enum plane_wait wait)
{
    const struct plane_client_conf *conf = &s->client->conf;
    const uint64_t acks[] = {[PLANE_TCP] = conf->ack_ms,
                             [PLANE_NATS] = conf->nats_ack_ms,
                             [PLANE_HTTP] = conf->http_ack_ms};
    const uint64_t limits[] = {
        [WAIT_CONNECT] = conf->connect_ms, [WAIT_ACK] = acks[s->kind],
        [WAIT_HOME] = conf->call_home_ms,  [WAIT_ITEM] = 0,
        [WAIT_NEXT] = conf->gap_ms,
    };
    uint64_t now = loop_now_ms(s->client->loop), ms = limits[wait] ? limits[wait] : UINT64_MAX;

    if (wait != WAIT_NEXT && s->first_by_ms)
        ms = s->first_by_ms > now ? MIN(ms, s->first_by_ms - now) : 0;
    s->wait = wait;
    if (ms != UINT64_MAX)
        timer_start(s->deadline, ms);
    else
        timer_stop(s->deadline);
}

void plane_stream_acked(struct plane_stream *s)
{
    s->acked = true;
    buf_done(&s->frame);
    if (!s->home)
        plane_stream_expect(s, WAIT_HOME);
    if (s->on->accepted)
        s->on->accepted(s->arg);
}

/* --- sending ---------------------------------------------------------------------------------- */

static void header_put(struct json_put *j, const char *name, struct str value)
{
    json_put_key(j, name);
    json_put_str(j, value);
}

static void headers_put(struct buf *out, const struct plane_call *call, struct str path)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    header_put(&j, "x-endpoint-path", path);
    for (size_t i = 0; i < call->n_headers; i++)
        header_put(&j, call->headers[i].name, call->headers[i].value);
    json_put_object_end(&j);
}

/* What leaves: a frame on TCP, its payload alone elsewhere. */
static int frame_put(struct plane_stream *s, const struct plane_call *call,
                     const struct plane_address *a, struct err *e)
{
    AUTO(buf_done) struct buf headers = BUF_NULL;
    AUTO(buf_done) struct buf control = BUF_NULL;
    struct control c = {
        .id = call->id,
        .address = str_from(s->client->address),
        .subject = str_from(s->subject),
    };
    int r = 0;

    control_put(&control, &c);
    if (a->kind == PLANE_TCP) {
        headers_put(&headers, call, a->path);
        r = tcp_frame_put(&s->frame, a->path, buf_str(&headers), buf_str(&control), call->body, e);
    } else {
        two_part_put(&s->frame, buf_str(&control), call->body);
    }
    if (r == 0 && s->frame.len > s->client->conf.frame_max)
        r = err_set(e, -EMSGSIZE, "request frame of %zu bytes, limit %zu", s->frame.len,
                    s->client->conf.frame_max);
    return r;
}

static void way_take(struct plane_stream *s, const struct plane_call *call,
                     const struct plane_address *a)
{
    struct plane_client *c = s->client;

    (void)strmap_set(c->subjects, str_from(s->subject), s);
    plane_stream_expect(s, WAIT_CONNECT);
    switch (a->kind) {
    case PLANE_TCP:
        plane_pool_send(c, s, a);
        break;
    case PLANE_NATS:
        plane_nats_send(c, s, call, a->path);
        break;
    case PLANE_HTTP:
        plane_http_send(c, s, call, a->path);
        break;
    }
}

/* A call with the headers that every one has. */
struct whole_call {
    struct plane_call call;
    struct plane_header headers[PLANE_CALL_HEADERS_MAX + 2];
    char sent_ns[24];
};

static const struct plane_call *call_complete(struct whole_call *w, const struct plane_call *given)
{
    size_t n = 0;

    (void)snprintf(w->sent_ns, sizeof(w->sent_ns), "%" PRIu64, clock_wall_ns());
    w->headers[n++] = (struct plane_header){"request-id", given->id};
    w->headers[n++] = (struct plane_header){"x-frontend-send-ts-ns", str_from(w->sent_ns)};
    for (size_t i = 0; i < MIN(given->n_headers, (size_t)PLANE_CALL_HEADERS_MAX); i++)
        w->headers[n++] = given->headers[i];
    w->call = *given;
    w->call.headers = w->headers;
    w->call.n_headers = n;
    return &w->call;
}

struct plane_stream *plane_client_send(struct plane_client *c, const struct plane_call *given,
                                       const struct plane_handlers *h, void *arg)
{
    struct plane_stream *s = xcalloc(1, sizeof(*s));
    struct plane_address a = {0};
    struct whole_call whole;
    const struct plane_call *call = call_complete(&whole, given);
    struct err e;

    s->client = c;
    s->on = h;
    s->arg = arg;
    s->deadline = timer_new(c->loop, on_deadline, s);
    random_uuid(s->subject);
    list_append(&c->streams, &s->in_client);
    c->stats.sent++;
    if (c->stats.streams++ >= c->conf.streams_max) {
        plane_stream_fail_later(s, PLANE_OVERLOADED, "too many requests in flight");
    } else if (plane_address_parse(call->address, &a, &e) < 0) {
        plane_stream_fail_later(s, PLANE_BAD_ADDRESS, e.text);
    } else if (frame_put(s, call, &a, &e) < 0) {
        plane_stream_fail_later(s, PLANE_TOO_LARGE, e.text);
    } else {
        s->kind = a.kind;
        s->first_by_ms = c->conf.first_item_ms ? loop_now_ms(c->loop) + c->conf.first_item_ms : 0;
        way_take(s, call, &a);
    }
    return s;
}

void plane_stream_pause(struct plane_stream *s)
{
    s->paused = true;
    if (s->home)
        plane_home_pause(s->home);
}

void plane_stream_resume(struct plane_stream *s)
{
    if (!s->paused)
        return;
    s->paused = false;
    s->last_item_ms = loop_now_ms(s->client->loop);
    if (s->home)
        plane_home_resume(s->home);
}

/* --- the client ------------------------------------------------------------------------------- */

static void conf_fill(struct plane_client_conf *conf, const struct plane_client_conf *given)
{
    *conf = given ? *given : (struct plane_client_conf){0};
    conf->connect_ms = conf->connect_ms ? conf->connect_ms : DEFAULT_CONNECT_MS;
    conf->ack_ms = conf->ack_ms ? conf->ack_ms : DEFAULT_ACK_MS;
    conf->nats_ack_ms = conf->nats_ack_ms ? conf->nats_ack_ms : DEFAULT_NATS_ACK_MS;
    conf->http_ack_ms = conf->http_ack_ms ? conf->http_ack_ms : DEFAULT_ACK_MS;
    conf->call_home_ms = conf->call_home_ms ? conf->call_home_ms : DEFAULT_CALL_HOME_MS;
    conf->pool_max = conf->pool_max ? conf->pool_max : DEFAULT_POOL_MAX;
    conf->streams_max = conf->streams_max ? conf->streams_max : DEFAULT_STREAMS_MAX;
    conf->frame_max = conf->frame_max ? conf->frame_max : TCP_FRAME_DEFAULT_MAX;
}

static int client_listen(struct plane_client *c, struct err *e)
{
    char ip[PLANE_IP_SIZE];
    const char *host = c->conf.listen_host;
    bool is_v6;
    int r;

    if (c->conf.advertise_ip && *c->conf.advertise_ip)
        (void)snprintf(ip, sizeof(ip), "%s", c->conf.advertise_ip);
    else
        tcp_local_ip(ip, sizeof(ip));
    is_v6 = strchr(ip, ':') != NULL;
    if (!host)
        host = is_v6 ? "::" : "0.0.0.0";
    r = tcp_listen(&c->listener, c->loop, host, c->conf.listen_port, plane_home_accept, c, e);
    if (r < 0)
        return err_wrap(e, r, "request plane: listen for workers on %s", host);
    (void)snprintf(c->address, sizeof(c->address), is_v6 ? "[%s]:%u" : "%s:%u", ip,
                   tcp_listener_port(c->listener));
    return 0;
}

int plane_client_new(struct plane_client **ret, struct loop *l,
                     const struct plane_client_conf *conf, struct err *e)
{
    AUTO(plane_client_free) struct plane_client *c = xcalloc(1, sizeof(*c));
    int r;

    c->loop = l;
    conf_fill(&c->conf, conf);
    list_init(&c->streams);
    list_init(&c->homes);
    list_init(&c->limited);
    c->pools = strmap_new();
    c->subjects = strmap_new();
    c->sweep = timer_new(l, plane_homes_sweep, c);
    r = plane_tls_start(&c->tls, l, c->conf.tls, e);
    if (r == 0)
        r = client_listen(c, e);
    if (r == 0 && c->conf.nats_early)
        r = plane_nats_need(c, e);
    if (r < 0)
        return r;
    /* The texts were the caller's. */
    c->conf.advertise_ip = c->conf.listen_host = NULL;
    c->conf.tls = NULL;
    *ret = TAKE(c);
    return 0;
}

static void client_free(void *arg)
{
    struct plane_client *c = arg;

    (void)strmap_free(c->pools);
    (void)strmap_free(c->subjects);
    free(c);
}

struct plane_client *plane_client_free(struct plane_client *c)
{
    if (!c)
        return NULL;
    LIST_FOREACH (s, &c->streams, struct plane_stream, in_client)
        stream_end(s, true);
    plane_homes_free(c);
    plane_pools_free(c);
    plane_nats_free(c);
    plane_http_free(c);
    c->listener = tcp_listener_close(c->listener);
    plane_tls_done(&c->tls);
    c->sweep = timer_free(c->sweep);
    /* Behind the streams, links and homes that end this turn and still point here. */
    loop_defer(c->loop, client_free, c);
    return NULL;
}

const char *plane_client_address(const struct plane_client *c)
{
    return c->address;
}

struct plane_stats plane_client_stats(const struct plane_client *c)
{
    return c->stats;
}

void plane_client_forget(struct plane_client *c, struct str address)
{
    struct plane_address a;

    if (plane_address_parse(address, &a, NULL) == 0 && a.kind == PLANE_TCP)
        plane_pool_forget(c, &a);
}
