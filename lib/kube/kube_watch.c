/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A watch is in one of four states:
 *
 *     LISTING --last page--> WATCHING
 *        |                    |    ^
 *        +------ fails -------+    | resume from the last resourceVersion
 *                  v               |
 *                WAITING ----------+--> LISTING, after 410 or when there is nothing to resume from
 *
 * `known` holds what the consumer has been told: uid and resourceVersion of each object. A list
 * marks what it contains with its number; what is left unmarked at its end has been deleted.
 */
#include "lib/kube/kube_watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/strmap.h"
#include "lib/kube/kube_stream.h"
#include "lib/kube/kube_url.h"

enum {
    PAGE_BYTES_MAX = 256 << 20, /* of a list page; objects are limited to 1.5 MiB by etcd */
    OBJECT_BYTES_MAX = 8 << 20, /* of a line of the stream */
    BACKOFF_MIN_MS = 100,
    BACKOFF_MAX_MS = 10000,
    STABLE_MS = 1000, /* a stream that lived so long was worth opening at once again */
    RESUMES_MAX = 3,  /* refusals after which a new list is asked for */
    LIST_MS = 120000,
    QUIET_MS = 180000, /* bookmarks come about once a minute */
};
#define PAGE_LIMIT "500"

enum watch_state { WATCH_LISTING, WATCH_WATCHING, WATCH_WAITING, WATCH_STOPPED };
enum health { HEALTH_UNKNOWN, HEALTH_UP, HEALTH_DOWN };

struct seen {
    unsigned list; /* number of the last list that held it */
    char uid[40];
    char version[24];
};

struct kube_watcher {
    struct loop *loop;
    const struct kube_config *config;
    struct http_client *http;
    struct list watches;
};

struct kube_watch {
    struct kube_watcher *owner;
    struct list link;
    struct kube_watch_spec spec;
    char *ns, *label_selector, *field_selector;
    enum watch_state state;
    enum health health;
    bool synced;
    unsigned busy; /* depth of calls that still use this object */
    struct http_call *call;
    struct timer *timer;
    int status; /* of the running call; 0 before its head */
    struct buf page;
    struct kube_lines lines;
    char *next_page;
    char *version;        /* where to resume; NULL = a list is due */
    struct strmap *known; /* "ns/name" to struct seen */
    unsigned list;
    unsigned failures, refusals;
    uint64_t opened_ms;
    uint64_t restarts;
    char why[ERR_TEXT_MAX]; /* a failure found in the middle of the stream */
};

static void start_list(struct kube_watch *w);
static void start_watch(struct kube_watch *w);

int kube_watcher_new(struct kube_watcher **ret, struct loop *l, const struct kube_config *config,
                     struct err *e)
{
    AUTO(kube_watcher_free) struct kube_watcher *w = xcalloc(1, sizeof(*w));
    struct http_client_conf conf = kube_config_http(config);
    int r;

    w->loop = l;
    w->config = config;
    list_init(&w->watches);
    r = http_client_new(&w->http, l, &conf, e);
    if (r < 0)
        return err_wrap(e, r, "kube: watcher");
    *ret = TAKE(w);
    return 0;
}

struct kube_watcher *kube_watcher_free(struct kube_watcher *w)
{
    if (!w)
        return NULL;
    LIST_FOREACH (watch, &w->watches, struct kube_watch, link)
        (void)kube_watch_stop(watch);
    http_client_free(w->http);
    free(w);
    return NULL;
}

static void watch_free(struct kube_watch *w)
{
    (void)timer_free(w->timer);
    strmap_free_with(w->known, free);
    buf_done(&w->page);
    kube_lines_done(&w->lines);
    free(w->next_page);
    free(w->version);
    free(w->ns);
    free(w->label_selector);
    free(w->field_selector);
    free(w);
}

/* Every entry from outside brackets itself, as a callback of the consumer may stop the watch. */
static void enter(struct kube_watch *w)
{
    w->busy++;
}

