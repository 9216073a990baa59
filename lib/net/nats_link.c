/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three kinds of threads meet here:
 *
 *     library threads --push--> inbox (bounded, mutex) --loop_post--> loop: deliver
 *     loop --orders, outbox--> keeper thread: connects, and connects anew when the library gave up
 *                    (twice refused credentials are final to it, but a server may get its users
 *                    later); subscribes, and publishes, in the order of the loop's calls
 *
 * The keeper has the connection and the library's subscriptions to itself, for every call may wait
 * for the server: a publish for one that does not read, up to WRITE_MS, and a subscribe for the
 * library's own reconnecting thread, which has the connection locked. The loop only knows whom a
 * message is for. The lock guards the inbox, and nobody holds it in a call that may talk to the
 * server. When the link closes, the keeper leaves the connection and what hangs on it to end().
 *
 * The library may still be in one of our callbacks when its objects have been destroyed. So its
 * callbacks know the inbox only, which is counted: one reference for the link, one for each
 * connection and subscription (dropped in their last callback), one for a delivery under way.
 *
 * Nor does the library (3.4.1; later ones do) keep a subscription alive while its reader hands it a
 * message: destroyed at that moment, it takes the process along. So a subscription that has ended is
 * retired first, and destroyed once the reader is known to be past it: the keeper asks the server for a
 * sign of life, whose answer the reader reads after all that it had begun before.
 *
 * A server that greets and then falls silent holds the library (3.4.1) up in its handshake without an
 * end, be that in the keeper or in the library's own reconnecting thread, which has the connection
 * locked meanwhile. So a link is ended by a thread of its own, for which the loop waits so long and
 * no longer; it owns the link from then on, and frees it when the server lets go, or never.
 */
#include "lib/net/nats_link.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "lib/base/digest.h"
#include "lib/net/nats_inbox.h"
#include "lib/net/nats_lib.h"

enum {
    BATCH_MAX = 1024, /* messages delivered before other events of the loop have their turn */
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 5000,
    FLUSH_MS = 2000,
    HUSKS_MAX = 64, /* delivered messages that wait for being destroyed together */
    HUSK_BYTES_MAX = 1 << 20,
    PAST_MS = 1000, /* a server that does not answer the keeper holds up what is to leave so long */
    END_MS = 3000,  /* for the write deadline, and a handshake that the library does give up */
};

/* Of the loop. */
struct subscription {
    struct list link;
    uint64_t id;
    nats_link_fn fn;
    void *arg;
};

/* The keeper's side of it. */
struct interest {
    struct list link;
    uint64_t id;
    char *subject;
    natsSubscription *handle; /* NULL while there is no connection */
};

struct closure {
    struct nats_inbox *inbox;
    uint64_t subscription;
};

struct nats_link {
    struct nats_inbox *inbox;
    natsOptions *options;
    /* Keeper only, until it has ended. */
    struct list interests, retired;
    /* All below: loop thread only. */
    struct list subscriptions;
    uint64_t next_id;
    pthread_t keeper;
    bool keeper_runs;
    void (*state)(void *arg, bool up);
    void *arg;
    bool told_up;
};

/* --- callbacks of the library --------------------------------------------------------------------- */

/* Messages of the server itself have no payload but a header that says what they mean. */
static unsigned status_of(natsMsg *msg)
{
    const char *text;
    uint64_t status;

    if (natsMsg_GetDataLength(msg) > 0 || natsMsgHeader_Get(msg, "Status", &text) != NATS_OK)
        return 0;
    return str_parse_u64(str_head(str_from(text), 3), &status) ? (unsigned)status : 0;
}

struct str nats_message_header(const struct nats_message *m, const char *name)
{
    const char *text;

    if (!m->origin || natsMsgHeader_Get(m->origin, name, &text) != NATS_OK)
        return STR_NULL;
    return str_from(text);
}

static void on_message(natsConnection *connection, natsSubscription *handle, natsMsg *msg,
                       void *arg)
{
    const struct closure *c = arg;
    const struct nats_arrived m = {
        .subscription = c->subscription,
        .msg = msg,
        .view = {.subject = str_from(natsMsg_GetSubject(msg)),
                 .reply = str_from(natsMsg_GetReply(msg)),
                 .payload = str_slice(natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg)),
                 .origin = msg,
                 .status = status_of(msg)},
    };

    (void)connection;
    (void)handle;
    nats_inbox_push(c->inbox, &m);
}

