/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/elector.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/base/log.h"
#include "lib/kube/kube_client.h"
#include "lib/kube/kube_kinds.h"
#include "lib/net/loop.h"
#include "operator/ctrl/stamp.h"

static const struct log_target LG = {"dynamo_operator::leader"};

struct elector {
    struct elector_conf conf;
    char *ns, *name, *identity;
    struct kube_client *kube;
    struct elector_view view;
    struct json *lease; /* as we wrote it last; NULL when it may be another */
    bool leading;
    uint64_t renewed_ms; /* when the last attempt that succeeded began */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
};

/* --- the decision ------------------------------------------------------------------------------------ */

static const char *text_of(const struct json *lease, const char *key)
{
    const char *text = json_cstr(json_path(lease, "spec", key, NULL));

    return text ? text : "";
}

static uint64_t duration_ms(const struct json *lease)
{
    int64_t seconds = ELECTOR_LEASE_MS / 1000;

    (void)json_get_i64(json_get(lease, "spec"), "leaseDurationSeconds", &seconds);
    return seconds > 0 ? (uint64_t)seconds * 1000 : 0;
}

enum elector_action elector_decide(const struct json *lease, const char *identity, uint64_t now_ms,
                                   struct elector_view *view)
{
    const char *holder = text_of(lease, "holderIdentity"), *renewed = text_of(lease, "renewTime");

    if (strcmp(holder, identity) == 0)
        return ELECTOR_RENEW;
    if (!*holder)
        return ELECTOR_TAKE;
    if (strncmp(view->holder, holder, sizeof(view->holder) - 1) != 0 ||
        strncmp(view->renewed, renewed, sizeof(view->renewed) - 1) != 0) {
        (void)snprintf(view->holder, sizeof(view->holder), "%s", holder);
        (void)snprintf(view->renewed, sizeof(view->renewed), "%s", renewed);
        view->seen_ms = now_ms;
    }
    return now_ms - view->seen_ms >= duration_ms(lease) ? ELECTOR_TAKE : ELECTOR_WAIT;
}

uint64_t elector_call_ms(uint64_t renewed_ms, uint64_t now_ms)
{
    uint64_t end_ms = renewed_ms + ELECTOR_RENEW_MS;

    return now_ms < end_ms ? MIN(end_ms - now_ms, (uint64_t)ELECTOR_CALL_MS) : 0;
}

struct json *elector_held(const struct json *lease, const struct elector_conf *conf,
                          uint64_t wall_ms)
{
    struct json *held = lease ? json_dup(lease) : json_new_object();
    struct json *metadata = json_need_object(held, "metadata");
    struct json *spec = json_need_object(held, "spec");
    bool ours = strcmp(text_of(held, "holderIdentity"), conf->identity) == 0;
    int64_t transitions = 0;
    char now[STAMP_SIZE];

    stamp_format_micro(wall_ms, now);
    (void)json_set_cstr(metadata, "namespace", conf->ns);
    (void)json_set_cstr(metadata, "name", conf->name);
    if (!ours) {
        if (json_get_i64(spec, "leaseTransitions", &transitions))
            transitions++;
        (void)json_set_i64(spec, "leaseTransitions", transitions);
        (void)json_set_cstr(spec, "acquireTime", now);
    }
    (void)json_set_cstr(spec, "holderIdentity", conf->identity);
    (void)json_set_i64(spec, "leaseDurationSeconds", ELECTOR_LEASE_MS / 1000);
    (void)json_set_cstr(spec, "renewTime", now);
    return held;
}

struct json *elector_released(const struct json *lease, uint64_t wall_ms)
{
    struct json *released = json_dup(lease);
    struct json *spec = json_need_object(released, "spec");
    char now[STAMP_SIZE];

    stamp_format_micro(wall_ms, now);
    (void)json_set_cstr(spec, "holderIdentity", "");
    (void)json_set_i64(spec, "leaseDurationSeconds", 1);
    (void)json_set_cstr(spec, "renewTime", now);
    return released;
}

/* --- the thread -------------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
    return clock_now_ns() / 1000000;
}

/* Before each call. */
static int limit_call(struct elector *el, struct err *e)
{
    uint64_t ms = el->leading ? elector_call_ms(el->renewed_ms, now_ms()) : ELECTOR_CALL_MS;

    if (!ms)
        return err_set(e, -ETIMEDOUT, "no answer for %d ms", ELECTOR_RENEW_MS);
    kube_client_set_deadline(el->kube, ms);
    return 0;
}

/* Of a call that did not succeed. */
static int failure(int r)
{
    return r < 0 ? r : -EACCES;
}

/* Writes el->lease (NULL: a new one) as ours: 1, 0 when somebody else was faster, or -errno. */
static int write_held(struct elector *el, struct err *e)
{
    AUTO(json_free) struct json *held = elector_held(el->lease, &el->conf, clock_wall_ms());
    struct json *stored = NULL;
    bool is_new = !el->lease;
    int r = limit_call(el, e);

    if (r < 0)
        return r;
    r = is_new ? kube_create(el->kube, &KIND_LEASE, held, &stored, e)
               : kube_update(el->kube, &KIND_LEASE, held, &stored, e);
    (void)json_free(el->lease);
    el->lease = stored;
    if (r == KUBE_CONFLICT || r == KUBE_EXISTS || (!is_new && r == KUBE_NOT_FOUND))
        return 0;
    return r == 0 ? 1 : failure(r);
}

