/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of any thread that is done on a loop's thread, while the caller waits.
 *
 * Both hold the task: a caller who waited in vain leaves, and what it had given the task lives until
 * the loop has come to it.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/net/loop.h"

struct task {
    void (*run)(struct task *t);  /* on the loop's thread */
    void (*free)(struct task *t); /* of what embeds it; on either thread */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned refs;
    bool done;
};

/* @t is the first member of something on the heap. The caller holds it until task_unref(). */
void task_init(struct task *t, void (*run)(struct task *t), void (*free)(struct task *t));
/* Once. True when it was done within @patience_ms (0 = waits for ever). Not on the loop's thread. */
MUST_CHECK bool task_do(struct task *t, struct loop *l, uint64_t patience_ms);
void task_unref(struct task *t);
