/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small routes: /v1/models, /health, /live, /metrics, /busy_threshold (wire.md §9.8).
 */
#pragma once

#include "router/frontend/serving.h"

struct http_exchange;
struct instances;
struct nats_link;

/* What they report on; nats NULL when KV events are not used. */
struct admin {
    struct serving *serving;
    struct instances *instances;
    struct nats_link *nats;
};

void admin_models(struct http_exchange *x, const struct admin *a);
void admin_health(struct http_exchange *x, const struct admin *a);
void admin_live(struct http_exchange *x, const struct admin *a);
void admin_metrics(struct http_exchange *x, const struct admin *a);
void admin_busy_threshold_get(struct http_exchange *x, const struct admin *a);
void admin_busy_threshold_post(struct http_exchange *x, const struct admin *a);
