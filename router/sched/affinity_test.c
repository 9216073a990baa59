/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/affinity.h"

#include <string.h>

#include "lib/base/test.h"

enum { TTL = 100 };

static uint64_t worker_of(struct affinity *a, struct str session, uint64_t now)
{
    struct worker_rank w = {0};

    return affinity_find(a, session, TTL, now, &w) ? w.worker_id : 0;
}

static void a_binding_lives_for_the_ttl_after_its_last_use(void **state)
{
    AUTO(affinity_free) struct affinity *a = affinity_new(8);
    struct worker_rank w = {7, 3}, found;

    (void)state;
    assert_false(affinity_bind(a, STR("s"), w, 1000));
    assert_true(affinity_find(a, STR("s"), TTL, 1099, &found));
    assert_true(worker_rank_eq(found, w));
    assert_int_equal(worker_of(a, STR("s"), 1100), 0);
    assert_int_equal(worker_of(a, STR("t"), 1000), 0);
    (void)affinity_bind(a, STR("s"), w, 1050);
    assert_int_equal(worker_of(a, STR("s"), 1149), 7);
    (void)affinity_bind(a, STR("s"), (struct worker_rank){8, 0}, 1060);
    assert_int_equal(worker_of(a, STR("s"), 1060), 8);
    assert_int_equal(affinity_sessions(a), 1);
}

static void the_one_unused_for_longest_makes_room(void **state)
{
    AUTO(affinity_free) struct affinity *a = affinity_new(2);

    (void)state;
    assert_false(affinity_bind(a, STR("a"), (struct worker_rank){1, 0}, 0));
    assert_false(affinity_bind(a, STR("b"), (struct worker_rank){2, 0}, 1));
    assert_false(affinity_bind(a, STR("a"), (struct worker_rank){1, 0}, 2));
    assert_true(affinity_bind(a, STR("c"), (struct worker_rank){3, 0}, 3));
    assert_int_equal(worker_of(a, STR("a"), 3), 1);
    assert_int_equal(worker_of(a, STR("b"), 3), 0);
    assert_int_equal(worker_of(a, STR("c"), 3), 3);
    assert_int_equal(affinity_sessions(a), 2);
}

static void ids_have_bounds(void **state)
{
    AUTO(affinity_free) struct affinity *a = affinity_new(2);
    char id[AFFINITY_ID_MAX + 1];

    (void)state;
    memset(id, 'x', sizeof(id));
    assert_false(affinity_bind(a, STR_NULL, (struct worker_rank){1, 0}, 0));
    assert_false(affinity_bind(a, str_slice(id, sizeof(id)), (struct worker_rank){1, 0}, 0));
    assert_int_equal(affinity_sessions(a), 0);
    assert_false(affinity_bind(a, str_slice(id, sizeof(id) - 1), (struct worker_rank){1, 0}, 0));
    assert_int_equal(affinity_sessions(a), 1);
}

int main(void)
{
    return TEST_RUN(T(a_binding_lives_for_the_ttl_after_its_last_use),
                    T(the_one_unused_for_longest_makes_room), T(ids_have_bounds));
}
