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
/*
 * Tells @w what changed since the last call, by content. A resource that vanished while its pod is
 * ready goes on counting until kube_join_settle(), as news of the pod may be on the way. What an
 * EndpointSlice said that vanished ends silently.
 */
void kube_join_report(struct kube_join *j, const struct store_watcher *w, void *arg,
                      struct store_stats *stats);
/* Whether resources vanished so; then kube_join_settle() is to be called in a moment. */
bool kube_join_is_unsettled(const struct kube_join *j);
/*
 * No news came. One resource may be deleted by hand, or ahead of its pod: the next report ends it
 * silently. Several at once are doubtful, until their pods are told not to be ready.
 */
void kube_join_settle(struct kube_join *j);

struct kube_mismatch {
    size_t ready_alone;    /* ready pods without metadata, while no pod counts */
    size_t metadata_alone; /* resources whose pod is ready nowhere, while no pod counts */
    const char *example;   /* name of one of them, borrowed until the next change */
};
/* @own_pod (may be NULL) and all in a slice with it are frontends, as are slices named so. */
struct kube_mismatch kube_join_mismatch(const struct kube_join *j, const char *own_pod);