static void leave(struct kube_watch *w)
{
    if (--w->busy == 0 && w->state == WATCH_STOPPED)
        watch_free(w);
}

static char *dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static void set_text(char **at, struct str s)
{
    free(*at);
    *at = s.len ? str_dup(s) : NULL;
}

static void set_health(struct kube_watch *w, enum health health, const char *why)
{
    if (w->health == health)
        return;
    w->health = health;
    if (w->spec.state)
        w->spec.state(w->spec.arg, health == HEALTH_UP, why);
}

/* --- reporting ------------------------------------------------------------------------------------ */

/*
 * The tree of an object. One that cannot be a tree, because of an integer beyond 2^53, is told with
 * its metadata alone: its reader has the text.
 */
static struct json *object_tree(struct str raw)
{
    struct json *object = NULL;
    struct str key, metadata = STR_NULL;
    struct json_pull p;

    if (json_parse(&object, raw, NULL) == 0)
        return object;
    json_pull_init(&p, raw);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key))
            (void)json_pull_skip(&p, str_is(key, "metadata") ? &metadata : NULL);
    object = NULL;
    if (json_pull_end(&p, NULL) < 0 || json_parse(&object, metadata, NULL) < 0)
        return NULL;
    struct json *whole = json_new_object();
    (void)json_set(whole, "metadata", object);
    return whole;
}

static void put_key(struct buf *out, const char *ns, const char *name)
{
    buf_printf(out, "%s/%s", ns ? ns : "", name ? name : "");
}

static void tell(struct kube_watch *w, enum kube_change what, const struct json *object,
                 struct str raw)
{
    if (w->state != WATCH_STOPPED)
        w->spec.change(w->spec.arg, what, object, raw);
}

/* Tells of the deletion of an object of which only the key and @seen are left. */
static void tell_gone(struct kube_watch *w, struct str key, const struct seen *seen)
{
    AUTO(json_free) struct json *object = json_new_object();
    struct json *metadata = json_need_object(object, "metadata");
    struct str ns;

    (void)str_cut(&key, '/', &ns);
    (void)json_set(metadata, "name", json_new_str(key));
    if (ns.len)
        (void)json_set(metadata, "namespace", json_new_str(ns));
    (void)json_set_cstr(metadata, "uid", seen->uid);
    (void)json_set_cstr(metadata, "resourceVersion", seen->version);
    tell(w, KUBE_DELETED, object, STR_NULL);
}

/* An object that exists, from a list or from the stream: ADDED, MODIFIED, or nothing when known. */
static void take_present(struct kube_watch *w, const struct json *object, struct str raw)
{
    const struct json *metadata = json_get(object, "metadata");
    const char *uid = json_get_cstr(metadata, "uid");
    const char *version = json_get_cstr(metadata, "resourceVersion");
    AUTO(buf_done) struct buf key = BUF_NULL;
    enum kube_change what = KUBE_MODIFIED;
    struct seen now = {.list = w->list}, *seen;

    (void)snprintf(now.uid, sizeof(now.uid), "%s", uid ? uid : "");
    (void)snprintf(now.version, sizeof(now.version), "%s", version ? version : "");
    put_key(&key, json_get_cstr(metadata, "namespace"), json_get_cstr(metadata, "name"));

    seen = strmap_get(w->known, buf_str(&key));
    if (seen && strcmp(seen->uid, now.uid) == 0 && strcmp(seen->version, now.version) == 0) {
        seen->list = w->list;
        return;
    }
    /* Deleted and made again while nobody looked: two objects, not one that changed. */
    if (seen && strcmp(seen->uid, now.uid) != 0)
        tell_gone(w, buf_str(&key), seen);
    if (!seen || strcmp(seen->uid, now.uid) != 0)
        what = KUBE_ADDED;
    if (!seen) {
        seen = xmalloc(sizeof(*seen));
        (void)strmap_set(w->known, buf_str(&key), seen);
    }
    *seen = now;
    tell(w, what, object, raw);
}

