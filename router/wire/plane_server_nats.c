/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that come over NATS (wire.md §4.8): one subscription per endpoint and instance.
 */
#include "lib/base/log.h"
#include "router/wire/plane_server_inner.h"

static const struct log_target LG = {"dynamo_runtime::pipeline::network::ingress"};

static void on_request(void *arg, const struct nats_message *m)
{
    const struct plane_handler *h = arg;
    struct plane_server *s = h->server;
    AUTO(mem_free) char *reply = str_dup(m->reply);
    const char *refusal = plane_server_refusal(s, m->payload);

    if (m->reply.len) /* an empty one is the acknowledgement */
        (void)nats_link_publish(s->conf.nats, reply, refusal ? str_from(refusal) : STR_NULL);
    if (!refusal) {
        const struct trace_headers trace = {.parent = nats_message_header(m, "traceparent"),
                                            .state = nats_message_header(m, "tracestate"),
                                            .client_id = nats_message_header(m, "x-request-id"),
                                            .dynamo_id =
                                                nats_message_header(m, "x-dynamo-request-id")};

        plane_server_begin(s, h, m->payload, &trace);
    }
}

void plane_server_nats_subscribe(struct plane_handler *h, const char *subject)
{
    struct err e;

    if (nats_link_subscribe(h->server->conf.nats, subject, on_request, h, &h->subscription, &e) < 0)
        log_error(&LG, "endpoint takes no requests", LOG_STR("subject", subject),
                  LOG_STR("why", e.text));
}

void plane_server_nats_unsubscribe(struct plane_handler *h)
{
    nats_link_unsubscribe(h->server->conf.nats, h->subscription);
}
