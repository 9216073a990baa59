/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dynamo_operator_resources_total: how many graphs and components there are, by namespace and state.
 */
#pragma once

#include "lib/base/metric.h"
#include "operator/ctrl/cache.h"

struct resources;

struct resources *resources_new(struct metric_registry *r, struct cache *cache)
    __attribute__((returns_nonnull));
struct resources *resources_free(struct resources *r);
/* Counts anew. Reads every object: for a worker thread, one call at a time. */
void resources_count(struct resources *r);
