/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over one object: reads the cache, asks the plan, writes the differences.
 *
 * Level triggered: a pass looks at what is, never at which event woke it, and writes nothing when
 * run twice. Passes run on reconcile threads, the only place where blocking API calls are allowed;
 * the queue sees to it that an object is never in two of them.
 *
 * A pass that failed has said so in the object's status; its error asks for another attempt after
 * a back-off. Whatever only an edit can mend (a validation error) is told in status and is no error.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/kube/kube_client.h"
#include "operator/ctrl/cache.h"
#include "operator/ctrl/controller.h"
#include "operator/ctrl/recorder.h"
#include "operator/plan/plan.h"

struct flips;

/* One per reconcile thread; everything but the client is shared and borrowed. */
struct reconciler {
    struct cache *cache;
    struct kube_client *kube;
    struct recorder *recorder;
    struct flips *flips;
    /* What a write of a pass concerns is reconciled at once; its echo in a watch says no more. */
    struct queue *graphs, *components;
    const struct plan_config *plan;
};

/* 0, CONTROLLER_AGAIN, or -errno with @e filled. */
MUST_CHECK int graph_reconcile(const struct reconciler *rc, const struct pass *pass, struct err *e);
MUST_CHECK int component_reconcile(const struct reconciler *rc, const struct pass *pass,
                                   struct err *e);
