/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/signal_health.h"
#include "lib/base/test.h"

static const struct worker_rank W = {7, 1};

static void expect_reason(const struct signal_health *h, uint64_t now_ms, const char *want)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    signal_health_reason(h, W, now_ms, &out);
    assert_string_equal(buf_cstr(&out), want);
}

static void a_healthy_signal_is_believed_to_the_bit(void **state)
{
    struct signal_health h = {0};

    (void)state;
    for (uint64_t i = 0; i < 10000; i++) {
        signal_health_prompt(&h, i);
        signal_health_event(&h, i);
        signal_health_cached(&h, i % 50, i % 50 - (i % 50 && i % 3 == 0));
        if (i % 40 == 0)
            signal_health_fault(&h, i % 80 ? SIGNAL_GAP : SIGNAL_ORPHAN);
        assert_int_equal(signal_health_judge(&h, i), SIGNAL_SAME);
        assert_true(signal_health_confidence(&h) == 1);
    }
    expect_reason(&h, 10000, "");
}

static void prompts_without_events_end_it(void **state)
{
    struct signal_health h = {0};
    uint64_t now = 5000;

    (void)state;
    assert_true(signal_health_is_suspect(&h, now));
    signal_health_event(&h, now);
    assert_false(signal_health_is_suspect(&h, now));
    for (int i = 0; i < 120; i++)
        signal_health_prompt(&h, now + 1000);
    assert_false(signal_health_is_suspect(&h, now + 1000 + SIGNAL_SUSPECT_MS - 1));
    assert_true(signal_health_is_suspect(&h, now + 1000 + SIGNAL_SUSPECT_MS));
    assert_int_equal(signal_health_judge(&h, now + 1000 + SIGNAL_ASK_MS - 1), SIGNAL_SAME);
    assert_int_equal(signal_health_judge(&h, now + 1000 + SIGNAL_ASK_MS), SIGNAL_ASK_NEWS);
    assert_int_equal(signal_health_judge(&h, now + 1000 + SIGNAL_ASK_MS + 1), SIGNAL_SAME);
    assert_int_equal(signal_health_judge(&h, now + 1000 + SIGNAL_DEAD_MS - 1), SIGNAL_SAME);
    expect_reason(&h, now + 8000, "");
    assert_int_equal(signal_health_judge(&h, now + 1000 + SIGNAL_DEAD_MS), SIGNAL_DIED);
    expect_reason(&h, now + 41000,
                  "no KV events from worker 7 rank 1 for 40 s although 120 prompts were routed: is "
                  "event publishing enabled in the engine? It did publish before");
    assert_true(signal_health_confidence(&h) == 1);
    signal_health_event(&h, now + 42000);
    assert_int_equal(signal_health_judge(&h, now + 42000), SIGNAL_REVIVED);
    assert_int_equal(signal_health_judge(&h, now + 42000), SIGNAL_SAME);
    expect_reason(&h, now + 42000, "");
}

static void a_few_prompts_prove_nothing(void **state)
{
    struct signal_health h = {0};

    (void)state;
    for (int i = 0; i < SIGNAL_PROMPTS - 1; i++)
        signal_health_prompt(&h, 0);
    h.asked_ms = UINT64_MAX / 2;
    assert_int_equal(signal_health_judge(&h, 10 * SIGNAL_DEAD_MS), SIGNAL_SAME);
    signal_health_prompt(&h, 0);
    assert_int_equal(signal_health_judge(&h, SIGNAL_DEAD_MS - 1), SIGNAL_SAME);
    assert_int_equal(signal_health_judge(&h, SIGNAL_DEAD_MS), SIGNAL_DIED);
}

static void wrong_predictions_cost_confidence_and_ask_for_a_dump(void **state)
{
    struct signal_health h = {0};
    double before = 1;

    (void)state;
    signal_health_event(&h, 0);
    for (int i = 1; i < SIGNAL_MISSES; i++)
        signal_health_cached(&h, 20, 0);
    assert_int_equal(signal_health_judge(&h, 0), SIGNAL_SAME);
    signal_health_cached(&h, 20, 0);
    assert_int_equal(signal_health_judge(&h, 0), SIGNAL_ASK_ALL);
    for (int i = 0; i < 100; i++) {
        signal_health_cached(&h, 20, 0);
        assert_true(signal_health_confidence(&h) < before);
        before = signal_health_confidence(&h);
        if (before < 0.06)
            break;
    }
    assert_true(before < 0.06); /* one of twenty blocks is forgiven */
    for (int i = 0; i < 40; i++)
        signal_health_cached(&h, 20, 19);
    assert_true(signal_health_confidence(&h) == 1);
}

/* More than predicted is wrong too, but no reason to give less credit. */
static void unexpected_hits_ask_for_a_dump(void **state)
{
    struct signal_health h = {0};

    (void)state;
    signal_health_event(&h, 0);
    for (int i = 0; i < SIGNAL_MISSES; i++)
        signal_health_cached(&h, 2, 20);
    assert_int_equal(signal_health_judge(&h, 0), SIGNAL_ASK_ALL);
    assert_true(signal_health_confidence(&h) == 1);
}

static void other_block_sizes_cannot_be_used(void **state)
{
    struct signal_health h = {.block_size = 32};

    (void)state;
    assert_int_equal(signal_health_judge(&h, 0), SIGNAL_DIED);
    assert_int_equal(signal_health_judge(&h, 0), SIGNAL_SAME);
    expect_reason(&h, 0,
                  "KV events of worker 7 rank 1 are left out: its blocks have 32 tokens, which is "
                  "not the block size of this router");
    h.block_size = 0;
    assert_int_equal(signal_health_judge(&h, 0), SIGNAL_REVIVED);
}

static void faults_cost_confidence(void **state)
{
    struct signal_health h = {0};

    (void)state;
    for (int i = 0; i < 1000; i++) {
        signal_health_event(&h, 0);
        signal_health_fault(&h, SIGNAL_ORPHAN);
    }
    assert_true(signal_health_confidence(&h) < 0.1);
    expect_reason(&h, 0,
                  "KV events of worker 7 rank 1 are believed to 0 %: 0 gaps and 1000 orphans in "
                  "1000 events, 0 of 0 predictions of cached blocks were wrong");
}

int main(void)
{
    return TEST_RUN(T(a_healthy_signal_is_believed_to_the_bit), T(prompts_without_events_end_it),
                    T(a_few_prompts_prove_nothing),
                    T(wrong_predictions_cost_confidence_and_ask_for_a_dump),
                    T(unexpected_hits_ask_for_a_dump), T(other_block_sizes_cannot_be_used),
                    T(faults_cost_confidence));
}
