/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_ring.h"
#include "lib/base/test.h"

static void add(struct decision_ring *r, unsigned id)
{
    struct decision_record *rec = decision_ring_add(r);

    (void)snprintf(rec->request_id, sizeof(rec->request_id), "request-%u", id);
    decision_ring_added(r, rec);
}

static uint64_t found(const struct decision_ring *r, const char *id, uint64_t before)
{
    const struct decision_record *rec = decision_ring_find(r, str_from(id), before);

    return rec ? rec->seq : 0;
}

static void the_newest_overwrites_the_oldest(void **state)
{
    AUTO(decision_ring_free) struct decision_ring *r = decision_ring_new(4);

    (void)state;
    assert_int_equal(decision_ring_first(r), 1);
    assert_int_equal(decision_ring_next(r), 1);
    assert_null(decision_ring_at(r, 0));
    assert_null(decision_ring_at(r, 1));
    for (unsigned i = 1; i <= 10; i++) {
        add(r, i);
        assert_int_equal(decision_ring_first(r), i > 4 ? i - 3 : 1);
        assert_int_equal(decision_ring_next(r), i + 1);
        for (unsigned k = 1; k <= 11; k++) {
            struct decision_record *rec = decision_ring_at(r, k);

            assert_int_equal(rec != NULL, k <= i && k + 4 > i);
            if (rec)
                assert_int_equal(rec->seq, k);
        }
    }
}

static void a_request_is_found_by_its_id(void **state)
{
    AUTO(decision_ring_free) struct decision_ring *r = decision_ring_new(4);

    (void)state;
    assert_int_equal(found(r, "request-1", UINT64_MAX), 0);
    add(r, 1);
    add(r, 2);
    add(r, 1); /* another attempt */
    assert_int_equal(found(r, "request-1", UINT64_MAX), 3);
    assert_int_equal(found(r, "request-1", 3), 1);
    assert_int_equal(found(r, "request-1", 1), 0);
    assert_int_equal(found(r, "request-2", UINT64_MAX), 2);
    assert_int_equal(found(r, "", UINT64_MAX), 0);
    add(r, 4);
    add(r, 5);
    assert_int_equal(found(r, "request-1", 3), 0);
    (void)decision_ring_add(r); /* not filled yet: its slot is that of an older one */
    assert_int_equal(found(r, "request-2", UINT64_MAX), 0);
}

int main(void)
{
    return TEST_RUN(T(the_newest_overwrites_the_oldest), T(a_request_is_found_by_its_id));
}
