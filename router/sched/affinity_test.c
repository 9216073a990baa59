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

static void a_running_request_keeps_its_session(void **state)
{
    AUTO(affinity_free) struct affinity *a = affinity_new(8);
    struct affinity_hold first, second, none;

    (void)state;
    (void)affinity_bind(a, STR("s"), (struct worker_rank){7, 0}, 0);
    first = affinity_hold(a, STR("s"));
    second = affinity_hold(a, STR("s"));
    none = affinity_hold(a, STR("t"));
    assert_int_equal(worker_of(a, STR("s"), 500), 7);
    affinity_release(a, &first, 500);
    affinity_release(a, &first, 510); /* gone already */
    affinity_release(a, &none, 510);
    assert_int_equal(worker_of(a, STR("s"), 1000), 7);
    affinity_release(a, &second, 1000);
    assert_int_equal(worker_of(a, STR("s"), 1099), 7);
    assert_int_equal(worker_of(a, STR("s"), 1100), 0);
    /* Those of the worker that it was with before keep nothing. */
    first = affinity_hold(a, STR("s"));
    (void)affinity_bind(a, STR("s"), (struct worker_rank){8, 0}, 2000);
    affinity_release(a, &first, 2090);
    assert_int_equal(worker_of(a, STR("s"), 2100), 0);
}

/* --- with other routers --- */

struct told {
    struct affinity_binding last;
    size_t n;
};

static void note(void *arg, const struct affinity_binding *b)
{
    struct told *t = arg;

    t->last = *b;
    t->n++;
}

static void bindings_and_their_uses_are_told(void **state)
{
    AUTO(affinity_free) struct affinity *a = affinity_new(8);
    struct affinity_version first;
    struct affinity_hold h;
    struct told t = {.n = 0};

    (void)state;
    affinity_share(a, 5, 1000, note, &t);
    (void)affinity_bind(a, STR("s"), (struct worker_rank){7, 1}, 0);
    assert_int_equal(t.n, 1);
    assert_true(str_is(t.last.session, "s") && t.last.worker.worker_id == 7);
    first = t.last.version;
    assert_true(first.sequence > 1000 && first.writer == 5);
    (void)affinity_bind(a, STR("s"), (struct worker_rank){7, 1}, 10); /* used, not bound anew */
    h = affinity_hold(a, STR("s"));
    affinity_release(a, &h, 20);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.last.version.sequence, first.sequence);
    (void)affinity_bind(a, STR("s"), (struct worker_rank){8, 1}, 30);
    assert_int_equal(t.n, 4);
    assert_true(t.last.version.sequence > first.sequence);
    affinity_share(a, 5, 0, NULL, NULL);
    (void)affinity_bind(a, STR("s"), (struct worker_rank){9, 1}, 40);
    assert_int_equal(t.n, 4);
}

static bool hear(struct affinity *a, uint64_t worker, uint64_t sequence, uint64_t writer,
                 uint64_t now)
{
    return affinity_hear(a, &(struct affinity_binding){STR("s"), {worker, 0}, {sequence, writer}},
                         TTL, now);
}

/* The cases and what wins are those seen at a selection service of 1.6.1. */
static void the_later_binding_wins(void **state)
{
    AUTO(affinity_free) struct affinity *a = affinity_new(8);
    struct told t = {.n = 0};

    (void)state;
    affinity_share(a, 5, 1, note, &t);
    assert_true(hear(a, 2, 100, 7, 0));
    assert_int_equal(worker_of(a, STR("s"), 1), 2);
    assert_false(hear(a, 3, 90, 8, 1));
    assert_true(hear(a, 3, 100, 8, 2));
    assert_false(hear(a, 1, 100, 6, 3));
    assert_int_equal(worker_of(a, STR("s"), 4), 3);
    assert_true(hear(a, 1, 105, 6, 5));
    assert_int_equal(worker_of(a, STR("s"), 6), 1);
    assert_true(hear(a, 1, 105, 6, 80)); /* used there: it lives on */
    assert_int_equal(worker_of(a, STR("s"), 179), 1);
    assert_true(hear(a, 4, 50, 6, 180)); /* ours is over, whatever it was */
    assert_int_equal(worker_of(a, STR("s"), 181), 4);
    assert_int_equal(t.n, 0); /* what is heard is not told */
    (void)affinity_bind(a, STR("s"), (struct worker_rank){9, 0}, 190);
    assert_true(t.last.version.sequence > 105);
}

static void no_sequence_ends_them(void **state)
{
    AUTO(affinity_free) struct affinity *a = affinity_new(8);
    struct told t = {.n = 0};

    (void)state;
    affinity_share(a, 5, 1, note, &t);
    assert_true(hear(a, 2, UINT64_MAX, 7, 0));
    assert_false(hear(a, 2, 0, 7, 0));
    for (uint64_t w = 1; w <= 2; w++) {
        (void)affinity_bind(a, STR("t"), (struct worker_rank){w, 0}, 0);
        assert_true(t.last.version.sequence > UINT64_MAX / 2);
    }
    assert_false(affinity_hear(a, &(struct affinity_binding){STR(""), {1, 0}, {9, 9}}, TTL, 0));
}

static void what_is_heard_is_bounded(void **state)
{
    AUTO(affinity_free) struct affinity *a = affinity_new(2);
    static const char *const names[] = {"a", "b", "c"};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_true(affinity_hear(a, &(struct affinity_binding){str_from(names[i]), {1, 0}, {9, 9}},
                                  TTL, i));
    assert_int_equal(affinity_sessions(a), 2);
    assert_int_equal(worker_of(a, STR("a"), 3), 0);
}

int main(void)
{
    return TEST_RUN(T(a_running_request_keeps_its_session), T(bindings_and_their_uses_are_told),
                    T(the_later_binding_wins), T(no_sequence_ends_them),
                    T(what_is_heard_is_bounded), T(a_binding_lives_for_the_ttl_after_its_last_use),
                    T(the_one_unused_for_longest_makes_room), T(ids_have_bounds));
}
