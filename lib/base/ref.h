/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Atomic reference count, for immutable objects that cross threads (snapshots, model cards).
 */
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>

struct ref {
    atomic_uint count;
};

static inline void ref_init(struct ref *r)
{
    atomic_init(&r->count, 1);
}

/* Relaxed: whoever takes a reference already holds one, so the object is visible to it. */
static inline void ref_take(struct ref *r)
{
    unsigned before = atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);

    assert(before > 0);
    (void)before;
}

/*
 * True for the last one, who frees. Release orders this holder's writes before the free, acquire
 * makes all holders' writes visible to whoever frees.
 */
static inline bool ref_drop(struct ref *r)
{
    unsigned before = atomic_fetch_sub_explicit(&r->count, 1, memory_order_acq_rel);

    assert(before > 0);
    return before == 1;
}
