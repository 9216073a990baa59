/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes API calls, blocking: for reconcile threads and start-up. One client per thread.
 *
 * An answer of the API server that the caller must decide about is a positive outcome; transport
 * failures and other statuses are negative with the server's message in words. Deadline per call:
 * 30 s. For streams of changes see kube_watch.h.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/kube/kube_config.h"

struct kube_client;

/* A namespaced resource type. Static tables of them stand in kube_kinds.h. */
struct kube_kind {
    const char *group; /* "" = core */
    const char *version;
    const char *kind;
    const char *plural;
};

enum {
    KUBE_NOT_FOUND = 1, /* 404 */
    KUBE_EXISTS = 2,    /* 409 on create */
    KUBE_CONFLICT = 3,  /* 409 on write: someone else was faster, read again */
    KUBE_REFUSED =
        4, /* 400, 403, 413, 422: retrying does not help until something changes; @e holds the message */
};

MUST_CHECK int kube_client_new(struct kube_client **ret, const struct kube_config *config,
                               struct err *e);
struct kube_client *kube_client_free(struct kube_client *c);
DEFINE_CLEANUP(struct kube_client *, kube_client_free)
/* Another deadline per call than 30 s, for whoever holds a lease. */
void kube_client_set_deadline(struct kube_client *c, uint64_t ms);
/* @fn is called after each call, with the HTTP status or 0 when there was no answer: for metrics. */
void kube_client_observe(struct kube_client *c,
                         void (*fn)(void *arg, const char *method, int status), void *arg);

/* @ret may be NULL in the writing calls when the stored object is of no interest. */
MUST_CHECK int kube_get(struct kube_client *c, const struct kube_kind *k, const char *ns,
                        const char *name, struct json **ret, struct err *e);
MUST_CHECK int kube_create(struct kube_client *c, const struct kube_kind *k,
                           const struct json *object, struct json **ret, struct err *e);
/* One of several objects that are created together. */
struct kube_creation {
    const struct kube_kind *kind;
    const struct json *object;
    struct json *stored; /* out, the caller's; NULL unless r == 0 */
    int r;               /* out: as kube_create(), with err filled unless 0 */
    struct err err;
    void (*done)(void *arg, struct kube_creation *at); /* as soon as it is answered; may be NULL */
    void *arg;
};
/* Returns when each has its answer; they are under way at the same time. @at zero but for input. */
void kube_create_all(struct kube_client *c, struct kube_creation *at, size_t n);
/* PUT; metadata.resourceVersion in @object makes it conditional. */
MUST_CHECK int kube_update(struct kube_client *c, const struct kube_kind *k,
                           const struct json *object, struct json **ret, struct err *e);
/* Server-side apply with force. */
MUST_CHECK int kube_apply(struct kube_client *c, const struct kube_kind *k,
                          const struct json *object, const char *field_manager, struct json **ret,
                          struct err *e);
/* RFC 7396 merge patch. @subresource "status", "scale" or NULL. */
MUST_CHECK int kube_patch(struct kube_client *c, const struct kube_kind *k, const char *ns,
                          const char *name, const char *subresource, const struct json *patch,
                          struct json **ret, struct err *e);
/* Background propagation; @uid (may be NULL) as precondition. */
MUST_CHECK int kube_delete(struct kube_client *c, const struct kube_kind *k, const char *ns,
                           const char *name, const char *uid, struct err *e);
/* "/apis/nvidia.com/v1alpha1/namespaces/ns/dynamographdeployments/name/sub?query" into @out. */
void kube_path(struct buf *out, const struct kube_kind *k, const char *ns, const char *name,
               const char *subresource);
