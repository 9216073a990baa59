/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_stream.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_tree.h"
#include "lib/base/log.h"
#include "lib/net/nats_js.h"
#include "lib/net/nats_link.h"
#include "lib/net/object_store.h"

#include "router/wire/kv_event.h"

static const struct log_target LG = {"dynamo_llm::kv_router::subscriber"};

enum {
    BATCH = 200,
    RETRY_MS = 1000,
    LOOK_MS = 1000, /* ± a tenth, so that replicas do not look at the same time */
    SILENCE_MS = 45000,
    HEARTBEAT = 100, /* statuses of pulls */
    NO_MESSAGES = 404,
    PULL_OVER = 408,
    SNAPSHOT_READS = 10,
    SNAPSHOT_AGAIN_MS = 100,
    CONSUMERS_MAX = 256, /* of one answer */
};
#define SNAPSHOT_KEY "radix-state"

struct kv_stream {
    struct kv_stream_conf conf;
    struct nats_js *js;
    char *name, *bucket;
    char *inbox;
    uint64_t inbox_id;
    struct timer *retry, *look, *again;
    uint64_t heard_ms; /* when the server last said something */
    unsigned pulled;   /* of the batch asked for */
    bool resetting;
    struct object_store *store;
    struct buf snapshot; /* of the read before this one */
    unsigned reads;
    uint64_t purge_to;
    bool snapshotting;
    struct kv_stream_stats stats;
};

static void begin(void *arg);

/* --- questions ------------------------------------------------------------------------------------ */

static void ask(struct kv_stream *s, js_fn fn, struct str body, const char *format, ...)
    PRINTF_LIKE(4, 5);
static void ask(struct kv_stream *s, js_fn fn, struct str body, const char *format, ...)
{
    AUTO(buf_done) struct buf subject = BUF_NULL;
    va_list ap;

    buf_put_cstr(&subject, "$JS.API.");
    va_start(ap, format);
    buf_vprintf(&subject, format, ap);
    va_end(ap);
    nats_js_ask(s->js, &(struct nats_outgoing){.subject = buf_cstr(&subject), .payload = body}, fn,
                s);
}

static void start_over(struct kv_stream *s, const char *what, const char *why)
{
    log_warn(&LG, "JetStream, trying again", LOG_STR("stream", s->name), LOG_STR("step", what),
             LOG_STR("why", why));
    s->stats.consuming = false;
    timer_start(s->retry, RETRY_MS);
}

static bool failed(struct kv_stream *s, const char *what, const struct js_answer *a)
{
    if (a->code == 0)
        return false;
    start_over(s, what, a->why);
    return true;
}

/* --- pulling -------------------------------------------------------------------------------------- */

static void pull(struct kv_stream *s)
{
    AUTO(mem_free)
    char *subject = xasprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%" PRIu64, s->name, s->conf.router_id);

    s->pulled = 0;
    (void)nats_link_send(
        s->conf.nats,
        &(struct nats_outgoing){
            .subject = subject,
            .reply = s->inbox,
            .payload =
                STR("{\"batch\":200,\"expires\":30000000000,\"idle_heartbeat\":15000000000}")});
}

static void on_pulled(void *arg, const struct nats_message *m)
{
    struct kv_stream *s = arg;
    AUTO(mem_free) char *reply = str_dup(m->reply);

    s->heard_ms = loop_now_ms(s->conf.loop);
    if (!s->stats.consuming || m->status == HEARTBEAT)
        return;
    if (m->status == NO_MESSAGES || m->status == PULL_OVER) {
        pull(s);
    } else if (m->status) {
        start_over(s, "pull", "the server ended it");
    } else if (str_starts(m->reply, STR("$JS.ACK."))) {
        s->stats.events++;
        s->conf.event(s->conf.arg, m->payload);
        (void)nats_link_publish(s->conf.nats, reply, STR_NULL);
        if (++s->pulled == BATCH)
            pull(s);
    }
}

static void look_later(struct kv_stream *s)
{
    timer_start(s->look, LOOK_MS - LOOK_MS / 10 + random_u64() % (LOOK_MS / 5));
}

static void on_consumer(void *arg, const struct js_answer *a)
{
    struct kv_stream *s = arg;

    if (failed(s, "consumer", a))
        return;
    s->stats.consuming = true;
    s->heard_ms = loop_now_ms(s->conf.loop);
    pull(s);
    look_later(s);
    log_debug(&LG, "consuming", LOG_STR("stream", s->name), LOG_U64("consumer", s->conf.router_id));
}

/* Nobody waits for the answer: it often was not there. */
static void delete_consumer(struct kv_stream *s)
{
    AUTO(mem_free)
    char *subject = xasprintf("$JS.API.CONSUMER.DELETE.%s.%" PRIu64, s->name, s->conf.router_id);

    (void)nats_link_publish(s->conf.nats, subject, STR("{}"));
}

/*
 * Anew, never taken up again: what an old one has delivered without being acknowledged would come
 * again behind newer events.
 */
