/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A work queue and the threads that empty it by calling a reconcile function.
 *
 * This is the one place that decides what follows a pass: done, again after a back-off, or again when
 * a namespace that belongs to somebody else becomes free. It measures each pass.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/metric.h"
#include "lib/kube/kube_client.h"
#include "operator/ctrl/queue.h"

struct controller;

struct pass {
    const char *ns, *name;
    uint64_t seen_ms; /* monotonic: when the change that led here was seen */
};

enum { CONTROLLER_AGAIN = 1 }; /* somebody else wrote meanwhile: read again */

struct controller_conf {
    const struct kube_kind *kind;
    unsigned n_workers;
    struct metric_registry *metrics;
    /* What one thread works with; -errno with @e filled. */
    int (*worker_new)(void **ret, void *arg, struct err *e);
    void (*worker_free)(void *worker);
    /* 0, CONTROLLER_AGAIN, or -errno with @e filled. */
    int (*reconcile)(void *worker, const struct pass *pass, struct err *e);
    /* How long the namespace is none of our business, in ms; 0 = it is ours. */
    uint64_t (*excluded_ms)(void *arg, const char *ns);
    void *arg;
};

/* The queue takes keys at once; work begins with controller_start(). */
struct controller *controller_new(const struct controller_conf *conf)
    __attribute__((returns_nonnull));
MUST_CHECK int controller_start(struct controller *c, struct err *e);
struct queue *controller_queue(struct controller *c); /* borrowed */
/* Brings the gauges up to date, before they are printed. */
void controller_measure(struct controller *c);
/*
 * Starts no other pass and waits for those that run. A pass may add to the queue of any controller, so
 * those that know each other are stopped together, before one of them is freed. Their queues still take
 * keys afterwards, for nobody.
 */
void controllers_stop(struct controller *const *c, size_t n);
/* Stops it if need be. */
struct controller *controller_free(struct controller *c); /* NULL in, NULL out */
