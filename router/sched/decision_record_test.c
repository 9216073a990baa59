/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_record.h"
#include "lib/base/test.h"

#include <errno.h>

#include "lib/base/json_tree.h"
#include "router/sched/decision_json.h"
#include "router/sched/decision_replay.h"
#include "router/sched/decision_sample.h"

static const struct policy *const POLICIES[] = {
    &POLICY_DYNAMO,       &POLICY_LEAST_LOADED, &POLICY_ROUND_ROBIN, &POLICY_POWER_OF_TWO,
    &POLICY_DYNAMO_1,     &POLICY_MARGINAL,     &POLICY_TWO_TIER,    &POLICY_RANDOM,
    &POLICY_DEVICE_AWARE, &POLICY_THUNDERAGENT};
static const struct decision_context CONTEXT = {STR("example"), "decode", 1, 1700000000000, 250};

static struct decision_sample sample;
static struct decision_record rec, back;

static void record(const struct policy *policy, size_t n, uint64_t seed, int result)
{
    struct route_score scratch[1000];

    sample_decision(&sample, policy, n, seed);
    memset(&rec, 0xa5, sizeof(rec)); /* what is not filled shows */
    rec.seq = seed + 1;
    decision_record_fill(&rec, &sample.q, &sample.d, result, &CONTEXT);
    for (size_t i = 0; i < 2; i++)
        (void)decision_shadow(&rec, &sample.d, POLICIES[i], scratch);
}

static void print(struct buf *out)
{
    buf_clear(out);
    decision_record_put_json(out, &rec);
}

/* --- what is kept ------------------------------------------------------------------------------
 */

static void the_chosen_and_the_best_are_kept_of_many(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        double worst = -INFINITY;
        size_t better = 0;

        record(&POLICY_DYNAMO, 1 + seed % 64, seed, 0);
        assert_int_equal(rec.n_candidates, MIN(1 + seed % 64, (uint64_t)DECISION_CANDIDATES_MAX));
        assert_int_equal(rec.n_candidates + rec.more_candidates, 1 + seed % 64);
        assert_true(worker_rank_eq(decision_chosen(&rec)->seen.worker,
                                   sample.candidates[sample.d.chosen].worker));
        for (uint32_t i = 0; i < rec.n_candidates; i++) {
            assert_true(i == 0 || rec.candidates[i - 1].seen.slot < rec.candidates[i].seen.slot);
            if (i != rec.chosen)
                worst = fmax(worst, rec.candidates[i].score.logit);
        }
        for (size_t i = 0; i < sample.d.n_candidates; i++)
            better += i != sample.d.chosen && sample.scores[i].logit < worst;
        assert_true(better < MAX(rec.n_candidates - 1, 1u));
    }
}

static void equal_scores_do_not_crowd_out(void **state)
{
    (void)state;
    record(&POLICY_ROUND_ROBIN, 64, 7, 0); /* every score is 0 */
    assert_int_equal(rec.n_candidates, DECISION_CANDIDATES_MAX);
    assert_int_equal(rec.more_candidates, 32);
    assert_true(worker_rank_eq(decision_chosen(&rec)->seen.worker,
                               sample.candidates[sample.d.chosen].worker));
}

static void the_runner_up_is_the_best_of_the_others(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        record(&POLICY_DYNAMO, 1 + seed % 9, seed, 0);
        if (rec.n_candidates == 1) {
            assert_int_equal(rec.runner_up, DECISION_NONE);
            assert_true(isnan(rec.margin));
            continue;
        }
        assert_int_not_equal(rec.runner_up, rec.chosen);
        for (uint32_t i = 0; i < rec.n_candidates; i++)
            assert_true(i == rec.chosen ||
                        rec.candidates[i].score.logit >= rec.candidates[rec.runner_up].score.logit);
        if (rec.inputs.temperature == 0)
            assert_true(rec.margin >= 0);
    }
}

static bool is_shadow_word(const char *name)
{
    for (size_t i = 0; ROUTE_SHADOW_WORDS[i]; i++)
        if (strcmp(ROUTE_SHADOW_WORDS[i], name) == 0)
            return true;
    return false;
}

