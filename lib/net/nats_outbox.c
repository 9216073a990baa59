/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/nats_outbox.h"

#include <string.h>

void nats_outbox_init(struct nats_outbox *o)
{
    *o = (struct nats_outbox){.n = 0};
    list_init(&o->parcels);
}

struct nats_parcel *nats_outbox_take(struct nats_outbox *o)
{
    struct nats_parcel *p;

    if (list_empty(&o->parcels))
        return NULL;
    p = LIST_ENTRY(o->parcels.next, struct nats_parcel, link);
    list_remove(&p->link);
    o->n--;
    o->bytes -= p->size;
    return p;
}

size_t nats_outbox_clear(struct nats_outbox *o)
{
    struct nats_parcel *p;
    size_t n = 0;

    for (; (p = nats_outbox_take(o)); n++)
        free(p);
    return n;
}

static const char *put_text(char **at, const char *text)
{
    char *copy = *at;
    size_t size;

    if (!text)
        return NULL;
    size = strlen(text) + 1;
    memcpy(copy, text, size);
    *at += size;
    return copy;
}

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static size_t size_of(const struct nats_outgoing *out)
{
    size_t size = text_size(out->subject) + text_size(out->reply) +
                  out->n_headers * sizeof(struct nats_header) + out->payload.len;

    for (size_t i = 0; i < out->n_headers; i++)
        size += text_size(out->headers[i].name) + text_size(out->headers[i].value);
    return size;
}

bool nats_outbox_put(struct nats_outbox *o, const struct nats_outgoing *out)
{
    size_t size = size_of(out);
    struct nats_parcel *p = NULL;
    char *at;

    if (o->n < NATS_OUTBOX_MESSAGES && size <= NATS_OUTBOX_BYTES - o->bytes)
        p = try_alloc(sizeof(*p) + size);
    if (!p)
        return false;
    at = (char *)(p->headers + out->n_headers);
    p->size = size;
    p->out.subject = put_text(&at, out->subject);
    p->out.reply = put_text(&at, out->reply);
    for (size_t i = 0; i < out->n_headers; i++)
        p->headers[i] = (struct nats_header){put_text(&at, out->headers[i].name),
                                             put_text(&at, out->headers[i].value)};
    p->out.headers = p->headers;
    p->out.n_headers = out->n_headers;
    p->out.payload = str_slice(at, out->payload.len);
    if (out->payload.len)
        memcpy(at, out->payload.ptr, out->payload.len);
    list_append(&o->parcels, &p->link);
    o->n++;
    o->bytes += size;
    return true;
}
