/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the difference between a planned set and what exists: one request for an object that is
 * missing or differs, none for one that is right. A struct apply is one pass's own, on its thread.
 */
#pragma once

#include "operator/reconcile/reconcile.h"

/* Whose set it is, and what was written so far. */
struct apply {
    const struct reconciler *rc;
    const struct kube_kind *kind; /* of the owner */
    const struct json *owner;
    size_t n_written;     /* requests that changed something */
    bool routing_changed; /* a ConfigMap that was there has another content now */
};

/*
 * Creates or corrects those of @set that are of one of the @n kinds. What is missing is
 * created together, so that a wave costs one round trip; what differs is corrected in order after.
 * 0, CONTROLLER_AGAIN, or -errno with @e in the words that status shows.
 */
MUST_CHECK int apply_wave(struct apply *a, const struct object_set *set,
                          const struct kube_kind *const *kinds, size_t n, struct err *e);
/* Corrects alone: what is missing stays so. */
MUST_CHECK int apply_correct(struct apply *a, const struct object_set *set,
                             const struct kube_kind *const *kinds, size_t n, struct err *e);
/* Deletes what the owner controls and the set does not hold, of the @n kinds. */
MUST_CHECK int apply_prune(struct apply *a, const struct object_set *set,
                           const struct kube_kind *const *kinds, size_t n, struct err *e);
/* Deletes what the owner controls of the @n kinds, as if it had never been: nothing is told of it. */
MUST_CHECK int apply_withdraw(struct apply *a, const struct kube_kind *const *kinds, size_t n,
                              struct err *e);
/* Writes @status when it differs from the owner's present one. Takes @status. */
MUST_CHECK int apply_status(struct apply *a, struct json *take_status, struct err *e);
/* Removes the reference operator's finalizer from an object that is being deleted. */
MUST_CHECK int apply_release(struct apply *a, struct err *e);
