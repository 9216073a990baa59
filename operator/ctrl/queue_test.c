/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/queue.h"

#include <pthread.h>

#include "lib/base/test.h"

static uint64_t clock_ms;

static uint64_t fake_now(void)
{
    return clock_ms;
}

static void expect(struct queue *q, const char *want)
{
    const struct queue_key *key = queue_try(q);

    assert_non_null(key);
    assert_string_equal(key->name, want);
    queue_done(q, key, QUEUE_OK, 0);
}

static void test_a_key_is_queued_once(void **state)
{
    AUTO(queue_free) struct queue *q = queue_new(fake_now);

    (void)state;
    queue_add(q, "ns", "a", false);
    queue_add(q, "ns", "b", false);
    queue_add(q, "ns", "a", false);
    assert_int_equal(queue_stats(q).depth, 2);
    expect(q, "a");
    expect(q, "b");
    assert_null(queue_try(q));
    /* The same name in another namespace is another key. */
    queue_add(q, "other", "a", false);
    queue_add(q, "ns", "a", false);
    assert_int_equal(queue_stats(q).depth, 2);
}

static void test_a_key_added_while_worked_on_comes_again_but_not_twice_at_once(void **state)
{
    AUTO(queue_free) struct queue *q = queue_new(fake_now);
    const struct queue_key *key;

    (void)state;
    queue_add(q, "ns", "a", false);
    key = queue_try(q);
    queue_add(q, "ns", "a", false);
    queue_add(q, "ns", "a", false);
    assert_null(queue_try(q));
    queue_done(q, key, QUEUE_OK, 0);
    expect(q, "a");
    assert_null(queue_try(q));
}

static void test_urgent_goes_first_but_does_not_starve(void **state)
{
    AUTO(queue_free) struct queue *q = queue_new(fake_now);
    char name[16];

    (void)state;
    queue_add(q, "ns", "slow", false);
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof(name), "u%d", i);
        queue_add(q, "ns", name, true);
    }
    for (int i = 0; i < QUEUE_URGENT_RUN; i++) {
        (void)snprintf(name, sizeof(name), "u%d", i);
        expect(q, name);
    }
    expect(q, "slow");
    expect(q, "u16");
}

static void test_a_waiting_key_becomes_urgent(void **state)
{
    AUTO(queue_free) struct queue *q = queue_new(fake_now);

    (void)state;
    queue_add(q, "ns", "a", false);
    queue_add(q, "ns", "b", false);
    queue_add(q, "ns", "b", true);
    queue_add(q, "ns", "b", false);
    expect(q, "b");
    expect(q, "a");
    assert_null(queue_try(q));
}

static void test_failures_back_off_and_success_forgets_them(void **state)
{
    static const uint64_t waits[] = {5, 10, 20, 40, 80};
    AUTO(queue_free) struct queue *q = queue_new(fake_now);
    const struct queue_key *key;

    (void)state;
    clock_ms = 1000;
    queue_add(q, "ns", "a", false);
    for (size_t i = 0; i < ARRAY_LEN(waits); i++) {
        key = queue_try(q);
        assert_non_null(key);
        assert_int_equal(key->failures, i);
        queue_done(q, key, QUEUE_RETRY, 0);
        clock_ms += waits[i] - 1;
        assert_null(queue_try(q));
        clock_ms += 1;
    }
    for (int i = 0; i < 30; i++) {
        queue_done(q, queue_try(q), QUEUE_RETRY, 0);
        clock_ms += QUEUE_BACKOFF_MAX_MS;
    }
    /* Unless the caller knows that it is not the object's fault. */
    queue_done(q, queue_try(q), QUEUE_RETRY, 100);
    clock_ms += 100;
    expect(q, "a");
    queue_add(q, "ns", "a", false);
    key = queue_try(q);
    assert_int_equal(key->failures, 0);
    queue_done(q, key, QUEUE_OK, 0);
}

/* Done with @name, which comes again after @delay_ms. */
static void later(struct queue *q, const char *name, uint64_t delay_ms)
{
    queue_add(q, "ns", name, false);
    queue_done(q, queue_try(q), QUEUE_AFTER, delay_ms);
}

static void test_delays_end_in_their_order(void **state)
{
    AUTO(queue_free) struct queue *q = queue_new(fake_now);

    (void)state;
    clock_ms = 0;
    later(q, "c", 30);
    later(q, "a", 10);
    later(q, "b", 20);
    assert_null(queue_try(q));
    clock_ms = 10;
    expect(q, "a");
    assert_null(queue_try(q));
    /* An event brings forward what was to come later. */
    queue_add(q, "ns", "c", false);
    expect(q, "c");
    clock_ms = 1000;
    expect(q, "b");
    assert_null(queue_try(q));
    assert_int_equal(queue_stats(q).delayed, 0);
}

static void *take_until_stopped(void *arg)
{
    const struct queue_key *key;

    while ((key = queue_take(arg)))
        queue_done(arg, key, QUEUE_OK, 0);
    return NULL;
}

static void test_workers_stop(void **state)
{
    AUTO(queue_free) struct queue *q = queue_new(fake_now);
    pthread_t threads[3];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_until_stopped, q), 0);
    for (int i = 0; i < 100; i++)
        queue_add(q, "ns", i % 2 ? "a" : "b", i % 3 == 0);
    queue_stop(q);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_null(queue_take(q));
    assert_int_equal(queue_stats(q).working, 0);
}

int main(void)
{
    return TEST_RUN(T(test_a_key_is_queued_once),
                    T(test_a_key_added_while_worked_on_comes_again_but_not_twice_at_once),
                    T(test_urgent_goes_first_but_does_not_starve),
                    T(test_a_waiting_key_becomes_urgent),
                    T(test_failures_back_off_and_success_forgets_them),
                    T(test_delays_end_in_their_order), T(test_workers_stop));
}
