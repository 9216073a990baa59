/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/decisions/decision_score.h"
#include "lib/base/test.h"

#include <errno.h>

#include "bench/decisions/decision_file.h"
#include "router/sched/decision_json.h"
#include "router/sched/decision_sample.h"

enum { RECORDS = 200 };

static const struct decision_question AS_RECORDED = {NULL, NAN, NAN};
static struct decision_record rec;
static char path[] = "/tmp/decision_score_test.XXXXXX";

static void make_record(uint64_t seed)
{
    const struct decision_context context = {STR("example"), "decode", 1, 0, DECISION_UNKNOWN};
    struct decision_sample sample;

    sample_decision(&sample, seed % 5 ? &POLICY_DYNAMO : &POLICY_LEAST_LOADED, 1 + seed % 12, seed);
    rec.seq = seed + 1;
    decision_record_fill(&rec, &sample.q, &sample.d, seed % 50 ? 0 : ROUTE_ALL_BUSY, &context);
}

static void write_file(const char *before, const char *after)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    (void)fputs(before, file);
    for (uint64_t seed = 0; seed < RECORDS; seed++) {
        AUTO(buf_done) struct buf line = BUF_NULL;

        make_record(seed);
        decision_record_put_json(&line, &rec);
        (void)fprintf(file, "%s\n", buf_cstr(&line));
    }
    (void)fputs(after, file);
    assert_int_equal(fclose(file), 0);
}

static void score_file(struct decision_score *s, const struct decision_question *question)
{
    struct err e;

    decision_score_init(s, question);
    EXPECT_OK(decision_file_score(path, s, &e), &e);
}

static void what_is_replayed_as_recorded_is_the_same(void **state)
{
    AUTO(decision_score_done) struct decision_score s;

    (void)state;
    write_file("{\"overwritten\":7}\n{\"restarted\":true}\n\n", "");
    score_file(&s, &AS_RECORDED);
    assert_int_equal(s.overwritten, 7);
    assert_int_equal(s.nobody, RECORDS / 50);
    assert_int_equal(s.decisions, RECORDS - RECORDS / 50);
    assert_int_equal(s.same, s.decisions);
    assert_int_equal(s.agreements, s.decisions);
    assert_int_equal(s.hits_recorded, s.hits_replayed);
    assert_true(decision_score_is_exact(&s));
}

static void another_policy_is_compared(void **state)
{
    struct decision_question question = AS_RECORDED;
    AUTO(decision_score_done) struct decision_score s, heavy;
    uint64_t recorded = 0, replayed = 0;

    (void)state;
    write_file("", "");
    question.policy = &POLICY_ROUND_ROBIN;
    score_file(&s, &question);
    assert_int_equal(s.same, s.decisions); /* still verified under its own */
    assert_true(s.agreements < s.decisions);
    for (size_t i = 0; i < worker_table_end(s.workers); i++) {
        recorded += s.shares[i].recorded;
        replayed += s.shares[i].replayed;
    }
    assert_int_equal(recorded, s.decisions);
    assert_int_equal(replayed, s.decisions);

    question = (struct decision_question){NULL, 100, 0};
    score_file(&heavy, &question);
    assert_true(heavy.agreements > s.agreements && heavy.agreements < heavy.decisions);
    assert_true(heavy.regret_replayed > 0);
}

static void a_forged_record_is_found(void **state)
{
    AUTO(decision_score_done) struct decision_score s;

    (void)state;
    decision_score_init(&s, &AS_RECORDED);
    for (uint64_t seed = 1; seed < 20; seed++) {
        make_record(seed);
        if (seed == 13)
            rec.candidates[0].seen.active_blocks++;
        decision_score_add(&s, &rec);
    }
    assert_int_equal(s.scores_differ, 1);
    assert_int_equal(s.first_difference, 14);
    assert_false(decision_score_is_exact(&s));
}

static void a_bad_line_is_named(void **state)
{
    static const struct {
        const char *after, *why;
    } cases[] = {
        {"{\"v\":1}\n", ":201: no decision record: the policy is missing"},
        {"hello\n", ":201: no decision record: "},
        {"{\"v\":1,\"policy\":\"dyn", ":201: cut off: "},
        {"{}\n", ":201: no decision record"},
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(decision_score_done) struct decision_score s;

        write_file("", cases[i].after);
        decision_score_init(&s, &AS_RECORDED);
        assert_int_equal(decision_file_score(path, &s, &e), -EINVAL);
        if (!strstr(e.text, cases[i].why))
            fail_msg("%s", e.text);
    }
    assert_int_equal(decision_replay_run("/none/there", &AS_RECORDED, NULL, stdout, &e), -ENOENT);
}

int main(void)
{
    int fd = mkstemp(path), failed;

    if (fd < 0)
        return 1;
    (void)close(fd);
    failed = TEST_RUN(T(what_is_replayed_as_recorded_is_the_same), T(another_policy_is_compared),
                      T(a_forged_record_is_found), T(a_bad_line_is_named));
    (void)unlink(path);
    return failed;
}
