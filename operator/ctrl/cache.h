/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operator knows of the cluster: one store per watched kind.
 *
 * Filled by the watches (on the loop) and by the answers to our own writes (on reconcile threads),
 * so that a pass sees at once what the pass before it wrote. Objects are kept as compact text
 * without managedFields, a fifth of the memory of a tree, and parsed by whoever asks. Entries are
 * immutable and counted: a reader holds the lock only to take its reference.
 *
 * What nobody asks for is not kept: views say, per kind, which objects and how much of them.
 * Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/json_tree.h"
#include "lib/kube/kube_kinds.h"

struct cache;

/* What is kept of a kind; kinds without a view are kept whole. */
struct cache_view {
    const struct kube_kind *kind;
    /* Whether an object is kept at all; NULL: all are. */
    bool (*keep)(const struct json *object);
    /* Only the metadata is kept, and what put() adds beside it. */
    bool trim;
    /* Appends ",\"key\":value" members; NULL: none. */
    void (*put)(struct buf *out, const struct json *object);
};

/* @views is borrowed. */
struct cache *cache_new(const struct cache_view *views, size_t n) __attribute__((returns_nonnull));
struct cache *cache_free(struct cache *c);
DEFINE_CLEANUP(struct cache *, cache_free)

/* --- writing ---------------------------------------------------------------------------------------- */

enum cache_news {
    CACHE_KNOWN, /* the cache has this version, or the answer to a later write of ours: who took that
                     answer also acts on what others had changed in it */
    CACHE_NEWS,  /* another version */
    CACHE_EDITED, /* another spec, as far as metadata.generation tells */
};
/* From a watch: the object as of its resourceVersion, and that nothing older is to come. */
enum cache_news cache_observe(struct cache *c, const struct kube_kind *kind,
                              const struct json *object);
void cache_observe_deleted(struct cache *c, const struct kube_kind *kind,
                           const struct json *object);
/*
 * After a complete list: what we wrote and no watch has ever told of is forgotten, as it may have
 * been deleted in the gap. A later event brings back what was not.
 */
void cache_observe_synced(struct cache *c, const struct kube_kind *kind);
/* The entry of metadata.ownerReferences that controls the object, or NULL. */
const struct json *object_controller(const struct json *object);
/* The API server's answer to a write of ours. Without effect when the watch is already past it. */
void cache_wrote(struct cache *c, const struct kube_kind *kind, const struct json *object);

/* --- reading ---------------------------------------------------------------------------------------- */

/* All results are trees that the caller owns. NULL when absent. */
struct json *cache_get(struct cache *c, const struct kube_kind *kind, const char *ns,
                       const char *name);
/* {"name": object} of those with the controller @owner_uid; an empty object when there are none. */
struct json *cache_get_owned(struct cache *c, const struct kube_kind *kind, const char *owner_uid)
    __attribute__((returns_nonnull));
/* {"name": object} of the namespace. */
struct json *cache_get_all(struct cache *c, const struct kube_kind *kind, const char *ns)
    __attribute__((returns_nonnull));
/* Calls @fn for each object of the kind, in no order; @ns NULL = all. Names only: nothing is parsed. */
void cache_each_name(struct cache *c, const struct kube_kind *kind, const char *ns,
                     void (*fn)(void *arg, const char *ns, const char *name), void *arg);

struct cache_stats {
    size_t objects, bytes; /* bytes of text */
};
struct cache_stats cache_stats(struct cache *c, const struct kube_kind *kind);
