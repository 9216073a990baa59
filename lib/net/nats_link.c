/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three kinds of threads meet here:
 *
 *     library threads --push--> inbox (bounded, mutex) --loop_post--> loop: deliver
 *     keeper thread: connects, and connects anew when the library gave up (twice refused
 *                    credentials are final to it, but a server may get its users later)
 *
 * The library may still be in one of our callbacks when its objects have been destroyed. So its
 * callbacks know the inbox only, which is counted: one reference for the link, one for each
 * connection and subscription (dropped in their last callback), one for a delivery under way.
 */
#include "lib/net/nats_link.h"

#include <errno.h>
#include <nats/nats.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/ref.h"

enum {
    QUEUE_DEFAULT = 65536,
    QUEUE_BYTES_MAX = 256 << 20,
    BATCH_MAX = 1024, /* messages delivered before other events of the loop have their turn */
    CONNECT_MS = 2000,
    WRITE_MS = 1000,
    PING_MS = 20000,
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 5000,
};

struct message {
    struct list link;
    uint64_t subscription;
    size_t subject_len, payload_len;
    char bytes[]; /* subject, then payload */
};

struct inbox {
    struct ref ref;
    struct loop *loop;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* closing or lost */
    struct list messages;
    size_t n_messages, n_bytes, max;
    struct nats_link *link; /* loop thread only; NULL once freed */
    bool posted;            /* a delivery is on its way */
    bool closing;           /* takes nothing any more */
    bool lost;              /* the library closed the connection for good */
    bool up;
    uint64_t received, dropped, reconnects;
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
    struct inbox *inbox;
    uint64_t subscription;
};

struct nats_link {
    struct inbox *inbox;
    natsOptions *options;
    natsConnection *connection; /* inbox lock */
    struct list subscriptions;  /* inbox lock; changed on the loop only */
    uint64_t next_id;
    pthread_t keeper;
    bool keeper_runs;
    void (*state)(void *arg, bool up);
    void *arg;
    bool told_up;
    uint64_t published, dropped_out;
};

/* --- inbox ---------------------------------------------------------------------------------------- */

static struct inbox *inbox_new(struct loop *l, size_t max)
{
    struct inbox *in = xcalloc(1, sizeof(*in));

    ref_init(&in->ref);
    in->loop = l;
    in->max = max ? max : QUEUE_DEFAULT;
    list_init(&in->messages);
    (void)pthread_mutex_init(&in->lock, NULL);
    (void)pthread_cond_init(&in->changed, NULL);
    return in;
}

static struct inbox *inbox_ref(struct inbox *in)
{
    ref_take(&in->ref);
    return in;
}

static void inbox_unref(struct inbox *in)
{
    if (!ref_drop(&in->ref))
        return;
    LIST_FOREACH (m, &in->messages, struct message, link)
        free(m);
    (void)pthread_mutex_destroy(&in->lock);
    (void)pthread_cond_destroy(&in->changed);
    free(in);
}

static void deliver(void *arg);

/* With the lock held. The loop is alive as long as the inbox is not closing. */
static void wake_loop(struct inbox *in)
{
    if (in->posted || in->closing)
        return;
    in->posted = true;
    loop_post(in->loop, deliver, inbox_ref(in));
}

static struct message *message_new(uint64_t subscription, struct str subject, struct str payload)
{
    struct message *m = try_alloc(sizeof(*m) + subject.len + payload.len);

    if (!m)
        return NULL;
    m->subscription = subscription;
    m->subject_len = subject.len;
    m->payload_len = payload.len;
    memcpy(m->bytes, subject.ptr, subject.len);
    if (payload.len)
        memcpy(m->bytes + subject.len, payload.ptr, payload.len);
    return m;
}

