/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gauges that are read when somebody asks for /metrics: indexes, loads, links.
 *
 * Their families are declared once. Models and workers come and go, so what is not sampled again is
 * gone from the next answer. One loop thread.
 */
#pragma once

#include "lib/base/metric.h"

struct admin;
struct router_metrics;
struct scheduler;
struct shared_cache;

enum sample {
    SAMPLE_INDEX_BLOCKS,
    SAMPLE_INDEX_BYTES,
    SAMPLE_INDEX_ORPHANS,
    SAMPLE_INDEX_EVICTED,
    SAMPLE_INDEX_REFUSED,
    SAMPLE_TIER_BLOCKS,
    SAMPLE_TIER_EVICTED,
    SAMPLE_SHARED_OBJECTS,
    SAMPLE_SHARED_EVENTS,
    SAMPLE_WORKERS,
    SAMPLE_BOOKINGS_EXPIRED,
    SAMPLE_DECODE_BLOCKS,
    SAMPLE_PREFILL_TOKENS,
    SAMPLE_EVENT_CONFIDENCE,
    SAMPLE_EVENT_FALLBACK,
    SAMPLE_REGISTERED,
    SAMPLE_SILENT_WORKERS,
    SAMPLE_MODEL_READY,
    SAMPLE_PROMPT_BYTES,
    SAMPLE_PROMPT_EVICTED,
    SAMPLE_NATS_UP,
    SAMPLE_PLANE_INFLIGHT,
    SAMPLE_NATS_DROPPED,
    SAMPLE_EVENT_MESSAGES,
    SAMPLE_PLANE_STREAMS,
    SAMPLE_PLANE_CONNECTIONS,
    SAMPLE_DISCOVERY_UP,
    SAMPLE_REFUSED_CARDS,
    SAMPLE_DISCOVERY_KEPT,
    SAMPLE_DISCOVERY_GIVEN_UP,
    SAMPLE_DISCOVERY_AGE,
    SAMPLE_DISCOVERY_RECORDS,
    SAMPLES
};

struct samples {
    struct metric_registry *registry;
    struct metric_family *families[SAMPLES];
};

void samples_init(struct samples *s, struct metric_registry *r);
void samples_take(struct samples *s, const struct admin *a);

/* What is sampled of a router that is no frontend: after samples_forget(). */
struct sampled_pool {
    struct scheduler *scheduler;
    struct shared_cache *shared; /* NULL = none */
    const char *ns, *component, *endpoint, *model, *worker_type;
    const char *own_id; /* of the router, hex */
};
void samples_forget(struct samples *s);
void samples_pool(struct samples *s, const struct sampled_pool *p, struct router_metrics *router);
