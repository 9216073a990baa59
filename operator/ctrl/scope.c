/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/scope.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "lib/base/log.h"
#include "lib/kube/kube_client.h"
#include "lib/kube/kube_kinds.h"
#include "lib/net/loop.h"
#include "operator/ctrl/stamp.h"

static const struct log_target LG = {"dynamo_operator::scope"};

struct scope_marker {
    struct scope_conf conf;
    char *ns, *holder;
    struct kube_client *kube;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
};

uint64_t scope_marker_left_ms(const struct json *lease, uint64_t wall_ms)
{
    const struct json *spec = json_get(lease, "spec");
    int64_t seconds = 0;
    uint64_t renewed, until;

    if (!stamp_parse(str_from(json_get_cstr(spec, "renewTime")), &renewed) ||
        !json_get_i64(spec, "leaseDurationSeconds", &seconds) || seconds <= 0)
        return 0;
    until = renewed + (uint64_t)seconds * 1000;
    return until > wall_ms ? until - wall_ms : 0;
}

uint64_t scope_excluded_ms(struct cache *cache, const char *ns, uint64_t wall_ms)
{
    AUTO(json_free) struct json *lease = cache_get(cache, &KIND_LEASE, ns, SCOPE_LEASE);

    return scope_marker_left_ms(lease, wall_ms);
}

static struct json *marker(const struct scope_marker *m, const struct json *present)
{
    struct json *lease = present ? json_dup(present) : json_new_object();
    struct json *metadata = json_need_object(lease, "metadata");
    struct json *spec = json_need_object(lease, "spec");
    char now[STAMP_SIZE];

    stamp_format_micro(clock_wall_ms(), now);
    (void)json_set_cstr(metadata, "namespace", m->ns);
    (void)json_set_cstr(metadata, "name", SCOPE_LEASE);
    (void)json_set_cstr(spec, "holderIdentity", m->holder);
    (void)json_set_i64(spec, "leaseDurationSeconds", (int64_t)(m->conf.duration_ms / 1000));
    if (!json_get(spec, "acquireTime"))
        (void)json_set_cstr(spec, "acquireTime", now);
    (void)json_set_cstr(spec, "renewTime", now);
    return lease;
}

static int renew(struct scope_marker *m, struct err *e)
{
    AUTO(json_free) struct json *present = NULL;
    AUTO(json_free) struct json *lease = NULL;
    int r = kube_get(m->kube, &KIND_LEASE, m->ns, SCOPE_LEASE, &present, e);

    if (r != 0 && r != KUBE_NOT_FOUND)
        return r < 0 ? r : -EACCES;
    lease = marker(m, present);
    r = present ? kube_update(m->kube, &KIND_LEASE, lease, NULL, e)
                : kube_create(m->kube, &KIND_LEASE, lease, NULL, e);
    return r <= 0 ? r : -EACCES;
}

/* False when it is time to go. */
static bool pause_for(struct scope_marker *m, uint64_t ms)
{
    struct timespec until;
    bool closing;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_mutex_lock(&m->lock);
    while (!m->closing && pthread_cond_timedwait(&m->changed, &m->lock, &until) != ETIMEDOUT)
        ;
    closing = m->closing;
    (void)pthread_mutex_unlock(&m->lock);
    return !closing;
}

static void *keep(void *arg)
{
    struct scope_marker *m = arg;
    /* One less than fit into the duration: the marker must not expire while we still write. */
    uint64_t failures_max = MAX(m->conf.duration_ms / m->conf.renew_ms, UINT64_C(2)) - 1;
    uint64_t failures = 0;
    struct err e;

    while (pause_for(m, m->conf.renew_ms)) {
        if (renew(m, &e) == 0) {
            failures = 0;
            continue;
        }
        log_warn(&LG, "namespace marker not renewed", LOG_STR("why", e.text));
        if (++failures >= failures_max) {
            m->conf.lost(m->conf.arg, e.text);
            return NULL;
        }
    }
    if (kube_delete(m->kube, &KIND_LEASE, m->ns, SCOPE_LEASE, NULL, &e) < 0)
        log_warn(&LG, "namespace marker not deleted, it expires", LOG_STR("why", e.text));
    return NULL;
}

static struct scope_marker *marker_free(struct scope_marker *m)
{
    (void)kube_client_free(m->kube);
    (void)pthread_mutex_destroy(&m->lock);
    (void)pthread_cond_destroy(&m->changed);
    free(m->ns);
    free(m->holder);
    free(m);
    return NULL;
}

int scope_marker_start(struct scope_marker **ret, const struct kube_config *config,
                       const struct scope_conf *conf, struct err *e)
{
    struct scope_marker *m = xcalloc(1, sizeof(*m));
    pthread_condattr_t attr;
    int r;

    m->conf = *conf;
    m->ns = xstrdup(conf->ns);
    m->holder = xasprintf("namespace-restricted-operator-%s", conf->version);
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&m->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    r = kube_client_new(&m->kube, config, e);
    if (r == 0) {
        kube_client_set_deadline(m->kube, conf->renew_ms);
        r = renew(m, e);
    }
    if (r < 0) {
        (void)marker_free(m);
        return err_wrap(e, r, "namespace marker");
    }
    if (pthread_create(&m->thread, NULL, keep, m) != 0)
        abort(); /* no thread at start: nothing would work */
    *ret = m;
    return 0;
}

struct scope_marker *scope_marker_stop(struct scope_marker *m)
{
    if (!m)
        return NULL;
    (void)pthread_mutex_lock(&m->lock);
    m->closing = true;
    (void)pthread_cond_signal(&m->changed);
    (void)pthread_mutex_unlock(&m->lock);
    (void)pthread_join(m->thread, NULL);
    return marker_free(m);
}
