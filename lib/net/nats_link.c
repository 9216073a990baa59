/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three kinds of threads meet here:
 *
 *     library threads --push--> inbox (bounded, mutex) --loop_post--> loop: deliver
 *     keeper thread: connects, and connects anew when the library gave up (twice refused
 *                    credentials are final to it, but a server may get its users later);
 *                    publishes what the loop put into the outbox, for a publish waits for a
 *                    server that does not read, up to WRITE_MS
 *
 * Connection and subscriptions belong to the loop: the keeper opens a connection and offers it in
 * the inbox, the loop adopts it and subscribes, and destroys it when the next one is offered or the
 * link is freed. Until it has offered the next one, the keeper may use it too. So the lock guards
 * the inbox only, and nobody holds it in a call that may talk to the server.
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

struct subscription {
    struct list link;
    uint64_t id;
    char *subject;
    nats_link_fn fn;
    void *arg;
    natsSubscription *handle; /* NULL while there is no connection */
};

struct closure {
    struct nats_inbox *inbox;
    uint64_t subscription;
};

struct nats_link {
    struct nats_inbox *inbox;
    natsOptions *options;
    /* All below: loop thread only. */
    natsConnection *connection; /* NULL before the first */
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

static void set_stage(struct nats_inbox *in, enum nats_stage stage)
{
    (void)pthread_mutex_lock(&in->lock);
    in->stage = stage;
    nats_inbox_wake(in);
    (void)pthread_cond_signal(&in->changed);
    (void)pthread_mutex_unlock(&in->lock);
}

/* Opens a connection, or begins to try in the background. */
static natsStatus open_connection(struct nats_link *n, natsConnection **ret)
{
    struct nats_inbox *in = nats_inbox_ref(n->inbox); /* for on_closed() */
    natsStatus status;

    (void)pthread_mutex_lock(&in->lock);
    in->lost = false;
    in->stage = OPENING;
    (void)pthread_mutex_unlock(&in->lock);
    status = natsConnection_Connect(ret, n->options);
    if (status == NATS_OK)
        set_up(in, *ret, false);
    else if (status != NATS_NOT_YET_CONNECTED)
        nats_inbox_unref(in);
    return status;
}

/* False when the link closes before the loop has adopted it. */
static bool offer(struct nats_inbox *in, natsConnection *connection)
{
    bool adopted;

    (void)pthread_mutex_lock(&in->lock);
    in->offered = connection;
    in->stage = OFFERED;
    nats_inbox_wake(in);
    while (in->stage == OFFERED && !in->closing)
        (void)pthread_cond_wait(&in->changed, &in->lock);
    adopted = in->stage == ADOPTED;
    (void)pthread_mutex_unlock(&in->lock);
    return adopted;
}

/* *ret is the keeper's to use until it offers the next. */
static bool connect_once(struct nats_link *n, natsConnection **ret)
{
    natsConnection *connection = NULL;
    natsStatus status = open_connection(n, &connection);

    *ret = connection;
    if (status != NATS_OK && status != NATS_NOT_YET_CONNECTED)
        return false;
    if (!offer(n->inbox, connection))
        return true;
    /* Who hears "up" and then asks a peer must not miss what that peer says next: the server has to
     * know the subscriptions before. */
    if (natsConnection_Status(connection) == NATS_CONN_STATUS_CONNECTED)
        (void)natsConnection_FlushTimeout(connection, FLUSH_MS);
    set_stage(n->inbox, READY);
    return true;
}

static natsStatus send_now(natsConnection *connection, const struct nats_outgoing *out)
{
    int len = (int)out->payload.len;
    natsMsg *msg;
    natsStatus status;

    if (!out->header_name && !out->reply)
        return natsConnection_Publish(connection, out->subject, out->payload.ptr, len);
    status = natsMsg_Create(&msg, out->subject, out->reply, out->payload.ptr, len);
    if (status != NATS_OK)
        return status;
    if (out->header_name)
        status = natsMsgHeader_Set(msg, out->header_name, out->header_value);
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
    bool up = in->up && in->stage == READY, sent;

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

/* With the lock held; until closing, or @lost is set, or the time is over. */
static void wait_change(struct nats_inbox *in, uint64_t ms)
{
    struct timespec until = time_in(ms);

    (void)pthread_cond_timedwait(&in->changed, &in->lock, &until);
}

static void free_all(struct list *subscriptions)
{
    LIST_FOREACH (s, subscriptions, struct subscription, link) {
        list_remove(&s->link);
        natsSubscription_Destroy(s->handle);
        free(s->subject);
        free(s);
    }
}

/* With the lock held, which is given up meanwhile. False when none is retired. */
static bool free_retired(struct nats_inbox *in, natsConnection *connection)
{
    struct list these;
    bool past, up = in->up;

    if (list_empty(&in->retired))
        return false;
    list_init(&these);
    list_move_all(&these, &in->retired);
    (void)pthread_mutex_unlock(&in->lock);
    LIST_FOREACH (s, &these, struct subscription, link)
        if (s->handle)
            (void)natsSubscription_Unsubscribe(s->handle);
    past = up && natsConnection_FlushTimeout(connection, PAST_MS) == NATS_OK;
    if (past)
        free_all(&these);
    (void)pthread_mutex_lock(&in->lock);
    if (past)
        return true;
    list_move_all(&in->retired, &these);
    if (!in->closing && !in->lost && in->outbox.n == 0)
        wait_change(in, RETRY_MAX_MS);
    return true;
}

/* With the lock held, until the connection is gone or the link closes; what is to leave leaves. */
static void serve(struct nats_inbox *in, natsConnection *connection)
{
    while (!in->lost) {
        if (send_next(in, connection))
            continue;
        if (in->closing)
            break;
        if (!free_retired(in, connection))
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
        natsConnection *connection;
        bool connected = connect_once(n, &connection);

        (void)pthread_mutex_lock(&in->lock);
        if (connected)
            serve(in, connection);
        if (!in->closing)
            wait_change(in, RETRY_MAX_MS);
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

static natsStatus subscribe_now(struct nats_link *n, struct subscription *s)
{
    struct closure *c = xcalloc(1, sizeof(*c));
    natsStatus status;

    c->inbox = nats_inbox_ref(n->inbox);
    c->subscription = s->id;
    status = natsConnection_Subscribe(&s->handle, n->connection, s->subject, on_message, c);
    if (status == NATS_OK)
        status = natsSubscription_SetOnCompleteCB(s->handle, on_subscription_complete, c);
    else
        on_subscription_complete(c);
    return status;
}

/* Its connection has ended, so that the library's reader is past them all. */
static void disconnect(struct nats_link *n)
{
    LIST_FOREACH (s, &n->subscriptions, struct subscription, link) {
        natsSubscription_Destroy(s->handle);
        s->handle = NULL;
    }
    natsConnection_Destroy(TAKE(n->connection));
}

static void adopt(struct nats_link *n)
{
    struct nats_inbox *in = n->inbox;
    natsConnection *offered;

    (void)pthread_mutex_lock(&in->lock);
    offered = TAKE(in->offered);
    (void)pthread_mutex_unlock(&in->lock);
    if (!offered)
        return;
    disconnect(n);
    n->connection = offered;
    LIST_FOREACH (s, &n->subscriptions, struct subscription, link)
        (void)subscribe_now(n, s);
    set_stage(in, ADOPTED);
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
    up = in->up && in->stage == READY;
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
    if (in->link) {
        adopt(in->link);
        tell_state(in->link);
    }
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
    natsStatus s = nats_lib_options(o, conf);

    s = s ? s : natsOptions_SetRetryOnFailedConnect(o, true, on_connected, in);
    s = s ? s : natsOptions_SetReconnectedCB(o, on_reconnected, in);
    s = s ? s : natsOptions_SetDisconnectedCB(o, on_disconnected, in);
    s = s ? s : natsOptions_SetErrorHandler(o, on_error, in);
    return s ? s : natsOptions_SetClosedCB(o, on_closed, in);
}

int nats_link_start(struct nats_link **ret, struct loop *l, const struct nats_link_conf *conf,
                    struct err *e)
{
    struct nats_link *n = xcalloc(1, sizeof(*n));
    natsStatus status;

    nats_lib_open();
    n->inbox = nats_inbox_new(l, deliver, conf->queue_max);
    n->inbox->link = n;
    n->state = conf->state;
    n->arg = conf->arg;
    list_init(&n->subscriptions);
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
    bool ready;

    (void)pthread_mutex_lock(&in->lock);
    ready = in->stage == READY;
    (void)pthread_mutex_unlock(&in->lock);
    if (!ready) /* it ends a flush that the keeper may be in */
        natsConnection_Close(n->connection);
    if (n->keeper_runs)
        (void)pthread_join(n->keeper, NULL);
    natsConnection_Close(n->connection); /* which waits for the library's reader */
    free_all(&n->subscriptions);
    free_all(&in->retired);
    natsConnection_Destroy(n->connection);
    natsConnection_Destroy(in->offered);
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

/* The keeper tells the server and destroys it: the library's lock may be held up by a handshake. */
static void retire(struct nats_inbox *in, struct subscription *s)
{
    list_remove(&s->link);
    (void)pthread_mutex_lock(&in->lock);
    list_append(&in->retired, &s->link);
    (void)pthread_cond_signal(&in->changed);
    (void)pthread_mutex_unlock(&in->lock);
}

int nats_link_subscribe(struct nats_link *n, const char *subject, nats_link_fn fn, void *arg,
                        uint64_t *ret_id, struct err *e)
{
    struct subscription *s = xcalloc(1, sizeof(*s));
    natsStatus status = NATS_OK;

    s->id = ++n->next_id;
    s->subject = xstrdup(subject);
    s->fn = fn;
    s->arg = arg;
    list_append(&n->subscriptions, &s->link);
    if (n->connection)
        status = subscribe_now(n, s);
    /* On a connection that has ended, it waits for the next. */
    if (status != NATS_OK && status != NATS_CONNECTION_CLOSED) {
        retire(n->inbox, s);
        return err_set(e, -EINVAL, "nats: subscribe '%s': %s", subject, natsStatus_GetText(status));
    }
    *ret_id = s->id;
    return 0;
}

void nats_link_unsubscribe(struct nats_link *n, uint64_t id)
{
    struct subscription *s = find_subscription(n, id);

    if (!s)
        return;
    retire(n->inbox, s);
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
    if (!in->up || in->stage != READY)
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
    stats.up = in->up && in->stage == READY;
    (void)pthread_mutex_unlock(&in->lock);
    return stats;
}