static void on_subscription_complete(void *arg)
{
    struct closure *c = arg;

    nats_inbox_unref(c->inbox);
    free(c);
}

/* @connection is up; NULL: it is down. */
static void set_up(struct nats_inbox *in, natsConnection *connection, bool again)
{
    int64_t payload_max = connection ? natsConnection_GetMaxPayload(connection) : 0;

    (void)pthread_mutex_lock(&in->lock);
    in->up = connection != NULL;
    in->payload_max = payload_max;
    in->reconnects += again;
    nats_inbox_wake(in);
    (void)pthread_mutex_unlock(&in->lock);
}

static void on_connected(natsConnection *connection, void *arg)
{
    set_up(arg, connection, false);
}

static void on_reconnected(natsConnection *connection, void *arg)
{
    set_up(arg, connection, true);
}

static void on_disconnected(natsConnection *connection, void *arg)
{
    (void)connection;
    set_up(arg, NULL, false);
}

/* The last callback of a connection. */
static void on_closed(natsConnection *connection, void *arg)
{
    struct nats_inbox *in = arg;

    (void)connection;
    (void)pthread_mutex_lock(&in->lock);
    in->up = false;
    in->lost = true;
    nats_inbox_wake(in);
    (void)pthread_cond_signal(&in->changed);
    (void)pthread_mutex_unlock(&in->lock);
    nats_inbox_unref(in);
}

/* The subscription may be gone by now, so that the library's own handler, which names it, is none. */
static void on_error(natsConnection *connection, natsSubscription *handle, natsStatus error,
                     void *arg)
{
    struct nats_inbox *in = arg;

    (void)connection;
    (void)handle;
    (void)pthread_mutex_lock(&in->lock);
    in->dropped += error == NATS_SLOW_CONSUMER;
    (void)pthread_mutex_unlock(&in->lock);
}

/* --- keeper --------------------------------------------------------------------------------------- */

static void free_interests(struct list *interests)
{
    LIST_FOREACH (i, interests, struct interest, link) {
        list_remove(&i->link);
        natsSubscription_Destroy(i->handle);
        free(i->subject);
        free(i);
    }
}

/* Lets go of the connection that has ended, whose reader is past all subscriptions then. False when
 * the link closes, and the connection is end()'s. */
static bool disconnect(struct nats_link *n)
{
    struct nats_inbox *in = n->inbox;
    natsConnection *connection = NULL;
    bool closing;

    (void)pthread_mutex_lock(&in->lock);
    closing = in->closing;
    if (!closing)
        connection = TAKE(in->connection);
    (void)pthread_mutex_unlock(&in->lock);
    if (closing)
        return false;
    natsConnection_Close(connection); /* which waits for the reader */
    LIST_FOREACH (i, &n->interests, struct interest, link) {
        natsSubscription_Destroy(i->handle);
        i->handle = NULL;
    }
    free_interests(&n->retired);
    natsConnection_Destroy(connection);
    return true;
}

/* Opens a connection, or begins to try in the background. NULL when it can do neither. */
static natsConnection *open_connection(struct nats_link *n)
{
    struct nats_inbox *in = nats_inbox_ref(n->inbox); /* for on_closed() */
    natsConnection *connection = NULL;
    natsStatus status;

    (void)pthread_mutex_lock(&in->lock);
    in->lost = false;
    in->ready = false;
    (void)pthread_mutex_unlock(&in->lock);
    status = natsConnection_Connect(&connection, n->options);
    if (status != NATS_OK && status != NATS_NOT_YET_CONNECTED) {
        nats_inbox_unref(in);
        return NULL;
    }
    (void)pthread_mutex_lock(&in->lock);
    in->connection = connection;
    (void)pthread_mutex_unlock(&in->lock);
    if (status == NATS_OK)
        set_up(in, connection, false);
    return connection;
}