static void take_deleted(struct kube_watch *w, const struct json *object, struct str raw)
{
    const struct json *metadata = json_get(object, "metadata");
    AUTO(buf_done) struct buf key = BUF_NULL;
    AUTO(mem_free) struct seen *seen = NULL;

    put_key(&key, json_get_cstr(metadata, "namespace"), json_get_cstr(metadata, "name"));
    seen = strmap_remove(w->known, buf_str(&key));
    if (seen)
        tell(w, KUBE_DELETED, object, raw);
}

/* --- failing and resuming ------------------------------------------------------------------------- */

static void on_timer(void *arg)
{
    struct kube_watch *w = arg;

    enter(w);
    if (w->version)
        start_watch(w);
    else
        start_list(w);
    leave(w);
}

static void retry_later(struct kube_watch *w, const char *why)
{
    uint64_t wait = BACKOFF_MIN_MS;

    for (unsigned i = 0; i < w->failures && wait < BACKOFF_MAX_MS; i++)
        wait *= 2;
    wait = MIN(wait, (uint64_t)BACKOFF_MAX_MS);
    w->failures++;
    w->restarts++;
    w->state = WATCH_WAITING;
    /* Half of it at random, so that the watches of a fleet do not come back in step. */
    timer_start(w->timer, wait / 2 + random_u64() % (wait / 2 + 1));
    set_health(w, HEALTH_DOWN, why);
}

/* Forgets where to resume: the next attempt is a list. */
static void forget_version(struct kube_watch *w)
{
    set_text(&w->version, STR_NULL);
    w->refusals = 0;
}

/* Starts @spec; callbacks and URL by the caller. A failure to do so is met like a broken stream. */
static void start_call(struct kube_watch *w, struct http_call_spec *spec, struct buf *url)
{
    AUTO(buf_done) struct buf auth = BUF_NULL;
    const char *headers[4] = {"Accept: application/json",
                              "User-Agent: commutator/" COMMUTATOR_VERSION};
    struct err e;

    if (kube_config_auth_header(w->owner->config, &auth, &e) < 0) {
        retry_later(w, e.text);
        return;
    }
    if (auth.len)
        headers[2] = buf_cstr(&auth);
    w->status = 0;
    w->why[0] = '\0';
    w->opened_ms = loop_now_ms(w->owner->loop);
    spec->method = "GET";
    spec->url = buf_cstr(url);
    spec->headers = headers;
    spec->arg = w;
    w->call = http_client_start(w->owner->http, spec);
}

static void put_url(struct kube_watch *w, struct buf *url)
{
    buf_put_cstr(url, kube_config_server(w->owner->config));
    kube_path(url, w->spec.kind, w->ns, NULL, NULL);
    kube_url_param(url, "labelSelector", w->label_selector);
    kube_url_param(url, "fieldSelector", w->field_selector);
}

static void on_head(void *arg, int status)
{
    struct kube_watch *w = arg;

    w->status = status;
    if (status == 200 && w->state == WATCH_WATCHING) {
        enter(w);
        set_health(w, HEALTH_UP, "");
        leave(w);
    }
}

/* What the server said with a status other than 200: its message, else the number. */
static void explain(struct kube_watch *w, int status)
{
    AUTO(json_free) struct json *answer = NULL;
    const char *message;

    if (json_parse(&answer, buf_str(&w->page), NULL) < 0)
        answer = NULL;
    message = json_get_cstr(answer, "message");
    (void)snprintf(w->why, sizeof(w->why), "HTTP %d: %.400s", status, message ? message : "");
}

/* --- listing -------------------------------------------------------------------------------------- */

static void on_list_data(void *arg, struct str bytes)
{
    struct kube_watch *w = arg;

    if (w->page.len + bytes.len <= PAGE_BYTES_MAX) {
        buf_put_str(&w->page, bytes);
        return;
    }
    w->call = http_call_cancel(w->call);
    enter(w);
    retry_later(w, "a page of the list is too large");
    leave(w);
}