static void make_consumer(struct kv_stream *s)
{
    AUTO(mem_free)
    char *body = xasprintf("{\"stream_name\":\"%s\",\"config\":{\"durable_name\":\"%" PRIu64
                           "\",\"deliver_policy\":\"all\",\"ack_policy\":\"explicit\","
                           "\"replay_policy\":\"instant\",\"inactive_threshold\":3600000000000}}",
                           s->name, s->conf.router_id);

    delete_consumer(s);
    ask(s, on_consumer, str_from(body), "CONSUMER.CREATE.%s.%" PRIu64, s->name, s->conf.router_id);
}

/* --- the snapshot at the start -------------------------------------------------------------------- */

static void read_snapshot(void *arg);

/* Until two reads in a row are the same: one that is just being replaced is not taken. */
static void on_snapshot(void *arg, int code, struct str bytes)
{
    struct kv_stream *s = arg;

    if (code == JS_NOT_FOUND) {
        log_debug(&LG, "Failed to download snapshots. This is normal for freshly started Router "
                       "replicas.");
        make_consumer(s);
    } else if (code != 0 && s->reads < SNAPSHOT_READS) {
        timer_start(s->again, SNAPSHOT_AGAIN_MS);
    } else if (code != 0 || s->reads == SNAPSHOT_READS ||
               (s->reads > 1 && str_eq(bytes, buf_str(&s->snapshot)))) {
        if (code == 0) {
            s->stats.snapshots_read++;
            s->conf.restore(s->conf.arg, bytes);
        }
        buf_done(&s->snapshot);
        make_consumer(s);
    } else {
        buf_clear(&s->snapshot);
        buf_put_str(&s->snapshot, bytes);
        timer_start(s->again, SNAPSHOT_AGAIN_MS);
    }
}

static void read_snapshot(void *arg)
{
    struct kv_stream *s = arg;

    s->reads++;
    object_store_get(s->store, SNAPSHOT_KEY, on_snapshot, s);
}

static void begin_snapshot(struct kv_stream *s)
{
    s->reads = 0;
    buf_clear(&s->snapshot);
    read_snapshot(s);
}

/* --- the stream ----------------------------------------------------------------------------------- */

static void on_bucket_gone(void *arg, const struct js_answer *a)
{
    struct kv_stream *s = arg;

    if (a->code != JS_NOT_FOUND && failed(s, "reset of the snapshot", a))
        return;
    s->resetting = false;
    log_info(&LG, "stream and snapshot were reset", LOG_STR("stream", s->name));
    begin_snapshot(s);
}

static void on_purged(void *arg, const struct js_answer *a)
{
    struct kv_stream *s = arg;

    if (!failed(s, "reset", a))
        ask(s, on_bucket_gone, STR_NULL, "STREAM.DELETE.OBJ_%s", s->bucket);
}

static void stream_is_there(struct kv_stream *s)
{
    if (s->resetting)
        ask(s, on_purged, STR_NULL, "STREAM.PURGE.%s", s->name);
    else
        begin_snapshot(s);
}

static void on_made(void *arg, const struct js_answer *a)
{
    struct kv_stream *s = arg;

    if (!failed(s, "creation", a))
        stream_is_there(s);
}

static void on_found(void *arg, const struct js_answer *a)
{
    struct kv_stream *s = arg;
    AUTO(buf_done) struct buf body = BUF_NULL;

    if (a->code != JS_NOT_FOUND) {
        if (!failed(s, "look-up", a))
            stream_is_there(s);
        return;
    }
    event_stream_config_put(&body, s->name, s->conf.max_age_s);
    ask(s, on_made, buf_str(&body), "STREAM.CREATE.%s", s->name);
}

static void begin(void *arg)
{
    struct kv_stream *s = arg;

    nats_js_forget(s->js, s);
    object_store_forget(s->store);
    timer_stop(s->look);
    timer_stop(s->again);
    s->snapshotting = false;
    s->stats.consuming = false;
    s->stats.restarts++;
    ask(s, on_found, STR_NULL, "STREAM.INFO.%s", s->name);
}

/* --- purge and snapshot --------------------------------------------------------------------------- */

static void on_stored(void *arg, int code)
{
    struct kv_stream *s = arg;

    s->snapshotting = false;
    if (code == 0) {
        s->stats.snapshots_written++;
        log_info(&LG, "Successfully performed purge and snapshot", LOG_STR("bucket", s->bucket));
    } else {
        log_warn(&LG, "the snapshot could not be stored", LOG_STR("bucket", s->bucket));
    }
}

/*
 * The snapshot is stored first and the stream is purged then: a router that starts in between finds
 * too much, never too little.
 */
static void on_purged_to(void *arg, const struct js_answer *a)
{
    on_stored(arg, a->code);
}

