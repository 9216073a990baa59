/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small routes: /v1/models, /health, /live, /metrics, /busy_threshold (wire.md §9.8).
 */
#pragma once

#include "router/frontend/samples.h"
#include "router/frontend/serving.h"

struct engines;
struct http_exchange;
struct instances;
struct kv_events;

/* What they report on; events NULL when they are not followed. */
struct admin {
    struct serving *serving;
    struct instances *instances;
    struct kv_events *events;
    struct engines *engines; /* NULL: none are looked for */
    const char *models_path; /* where the list of models is */
    struct samples samples;
};

void admin_models(struct http_exchange *x, const struct admin *a);
void admin_model(struct http_exchange *x, const struct admin *a); /* /v1/models/{name} */
void admin_health(struct http_exchange *x, const struct admin *a);
void admin_live(struct http_exchange *x, const struct admin *a);
/* Brings what /metrics samples up to date. */
void admin_measure(struct admin *a);
void admin_metrics(struct http_exchange *x, struct admin *a);
void admin_busy_threshold_get(struct http_exchange *x, const struct admin *a);
void admin_busy_threshold_post(struct http_exchange *x, const struct admin *a);
