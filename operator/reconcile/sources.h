/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watches of the operator: which kinds, which of their objects, and whose pass an event asks for.
 *
 * Everything on the loop's thread.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/kube/kube_watch.h"
#include "operator/ctrl/cache.h"
#include "operator/ctrl/queue.h"

struct sources;

struct sources_conf {
    struct kube_watcher *watcher;
    struct cache *cache;
    struct queue *graphs, *components;
    const char *ns;            /* NULL: the whole cluster, and its marker Leases */
    void (*synced)(void *arg); /* once: every kind has been listed */
    void *arg;
};

struct sources *sources_start(const struct sources_conf *conf) __attribute__((returns_nonnull));
struct sources *sources_stop(struct sources *s);
/* True, or false with the names of the kinds that have not been listed yet. */
bool sources_are_synced(const struct sources *s, struct buf *missing);
/* Calls @fn for each kind that is cached, once. */
void sources_each_kind(const struct sources *s, void (*fn)(void *arg, const struct kube_kind *kind),
                       void *arg);
/* Broken streams and lists after the first, of all kinds. */
uint64_t sources_restarts(const struct sources *s);
