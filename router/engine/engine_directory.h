/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that are plain OpenAI servers, as models and workers like those of discovery: a second
 * source of the same events (instances.h).
 *
 *     list of URLs ──────────────┐
 *     EndpointSlices of Services ┴─▶ an engine each ─▶ engine_probe ─▶ models, workers ─▶ events
 *     with ENGINE_LABEL, ready pods
 *
 * Every model that an engine lists is served under its name, and hears its KV events: of adapters
 * they name whose they are, names of the same model share all. The card of
 * a model is made of its files, where they are here (the spec's model path, the engine's own word for
 * it, or below the model root), else of what the engine says. One loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/discovery/instances.h"
#include "router/engine/engine_facts.h"

struct engine_directory;
struct http_client;
struct kube_config;
struct zmq_context;

struct engine_directory_conf {
    struct loop *loop;
    struct http_client *http;       /* borrowed, as all that follows */
    struct zmq_context *zmq;        /* NULL: event ports are not tried */
    const char *urls;               /* engine_spec texts between spaces; may be NULL */
    const struct kube_config *kube; /* NULL: no EndpointSlices */
    const char *kube_ns;
    const char
        *ns; /* Dynamo namespace: of the workers; slices of others are left out; NULL = of all */
    const char *model_root; /* may be NULL */
    const char *api_key;    /* of engines whose spec names no variable; NULL = none */
    uint64_t period_ms;     /* as engine_probe_conf has it */
    void (*event)(void *arg, const struct instances_event *ev);
    /* Of the rank @rank of a worker, about once a second. */
    void (*load)(void *arg, const struct served_model *m, const struct worker *w, uint32_t rank,
                 const struct engine_rank_load *load);
    void *arg;
};

/* -EINVAL: a URL is none. */
MUST_CHECK int engine_directory_start(struct engine_directory **ret,
                                      const struct engine_directory_conf *conf, struct err *e);
/* No event comes of it. */
struct engine_directory *engine_directory_free(struct engine_directory *d);
DEFINE_CLEANUP(struct engine_directory *, engine_directory_free)
/*
 * The worker's events show blocks of this size, where nobody had said one: it is taken out and comes
 * back with it. Not from within a callback of an event. Nothing happens when the size was known.
 */
void engine_directory_learn_block_size(struct engine_directory *d, uint64_t worker_id,
                                       uint32_t block_size);
/* Engines that are known, and those that answer. */
void engine_directory_count(const struct engine_directory *d, size_t *ret_all, size_t *ret_up);
