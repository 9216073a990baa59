/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery store: where records live (wire.md §2). Kinds: file, etcd, Kubernetes, memory (tests).
 *
 * Watching is level triggered: `put` gives a record's present content under a key that names it as
 * long as it lives, `gone` its end. A store keeps the last known good: a broken watch or a record
 * that no longer parses takes nothing away. Publishing is level triggered too: the store keeps what
 * is to be published and works until it is, retrying for ever with back-off; `published` tells.
 *
 * One loop; all calls and callbacks on its thread. Callbacks must not free the store.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/discovery/records.h"

struct kube_config;
struct store;

/* Why a record ended, as far as the store can know. */
enum store_end {
    STORE_END_TOLD,   /* somebody who knows took it away: its owner, or a pod is not ready */
    STORE_END_SILENT, /* it is not there any more: withdrawn, or its life sign stopped */
    STORE_END_DOUBTFUL, /* its owner lives by other signs, or much vanished that has nothing in common */
};

struct store_watcher {
    /* @key is unique in the store and stays the same over changes; @json is one record. */
    void (*put)(void *arg, struct str key, struct str json);
    void (*gone)(void *arg, struct str key, enum store_end how);
    void (*synced)(void *arg); /* all that exists was reported; may be NULL */
    /*
     * Whether the store can be believed: false before what an interruption may have ended is told.
     * Each change once, beginning with up. May be NULL.
     */
    void (*state)(void *arg, bool up, const char *why);
};

struct store_stats {
    size_t records;                     /* seen now */
    uint64_t puts, gones, bad, dropped; /* dropped: beyond STORE_RECORDS_MAX */
    uint64_t publish_failures;
    bool up;
};

enum { STORE_RECORDS_MAX = 65536 };

struct store_ops {
    int (*watch)(struct store *s, const struct store_watcher *w, void *arg, struct err *e);
    void (*unwatch)(struct store *s);
    int (*publish)(struct store *s, const struct record *rec, struct err *e);
    void (*withdraw)(struct store *s, const struct record *rec);
    struct store_stats (*stats)(const struct store *s);
    void (*free)(struct store *s);
    /* What is set up wrongly, in words; NULL = the kind knows of nothing. */
    void (*notes)(const struct store *s, void (*note)(void *arg, const char *text), void *arg);
};

struct store {
    const struct store_ops *ops;
    struct loop *loop;
    uint64_t instance_id; /* of this process: what its records must carry */
    void (*published)(void *arg, int r, const char *why); /* set by the owner; may be NULL */
    void *published_arg;
};

/* At most one watcher per store. */
static inline int store_watch(struct store *s, const struct store_watcher *w, void *arg,
                              struct err *e)
{
    return s->ops->watch(s, w, arg, e);
}
/* No callback after it. */
static inline void store_unwatch(struct store *s)
{
    s->ops->unwatch(s);
}
/* Copies. Publishing a record with the same key again replaces it. */
MUST_CHECK static inline int store_publish(struct store *s, const struct record *rec, struct err *e)
{
    return s->ops->publish(s, rec, e);
}
static inline void store_withdraw(struct store *s, const struct record *rec)
{
    s->ops->withdraw(s, rec);
}
static inline struct store_stats store_stats(const struct store *s)
{
    return s->ops->stats(s);
}
static inline void store_notes(const struct store *s, void (*note)(void *arg, const char *text),
                               void *arg)
{
    if (s->ops->notes)
        s->ops->notes(s, note, arg);
}
/* Withdraws what the store's kind withdraws at shutdown (file, etcd: all; Kubernetes: nothing). */
static inline struct store *store_free(struct store *s)
{
    if (s)
        s->ops->free(s);
    return NULL;
}
DEFINE_CLEANUP(struct store *, store_free)

struct etcd_conf;
/* etcd may be away: then it is waited for. */
MUST_CHECK int store_etcd_new(struct store **ret, struct loop *l, const struct etcd_conf *conf,
                              struct err *e);

/* DYN_FILE_KV: @root, NULL = <temporary directory>/dynamo_store_kv. Made when absent. */
MUST_CHECK int store_file_new(struct store **ret, struct loop *l, const char *root, struct err *e);

struct store_kube_conf {
    const struct kube_config *config; /* borrowed */
    const char *ns;                   /* NULL = of the service account */
    const char *pod_name, *pod_uid;   /* needed for publishing; NULL = this process only watches */
    const char *container; /* of the pod, which publishes for itself; NULL = the pod does */
    const char *own_pod;   /* of a frontend, publishing or not; may be NULL */
    uint64_t mismatch_ms;  /* pods and metadata that miss each other so long are told; 0 = 30 s */
};
MUST_CHECK int store_kube_new(struct store **ret, struct loop *l,
                              const struct store_kube_conf *conf, struct err *e);

/* All stores of one hub see each other's records: for tests and single-process set-ups. */
struct store_hub;
struct store_hub *store_hub_new(void) __attribute__((returns_nonnull));
struct store_hub *store_hub_free(struct store_hub *h); /* after its stores */
DEFINE_CLEANUP(struct store_hub *, store_hub_free)
struct store *store_mem_new(struct store_hub *h, struct loop *l) __attribute__((returns_nonnull));
