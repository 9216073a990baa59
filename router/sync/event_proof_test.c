/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_proof.h"
#include "lib/base/test.h"

static const struct worker_rank W = {7, 1};

static void saw(struct event_proofs *p, uint64_t id, uint64_t block)
{
    const struct kv_block blocks[] = {{block, 1}, {block + 1, 2}};

    event_proofs_saw(p, &(struct kv_event){.worker_id = W.worker_id,
                                           .dp_rank = W.dp_rank,
                                           .event_id = id,
                                           .kind = KV_STORED,
                                           .blocks = blocks,
                                           .n_blocks = 2});
}

static uint64_t kept(uint64_t id, uint64_t block)
{
    struct event_proofs p = {.ranks = {0}};
    uint64_t proof;

    saw(&p, id - 1, 1000);
    saw(&p, id, block);
    saw(&p, id, block + 50); /* of the same batch */
    proof = event_proofs_of(&p, W, id);
    assert_int_equal(event_proofs_of(&p, W, id - 1), 0);
    assert_int_equal(event_proofs_of(&p, (struct worker_rank){7, 0}, id), 0);
    event_proofs_done(&p);
    return proof;
}

static void the_same_event_confirms_and_another_does_not(void **state)
{
    struct event_proofs p = {.ranks = {0}};
    struct worker_rank w;
    size_t at = 0;

    (void)state;
    assert_int_equal(event_proofs_look(&p, W), EVENT_NOT_EXPECTED);
    event_proofs_expect(&p, W, 9, kept(9, 5));
    assert_int_equal(event_proofs_look(&p, W), EVENT_NOT_TOLD);
    assert_true(event_proofs_next(&p, &at, &w) && worker_rank_eq(w, W));
    saw(&p, 9, 5);
    assert_int_equal(event_proofs_look(&p, W), EVENT_NOT_EXPECTED);
    at = 0;
    assert_false(event_proofs_next(&p, &at, &w));

    event_proofs_expect(&p, W, 9, kept(9, 5));
    saw(&p, 8, 5);
    assert_int_equal(event_proofs_look(&p, W), EVENT_NOT_TOLD);
    saw(&p, 9, 6);
    assert_int_equal(event_proofs_look(&p, W), EVENT_TOLD_OTHERWISE);
    event_proofs_reset(&p, W);
    assert_int_equal(event_proofs_look(&p, W), EVENT_NOT_EXPECTED);
    event_proofs_done(&p);
}

static void a_worker_that_left_is_forgotten(void **state)
{
    struct event_proofs p = {.ranks = {0}};

    (void)state;
    for (uint64_t id = 0; id < 100; id++)
        event_proofs_expect(&p, (struct worker_rank){id % 10, (uint32_t)(id / 10)}, 1, 2);
    event_proofs_forget(&p, 3);
    assert_int_equal(p.ranks.len, 90);
    assert_int_equal(event_proofs_look(&p, (struct worker_rank){3, 4}), EVENT_NOT_EXPECTED);
    assert_int_equal(event_proofs_look(&p, (struct worker_rank){4, 4}), EVENT_NOT_TOLD);
    event_proofs_done(&p);
}

int main(void)
{
    return TEST_RUN(T(the_same_event_confirms_and_another_does_not),
                    T(a_worker_that_left_is_forgotten));
}
