/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "lib/kube/kube_kinds.h"
#include "lib/net/loop.h"
#include "operator/ctrl/stamp.h"

static const struct log_target LG = {"dynamo_operator::events"};

enum { CLOSE_MS = 2000 };

struct event {
    struct list link;
    uint64_t told_ms;
    char *key;           /* what makes two events the same */
    struct json *object; /* as it is created */
};

struct told {
    char *name; /* of the Event object */
    int64_t count;
};

struct recorder {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct list waiting;
    size_t n_waiting;
    uint64_t last_told_ms;
    uint64_t dropped;
    bool closing;
    uint64_t close_by_ms;
    char *component, *instance;
    pthread_t thread;
    /* the thread's own */
    struct kube_client *kube;
    struct strmap *memory; /* key to struct told */
};

static void event_free(struct event *ev)
{
    free(ev->key);
    (void)json_free(ev->object);
    free(ev);
}

static void told_free(void *value)
{
    struct told *t = value;

    free(t->name);
    free(t);
}

/* --- the thread -------------------------------------------------------------------------------------- */

static void remember(struct recorder *r, const struct event *ev)
{
    struct told *t = xmalloc(sizeof(*t)), *old;

    /* A cluster with more different events than this gets new objects instead of higher counts. */
    if (strmap_len(r->memory) >= RECORDER_MEMORY_MAX) {
        strmap_free_with(r->memory, told_free);
        r->memory = strmap_new();
    }
    t->name = xstrdup(json_cstr(json_path(ev->object, "metadata", "name", NULL)));
    t->count = 1;
    old = strmap_set(r->memory, str_from(ev->key), t);
    if (old)
        told_free(old);
}

/* Raises the count of an event that was told before; false when its object is gone. */
static bool write_again(struct recorder *r, const struct event *ev, struct told *t)
{
    AUTO(json_free) struct json *patch = json_new_object();
    const char *ns = json_cstr(json_path(ev->object, "metadata", "namespace", NULL));
    struct err e;

    (void)json_set_i64(patch, "count", t->count + 1);
    (void)json_set(patch, "lastTimestamp", json_dup(json_get(ev->object, "lastTimestamp")));
    if (kube_patch(r->kube, &KIND_EVENT, ns, t->name, NULL, patch, NULL, &e) != 0)
        return false;
    t->count++;
    return true;
}

static void write_event(struct recorder *r, const struct event *ev)
{
    struct told *t = strmap_get(r->memory, str_from(ev->key));
    struct err e;

    if (t && write_again(r, ev, t))
        return;
    /* An event is told once and not insisted upon: the state of things is in status. */
    if (kube_create(r->kube, &KIND_EVENT, ev->object, NULL, &e) == 0)
        remember(r, ev);
    else
        log_debug(&LG, "event not written", LOG_STR("why", e.text));
}

static uint64_t now_ms(void)
{
    return clock_now_ns() / 1000000;
}