/* On a connection that has ended, it waits for the next. */
static void subscribe_now(struct nats_link *n, struct interest *i, natsConnection *connection)
{
    struct closure *c = xcalloc(1, sizeof(*c));

    c->inbox = nats_inbox_ref(n->inbox);
    c->subscription = i->id;
    if (natsConnection_Subscribe(&i->handle, connection, i->subject, on_message, c) != NATS_OK)
        on_subscription_complete(c);
    else
        (void)natsSubscription_SetOnCompleteCB(i->handle, on_subscription_complete, c);
}

static void obey(struct nats_link *n, struct nats_order *o, natsConnection *connection)
{
    if (o->subject) {
        struct interest *i = xcalloc(1, sizeof(*i));

        i->id = o->id;
        i->subject = TAKE(o->subject);
        list_append(&n->interests, &i->link);
        subscribe_now(n, i, connection);
        return;
    }
    LIST_FOREACH (i, &n->interests, struct interest, link) {
        if (i->id == o->id) {
            list_remove(&i->link);
            list_append(&n->retired, &i->link);
        }
    }
}

/* With the lock held, which is given up meanwhile. False when there was none. */
static bool obey_next(struct nats_link *n, natsConnection *connection)
{
    struct nats_inbox *in = n->inbox;
    struct nats_order *o;

    if (list_empty(&in->orders))
        return false;
    o = LIST_ENTRY(in->orders.next, struct nats_order, link);
    list_remove(&o->link);
    (void)pthread_mutex_unlock(&in->lock);
    obey(n, o, connection);
    nats_order_free(o);
    (void)pthread_mutex_lock(&in->lock);
    return true;
}

/* Returns the keeper's to use until it connects the next time; NULL: it has to try again. */
static natsConnection *connect_once(struct nats_link *n)
{
    struct nats_inbox *in = n->inbox;
    natsConnection *connection = disconnect(n) ? open_connection(n) : NULL;

    if (!connection)
        return NULL;
    LIST_FOREACH (i, &n->interests, struct interest, link)
        subscribe_now(n, i, connection);
    (void)pthread_mutex_lock(&in->lock);
    while (!in->closing && obey_next(n, connection))
        ;
    (void)pthread_mutex_unlock(&in->lock);
    /* Who hears "up" and then asks a peer must not miss what that peer says next: the server has to
     * know the subscriptions before. */
    if (natsConnection_Status(connection) == NATS_CONN_STATUS_CONNECTED)
        (void)natsConnection_FlushTimeout(connection, FLUSH_MS);
    (void)pthread_mutex_lock(&in->lock);
    in->ready = true;
    nats_inbox_wake(in);
    (void)pthread_mutex_unlock(&in->lock);
    return connection;
}

static natsStatus send_now(natsConnection *connection, const struct nats_outgoing *out)
{
    int len = (int)out->payload.len;
    natsMsg *msg;
    natsStatus status;

    if (!out->n_headers && !out->reply)
        return natsConnection_Publish(connection, out->subject, out->payload.ptr, len);
    status = natsMsg_Create(&msg, out->subject, out->reply, out->payload.ptr, len);
    if (status != NATS_OK)
        return status;
    for (size_t i = 0; i < out->n_headers && status == NATS_OK; i++)
        status = natsMsgHeader_Set(msg, out->headers[i].name, out->headers[i].value);
    if (status == NATS_OK)
        status = natsConnection_PublishMsg(connection, msg);
    natsMsg_Destroy(msg);
    return status;
}

/* With the lock held, which is given up meanwhile. What the library learns late of a lost server it
 * would keep, and late KV events do harm. False when there was nothing to send. */
static bool send_next(struct nats_inbox *in, natsConnection *connection)
{
    struct nats_parcel *p = nats_outbox_take(&in->outbox);
    bool up = in->up && in->ready, sent;

    if (!p)
        return false;
    (void)pthread_mutex_unlock(&in->lock);
    sent = up && send_now(connection, &p->out) == NATS_OK;
    free(p);
    (void)pthread_mutex_lock(&in->lock);
    in->published += sent;
    in->dropped_out += !sent;
    return true;
}

static struct timespec time_in(uint64_t ms)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)(ms / 1000);
    return t;
}

/* With the lock held. */
static void wait_closing(struct nats_inbox *in, uint64_t ms)
{
    struct timespec until = time_in(ms);
    int r = 0;

    while (!in->closing && r == 0)
        r = pthread_cond_timedwait(&in->changed, &in->lock, &until);
}