static void push(struct inbox *in, uint64_t subscription, struct str subject, struct str payload)
{
    size_t size = subject.len + payload.len;
    struct message *m = NULL;

    (void)pthread_mutex_lock(&in->lock);
    if (!in->closing) {
        in->received++;
        if (in->n_messages < in->max && in->n_bytes + size <= QUEUE_BYTES_MAX)
            m = message_new(subscription, subject, payload);
        if (m) {
            list_append(&in->messages, &m->link);
            in->n_messages++;
            in->n_bytes += size;
            wake_loop(in);
        } else {
            in->dropped++;
        }
    }
    (void)pthread_mutex_unlock(&in->lock);
}

/* --- callbacks of the library --------------------------------------------------------------------- */

static void on_message(natsConnection *connection, natsSubscription *handle, natsMsg *msg,
                       void *arg)
{
    const struct closure *c = arg;

    (void)connection;
    (void)handle;
    push(c->inbox, c->subscription, str_from(natsMsg_GetSubject(msg)),
         str_slice(natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg)));
    natsMsg_Destroy(msg);
}

static void on_subscription_complete(void *arg)
{
    struct closure *c = arg;

    inbox_unref(c->inbox);
    free(c);
}

static void set_up(struct inbox *in, bool up, bool again)
{
    (void)pthread_mutex_lock(&in->lock);
    in->up = up;
    in->reconnects += again;
    wake_loop(in);
    (void)pthread_mutex_unlock(&in->lock);
}

static void on_connected(natsConnection *connection, void *arg)
{
    (void)connection;
    set_up(arg, true, false);
}

static void on_reconnected(natsConnection *connection, void *arg)
{
    (void)connection;
    set_up(arg, true, true);
}

static void on_disconnected(natsConnection *connection, void *arg)
{
    (void)connection;
    set_up(arg, false, false);
}

/* The last callback of a connection. */
static void on_closed(natsConnection *connection, void *arg)
{
    struct inbox *in = arg;

    (void)connection;
    (void)pthread_mutex_lock(&in->lock);
    in->up = false;
    in->lost = true;
    wake_loop(in);
    (void)pthread_cond_signal(&in->changed);
    (void)pthread_mutex_unlock(&in->lock);
    inbox_unref(in);
}

static int64_t retry_delay(natsConnection *connection, int attempts, void *arg)
{
    int64_t wait = RETRY_MIN_MS;

    (void)connection;
    (void)arg;
    for (int i = 0; i < attempts && wait < RETRY_MAX_MS; i++)
        wait *= 2;
    wait = MIN(wait, (int64_t)RETRY_MAX_MS);
    return wait / 2 + (int64_t)(random_u64() % (uint64_t)(wait / 2 + 1));
}

/* --- keeper --------------------------------------------------------------------------------------- */

/* With the lock held. */
static natsStatus subscribe_now(struct nats_link *n, struct subscription *s)
{
    struct closure *c = xcalloc(1, sizeof(*c));
    natsStatus status;

    c->inbox = inbox_ref(n->inbox);
    c->subscription = s->id;
    status = natsConnection_Subscribe(&s->handle, n->connection, s->subject, on_message, c);
    if (status == NATS_OK)
        status = natsSubscription_SetOnCompleteCB(s->handle, on_subscription_complete, c);
    else
        on_subscription_complete(c);
    return status;
}

/* Opens a connection, or begins to try in the background. */
static bool connect_once(struct nats_link *n)
{
    natsConnection *connection = NULL;
    natsStatus status;

    (void)inbox_ref(n->inbox); /* for on_closed() */
    status = natsConnection_Connect(&connection, n->options);
    if (status != NATS_OK && status != NATS_NOT_YET_CONNECTED) {
        inbox_unref(n->inbox);
        return false;
    }
    (void)pthread_mutex_lock(&n->inbox->lock);
    n->connection = connection;
    LIST_FOREACH (s, &n->subscriptions, struct subscription, link)
        (void)subscribe_now(n, s);
    if (status == NATS_OK) {
        n->inbox->up = true;
        wake_loop(n->inbox);
    }
    (void)pthread_mutex_unlock(&n->inbox->lock);
    return true;
}