static void on_dump_stored(void *arg, int code)
{
    struct kv_stream *s = arg;
    AUTO(mem_free) char *body = xasprintf("{\"seq\":%" PRIu64 "}", s->purge_to);

    if (code != 0)
        on_stored(s, code);
    else
        ask(s, on_purged_to, str_from(body), "STREAM.PURGE.%s", s->name);
}

/* What the slowest consumer has acknowledged; false when they cannot all be seen. */
static bool acked_by_all(struct str json, uint64_t *ret)
{
    AUTO(json_free) struct json *all = NULL;
    const struct json *list;
    uint64_t least = UINT64_MAX;
    size_t n = 0;
    int64_t total, seq;

    if (json_parse(&all, json, NULL) < 0 || !json_i64(json_get(all, "total"), &total))
        return false;
    list = json_get(all, "consumers");
    JSON_FOREACH (one, list) {
        if (!json_i64(json_path(one, "ack_floor", "stream_seq", NULL), &seq) || seq < 0)
            return false;
        least = MIN(least, (uint64_t)seq);
        n++;
    }
    *ret = least;
    return n > 0 && (int64_t)n == total;
}

static void on_consumers(void *arg, const struct js_answer *a)
{
    struct kv_stream *s = arg;
    AUTO(buf_done) struct buf dump = BUF_NULL;
    uint64_t acked;

    if (a->code != 0 || !acked_by_all(a->payload, &acked) || acked == 0) {
        s->snapshotting = false;
        return;
    }
    s->purge_to = acked + 1;
    s->conf.dump(s->conf.arg, &dump);
    object_store_put(s->store, SNAPSHOT_KEY, buf_str(&dump), on_dump_stored, s);
}

static void on_length(void *arg, const struct js_answer *a)
{
    struct kv_stream *s = arg;
    uint64_t n;

    if (a->code == JS_NOT_FOUND) {
        start_over(s, "look-up", a->why); /* somebody has deleted it */
        return;
    }
    if (a->code != 0 || s->snapshotting ||
        !str_parse_u64(json_pull_member(json_pull_member(a->payload, "state"), "messages"), &n) ||
        n <= s->conf.snapshot_threshold)
        return;
    log_emitf(&LG, LOG_INFO, NULL, 0,
              "Stream has %" PRIu64 " messages (threshold: %" PRIu64
              "), performing purge and snapshot",
              n, s->conf.snapshot_threshold);
    s->snapshotting = true;
    ask(s, on_consumers, STR("{\"offset\":0}"), "CONSUMER.LIST.%s", s->name);
}

static void on_look(void *arg)
{
    struct kv_stream *s = arg;

    if (loop_now_ms(s->conf.loop) - s->heard_ms > SILENCE_MS) {
        start_over(s, "pull", "the server is silent");
        return;
    }
    if (s->conf.dump && s->conf.snapshot_threshold)
        ask(s, on_length, STR_NULL, "STREAM.INFO.%s", s->name);
    look_later(s);
}

/* --- life ----------------------------------------------------------------------------------------- */

static void name_all(struct kv_stream *s)
{
    AUTO(buf_done) struct buf name = BUF_NULL;

    event_stream_put(&name, s->conf.ns, s->conf.component);
    s->name = xstrdup(buf_cstr(&name));
    buf_clear(&name);
    event_bucket_put(&name, s->conf.ns, s->conf.component);
    s->bucket = buf_take_cstr(&name);
    s->inbox = xasprintf("_INBOX.%016" PRIx64, random_u64());
}

int kv_stream_start(struct kv_stream **ret, const struct kv_stream_conf *conf, struct err *e)
{
    AUTO(kv_stream_free) struct kv_stream *s = xcalloc(1, sizeof(*s));
    int r;

    s->conf = *conf;
    s->resetting = conf->reset;
    s->retry = timer_new(conf->loop, begin, s);
    s->look = timer_new(conf->loop, on_look, s);
    s->again = timer_new(conf->loop, read_snapshot, s);
    name_all(s);
    r = nats_js_new(&s->js, conf->loop, conf->nats, e);
    if (r == 0)
        r = nats_link_subscribe(conf->nats, s->inbox, on_pulled, s, &s->inbox_id, e);
    if (r < 0)
        return r;
    s->store = object_store_new(s->js, s->bucket);
    begin(s);
    *ret = TAKE(s);
    return 0;
}

struct kv_stream *kv_stream_free(struct kv_stream *s)
{
    if (!s)
        return NULL;
    if (s->inbox_id)
        nats_link_unsubscribe(s->conf.nats, s->inbox_id);
    if (s->stats.consuming)
        delete_consumer(s);
    object_store_free(s->store);
    nats_js_free(s->js);
    timer_free(s->retry);
    timer_free(s->look);
    timer_free(s->again);
    buf_done(&s->snapshot);
    free(s->name);
    free(s->bucket);
    free(s->inbox);
    free(s);
    return NULL;
}

void kv_stream_link_up(struct kv_stream *s)
{
    timer_start(s->retry, 0);
}

struct kv_stream_stats kv_stream_stats(const struct kv_stream *s)
{
    return s->stats;
}
