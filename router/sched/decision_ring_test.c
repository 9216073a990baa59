/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_ring.h"
#include "lib/base/test.h"
#include "router/sched/decision_json.h"
#include "router/sched/decision_replay.h"
#include "router/sched/decision_sample.h"

static void add(struct decision_ring *r, unsigned id)
{
    struct decision_record *rec = decision_ring_add(r);

    (void)snprintf(rec->request_id, sizeof(rec->request_id), "request-%u", id);
    decision_ring_added(r);
}

static uint64_t found(struct decision_ring *r, const char *id, uint64_t before)
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
            const struct decision_record *rec = decision_ring_at(r, k);

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
    (void)decision_ring_add(r); /* not filled yet: overwrites nothing */
    assert_int_equal(found(r, "request-1", UINT64_MAX), 3);
    decision_ring_added(r);
    assert_int_equal(found(r, "request-2", UINT64_MAX), 0);
}

static struct decision_sample sample;

/* Of @n candidates. *json is what it says. */
static void add_sample(struct decision_ring *r, size_t n, uint64_t seed, struct buf *json)
{
    static const struct decision_context context = {STR("example"), "decode", 1, 1000, 7};
    struct decision_record *rec = decision_ring_add(r);

    sample_decision(&sample, &POLICY_DYNAMO, n, seed);
    decision_record_fill(rec, &sample.q, &sample.d, 0, &context);
    if (seed % 2)
        (void)decision_shadow(rec, &sample.d, &POLICY_LEAST_LOADED,
                              (struct route_score[1000]){{.logit = 0}});
    rec->time_ms = seed;
    buf_clear(json);
    decision_record_put_json(json, rec);
    decision_ring_added(r);
}

/* Of any number of candidates, rejections and shadows, over chunks that come and go. */
static void records_come_back_as_they_were(void **state)
{
    enum { SIZE = 100, ROUNDS = 1000 };
    AUTO(decision_ring_free) struct decision_ring *r = decision_ring_new(SIZE);
    static const size_t sizes[] = {1, 2, 4, 31, 32, 33, 64, 5, 1000, 3, 8};
    struct buf written[SIZE] = {BUF_NULL};
    AUTO(buf_done) struct buf read = BUF_NULL;

    (void)state;
    for (uint64_t seq = 1; seq <= ROUNDS; seq++) {
        add_sample(r, sizes[seq / 7 % ARRAY_LEN(sizes)], seq, &written[seq % SIZE]);
        if (seq % 50)
            continue;
        for (uint64_t at = decision_ring_first(r); at <= seq; at++) {
            buf_clear(&read);
            decision_record_put_json(&read, decision_ring_at(r, at));
            assert_true(str_eq(buf_str(&read), buf_str(&written[at % SIZE])));
        }
    }
    for (size_t i = 0; i < SIZE; i++)
        buf_done(&written[i]);
}

static void an_outcome_is_kept_with_its_record(void **state)
{
    AUTO(decision_ring_free) struct decision_ring *r = decision_ring_new(2);
    AUTO(buf_done) struct buf json = BUF_NULL;

    (void)state;
    assert_null(decision_ring_outcome(r, 1));
    add_sample(r, 4, 1, &json);
    add_sample(r, 4, 2, &json);
    assert_int_equal(decision_ring_outcome(r, 1)->ended, DECISION_RUNNING);
    *decision_ring_outcome(r, 1) =
        (struct decision_outcome){.ended = DECISION_FINISHED, .output_tokens = 9};
    assert_int_equal(decision_ring_at(r, 1)->outcome.ended, DECISION_FINISHED);
    assert_int_equal(decision_ring_at(r, 1)->outcome.output_tokens, 9);
    assert_int_equal(decision_ring_at(r, 2)->outcome.ended, DECISION_RUNNING);
    add_sample(r, 4, 3, &json);
    assert_null(decision_ring_outcome(r, 1));
}

static size_t bytes_with(size_t n_candidates)
{
    enum { SIZE = 1024 };
    AUTO(decision_ring_free) struct decision_ring *r = decision_ring_new(SIZE);
    AUTO(buf_done) struct buf json = BUF_NULL;
    size_t full;

    for (uint64_t i = 1; i <= SIZE; i++)
        add_sample(r, n_candidates, i, &json);
    full = decision_ring_bytes(r);
    for (uint64_t i = 1; i <= SIZE; i++)
        add_sample(r, n_candidates, i, &json);
    /* Overwriting takes no more: a chunk that fills, one that empties and one that waits. */
    assert_true(decision_ring_bytes(r) <= full + (2 << 16));
    return full;
}

static void memory_follows_the_candidates(void **state)
{
    (void)state;
    assert_in_range(bytes_with(4), 1 << 18, 3 << 19);
    assert_in_range(bytes_with(1000), 1 << 20, 7 << 20);
}

int main(void)
{
    return TEST_RUN(T(the_newest_overwrites_the_oldest), T(a_request_is_found_by_its_id),
                    T(records_come_back_as_they_were), T(an_outcome_is_kept_with_its_record),
                    T(memory_follows_the_candidates));
}
