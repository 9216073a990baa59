/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/routing_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/json_tree.h"
#include "lib/base/log.h"
#include "lib/kube/kube_kinds.h"

static const struct log_target LG = {"commutator::frontend::routing_report"};

enum { RETRY_MS = 1000 };

struct report {
    uint64_t generation;
    char mode[32];
    char error[256];
};

struct routing_report {
    struct routing_report_conf conf;
    struct kube_client *client;
    struct timer *retry;
    struct report newest, written;
    bool pending, running, freed;
    int r;
    struct err e;
};

static struct json *metadata_of(const struct routing_report *rr)
{
    struct json *meta = json_new_object(), *annotations, *owner;
    AUTO(mem_free) char *generation = xasprintf("%" PRIu64, rr->written.generation);

    json_set_cstr(meta, "name", rr->conf.pod_name);
    json_set_cstr(meta, "namespace", rr->conf.ns);
    annotations = json_need_object(meta, "annotations");
    json_set_cstr(annotations, "commutator.dev/routing-generation", generation);
    json_set_cstr(annotations, "commutator.dev/routing-mode", rr->written.mode);
    if (rr->written.error[0])
        json_set_cstr(annotations, "commutator.dev/routing-error", rr->written.error);
    owner = json_add(json_need_array(meta, "ownerReferences"), json_new_object());
    json_set_cstr(owner, "apiVersion", "v1");
    json_set_cstr(owner, "kind", "Pod");
    json_set_cstr(owner, "name", rr->conf.pod_name);
    json_set_cstr(owner, "uid", rr->conf.pod_uid);
    json_set_bool(owner, "controller", true);
    json_set_bool(owner, "blockOwnerDeletion", false);
    return meta;
}

static void write_work(void *arg)
{
    struct routing_report *rr = arg;
    AUTO(json_free) struct json *object = json_new_object();
    struct json *data;

    json_set_cstr(object, "apiVersion", "nvidia.com/v1alpha1");
    json_set_cstr(object, "kind", "DynamoWorkerMetadata");
    json_set(object, "metadata", metadata_of(rr));
    /* 0.9.0 readers refuse a record without its three maps (wire.md §2.6). */
    data = json_need_object(json_need_object(object, "spec"), "data");
    (void)json_need_object(data, "endpoints");
    (void)json_need_object(data, "model_cards");
    (void)json_need_object(data, "event_channels");

    rr->r = 0;
    if (!rr->client)
        rr->r = kube_client_new(&rr->client, rr->conf.kube, &rr->e);
    if (rr->r == 0)
        rr->r = kube_apply(rr->client, &KIND_DWM, object, "commutator-frontend", NULL, &rr->e);
}

static void start(void *arg);

static void write_done(void *arg)
{
    struct routing_report *rr = arg;

    rr->running = false;
    if (rr->freed) {
        routing_report_free(rr);
        return;
    }
    if (rr->r != 0) {
        log_warn(&LG, "cannot report the routing generation, trying again",
                 LOG_STR("why", rr->e.text));
        rr->pending = true;
        timer_start(rr->retry, RETRY_MS);
        return;
    }
    if (rr->pending)
        start(rr);
}

static void start(void *arg)
{
    struct routing_report *rr = arg;

    if (rr->running)
        return;
    rr->pending = false;
    rr->running = true;
    rr->written = rr->newest;
    loop_work(rr->conf.loop, write_work, write_done, rr);
}

struct routing_report *routing_report_new(const struct routing_report_conf *conf)
{
    struct routing_report *rr = xcalloc(1, sizeof(*rr));

    rr->conf = *conf;
    rr->retry = timer_new(conf->loop, start, rr);
    return rr;
}

struct routing_report *routing_report_free(struct routing_report *rr)
{
    if (!rr)
        return NULL;
    rr->retry = timer_free(rr->retry);
    rr->freed = true;
    if (rr->running)
        return NULL; /* write_done() comes back here */
    kube_client_free(rr->client);
    free(rr);
    return NULL;
}

void routing_report_put(struct routing_report *rr, uint64_t generation, const char *mode,
                        const char *error)
{
    rr->newest.generation = generation;
    (void)snprintf(rr->newest.mode, sizeof(rr->newest.mode), "%s", mode);
    (void)snprintf(rr->newest.error, sizeof(rr->newest.error), "%s", error);
    rr->pending = true;
    start(rr);
}
