/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/turn_lock.h"

#include <stdlib.h>
#include <time.h>

enum {
    SPINS = 2000,      /* some ten microseconds, before going to sleep */
    LET_IN_SPINS = 64, /* a reader who runs needs less to come in */
    PAUSES = 4,        /* of a writer, before it queues for its turn */
    PAUSE_NS = 200000, /* the first; each is twice as long as the one before */
};

void turn_lock_init(struct turn_lock *l)
{
    atomic_init(&l->inside, 0);
    atomic_init(&l->outside, 0);
    atomic_init(&l->writing, false);
    atomic_init(&l->asleep, false);
    if (pthread_mutex_init(&l->turn, NULL) != 0 || pthread_mutex_init(&l->leaving, NULL) != 0 ||
        pthread_cond_init(&l->left, NULL) != 0)
        abort();
}

void turn_lock_done(struct turn_lock *l)
{
    (void)pthread_cond_destroy(&l->left);
    (void)pthread_mutex_destroy(&l->leaving);
    (void)pthread_mutex_destroy(&l->turn);
}

static void spin(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* --- readers -----------------------------------------------------------------------------------
 */

/* Each side says what it does and then looks at the other, so that not both can miss it. */
static bool enter(struct turn_lock *l)
{
    atomic_fetch_add(&l->inside, 1);
    if (!atomic_load(&l->writing))
        return true;
    turn_lock_end_read(l);
    return false;
}

void turn_lock_read(struct turn_lock *l)
{
    int spins = 0;

    if (enter(l))
        return;
    atomic_fetch_add(&l->outside, 1);
    do {
        while (spins < SPINS && atomic_load_explicit(&l->writing, memory_order_relaxed)) {
            spin();
            spins++;
        }
    } while (spins < SPINS && !enter(l));
    atomic_fetch_sub(&l->outside, 1);
    if (spins < SPINS)
        return;
    (void)pthread_mutex_lock(&l->turn); /* when no writer has it, none is in */
    (void)enter(l);
    (void)pthread_mutex_unlock(&l->turn);
}

void turn_lock_end_read(struct turn_lock *l)
{
    if (atomic_fetch_sub(&l->inside, 1) != 1 || !atomic_load(&l->asleep))
        return;
    (void)pthread_mutex_lock(&l->leaving);
    (void)pthread_cond_signal(&l->left);
    (void)pthread_mutex_unlock(&l->leaving);
}

/* --- the writer --------------------------------------------------------------------------------
 */

static void sleep_until_left(struct turn_lock *l)
{
    (void)pthread_mutex_lock(&l->leaving);
    atomic_store(&l->asleep, true);
    while (atomic_load(&l->inside))
        (void)pthread_cond_wait(&l->left, &l->leaving);
    atomic_store(&l->asleep, false);
    (void)pthread_mutex_unlock(&l->leaving);
}

/* Readers who wait come first, but one that does not run would be waited for in vain. */
static void take(struct turn_lock *l)
{
    for (int i = 0; i < LET_IN_SPINS && atomic_load_explicit(&l->outside, memory_order_relaxed);
         i++)
        spin();
    atomic_store(&l->writing, true);
    for (int i = 0; i < SPINS && atomic_load(&l->inside); i++)
        spin();
    if (atomic_load(&l->inside))
        sleep_until_left(l);
}

/*
 * The other writer likely goes on with its next event at once. Whoever queues is woken after each of
 * them and finds the turn taken again, which costs both of them about as much as an event does.
 */
static void wait_for_turn(struct turn_lock *l)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (int i = 0; i < PAUSES; i++, pause.tv_nsec *= 2) {
        if (pthread_mutex_trylock(&l->turn) == 0)
            return;
        (void)nanosleep(&pause, NULL);
    }
    (void)pthread_mutex_lock(&l->turn);
}

void turn_lock_write(struct turn_lock *l)
{
    wait_for_turn(l);
    take(l);
}

void turn_lock_end_write(struct turn_lock *l)
{
    atomic_store(&l->writing, false);
    (void)pthread_mutex_unlock(&l->turn);
}

void turn_lock_let_in(struct turn_lock *l)
{
    atomic_store(&l->writing, false);
    take(l);
}
