/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/kv_listener.h"

#include <errno.h>

#include "router/sync/engine_source.h"

struct kv_listener {
    struct kv_listener_conf conf;
    struct engine_source *source;
    bool paused;
};

const char *kv_listener_status_word(enum kv_listener_status s)
{
    static const char *const words[] = {[KV_LISTENER_FAILED] = "failed",
                                        [KV_LISTENER_PENDING] = "pending",
                                        [KV_LISTENER_ACTIVE] = "active",
                                        [KV_LISTENER_PAUSED] = "paused"};

    return words[s];
}

enum kv_listener_status kv_listener_status(const struct kv_listener *l)
{
    if (l->paused)
        return KV_LISTENER_PAUSED;
    return engine_source_connected(l->source) ? KV_LISTENER_ACTIVE : KV_LISTENER_PENDING;
}

void kv_listener_pause(struct kv_listener *l)
{
    l->paused = true;
    engine_source_pause(l->source);
}

void kv_listener_resume(struct kv_listener *l)
{
    l->paused = false;
    engine_source_resume(l->source);
}

static void on_event(void *arg, const struct kv_event *ev, uint64_t sent_ms)
{
    const struct kv_listener *l = arg;

    (void)sent_ms;
    l->conf.event(l->conf.arg, ev);
}

static int check_endpoint(struct str endpoint, struct err *e)
{
    return str_has(endpoint, STR("://"))
               ? 0
               : err_set(e, -EINVAL, "invalid ZMQ endpoint `%.*s`: missing scheme",
                         STR_ARG(endpoint));
}

int kv_listener_start(struct kv_listener **ret, const struct kv_listener_conf *conf, struct err *e)
{
    AUTO(kv_listener_free) struct kv_listener *l = xcalloc(1, sizeof(*l));
    AUTO(mem_free) char *endpoint = str_dup(conf->endpoint);
    AUTO(mem_free) char *replay = str_dup(conf->replay_endpoint);
    struct engine_source_conf source = {.loop = conf->loop,
                                        .zmq = conf->zmq,
                                        .endpoint = endpoint,
                                        .replay = conf->replay_endpoint.len ? replay : NULL,
                                        .worker_id = conf->worker_id,
                                        .dp_rank = conf->dp_rank,
                                        .block_size = conf->block_size,
                                        .event = on_event,
                                        .arg = l};
    int r = check_endpoint(conf->endpoint, e);

    l->conf = *conf;
    if (r == 0 && conf->replay_endpoint.len)
        r = check_endpoint(conf->replay_endpoint, e);
    if (r < 0)
        return r;
    if (engine_source_start(&l->source, &source, e) < 0)
        return err_wrap(e, -EINVAL, "invalid ZMQ endpoint `%s`", endpoint);
    *ret = TAKE(l);
    return 0;
}

struct kv_listener *kv_listener_free(struct kv_listener *l)
{
    if (!l)
        return NULL;
    engine_source_free(l->source);
    free(l);
    return NULL;
}