static void every_policy_can_be_a_shadow(void **state)
{
    (void)state;
    for (size_t i = 0; ROUTE_SHADOW_WORDS[i]; i++)
        assert_non_null(policy_find(str_from(ROUTE_SHADOW_WORDS[i])));
    for (size_t i = 0; ROUTE_POLICY_WORDS[i]; i++)
        assert_true(is_shadow_word(ROUTE_POLICY_WORDS[i]));
    for (size_t i = 0; ROUTE_MODE_WORDS[i]; i++)
        assert_true(i == ROUTE_KV || i == ROUTE_DIRECT || is_shadow_word(ROUTE_MODE_WORDS[i]));
}

/* --- JSON --------------------------------------------------------------------------------------
 */

static void every_record_reads_back_bit_for_bit(void **state)
{
    AUTO(buf_done) struct buf first = BUF_NULL, second = BUF_NULL;
    struct decision_replay replay;
    struct err e;

    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        record(POLICIES[seed % ARRAY_LEN(POLICIES)], 1 + seed % 40, seed, seed % 11 ? 0 : 2);
        if (seed % 2)
            rec.outcome =
                (struct decision_outcome){DECISION_FINISHED, 48, 100, 12.345678901234567, 1.0 / 3};
        print(&first);
        assert_true(first.len < DECISION_LINE_MAX);
        assert_null(memchr(buf_data(&first), '\n', first.len));
        EXPECT_OK(decision_record_parse(buf_str(&first), &back, &e), &e);
        if (back.result == 0) {
            assert_int_equal(decision_verify(&back, &replay), DECISION_SAME);
            assert_int_equal(replay.tied, back.pick.tied);
            assert_int_equal(replay.pick, back.chosen);
        }
        rec = back;
        print(&second);
        assert_true(str_eq(buf_str(&first), buf_str(&second)));
    }
}

/* More candidates than a record holds, with as many equal ones: the pick follows from what is kept, and
 * another one does not. */
static void the_pick_among_many_is_checked(void **state)
{
    AUTO(buf_done) struct buf line = BUF_NULL;
    struct decision_replay replay;
    struct err e;
    size_t found = 0, forged = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 600; seed++) {
        const struct policy *policy = POLICIES[seed % ARRAY_LEN(POLICIES)];
        struct decision_record forgery;

        record(policy, (seed % 2 ? 1000 : 90) - seed % 50, seed, 0);
        assert_true(rec.more_candidates > 0);
        print(&line);
        EXPECT_OK(decision_record_parse(buf_str(&line), &back, &e), &e);
        assert_int_equal(decision_verify(&back, &replay), DECISION_SAME);
        forgery = back;
        forgery.chosen = (back.chosen + 1) % back.n_candidates;
        forgery.pick.at++;
        forgery.pick.nth++;
        forged++;
        found += decision_verify(&forgery, &replay) == DECISION_PICK_DIFFERS;
        forgery = back;
        forgery.inputs.random ^= UINT64_C(0x5555555555555555);
        forgery.inputs.turn++;
        forged++;
        found += decision_verify(&forgery, &replay) == DECISION_PICK_DIFFERS || back.pick.pool == 1;
        back.pick.n = 0; /* as records of before do not tell */
        assert_int_equal(decision_verify(&back, &replay), DECISION_INCOMPLETE);
    }
    /* Softmax alone may give the same again by another draw. */
    assert_true(found > forged * 9 / 10);
}

static void a_changed_number_is_found(void **state)
{
    struct decision_replay replay;

    (void)state;
    record(&POLICY_DYNAMO, 8, 5, 0);
    assert_int_equal(decision_verify(&rec, &replay), DECISION_SAME);
    rec.candidates[3].seen.prefill_tokens++;
    assert_int_equal(decision_verify(&rec, &replay), DECISION_SCORES_DIFFER);
    rec.candidates[3].seen.prefill_tokens--;
    rec.candidates[3].score.logit = nextafter(rec.candidates[3].score.logit, INFINITY);
    assert_int_equal(decision_verify(&rec, &replay), DECISION_SCORES_DIFFER);
    record(&POLICY_LEAST_LOADED, 8, 5, 0);
    rec.chosen = rec.runner_up;
    assert_int_equal(decision_verify(&rec, &replay), DECISION_PICK_DIFFERS);
}