/* With the lock held; there is something to do, or the time is over. */
static void wait_work(struct nats_inbox *in, uint64_t ms)
{
    struct timespec until = time_in(ms);

    if (!in->closing && !in->lost && in->outbox.n == 0 && list_empty(&in->orders))
        (void)pthread_cond_timedwait(&in->changed, &in->lock, &until);
}

/* With the lock held, which is given up meanwhile. False when none is retired. */
static bool free_retired(struct nats_link *n, natsConnection *connection)
{
    struct nats_inbox *in = n->inbox;
    bool past, up = in->up;

    if (list_empty(&n->retired))
        return false;
    (void)pthread_mutex_unlock(&in->lock);
    LIST_FOREACH (i, &n->retired, struct interest, link)
        if (i->handle)
            (void)natsSubscription_Unsubscribe(i->handle);
    past = up && natsConnection_FlushTimeout(connection, PAST_MS) == NATS_OK;
    if (past)
        free_interests(&n->retired);
    (void)pthread_mutex_lock(&in->lock);
    if (!past)
        wait_work(in, RETRY_MAX_MS);
    return true;
}

/* With the lock held, until the connection is gone or the link closes; what is to leave leaves. Who
 * subscribes and then publishes gets the answer: orders come first. */
static void serve(struct nats_link *n, natsConnection *connection)
{
    struct nats_inbox *in = n->inbox;

    while (!in->lost) {
        if (!in->closing && obey_next(n, connection))
            continue;
        if (send_next(in, connection))
            continue;
        if (in->closing)
            break;
        if (!free_retired(n, connection))
            (void)pthread_cond_wait(&in->changed, &in->lock);
    }
    in->dropped_out += nats_outbox_clear(&in->outbox);
}

static void *keep(void *arg)
{
    struct nats_link *n = arg;
    struct nats_inbox *in = n->inbox;
    bool closing = false;

    while (!closing) {
        natsConnection *connection = connect_once(n);

        (void)pthread_mutex_lock(&in->lock);
        if (connection)
            serve(n, connection);
        wait_closing(in, RETRY_MAX_MS);
        closing = in->closing;
        (void)pthread_mutex_unlock(&in->lock);
    }
    return NULL;
}

/* --- loop ----------------------------------------------------------------------------------------- */

static struct subscription *find_subscription(struct nats_link *n, uint64_t id)
{
    LIST_FOREACH (s, &n->subscriptions, struct subscription, link)
        if (s->id == id)
            return s;
    return NULL;
}

/* Moves what may be delivered in one turn to @ret; false when more is left. */
static bool take_batch(struct nats_inbox *in, struct list *ret)
{
    bool all;

    (void)pthread_mutex_lock(&in->lock);
    for (size_t i = 0; i < BATCH_MAX && !list_empty(&in->messages); i++) {
        struct nats_arrived *m = LIST_ENTRY(in->messages.next, struct nats_arrived, link);

        list_remove(&m->link);
        list_append(ret, &m->link);
        in->n_messages--;
        in->n_bytes -= nats_inbox_size_of(&m->view);
    }
    all = list_empty(&in->messages);
    (void)pthread_mutex_unlock(&in->lock);
    return all;
}

static bool is_up(struct nats_inbox *in)
{
    bool up;

    (void)pthread_mutex_lock(&in->lock);
    up = in->up && in->ready;
    (void)pthread_mutex_unlock(&in->lock);
    return up;
}

static void tell_state(struct nats_link *n)
{
    bool up = is_up(n->inbox);

    if (n->told_up == up)
        return;
    n->told_up = up;
    if (n->state)
        n->state(n->arg, up);
}

static void deliver_one(struct nats_inbox *in, const struct nats_arrived *m)
{
    struct subscription *s = in->link ? find_subscription(in->link, m->subscription) : NULL;

    if (s)
        s->fn(s->arg, &m->view);
}

