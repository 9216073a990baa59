/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work queue of object keys of one controller.
 *
 * A key is in the queue at most once; one that is added while it is being worked on comes again
 * afterwards, and never to two workers at a time. Urgent keys (a user's change) go before the others
 * (echoes of our own writes, resyncs), but not more than QUEUE_URGENT_RUN in a row. Failures wait
 * 5 ms, then twice as long each time, up to 16 minutes. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

enum { QUEUE_BACKOFF_MIN_MS = 5, QUEUE_BACKOFF_MAX_MS = 1000 * 1000, QUEUE_URGENT_RUN = 16 };

struct queue;

/* Borrowed from the queue between queue_take() and queue_done(). */
struct queue_key {
    const char *ns, *name;
    unsigned failures;  /* in a row so far */
    uint64_t queued_ms; /* when it became ready */
};

/* @now_ms is the clock (monotonic); tests bring their own. */
struct queue *queue_new(uint64_t (*now_ms)(void)) __attribute__((returns_nonnull));
struct queue *queue_free(struct queue *q);
DEFINE_CLEANUP(struct queue *, queue_free)

void queue_add(struct queue *q, const char *ns, const char *name, bool urgent);

/* Waits for a key; NULL once queue_stop() was called. */
const struct queue_key *queue_take(struct queue *q);
/* The same without waiting: NULL when nothing is ready. */
const struct queue_key *queue_try(struct queue *q);

enum queue_outcome {
    QUEUE_OK,    /* forget its failures */
    QUEUE_RETRY, /* again after its back-off, which is at most @delay_ms (0 = no other limit) */
    QUEUE_AFTER, /* again after @delay_ms, unless it is added before; no failure */
};
/* Ends the work on a key; @key is dead afterwards. */
void queue_done(struct queue *q, const struct queue_key *key, enum queue_outcome outcome,
                uint64_t delay_ms);

/* Wakes all who wait; they and later ones get NULL. */
void queue_stop(struct queue *q);

struct queue_stats {
    size_t depth;   /* ready keys */
    size_t delayed; /* waiting for their time */
    size_t working;
    uint64_t adds, retries;
    double unfinished_s, longest_s; /* sum and maximum of the age of running work */
};
struct queue_stats queue_stats(struct queue *q);
