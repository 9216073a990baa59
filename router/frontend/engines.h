/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain OpenAI servers as workers of a frontend: the directory that finds them, their KV events and
 * their load into the schedulers of their pools. One loop thread.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/engine/engine_directory.h"
#include "router/frontend/pool.h"

struct engines;
struct kube_config;
struct metric_registry;

struct engines_conf {
    struct loop *loop;
    struct metric_registry *metrics; /* borrowed, as all that follows */
    const char *urls;                /* as engine_directory_conf has them */
    const char *api_key;             /* likewise */
    const struct kube_config *kube;
    const char *kube_ns, *ns, *model_root;
    void (*event)(void *arg, const struct instances_event *ev);
    struct pool *(*pool_of)(void *arg, const struct served_model *m); /* NULL: not served */
    void *arg;
};

/* Events come from the loop, not from within the call. */
MUST_CHECK int engines_start(struct engines **ret, const struct engines_conf *conf, struct err *e);
struct engines *engines_free(struct engines *en); /* before the pools; no event comes of it */
DEFINE_CLEANUP(struct engines *, engines_free)
/* For requests to them. */
struct http_client *engines_http(const struct engines *en);

/* What the owner does with the events it gets: a pool's KV events begin and end. */
void engines_pool_added(struct engines *en, struct pool *p);
void engines_pool_removed(struct engines *en, struct pool *p);
void engines_worker_put(struct engines *en, struct pool *p, const struct worker *w);
void engines_worker_removed(struct engines *en, struct pool *p, const struct worker *w);
/* Brings gauges up to date, before they are printed. */
void engines_measure(struct engines *en);
