/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the requests of one frontend share: loop, request plane, models, configuration, metrics.
 *
 * Owned by frontend.c; one loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/metric.h"
#include "lib/base/strmap.h"
#include "lib/net/loop.h"
#include "router/frontend/model.h"
#include "router/sched/route_conf.h"
#include "router/wire/plane_client.h"

/* Metric families of wire.md §10 and router.md §7; series are looked up by model when used. */
struct serving_metrics {
    struct metric_registry *registry;
    struct metric_family *requests, *inflight, *queued, *duration, *input_tokens, *output_tokens;
    struct metric_family *cached_tokens, *output_total, *ttft, *itl;
    struct metric *disconnected;
    struct metric_family *card_gauges[6];
    /* ours */
    struct metric_family *decisions; /* {model,mode} */
    struct metric_family *retries;   /* {model,reason} */
    struct metric_family *hit_rate;  /* dynamo_component_router_kv_hit_rate */
    struct metric *conf_generation, *conf_changes, *conf_errors;
};

struct serving {
    struct loop *loop;
    struct plane_client *plane;
    struct strmap *models;   /* name -> struct model */
    struct route_conf route; /* in force */
    struct serving_metrics metrics;
    size_t requests_max, n_requests; /* in flight; more are refused with 503 */
    bool stopping;
};

/* @prefix "dynamo_frontend". */
void serving_metrics_init(struct serving_metrics *m, const char *prefix);
void serving_metrics_done(struct serving_metrics *m);
/* Gauges from the card: model_context_length and its kin. */
void serving_metrics_card(struct serving_metrics *m, const struct model *model);
/* NULL when no model of that name is known. */
struct model *serving_find_model(const struct serving *s, struct str name);