static void deliver_batch(struct nats_inbox *in, struct list *batch)
{
    LIST_FOREACH (m, batch, struct nats_arrived, link) {
        deliver_one(in, m);
        list_remove(&m->link);
        list_append(&in->husks, &m->link);
        in->n_husks++;
        in->husk_bytes += nats_inbox_size_of(&m->view);
    }
    if (in->n_husks < HUSKS_MAX && in->husk_bytes < HUSK_BYTES_MAX)
        return;
    nats_inbox_free_messages(&in->husks);
    in->n_husks = in->husk_bytes = 0;
}

/* A callback may free the link: only the inbox is certain to live through this. */
static void deliver(void *arg)
{
    struct nats_inbox *in = arg;
    struct list batch;

    list_init(&batch);
    (void)pthread_mutex_lock(&in->lock);
    in->posted = false; /* first: a change that this turn does not see any more posts the next */
    (void)pthread_mutex_unlock(&in->lock);
    if (in->link)
        tell_state(in->link);
    if (!take_batch(in, &batch)) {
        (void)pthread_mutex_lock(&in->lock);
        nats_inbox_wake(in);
        (void)pthread_mutex_unlock(&in->lock);
    }
    deliver_batch(in, &batch);
    nats_inbox_unref(in);
}

static natsStatus set_options(natsOptions *o, const struct nats_link_conf *conf,
                              struct nats_inbox *in)
{
    natsStatus s = nats_lib_options(o, conf, &in->key);

    s = s ? s : natsOptions_SetRetryOnFailedConnect(o, true, on_connected, in);
    s = s ? s : natsOptions_SetReconnectedCB(o, on_reconnected, in);
    s = s ? s : natsOptions_SetDisconnectedCB(o, on_disconnected, in);
    s = s ? s : natsOptions_SetErrorHandler(o, on_error, in);
    return s ? s : natsOptions_SetClosedCB(o, on_closed, in);
}

int nats_link_start(struct nats_link **ret, struct loop *l, const struct nats_link_conf *conf,
                    struct err *e)
{
    struct nats_key key = {.seed = ""};
    int r = conf->nkey ? nats_key_parse(&key, conf->nkey, e) : 0;
    struct nats_link *n;
    natsStatus status;

    if (r < 0)
        return err_wrap(e, r, "nats: '%s'", conf->servers);
    nats_lib_open();
    n = xcalloc(1, sizeof(*n));
    n->inbox = nats_inbox_new(l, deliver, conf->queue_max);
    n->inbox->link = n;
    n->inbox->key = key;
    nats_key_wipe(&key);
    n->state = conf->state;
    n->arg = conf->arg;
    list_init(&n->subscriptions);
    list_init(&n->interests);
    list_init(&n->retired);
    status = natsOptions_Create(&n->options);
    if (status == NATS_OK)
        status = set_options(n->options, conf, n->inbox);
    if (status == NATS_OK && pthread_create(&n->keeper, NULL, keep, n) != 0)
        status = NATS_NO_MEMORY;
    n->keeper_runs = status == NATS_OK;
    if (status != NATS_OK) {
        (void)nats_link_free(n);
        return err_set(e, -EINVAL, "nats: '%s': %s", conf->servers, natsStatus_GetText(status));
    }
    *ret = n;
    return 0;
}

/* Of a thread of its own: every call may wait for the server. */
static void *end(void *arg)
{
    struct nats_link *n = arg;
    struct nats_inbox *in = n->inbox;
    natsConnection *connection;
    bool ready;

    (void)pthread_mutex_lock(&in->lock);
    ready = in->ready;
    connection = in->connection;
    (void)pthread_mutex_unlock(&in->lock);
    if (!ready) /* it ends a flush that the keeper may be in */
        natsConnection_Close(connection);
    if (n->keeper_runs)
        (void)pthread_join(n->keeper, NULL);
    connection = in->connection;
    natsConnection_Close(connection); /* which waits for the library's reader */
    free_interests(&n->interests);
    free_interests(&n->retired);
    natsConnection_Destroy(connection);
    natsOptions_Destroy(n->options);
    free(n);
    (void)pthread_mutex_lock(&in->lock);
    in->ended = true;
    (void)pthread_cond_signal(&in->has_ended);
    (void)pthread_mutex_unlock(&in->lock);
    nats_inbox_unref(in);
    return NULL;
}

