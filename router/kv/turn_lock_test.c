/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/turn_lock.h"
#include "lib/base/test.h"

enum { READERS = 3, WRITERS = 2, TURNS = 2000, STEPS = 8 };

/* What the lock guards: both numbers are the same whenever a reader may look. */
struct pair {
    struct turn_lock lock;
    unsigned a, b;
    atomic_uint seen;
};

static void *write_pairs(void *arg)
{
    struct pair *p = arg;

    for (int i = 0; i < TURNS; i++) {
        turn_lock_write(&p->lock);
        for (int k = 0; k < STEPS; k++) {
            p->a++;
            p->b++;
            turn_lock_give_way(&p->lock);
        }
        turn_lock_end_write(&p->lock);
    }
    return NULL;
}

static void *read_pairs(void *arg)
{
    struct pair *p = arg;
    unsigned last = 0;

    while (last < WRITERS * TURNS * STEPS) {
        turn_lock_read(&p->lock);
        assert_int_equal(p->a, p->b);
        assert_true(p->a >= last);
        last = p->a;
        turn_lock_end_read(&p->lock);
        atomic_fetch_add(&p->seen, 1);
    }
    return NULL;
}

static void nobody_sees_half_a_step(void **state)
{
    static struct pair p;
    pthread_t threads[READERS + WRITERS];

    (void)state;
    turn_lock_init(&p.lock);
    for (int i = 0; i < READERS + WRITERS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < READERS ? read_pairs : write_pairs, &p), 0);
    for (int i = 0; i < READERS + WRITERS; i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(p.a, WRITERS * TURNS * STEPS);
    turn_lock_done(&p.lock);
}

/* The writer goes on writing until the reader has looked. */
static void *read_once(void *arg)
{
    struct pair *p = arg;

    turn_lock_read(&p->lock);
    assert_int_equal(p->a, p->b);
    turn_lock_end_read(&p->lock);
    atomic_store(&p->seen, 1);
    return NULL;
}

static void a_reader_gets_in_while_the_writer_keeps_its_turn(void **state)
{
    static struct pair p;
    pthread_t reader;

    (void)state;
    turn_lock_init(&p.lock);
    turn_lock_write(&p.lock);
    assert_int_equal(pthread_create(&reader, NULL, read_once, &p), 0);
    for (int i = 0; i < 1000000 && !atomic_load(&p.seen); i++) {
        p.a++;
        p.b++;
        turn_lock_give_way(&p.lock);
    }
    turn_lock_end_write(&p.lock); /* one that got tired of waiting sleeps until now */
    (void)pthread_join(reader, NULL);
    assert_int_equal(p.seen, 1);
    turn_lock_done(&p.lock);
}

static void *write_once(void *arg)
{
    struct pair *p = arg;

    turn_lock_write(&p->lock);
    p->a = p->b = 7;
    turn_lock_end_write(&p->lock);
    atomic_store(&p->seen, 1);
    return NULL;
}

/* The other one takes the next turn as soon as it has ended one. */
static void a_writer_gets_its_turn_although_another_goes_on(void **state)
{
    static struct pair p;
    pthread_t writer;

    (void)state;
    turn_lock_init(&p.lock);
    assert_int_equal(pthread_create(&writer, NULL, write_once, &p), 0);
    while (!atomic_load(&p.seen)) {
        turn_lock_write(&p.lock);
        turn_lock_end_write(&p.lock);
    }
    (void)pthread_join(writer, NULL);
    assert_int_equal(p.a, 7);
    turn_lock_done(&p.lock);
}

/* Long enough inside for the writer to fall asleep; the last one to leave wakes it. */
static void a_writer_sleeps_until_readers_left(void **state)
{
    static struct pair p;
    pthread_t writer;

    (void)state;
    turn_lock_init(&p.lock);
    turn_lock_read(&p.lock);
    turn_lock_read(&p.lock);
    assert_int_equal(pthread_create(&writer, NULL, write_once, &p), 0);
    while (!atomic_load(&p.lock.asleep))
        continue;
    turn_lock_end_read(&p.lock);
    assert_int_equal(p.a, 0);
    turn_lock_end_read(&p.lock);
    (void)pthread_join(writer, NULL);
    assert_int_equal(p.a, 7);
    turn_lock_done(&p.lock);
}

int main(void)
{
    return TEST_RUN(T(nobody_sees_half_a_step), T(a_reader_gets_in_while_the_writer_keeps_its_turn),
                    T(a_writer_gets_its_turn_although_another_goes_on),
                    T(a_writer_sleeps_until_readers_left));
}