/* One attempt: 1 when the Lease is ours now, 0 when it is not, -errno when nobody can say. */
static int attempt(struct elector *el, struct err *e)
{
    int r;

    if (el->lease) {
        r = write_held(el, e);
        if (r != 0)
            return r; /* else it has been touched, which takes nothing from us yet */
    }
    r = limit_call(el, e);
    if (r < 0)
        return r;
    r = kube_get(el->kube, &KIND_LEASE, el->ns, el->name, &el->lease, e);
    if (r != 0 && r != KUBE_NOT_FOUND)
        return failure(r);
    if (el->lease && elector_decide(el->lease, el->identity, now_ms(), &el->view) == ELECTOR_WAIT) {
        el->lease = json_free(el->lease);
        return 0;
    }
    return write_held(el, e);
}

static void release(struct elector *el)
{
    AUTO(json_free) struct json *released = NULL;
    struct err e;

    kube_client_set_deadline(el->kube, ELECTOR_CALL_MS);
    if (!el->lease && (kube_get(el->kube, &KIND_LEASE, el->ns, el->name, &el->lease, &e) != 0 ||
                       strcmp(text_of(el->lease, "holderIdentity"), el->identity) != 0))
        return;
    released = elector_released(el->lease, clock_wall_ms());
    if (kube_update(el->kube, &KIND_LEASE, released, NULL, &e) == 0)
        log_info(&LG, "lease released", LOG_STR("lease", el->name));
}

/* Until @at_ms, at once when that is past. False when it is time to go. */
static bool pause_until(struct elector *el, uint64_t at_ms)
{
    const struct timespec at = {.tv_sec = (time_t)(at_ms / 1000),
                                .tv_nsec = (long)(at_ms % 1000) * 1000000};
    bool closing;

    (void)pthread_mutex_lock(&el->lock);
    while (!el->closing && pthread_cond_timedwait(&el->changed, &el->lock, &at) != ETIMEDOUT)
        ;
    closing = el->closing;
    (void)pthread_mutex_unlock(&el->lock);
    return !closing;
}

/* When to try again: not after the moment that an unanswered holder has to say so. */
static uint64_t next_ms(const struct elector *el, uint64_t began_ms)
{
    uint64_t at_ms = began_ms + el->conf.retry_ms;

    return el->leading ? MIN(at_ms, el->renewed_ms + ELECTOR_RENEW_MS) : at_ms;
}

static void *elect(void *arg)
{
    struct elector *el = arg;
    uint64_t began_ms;
    bool told = false;
    struct err e = {""};

    do {
        int r;

        began_ms = now_ms();
        r = attempt(el, &e);
        if (r == 1) {
            el->renewed_ms = began_ms;
            if (!el->leading)
                el->conf.leading(el->conf.arg);
            el->leading = true;
        } else if (r < 0 && !told) {
            log_warn(&LG, "lease not reached, trying on", LOG_STR("why", e.text));
        }
        told = r < 0;
        if (el->leading && (r == 0 || !elector_call_ms(el->renewed_ms, now_ms()))) {
            el->conf.lost(el->conf.arg, r == 0 ? "another operator holds it" : e.text);
            return NULL;
        }
    } while (pause_until(el, next_ms(el, began_ms)));
    if (el->leading)
        release(el);
    return NULL;
}

int elector_start(struct elector **ret, const struct kube_config *config,
                  const struct elector_conf *conf, struct err *e)
{
    struct elector *el = xcalloc(1, sizeof(*el));
    pthread_condattr_t attr;
    int r = kube_client_new(&el->kube, config, e);

    if (r < 0) {
        free(el);
        return err_wrap(e, r, "leader election");
    }
    el->conf = *conf;
    el->conf.retry_ms = conf->retry_ms ? conf->retry_ms : ELECTOR_RETRY_MS;
    el->conf.ns = el->ns = xstrdup(conf->ns);
    el->conf.name = el->name = xstrdup(conf->name);
    el->conf.identity = el->identity = xstrdup(conf->identity);
    (void)pthread_mutex_init(&el->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&el->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (pthread_create(&el->thread, NULL, elect, el) != 0)
        abort(); /* no thread at start: nothing would work */
    *ret = el;
    return 0;
}

struct elector *elector_stop(struct elector *el)
{
    if (!el)
        return NULL;
    (void)pthread_mutex_lock(&el->lock);
    el->closing = true;
    (void)pthread_cond_signal(&el->changed);
    (void)pthread_mutex_unlock(&el->lock);
    (void)pthread_join(el->thread, NULL);
    (void)kube_client_free(el->kube);
    (void)json_free(el->lease);
    (void)pthread_mutex_destroy(&el->lock);
    (void)pthread_cond_destroy(&el->changed);
    free(el->ns);
    free(el->name);
    free(el->identity);
    free(el);
    return NULL;
}