static void on_list_item(void *arg, struct str raw)
{
    struct kube_watch *w = arg;
    AUTO(json_free) struct json *object = NULL;

    if (w->state == WATCH_STOPPED)
        return;
    object = object_tree(raw);
    if (object)
        take_present(w, object, raw);
}

static void finish_list(struct kube_watch *w, struct str version)
{
    struct str key;
    size_t at = 0;
    void *value;

    set_text(&w->version, version);
    while (w->state != WATCH_STOPPED && strmap_next(w->known, &at, &key, &value)) {
        AUTO(mem_free) char *gone = NULL;
        AUTO(mem_free) struct seen *seen = NULL;

        if (((struct seen *)value)->list == w->list)
            continue;
        gone = str_dup(key);
        seen = strmap_remove(w->known, key);
        tell_gone(w, str_from(gone), seen);
    }
    if (w->state == WATCH_STOPPED)
        return;
    set_text(&w->next_page, STR_NULL);
    buf_done(&w->page); /* not needed for a long time */
    w->synced = true;
    if (w->spec.synced)
        w->spec.synced(w->spec.arg);
    if (w->state != WATCH_STOPPED)
        start_watch(w);
}

static void take_page(struct kube_watch *w)
{
    struct kube_page page;
    struct err e;
    int r = kube_page_parse(buf_str(&w->page), on_list_item, w, &page, &e);

    if (w->state == WATCH_STOPPED)
        return;
    if (r < 0) {
        retry_later(w, e.text);
    } else if (page.next.len) {
        set_text(&w->next_page, page.next);
        start_list(w);
    } else {
        AUTO(mem_free) char *version = str_dup(page.resource_version);

        finish_list(w, str_from(version));
    }
}

static void on_list_done(void *arg, int status, int error, const char *why)
{
    struct kube_watch *w = arg;

    enter(w);
    w->call = NULL;
    if (error) {
        set_text(&w->next_page, STR_NULL);
        retry_later(w, why);
    } else if (status != 200) {
        /* 410: the pages took longer than the server keeps the version; from the start then. */
        set_text(&w->next_page, STR_NULL);
        explain(w, status);
        retry_later(w, w->why);
    } else {
        take_page(w);
    }
    leave(w);
}

/* The first page, or the next one when there is a token for it. */
static void start_list(struct kube_watch *w)
{
    AUTO(buf_done) struct buf url = BUF_NULL;
    struct http_call_spec spec = {
        .total_ms = LIST_MS, .head = on_head, .data = on_list_data, .done = on_list_done};

    if (!w->next_page)
        w->list++;
    w->state = WATCH_LISTING;
    buf_clear(&w->page);
    put_url(w, &url);
    kube_url_param(&url, "limit", PAGE_LIMIT);
    kube_url_param(&url, "continue", w->next_page);
    start_call(w, &spec, &url);
}

/* --- watching ------------------------------------------------------------------------------------- */

static void end_stream(struct kube_watch *w, const char *why)
{
    w->call = http_call_cancel(w->call);
    retry_later(w, why);
}

static void take_error(struct kube_watch *w, const struct json *status)
{
    const char *message = json_get_cstr(status, "message");
    int64_t code = 0;

    (void)json_get_i64(status, "code", &code);
    (void)snprintf(w->why, sizeof(w->why), "%s", message ? message : "error event");
    w->call = http_call_cancel(w->call);
    if (code == 410)
        forget_version(w);
    retry_later(w, w->why);
}

static void take_event(struct kube_watch *w, struct str line)
{
    AUTO(json_free) struct json *object = NULL;
    struct kube_event event;
    const char *version;
    struct err e;

    if (kube_event_parse(line, &event, &e) < 0) {
        end_stream(w, e.text);
        return;
    }
    object = object_tree(event.object);
    if (!object) {
        end_stream(w, "watch event: malformed object");
        return;
    }
    if (event.type == KUBE_EVENT_ERROR) {
        take_error(w, object);
        return;
    }
    w->failures = 0;
    w->refusals = 0;
    version = json_cstr(json_path(object, "metadata", "resourceVersion", NULL));
    if (version)
        set_text(&w->version, str_from(version));
    if (event.type == KUBE_EVENT_DELETED)
        take_deleted(w, object, event.object);
    else if (event.type != KUBE_EVENT_BOOKMARK)
        take_present(w, object, event.object);
}

