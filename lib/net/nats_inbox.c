/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/nats_inbox.h"

enum {
    QUEUE_DEFAULT = 65536,
    QUEUE_BYTES_MAX = 256 << 20,
};

struct nats_inbox *nats_inbox_new(struct loop *l, loop_fn deliver, size_t max)
{
    struct nats_inbox *in = xcalloc(1, sizeof(*in));

    ref_init(&in->ref);
    in->loop = l;
    in->deliver = deliver;
    in->max = max ? max : QUEUE_DEFAULT;
    list_init(&in->messages);
    list_init(&in->husks);
    list_init(&in->orders);
    nats_outbox_init(&in->outbox);
    (void)pthread_mutex_init(&in->lock, NULL);
    (void)pthread_cond_init(&in->changed, NULL);
    (void)pthread_cond_init(&in->has_ended, NULL);
    return in;
}

struct nats_inbox *nats_inbox_ref(struct nats_inbox *in)
{
    ref_take(&in->ref);
    return in;
}

void nats_inbox_free_messages(struct list *messages)
{
    LIST_FOREACH (m, messages, struct nats_arrived, link) {
        natsMsg_Destroy(m->msg);
        free(m);
    }
    list_init(messages);
}

void nats_inbox_unref(struct nats_inbox *in)
{
    if (!ref_drop(&in->ref))
        return;
    nats_inbox_free_messages(&in->messages);
    nats_inbox_free_messages(&in->husks);
    LIST_FOREACH (o, &in->orders, struct nats_order, link)
        nats_order_free(o);
    (void)nats_outbox_clear(&in->outbox);
    nats_key_wipe(&in->key);
    (void)pthread_mutex_destroy(&in->lock);
    (void)pthread_cond_destroy(&in->changed);
    (void)pthread_cond_destroy(&in->has_ended);
    free(in);
}

void nats_order_free(struct nats_order *o)
{
    free(o->subject);
    free(o);
}

/* With the lock held. An end that overtakes its beginning leaves none of them: what waits for a keeper
 * that is held up grows no further than the subscriptions. */
static bool cancel_order(struct nats_inbox *in, uint64_t id)
{
    LIST_FOREACH (o, &in->orders, struct nats_order, link) {
        if (o->id == id) {
            list_remove(&o->link);
            nats_order_free(o);
            return true;
        }
    }
    return false;
}

void nats_inbox_order(struct nats_inbox *in, uint64_t id, const char *subject)
{
    (void)pthread_mutex_lock(&in->lock);
    if (subject || !cancel_order(in, id)) {
        struct nats_order *o = xcalloc(1, sizeof(*o));

        o->id = id;
        o->subject = subject ? xstrdup(subject) : NULL;
        list_append(&in->orders, &o->link);
        (void)pthread_cond_signal(&in->changed);
    }
    (void)pthread_mutex_unlock(&in->lock);
}

/* The loop is alive as long as the inbox is not closing. */
void nats_inbox_wake(struct nats_inbox *in)
{
    if (in->posted || in->closing)
        return;
    in->posted = true;
    loop_post(in->loop, in->deliver, nats_inbox_ref(in));
}

size_t nats_inbox_size_of(const struct nats_message *m)
{
    return m->subject.len + m->reply.len + m->payload.len;
}

/* With the lock held; false when there is no room. */
static bool append(struct nats_inbox *in, const struct nats_arrived *message)
{
    size_t size = nats_inbox_size_of(&message->view);
    struct nats_arrived *m = NULL;

    if (in->n_messages < in->max && in->n_bytes + size <= QUEUE_BYTES_MAX)
        m = try_alloc(sizeof(*m));
    if (!m)
        return false;
    *m = *message;
    list_append(&in->messages, &m->link);
    in->n_messages++;
    in->n_bytes += size;
    return true;
}

void nats_inbox_push(struct nats_inbox *in, const struct nats_arrived *message)
{
    bool taken = false;

    (void)pthread_mutex_lock(&in->lock);
    if (!in->closing) {
        taken = append(in, message);
        in->received++;
        in->dropped += !taken;
        if (taken)
            nats_inbox_wake(in);
    }
    (void)pthread_mutex_unlock(&in->lock);
    if (!taken)
        natsMsg_Destroy(message->msg);
}
