/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins what Kubernetes knows of workers (wire.md §2.6): a record counts while its
 * DynamoWorkerMetadata exists and its pod is ready in some EndpointSlice.
 *
 * Resources are joined by the resource's own name or, for resources of single containers, by the
 * pod that owns them. Content that does not parse keeps its last good form. No I/O; one thread.
 */
#pragma once

#include "lib/base/json_tree.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/discovery/store.h"

struct kube_join;

struct kube_join *kube_join_new(void) __attribute__((returns_nonnull));
struct kube_join *kube_join_free(struct kube_join *j);
DEFINE_CLEANUP(struct kube_join *, kube_join_free)

/* @slice NULL: deleted. */
void kube_join_slice(struct kube_join *j, const char *name, const struct json *slice);
/* @raw empty: deleted. -EINVAL: not a DynamoWorkerMetadata; the last good content stays. */
MUST_CHECK int kube_join_metadata(struct kube_join *j, const char *name, struct str raw,
                                  struct err *e);
/* Tells @w what changed since the last call, by content. */
void kube_join_report(struct kube_join *j, const struct store_watcher *w, void *arg,
                      struct store_stats *stats);
