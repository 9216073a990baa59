/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock for many readers and one writer who lets them in whenever they wait.
 *
 * A reader waits for a writer until that next gives way, which it does in the middle of its work, as
 * often as readers may look at what it works on; a writer waits for the readers that are inside. Both
 * spin for some microseconds, for the other is through before one would be asleep, and sleep when the
 * other does not run or takes long. Writers go one at a time and keep their turn while they give way;
 * one that finds the turn taken looks again after 0.2, 0.6 and 1.4 ms and queues after 3 ms.
 * Readers do not come in while a writer waits, but a writer lets those in first who came before it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct turn_lock {
    atomic_uint inside;   /* readers */
    atomic_uint outside;  /* readers who wait */
    atomic_bool writing;  /* or waiting for those inside to leave */
    atomic_bool asleep;   /* the writer, until they left */
    pthread_mutex_t turn; /* of the writer; tired readers sleep for it, too */
    pthread_mutex_t leaving;
    pthread_cond_t left;
};

void turn_lock_init(struct turn_lock *l);
void turn_lock_done(struct turn_lock *l);
void turn_lock_read(struct turn_lock *l);
void turn_lock_end_read(struct turn_lock *l);
void turn_lock_write(struct turn_lock *l);
void turn_lock_end_write(struct turn_lock *l);
/* Lets readers out of turn_lock_give_way(). */
void turn_lock_let_in(struct turn_lock *l);

/* For the writer: readers who wait may look now. Costs one load when there is none. */
static inline void turn_lock_give_way(struct turn_lock *l)
{
    if (atomic_load_explicit(&l->outside, memory_order_relaxed))
        turn_lock_let_in(l);
}
