/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of live routing configuration that are on their way to the frontends.
 *
 * The operator writes the ConfigMap `<dgd>-<svc>-routing`; each frontend pod that runs it says so in
 * the annotations of its own DynamoWorkerMetadata (named like the pod). A flip is remembered from
 * the write until all pods have followed, so that the event can tell how long it took. In memory
 * only: after a restart of the operator status still tells who runs what, but no time. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "operator/plan/status.h"
#include "operator/reconcile/reconcile.h"

/* Beside PLAN_ROUTING_GENERATION: the mode in force, and why that generation was refused, if it was. */
#define FLIP_ERROR "commutator.dev/routing-error"

struct flips;

struct flips *flips_new(void) __attribute__((returns_nonnull));
struct flips *flips_free(struct flips *f);
DEFINE_CLEANUP(struct flips *, flips_free)

/* The configuration of the graph @uid was changed; @since_ms: monotonic, when the wish was seen. */
void flips_begin(struct flips *f, const char *uid, uint64_t since_ms);
/* Ends it: true and *ret_since_ms when one was on its way. */
bool flips_end(struct flips *f, const char *uid, uint64_t *ret_since_ms);

/*
 * What the frontends of a graph say about the configuration in @set (its planned ConfigMaps).
 * Strings are borrowed from @set.
 */
struct routing_view flips_view(struct cache *cache, const struct object_set *set);
/*
 * The Deployment whose pod is called @pod: without the two parts that its ReplicaSet and the pod
 * itself add. False when it has none.
 */
bool flips_deployment_of(const char *pod, struct str *ret_name);
