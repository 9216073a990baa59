/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests over NATS (wire.md §4.8): published to the instance's subject, acknowledged on an inbox.
 *
 * One link and one wildcard subscription for all streams: "_INBOX.<client>.<stream's subject>".
 */
#include <errno.h>
#include <stdio.h>

#include "lib/base/log.h"
#include "router/wire/plane_client_inner.h"
#include "router/wire/tcp_frame.h"

static const struct log_target LG = {"dynamo_runtime::pipeline::network::egress"};

enum { STATUS_NO_RESPONDERS = 503 };

struct plane_nats {
    struct plane_client *client;
    struct nats_link *link;
    struct list waiting; /* streams, until the link is up */
    bool up;
    char inbox[16 + UUID_TEXT_SIZE]; /* "_INBOX.<uuid>." */
};

static void publish(struct plane_nats *n, struct plane_stream *s)
{
    AUTO(mem_free) char *reply = xasprintf("%s%s", n->inbox, s->subject);
    const struct nats_outgoing out = {.subject = s->nats_subject,
                                      .reply = reply,
                                      .headers = s->nats_headers,
                                      .n_headers = s->n_nats_headers,
                                      .payload = buf_str(&s->frame)};
    int r;

    plane_stream_expect(s, WAIT_ACK);
    r = nats_link_send(n->link, &out);
    if (r == -EMSGSIZE)
        plane_stream_fail_later(s, PLANE_TOO_LARGE, "the request is above NATS' max_payload");
    else if (r < 0)
        plane_stream_fail_later(s, PLANE_UNREACHABLE, "NATS is away");
}

static void on_state(void *arg, bool up)
{
    struct plane_nats *n = arg;

    n->up = up;
    log_info(&LG, up ? "NATS is connected" : "NATS is away: its workers cannot be reached");
    while (n->up && !list_empty(&n->waiting)) {
        struct plane_stream *s = LIST_ENTRY(n->waiting.next, struct plane_stream, in_queue);

        list_remove(&s->in_queue);
        publish(n, s);
    }
}

static void on_reply(void *arg, const struct nats_message *m)
{
    struct plane_nats *n = arg;
    struct str subject = str_skip(m->subject, MIN(strlen(n->inbox), m->subject.len));
    struct plane_stream *s = strmap_get(n->client->subjects, subject);
    AUTO(mem_free) char *text = NULL;

    if (!s || s->acked)
        return; /* it has called home, or has been given up */
    if (m->status == STATUS_NO_RESPONDERS)
        text = xasprintf("NATS request failed: no responders on %s", s->nats_subject);
    else if (m->payload.len)
        text = str_dup(str_head(m->payload, TCP_ACK_TEXT_MAX));
    if (text)
        plane_stream_fail(s, m->status ? PLANE_UNREACHABLE : PLANE_REFUSED, text);
    else
        plane_stream_acked(s);
}

int plane_nats_need(struct plane_client *c, struct err *e)
{
    struct plane_nats *n = c->nats;
    struct nats_link_conf conf = c->conf.nats;
    AUTO(mem_free) char *wildcard = NULL;
    char id[UUID_TEXT_SIZE];
    uint64_t subscription;
    int r;

    if (n)
        return 0;
    if (!conf.servers)
        return err_set(e, -EINVAL, "no NATS server is configured (NATS_SERVER)");
    c->nats = n = xcalloc(1, sizeof(*n));
    n->client = c;
    list_init(&n->waiting);
    random_uuid(id);
    (void)snprintf(n->inbox, sizeof(n->inbox), "_INBOX.%s.", id);
    wildcard = xasprintf("%s*", n->inbox);
    conf.state = on_state;
    conf.arg = n;
    r = nats_link_start(&n->link, c->loop, &conf, e);
    if (r == 0)
        r = nats_link_subscribe(n->link, wildcard, on_reply, n, &subscription, e);
    if (r < 0)
        plane_nats_free(c);
    return r;
}

/* They may wait for the link to come up. */
static void headers_keep(struct plane_stream *s, const struct plane_call *call)
{
    size_t at = 0;

    for (size_t i = 0; i < call->n_headers; i++) {
        buf_put_str(&s->nats_values, call->headers[i].value);
        buf_put_char(&s->nats_values, '\0');
    }
    s->nats_headers = xcalloc(call->n_headers, sizeof(*s->nats_headers));
    for (size_t i = 0; i < call->n_headers; i++) {
        s->nats_headers[s->n_nats_headers++] =
            (struct nats_header){call->headers[i].name, buf_cstr(&s->nats_values) + at};
        at += call->headers[i].value.len + 1;
    }
}

void plane_nats_headers_free(struct plane_stream *s)
{
    free(s->nats_headers);
    buf_done(&s->nats_values);
}

void plane_nats_send(struct plane_client *c, struct plane_stream *s, const struct plane_call *call,
                     struct str subject)
{
    struct err e;

    if (plane_nats_need(c, &e) < 0) {
        plane_stream_fail_later(s, PLANE_UNREACHABLE, e.text);
        return;
    }
    s->nats_subject = str_dup(subject);
    headers_keep(s, call);
    if (c->nats->up)
        publish(c->nats, s);
    else
        list_append(&c->nats->waiting, &s->in_queue);
}

void plane_nats_free(struct plane_client *c)
{
    struct plane_nats *n = TAKE(c->nats);

    if (!n)
        return;
    nats_link_free(n->link);
    free(n);
}