/* With the lock held: until something changes, or @due_ms. */
static void wait_until(struct recorder *r, uint64_t due_ms)
{
    struct timespec until = {.tv_sec = (time_t)(due_ms / 1000),
                             .tv_nsec = (long)(due_ms % 1000) * 1000000};

    (void)pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

/* With the lock held. */
static uint64_t due_ms(const struct recorder *r, const struct event *ev)
{
    return MIN(r->last_told_ms + RECORDER_DELAY_MS, ev->told_ms + RECORDER_DELAY_MAX_MS);
}

static struct event *next_event(struct recorder *r)
{
    struct event *ev = NULL;

    (void)pthread_mutex_lock(&r->lock);
    for (;;) {
        bool empty = list_empty(&r->waiting);

        if (r->closing && (empty || now_ms() >= r->close_by_ms))
            break;
        ev = empty ? NULL : LIST_ENTRY(r->waiting.next, struct event, link);
        if (ev && (r->closing || now_ms() >= due_ms(r, ev))) {
            list_remove(&ev->link);
            r->n_waiting--;
            (void)pthread_mutex_unlock(&r->lock);
            return ev;
        }
        if (ev)
            wait_until(r, due_ms(r, ev));
        else
            (void)pthread_cond_wait(&r->changed, &r->lock);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void *record(void *arg)
{
    struct recorder *r = arg;
    struct event *ev;

    while ((ev = next_event(r))) {
        write_event(r, ev);
        event_free(ev);
    }
    return NULL;
}

/* --- outside ----------------------------------------------------------------------------------------- */

int recorder_new(struct recorder **ret, const struct kube_config *config, const char *component,
                 const char *instance, struct err *e)
{
    struct recorder *r = xcalloc(1, sizeof(*r));
    pthread_condattr_t attr;
    int result = kube_client_new(&r->kube, config, e);

    if (result < 0) {
        free(r);
        return err_wrap(e, result, "events");
    }
    r->component = xstrdup(component);
    r->instance = xstrdup(instance);
    r->memory = strmap_new();
    list_init(&r->waiting);
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* clock_now_ns() reads it too */
    (void)pthread_cond_init(&r->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (pthread_create(&r->thread, NULL, record, r) != 0)
        abort(); /* no thread at start: nothing would work */
    *ret = r;
    return 0;
}

struct recorder *recorder_free(struct recorder *r)
{
    if (!r)
        return NULL;
    (void)pthread_mutex_lock(&r->lock);
    r->closing = true;
    r->close_by_ms = now_ms() + CLOSE_MS;
    (void)pthread_cond_signal(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    (void)pthread_join(r->thread, NULL);
    LIST_FOREACH (ev, &r->waiting, struct event, link)
        event_free(ev);
    strmap_free_with(r->memory, told_free);
    (void)kube_client_free(r->kube);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->changed);
    free(r->component);
    free(r->instance);
    free(r);
    return NULL;
}

static struct json *involved(const struct kube_kind *kind, const struct json *object)
{
    static const char *const keys[] = {"namespace", "name", "uid", "resourceVersion"};
    struct json *ref = json_new_object();
    AUTO(mem_free)
    char *api =
        *kind->group ? xasprintf("%s/%s", kind->group, kind->version) : xstrdup(kind->version);

    (void)json_set_cstr(ref, "apiVersion", api);
    (void)json_set_cstr(ref, "kind", kind->kind);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *value = json_cstr(json_path(object, "metadata", keys[i], NULL));

        if (value)
            (void)json_set_cstr(ref, keys[i], value);
    }
    return ref;
}

static struct json *event_object(const struct recorder *r, struct json *take_ref, bool warning,
                                 const char *reason, const char *message)
{
    struct json *object = json_new_object(), *metadata, *source;
    const char *ns = json_get_cstr(take_ref, "namespace"), *name = json_get_cstr(take_ref, "name");
    AUTO(mem_free)
    char *event_name = xasprintf("%.200s.%016jx", name ? name : "", (uintmax_t)random_u64());
    char now[STAMP_SIZE];

    stamp_format(clock_wall_ms(), now);
    metadata = json_need_object(object, "metadata");
    (void)json_set_cstr(metadata, "name", event_name);
    (void)json_set_cstr(metadata, "namespace", ns ? ns : "default");
    (void)json_set(object, "involvedObject", take_ref);
    (void)json_set_cstr(object, "type", warning ? "Warning" : "Normal");
    (void)json_set_cstr(object, "reason", reason);
    (void)json_set(object, "message", json_new_str(str_head(str_from(message), RECORDER_TEXT_MAX)));
    (void)json_set_i64(object, "count", 1);
    (void)json_set_cstr(object, "firstTimestamp", now);
    (void)json_set_cstr(object, "lastTimestamp", now);
    source = json_need_object(object, "source");
    (void)json_set_cstr(source, "component", r->component);
    (void)json_set_cstr(object, "reportingComponent", r->component);
    (void)json_set_cstr(object, "reportingInstance", r->instance);
    return object;
}

void recorder_tell(struct recorder *r, const struct kube_kind *kind, const struct json *object,
                   bool warning, const char *reason, const char *message)
{
    struct event *ev;
    const char *uid;

    if (!r)
        return;
    uid = json_cstr(json_path(object, "metadata", "uid", NULL));
    ev = xcalloc(1, sizeof(*ev));
    ev->told_ms = now_ms();
    ev->key = xasprintf("%s %s %s", uid ? uid : "", reason, message);
    ev->object = event_object(r, involved(kind, object), warning, reason, message);

    (void)pthread_mutex_lock(&r->lock);
    r->last_told_ms = ev->told_ms;
    if (r->n_waiting >= RECORDER_QUEUE_MAX || r->closing) {
        r->dropped++;
        event_free(ev);
    } else {
        list_append(&r->waiting, &ev->link);
        r->n_waiting++;
        (void)pthread_cond_signal(&r->changed);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

uint64_t recorder_dropped(struct recorder *r)
{
    uint64_t n;

    (void)pthread_mutex_lock(&r->lock);
    n = r->dropped;
    (void)pthread_mutex_unlock(&r->lock);
    return n;
}