static void disconnect(struct nats_link *n)
{
    natsConnection *connection;

    (void)pthread_mutex_lock(&n->inbox->lock);
    connection = TAKE(n->connection);
    LIST_FOREACH (s, &n->subscriptions, struct subscription, link) {
        natsSubscription_Destroy(s->handle);
        s->handle = NULL;
    }
    (void)pthread_mutex_unlock(&n->inbox->lock);
    natsConnection_Destroy(connection);
}

/* With the lock held; until closing, or @lost is set, or the time is over. */
static void wait_change(struct inbox *in, uint64_t ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(ms / 1000);
    (void)pthread_cond_timedwait(&in->changed, &in->lock, &until);
}

static void *keep(void *arg)
{
    struct nats_link *n = arg;
    struct inbox *in = n->inbox;
    bool closing = false;

    while (!closing) {
        (void)pthread_mutex_lock(&in->lock);
        in->lost = false;
        (void)pthread_mutex_unlock(&in->lock);
        bool connected = connect_once(n);

        (void)pthread_mutex_lock(&in->lock);
        while (connected && !in->closing && !in->lost)
            (void)pthread_cond_wait(&in->changed, &in->lock);
        if (!in->closing)
            wait_change(in, RETRY_MAX_MS);
        closing = in->closing;
        (void)pthread_mutex_unlock(&in->lock);
        disconnect(n);
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

static struct message *pop(struct inbox *in)
{
    struct message *m = NULL;

    (void)pthread_mutex_lock(&in->lock);
    if (list_empty(&in->messages)) {
        in->posted = false;
    } else {
        m = LIST_ENTRY(in->messages.next, struct message, link);
        list_remove(&m->link);
        in->n_messages--;
        in->n_bytes -= m->subject_len + m->payload_len;
    }
    (void)pthread_mutex_unlock(&in->lock);
    return m;
}

static void tell_state(struct inbox *in)
{
    struct nats_link *n = in->link;
    bool up;

    (void)pthread_mutex_lock(&in->lock);
    up = in->up;
    (void)pthread_mutex_unlock(&in->lock);
    if (!n || n->told_up == up)
        return;
    n->told_up = up;
    if (n->state)
        n->state(n->arg, up);
}

static void deliver_one(struct inbox *in, const struct message *m)
{
    struct subscription *s = in->link ? find_subscription(in->link, m->subscription) : NULL;

    if (s)
        s->fn(s->arg, str_slice(m->bytes, m->subject_len),
              str_slice(m->bytes + m->subject_len, m->payload_len));
}

/* A callback may free the link: only the inbox is certain to live through this. */
static void deliver(void *arg)
{
    struct inbox *in = arg;
    struct message *m = NULL;

    tell_state(in);
    for (size_t i = 0; i < BATCH_MAX; i++) {
        m = pop(in);
        if (!m)
            break;
        deliver_one(in, m);
        free(m);
    }
    if (m && in->link)
        loop_post(in->loop, deliver, in); /* the reference goes along */
    else
        inbox_unref(in);
}

static natsStatus set_credentials(natsOptions *o, const struct nats_link_conf *conf)
{
    if (conf->credentials_file)
        return natsOptions_SetUserCredentialsFromFiles(o, conf->credentials_file, NULL);
    if (conf->token)
        return natsOptions_SetToken(o, conf->token);
    if (conf->user || conf->password)
        return natsOptions_SetUserInfo(o, conf->user ? conf->user : "",
                                       conf->password ? conf->password : "");
    return natsOptions_SetUserInfo(o, "user", "user");
}

static natsStatus set_options(natsOptions *o, const struct nats_link_conf *conf, struct inbox *in)
{
    natsStatus s = natsOptions_SetURL(o, conf->servers);

    s = s ? s : natsOptions_SetName(o, conf->name ? conf->name : "commutator");
    s = s ? s : set_credentials(o, conf);
    s = s ? s : natsOptions_SetTimeout(o, CONNECT_MS);
    s = s ? s : natsOptions_SetWriteDeadline(o, WRITE_MS);
    s = s ? s : natsOptions_SetPingInterval(o, PING_MS);
    s = s ? s : natsOptions_SetMaxReconnect(o, -1);
    s = s ? s : natsOptions_SetCustomReconnectDelay(o, retry_delay, NULL);
    s = s ? s : natsOptions_SetRetryOnFailedConnect(o, true, on_connected, in);
    s = s ? s : natsOptions_SetReconnectedCB(o, on_reconnected, in);
    s = s ? s : natsOptions_SetDisconnectedCB(o, on_disconnected, in);
    return s ? s : natsOptions_SetClosedCB(o, on_closed, in);
}

int nats_link_start(struct nats_link **ret, struct loop *l, const struct nats_link_conf *conf,
                    struct err *e)
{
    struct nats_link *n = xcalloc(1, sizeof(*n));
    natsStatus status;

    n->inbox = inbox_new(l, conf->queue_max);
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

static void subscription_free(struct subscription *s)
{
    list_remove(&s->link);
    natsSubscription_Destroy(s->handle);
    free(s->subject);
    free(s);
}

struct nats_link *nats_link_free(struct nats_link *n)
{
    if (!n)
        return NULL;
    (void)pthread_mutex_lock(&n->inbox->lock);
    n->inbox->closing = true;
    (void)pthread_cond_signal(&n->inbox->changed);
    (void)pthread_mutex_unlock(&n->inbox->lock);
    if (n->keeper_runs)
        (void)pthread_join(n->keeper, NULL);
    n->inbox->link = NULL;
    LIST_FOREACH (s, &n->subscriptions, struct subscription, link)
        subscription_free(s);
    natsOptions_Destroy(n->options);
    inbox_unref(n->inbox);
    free(n);
    return NULL;
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
    (void)pthread_mutex_lock(&n->inbox->lock);
    list_append(&n->subscriptions, &s->link);
    if (n->connection)
        status = subscribe_now(n, s);
    /* One that the connection's end has overtaken is made again by the keeper. */
    if (status != NATS_OK && status != NATS_CONNECTION_CLOSED) {
        subscription_free(s);
        s = NULL;
    }
    (void)pthread_mutex_unlock(&n->inbox->lock);
    if (!s)
        return err_set(e, -EINVAL, "nats: subscribe '%s': %s", subject, natsStatus_GetText(status));
    *ret_id = s->id;
    return 0;
}

void nats_link_unsubscribe(struct nats_link *n, uint64_t id)
{
    struct subscription *s;

    (void)pthread_mutex_lock(&n->inbox->lock);
    s = find_subscription(n, id);
    if (s) {
        if (s->handle)
            (void)natsSubscription_Unsubscribe(s->handle);
        subscription_free(s);
    }
    (void)pthread_mutex_unlock(&n->inbox->lock);
}

int nats_link_publish(struct nats_link *n, const char *subject, struct str payload)
{
    natsStatus status = NATS_CONNECTION_CLOSED;

    (void)pthread_mutex_lock(&n->inbox->lock);
    /* The library would keep what is published while it is away; late KV events do harm. */
    if (n->connection && n->inbox->up)
        status = natsConnection_Publish(n->connection, subject, payload.ptr, (int)payload.len);
    (void)pthread_mutex_unlock(&n->inbox->lock);
    if (status != NATS_OK) {
        n->dropped_out++;
        return -ENOTCONN;
    }
    n->published++;
    return 0;
}

struct nats_link_stats nats_link_stats(const struct nats_link *n)
{
    struct inbox *in = n->inbox;
    struct nats_link_stats stats = {.published = n->published, .dropped_out = n->dropped_out};

    (void)pthread_mutex_lock(&in->lock);
    stats.received = in->received;
    stats.dropped_in = in->dropped;
    stats.reconnects = in->reconnects;
    stats.up = in->up;
    (void)pthread_mutex_unlock(&in->lock);
    return stats;
}
