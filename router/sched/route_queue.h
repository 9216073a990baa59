/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The router queue: requests that wait until a worker has room for them (router.md §4.7).
 *
 * Requests are in classes. Within a class the higher strict priority goes first, then the higher
 * score of the class's order, with arrival and jump in seconds:
 *
 *     fcfs   jump - arrival
 *     lcfs   jump + arrival
 *     wspt   (1 + jump) / max(1, uncached tokens)
 *
 * Equal scores keep the order of arrival (lcfs: the reverse).
 *
 * No request starves among those of its own class and strict priority: one that has waited for
 * `patience_ms` goes next, the longest waiting first, whatever the scores say. So it is passed by
 * what arrives within its patience at most; a lower strict priority, on the other hand, waits for as
 * long as higher ones keep coming, which is what the word says.
 *
 * Between classes: deficit round robin over uncached tokens. A class earns its quantum once a round
 * and pays max(1, uncached tokens) for each request; what it saved it keeps while it has requests.
 * Rounds in which nobody can pay yet are counted, not walked, so a choice costs O(classes + log n)
 * whatever the sizes.
 *
 * Items are embedded in what their owner keeps of a request, and can be taken out at any time. The
 * bounds of a class are per worker; they are compared before an item is added, so the one that
 * crosses a bound still comes in. Pure; time is an argument; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

enum route_queue_order { ROUTE_QUEUE_FCFS, ROUTE_QUEUE_LCFS, ROUTE_QUEUE_WSPT };
/* "fcfs", "lcfs", "wspt", NULL: for configuration tables. */
extern const char *const ROUTE_QUEUE_ORDER_WORDS[];

enum { ROUTE_QUEUE_CLASSES_MAX = 64 };

/* How one class is served. */
struct route_queue_rule {
    int order;        /* enum route_queue_order */
    uint64_t quantum; /* uncached tokens that it earns a round, >= 1 */
    /* What may wait, per worker; 0 = no bound. */
    uint64_t max_requests, max_isl_tokens, max_cached_tokens;
};

struct route_queue_item {
    /* The owner's. */
    uint64_t arrival_ms;
    uint32_t strict_priority;
    double jump_s; /* >= 0 */
    uint64_t isl_tokens, cached_tokens;
    /* The queue's. */
    double score;
    uint64_t serial;
    uint32_t class, at[2];
    bool queued;
};

struct route_queue_stats {
    size_t requests;
    uint64_t isl_tokens, cached_tokens;
};

struct route_queue;

struct route_queue *route_queue_new(const struct route_queue_rule *rules, size_t n_rules,
                                    uint64_t patience_ms) __attribute__((returns_nonnull));
struct route_queue *route_queue_free(struct route_queue *q); /* items must have left */
DEFINE_CLEANUP(struct route_queue *, route_queue_free)

enum { ROUTE_QUEUE_REQUESTS_FULL = 1, ROUTE_QUEUE_ISL_FULL = 2, ROUTE_QUEUE_CACHED_FULL = 3 };

/* 0, or which bound of the class is reached with @n_workers; the item then stays outside. */
MUST_CHECK int route_queue_put(struct route_queue *q, size_t class, struct route_queue_item *item,
                               size_t n_workers);
/* Takes the item out; harmless for one that is not in. */
void route_queue_remove(struct route_queue *q, struct route_queue_item *item);
/*
 * Chooses among the heads of the classes for which @can_go says true, charges the class, and takes
 * the item out. NULL when no head can go. @can_go is asked at most once per class.
 */
struct route_queue_item *route_queue_next(struct route_queue *q, uint64_t now_ms,
                                          bool (*can_go)(void *arg, struct route_queue_item *head),
                                          void *arg);
/* Any item, the class's oldest first; NULL when the queue is empty. For taking it apart. */
struct route_queue_item *route_queue_any(struct route_queue *q);

size_t route_queue_len(const struct route_queue *q);
struct route_queue_stats route_queue_stats(const struct route_queue *q, size_t class);