static void what_is_wrong_with_a_line_is_said(void **state)
{
    static const struct {
        const char *from, *to, *why;
    } cases[] = {
        {"{\"v\":1", "{\"v\":2", "no decision record of version 1"},
        {"\"policy\":\"dynamo\"", "\"policy\":\"oracle\"", "no policy of this name"},
        {"\"block_size\":16", "\"block_size\":0", "inputs.block_size"},
        {"\"result\":\"chosen\"", "\"result\":\"all-busy\"", "contradict"},
        {"\"mode\":\"kv\"", "\"mode\":\"roulette\"", "no such mode"},
        {"\"at\":", "\"at\":9", "no such candidate"},
        {"\"overlap_blocks\":", "\"overlap_blocks\":4294967296", "too large"},
        {"\"request_id\":\"", "\"request_id\":\"0123456789012345678901234567890123456789",
         "a text is too long"},
        {"\"isl\":", "\"isl\":\"x\",\"y\":", "integer"},
        {"{\"v\":1", "[{\"v\":1", ""},
    };
    AUTO(buf_done) struct buf good = BUF_NULL;
    struct err e;

    (void)state;
    record(&POLICY_DYNAMO, 8, 5, 0);
    print(&good);
    EXPECT_OK(decision_record_parse(buf_str(&good), &back, &e), &e);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf bad = BUF_NULL;
        const char *text = buf_cstr(&good), *at = strstr(text, cases[i].from);

        assert_non_null(at);
        buf_put(&bad, text, (size_t)(at - text));
        buf_put_cstr(&bad, cases[i].to);
        buf_put_cstr(&bad, at + strlen(cases[i].from));
        assert_int_equal(decision_record_parse(buf_str(&bad), &back, &e), -EINVAL);
        if (!strstr(e.text, cases[i].why))
            fail_msg("case %zu: %s", i, e.text);
    }
    assert_int_equal(decision_record_parse(STR(""), &back, &e), -EINVAL);
    for (size_t n = 0; n < good.len; n += 97)
        assert_int_equal(decision_record_parse(str_head(buf_str(&good), n), &back, &e), -EINVAL);
}

/* --- words -------------------------------------------------------------------------------------
 */

static const char *first_line(struct buf *out)
{
    char *end;

    buf_clear(out);
    decision_record_put_text(out, &rec);
    (void)buf_cstr(out);
    end = strchr(buf_data(out), '\n');
    *end = '\0';
    return buf_data(out);
}

static void the_sentence_says_what_made_the_difference(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    sample_decision(&sample, &POLICY_DYNAMO, 2, 0);
    sample.d.inputs = (struct policy_inputs){.block_size = 16, .isl = 800, .overlap_weight = 1};
    sample.candidates[0] = (struct route_candidate){
        .worker = {7, 0}, .overlap_blocks = 40, .active_blocks = 12, .confidence = 1};
    sample.candidates[1] = (struct route_candidate){
        .worker = {8, 0}, .overlap_blocks = 10, .active_blocks = 10, .confidence = 1};
    POLICY_DYNAMO.score(sample.candidates, 2, &sample.d.inputs, sample.scores);
    sample.d.chosen = 0;
    decision_record_fill(&rec, &sample.q, &sample.d, 0, &CONTEXT);
    assert_string_equal(first_line(&out),
                        "Request 0f0e0d0c-0000-4000-8000-000000000001: worker 7 rank 0 was chosen "
                        "with score 22.000, 28.000 below the runner-up worker 8 rank 0: it has 40 "
                        "cached blocks against 10, which is worth 30.000 and made the difference.");
    decision_record_fill(&rec, &sample.q, &sample.d, ROUTE_ALL_BUSY, &CONTEXT);
    assert_string_equal(first_line(&out), "Request 0f0e0d0c-0000-4000-8000-000000000001: no worker "
                                          "could be chosen (all-busy).");
    sample.q.pinned = true;
    decision_record_fill(&rec, &sample.q, &sample.d, 0, &CONTEXT);
    assert_non_null(strstr(first_line(&out), "worker 7 rank 0 was chosen because the request"));
}

static void every_kind_of_decision_has_words(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        record(POLICIES[seed % ARRAY_LEN(POLICIES)], 1 + seed % 40, seed,
               (int)(seed % 13 < ROUTE_RESULTS ? seed % 13 : 0));
        assert_true(strlen(first_line(&out)) > 40);
    }
}

int main(void)
{
    return TEST_RUN(T(the_chosen_and_the_best_are_kept_of_many), T(equal_scores_do_not_crowd_out),
                    T(the_runner_up_is_the_best_of_the_others), T(every_policy_can_be_a_shadow),
                    T(every_record_reads_back_bit_for_bit), T(the_pick_among_many_is_checked),
                    T(a_changed_number_is_found), T(what_is_wrong_with_a_line_is_said),
                    T(the_sentence_says_what_made_the_difference),
                    T(every_kind_of_decision_has_words));
}