/* False when the server holds the link up, and the thread with it. */
static bool wait_end(struct nats_inbox *in)
{
    struct timespec until = time_in(END_MS);
    int r = 0;
    bool ended;

    (void)pthread_mutex_lock(&in->lock);
    while (!in->ended && r == 0)
        r = pthread_cond_timedwait(&in->has_ended, &in->lock, &until);
    ended = in->ended;
    (void)pthread_mutex_unlock(&in->lock);
    return ended;
}

struct nats_link *nats_link_free(struct nats_link *n)
{
    struct nats_inbox *in;
    pthread_t ending;

    if (!n)
        return NULL;
    in = nats_inbox_ref(n->inbox);
    in->link = NULL;
    LIST_FOREACH (s, &n->subscriptions, struct subscription, link) {
        list_remove(&s->link);
        free(s);
    }
    (void)pthread_mutex_lock(&in->lock);
    in->closing = true;
    (void)pthread_cond_signal(&in->changed);
    (void)pthread_mutex_unlock(&in->lock);
    if (pthread_create(&ending, NULL, end, n) != 0)
        (void)end(n);
    else if (wait_end(in))
        (void)pthread_join(ending, NULL);
    else
        (void)pthread_detach(ending);
    nats_inbox_unref(in);
    return NULL;
}

/* Of tokens between dots, as the library wants it, which says so on the keeper only. */
static bool is_subject(struct str s)
{
    bool in_token = false;

    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];

        if (c <= ' ' || c == 0x7f || (c == '.' && !in_token))
            return false;
        in_token = c != '.';
    }
    return in_token;
}

int nats_link_subscribe(struct nats_link *n, const char *subject, nats_link_fn fn, void *arg,
                        uint64_t *ret_id, struct err *e)
{
    struct subscription *s;

    if (!is_subject(str_from(subject)))
        return err_set(e, -EINVAL, "nats: subscribe '%s': no subject", subject);
    s = xcalloc(1, sizeof(*s));
    s->id = ++n->next_id;
    s->fn = fn;
    s->arg = arg;
    list_append(&n->subscriptions, &s->link);
    nats_inbox_order(n->inbox, s->id, subject);
    *ret_id = s->id;
    return 0;
}

void nats_link_unsubscribe(struct nats_link *n, uint64_t id)
{
    struct subscription *s = find_subscription(n, id);

    if (!s)
        return;
    list_remove(&s->link);
    free(s);
    nats_inbox_order(n->inbox, id, NULL);
}

/* Once for all that a turn published: each time costs two threads a switch. */
static void kick_keeper(void *arg)
{
    struct nats_inbox *in = arg;

    in->kick_due = false;
    (void)pthread_mutex_lock(&in->lock);
    (void)pthread_cond_signal(&in->changed);
    (void)pthread_mutex_unlock(&in->lock);
    nats_inbox_unref(in);
}

int nats_link_send(struct nats_link *n, const struct nats_outgoing *out)
{
    struct nats_inbox *in = n->inbox;
    int r = 0;

    (void)pthread_mutex_lock(&in->lock);
    if (!in->up || !in->ready)
        r = -ENOTCONN;
    else if ((uint64_t)out->payload.len > (uint64_t)in->payload_max)
        r = -EMSGSIZE;
    else if (!nats_outbox_put(&in->outbox, out))
        r = -ENOBUFS;
    in->dropped_out += r < 0;
    (void)pthread_mutex_unlock(&in->lock);
    if (r == 0 && !in->kick_due) {
        in->kick_due = true;
        loop_defer(in->loop, kick_keeper, nats_inbox_ref(in));
    }
    return r;
}

int nats_link_publish(struct nats_link *n, const char *subject, struct str payload)
{
    return nats_link_send(n, &(struct nats_outgoing){.subject = subject, .payload = payload});
}

struct nats_link_stats nats_link_stats(const struct nats_link *n)
{
    struct nats_inbox *in = n->inbox;
    struct nats_link_stats stats;

    (void)pthread_mutex_lock(&in->lock);
    stats.published = in->published;
    stats.dropped_out = in->dropped_out;
    stats.received = in->received;
    stats.dropped_in = in->dropped;
    stats.reconnects = in->reconnects;
    stats.up = in->up && in->ready;
    (void)pthread_mutex_unlock(&in->lock);
    return stats;
}
