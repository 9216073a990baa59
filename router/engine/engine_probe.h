/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks one engine what it is and how it does, again and again.
 *
 *     /v1/models ─▶ /metrics ─┬─▶ /kv_event_sources (vLLM) ─┬─▶ /tokenize ─▶ ZeroMQ ports ─▶ found
 *        ▲                    └─▶ /server_info (SGLang) ──────┘                            │
 *        └──────────────────── every 2 s; /metrics every second ◀──────────────────────────┘
 *
 * SGLang is whose /metrics name no block size.
 *
 * An engine that does not answer three times is lost, and asked on. Event ports that nobody named are
 * those that the engines' documentation uses, when a publisher (a replay socket) shakes hands there.
 * One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "router/engine/engine_facts.h"
#include "router/engine/engine_spec.h"

struct engine_probe;
struct http_client;
struct zmq_context;

enum { ENGINE_EVENTS_PORT = 5557, ENGINE_REPLAY_PORT = 5558 };

/* Borrowed during the call. */
struct engine_found {
    const struct engine_models *models;
    uint32_t block_size;         /* 0 = nobody knows */
    uint32_t dp_size;            /* at least 1 */
    uint64_t total_blocks;       /* of one rank, 0 = unknown */
    const char *events, *replay; /* NULL = none */
    bool tokenizes;
    const uint32_t *sample; /* its tokens of ENGINE_SAMPLE */
    size_t n_sample;
};

struct engine_probe_conf {
    struct loop *loop;
    struct http_client *http; /* borrowed, as the others */
    struct zmq_context *zmq;  /* NULL: no port is tried */
    const struct engine_spec *spec;
    const char *api_key; /* NULL = none */
    uint64_t period_ms;  /* 0 = 1000 */
    /* They may free the probe. */
    void (*found)(void *arg,
                  const struct engine_found *f); /* it is there, or another than it was */
    void (*lost)(void *arg, const char *why);
    void (*load)(void *arg, const struct engine_load_report *r); /* between found and lost */
    void *arg;
};

struct engine_probe *engine_probe_start(const struct engine_probe_conf *conf)
    __attribute__((returns_nonnull));
struct engine_probe *engine_probe_free(struct engine_probe *p);
DEFINE_CLEANUP(struct engine_probe *, engine_probe_free)
