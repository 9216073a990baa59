/* SPDX-License-Identifier: Apache-2.0 */
/*
 * List and watch of one resource type, on a loop: a stream of changes without gaps.
 *
 * Starts with a paged list, then watches with bookmarks from the list's resourceVersion and resumes
 * from the last one seen. On 410 Gone, or when a resume is impossible, it lists again and reports
 * the difference: what is missing comes as DELETED, what changed as MODIFIED, so that a consumer
 * that keeps a map is never wrong for long and never misses a deletion. Failures back off
 * (100 ms to 10 s, with jitter) for ever. Object bytes are limited.
 *
 * Callbacks on the loop's thread; objects are borrowed during the call.
 */
#pragma once

#include "lib/base/json_tree.h"
#include "lib/base/str.h"
#include "lib/kube/kube_client.h"
#include "lib/kube/kube_config.h"
#include "lib/net/loop.h"

struct kube_watch;

enum kube_change { KUBE_ADDED, KUBE_MODIFIED, KUBE_DELETED };

struct kube_watch_spec {
    const struct kube_kind *kind;
    const char *ns;             /* NULL = all namespaces */
    const char *label_selector; /* may be NULL */
    const char *field_selector; /* "metadata.name=x"; may be NULL */
    /*
     * @raw is the object's own JSON text, for readers of 64-bit ids. On KUBE_DELETED after a
     * re-list only metadata (name, namespace, uid, resourceVersion) is known and @raw is empty.
     */
    void (*change)(void *arg, enum kube_change what, const struct json *object, struct str raw);
    void (*synced)(void *arg); /* after each complete list has been reported; may be NULL */
    /* up=false with the reason when the stream broke, up=true when it runs again; may be NULL */
    void (*state)(void *arg, bool up, const char *why);
    void *arg;
};

/* Shares one HTTP client among all watches of a loop. */
struct kube_watcher;
MUST_CHECK int kube_watcher_new(struct kube_watcher **ret, struct loop *l,
                                const struct kube_config *config, struct err *e);
struct kube_watcher *kube_watcher_free(struct kube_watcher *w); /* stops its watches */
DEFINE_CLEANUP(struct kube_watcher *, kube_watcher_free)

struct kube_watch *kube_watch_start(struct kube_watcher *w, const struct kube_watch_spec *spec)
    __attribute__((returns_nonnull));
struct kube_watch *kube_watch_stop(struct kube_watch *w); /* no callback after it */
bool kube_watch_synced(const struct kube_watch *w);
/* Relists and broken streams so far, for metrics. */
uint64_t kube_watch_restarts(const struct kube_watch *w);