static void on_watch_data(void *arg, struct str bytes)
{
    struct kube_watch *w = arg;
    struct str line;

    enter(w);
    if (w->status != 200) {
        if (w->page.len + bytes.len <= OBJECT_BYTES_MAX)
            buf_put_str(&w->page, bytes);
    } else {
        kube_lines_feed(&w->lines, bytes);
        /* An event may end this stream; the rest of it is void then. */
        while (w->call && kube_lines_next(&w->lines, &line))
            take_event(w, line);
        if (w->call && kube_lines_pending(&w->lines) > OBJECT_BYTES_MAX)
            end_stream(w, "an object in the stream is too large");
    }
    leave(w);
}

static void on_watch_refused(struct kube_watch *w, int status)
{
    explain(w, status);
    /* A version from another life of the server's store is refused for ever, but not with 410. */
    if (status == 410 || ++w->refusals >= RESUMES_MAX)
        forget_version(w);
    retry_later(w, w->why);
}

static void on_watch_done(void *arg, int status, int error, const char *why)
{
    struct kube_watch *w = arg;
    uint64_t lived = loop_now_ms(w->owner->loop) - w->opened_ms;

    enter(w);
    w->call = NULL;
    if (error)
        retry_later(w, why);
    else if (status != 200)
        on_watch_refused(w, status);
    else if (lived < STABLE_MS)
        retry_later(w, "the stream ended at once");
    else
        start_watch(w);
    leave(w);
}

static void start_watch(struct kube_watch *w)
{
    AUTO(buf_done) struct buf url = BUF_NULL;
    char seconds[24];
    struct http_call_spec spec = {
        .idle_ms = QUIET_MS, .head = on_head, .data = on_watch_data, .done = on_watch_done};

    w->state = WATCH_WATCHING;
    kube_lines_clear(&w->lines);
    buf_clear(&w->page);
    put_url(w, &url);
    kube_url_param(&url, "watch", "1");
    kube_url_param(&url, "allowWatchBookmarks", "true");
    kube_url_param(&url, "resourceVersion", w->version);
    (void)snprintf(seconds, sizeof(seconds), "%u", 300 + (unsigned)(random_u64() % 300));
    kube_url_param(&url, "timeoutSeconds", seconds);
    start_call(w, &spec, &url);
}

/* --- outside -------------------------------------------------------------------------------------- */

struct kube_watch *kube_watch_start(struct kube_watcher *owner, const struct kube_watch_spec *spec)
{
    struct kube_watch *w = xcalloc(1, sizeof(*w));

    w->owner = owner;
    w->spec = *spec;
    w->ns = dup_or_null(spec->ns);
    w->label_selector = dup_or_null(spec->label_selector);
    w->field_selector = dup_or_null(spec->field_selector);
    w->known = strmap_new();
    w->timer = timer_new(owner->loop, on_timer, w);
    list_append(&owner->watches, &w->link);
    /* By timer, so that no callback comes before the caller has our pointer. */
    w->state = WATCH_WAITING;
    timer_start(w->timer, 0);
    return w;
}

struct kube_watch *kube_watch_stop(struct kube_watch *w)
{
    if (!w || w->state == WATCH_STOPPED)
        return NULL;
    list_remove(&w->link);
    if (w->call)
        w->call = http_call_cancel(w->call);
    timer_stop(w->timer);
    w->state = WATCH_STOPPED;
    if (w->busy == 0)
        watch_free(w);
    return NULL;
}

bool kube_watch_synced(const struct kube_watch *w)
{
    return w->synced;
}

uint64_t kube_watch_restarts(const struct kube_watch *w)
{
    return w->restarts;
}
