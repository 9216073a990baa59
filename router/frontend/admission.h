/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission to one scheduler's workers: whether a request may be routed now, waits for room, or is refused
 * (router.md §4.7).
 *
 * A request waits while every eligible worker of its class is full (queue_profile.h), and behind
 * those of its class that wait already. It is looked at again as soon as a prompt is computed or a
 * booking ends, in whatever way, on this router or as news from another one, when workers come and
 * go, and at the latest after a minute. Its turn decides anew, on what is cached then; order and
 * shares go by what was cached when it came. A request that names its worker does not wait, as it
 * does not for busy workers, unless pins_wait says so, and nobody waits twice. No class with a threshold: nobody waits.
 *
 * A ticket is embedded in the request, which takes it back with admission_leave() on every way out.
 * One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/sched/queue_profile.h"

struct err;
struct admission;

/* Families; labels model, worker_type, policy_class. */
struct admission_metrics {
    struct metric_family *requests, *isl_tokens, *cached_tokens; /* that wait */
    struct metric_family *refused;                               /* and reason */
    struct metric_family *wait;                                  /* seconds of those that waited */
};
/* @prefix "dynamo_frontend". */
void admission_metrics_init(struct admission_metrics *m, struct metric_registry *r,
                            const char *prefix);

/* As options give them. */
struct admission_options {
    double threshold;      /* of max_num_batched_tokens, NAN = nobody waits */
    int order;             /* enum route_queue_order */
    uint64_t max_requests; /* that may wait, per worker; 0 = no bound */
    uint64_t patience_ms;  /* see route_queue.h */
    char *file;            /* policy classes, instead of the threshold; may be NULL */
};

/* Who may wait and in which order: one immutable value, swapped as a whole. */
struct admission_rules {
    struct queue_profiles profiles;
    uint64_t patience_ms;
};

/* Reads the file. -EINVAL or why it cannot be read. */
MUST_CHECK int admission_rules_load(struct admission_rules **ret, const struct admission_options *o,
                                    struct err *e);
struct admission_rules *admission_rules_free(struct admission_rules *r);

/* All borrowed. */
struct admission_conf {
    struct loop *loop;
    struct scheduler *scheduler;
    const struct admission_metrics *metrics;
    const char *model, *worker_type; /* labels */
    bool pins_wait;                  /* who names a worker waits for that one */
    /* Whoever waits holds what owns the admission; NULL when that outlives everybody. */
    void (*hold)(void *owner);
    void (*let_go)(void *owner);
    void *owner;
};

struct admission *admission_new(const struct admission_conf *conf,
                                const struct admission_rules *rules)
    __attribute__((returns_nonnull));
struct admission *admission_free(struct admission *a);
/* Those that wait go on to do so, in the class that they now have, beyond its bounds if need be. */
void admission_configure(struct admission *a, const struct admission_rules *rules);

struct admission_ticket {
    /* The owner's. */
    struct route_request q; /* as it would be routed; its arrays outlive the wait */
    struct str wanted;      /* class or family, may be empty */
    uint32_t strict_priority;
    double jump_s;         /* >= 0 */
    void (*go)(void *arg); /* after a wait: route now; may free the ticket's owner */
    void *arg;
    /* Of admission. */
    struct route_queue_item item;
    struct admission *in; /* while it waits */
};

enum { ADMISSION_WAITS = 1, ADMISSION_REFUSED = 2 };

/* The bound of its class that a refused request met. Strings live as long as the rules. */
struct admission_refusal {
    const char *reason; /* as the metric has it */
    const char *class, *kind;
    uint64_t current, limit; /* of that kind, over all workers */
};

/* 0: route it now. ADMISSION_REFUSED: *ret is filled. */
MUST_CHECK int admission_enter(struct admission *a, struct admission_ticket *t,
                               struct admission_refusal *ret);
/* Harmless for one that does not wait. */
void admission_leave(struct admission_ticket *t);
/* Of those that wait, in all classes. */
struct route_queue_stats admission_waiting(const struct admission *a);
/* Workers have changed: looks at those that wait, soon. */
void admission_wake(struct admission *a);
