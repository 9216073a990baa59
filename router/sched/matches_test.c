/* SPDX-License-Identifier: Apache-2.0 */
/* One scheduler keeps the index, another one decides. */
#include "router/sched/matches.h"
#include "lib/base/test.h"

#include "router/sched/decision_json.h"
#include "router/sched/prompt_test.h"
#include "router/sched/sequences.h"

static struct scheduler *deciding(enum route_remote remote)
{
    struct route_conf conf = ROUTE_CONF_KV;

    conf.use_kv_events = false;
    conf.remote = (int)remote;
    return with_workers(&conf);
}

/* Whom @s chooses with what it was told; the record says by whose index. */
static struct route_candidate choose(struct scheduler *s, const struct prompt_matches *matches,
                                     const char *index, bool books)
{
    AUTO(route_decision_done) struct route_decision d = {0};
    AUTO(buf_done) struct buf line = BUF_NULL, again = BUF_NULL;
    static struct decision_record record;
    AUTO(mem_free) char *member = xasprintf("\"index\":\"%s\"", index);
    const struct route_request q = {.local = local,
                                    .sequence = sequence,
                                    .n_blocks = N,
                                    .isl = N * BLOCK,
                                    .matches = matches,
                                    .overlap_weight = NAN,
                                    .temperature = NAN,
                                    .query_only = !books,
                                    .now_ns = 1000 * MS};
    struct booking *b = NULL;
    struct err e;

    assert_int_equal(scheduler_route(s, &q, &d, &b), 0);
    booking_end(b, q.now_ns, true);
    decision_record_fill(&record, &q, &d, 0, &(struct decision_context){.worker_type = "decode"});
    decision_record_put_json(&line, &record);
    assert_int_equal(str_has(buf_str(&line), str_from(member)), matches != NULL);
    EXPECT_OK(decision_record_parse(buf_str(&line), &record, &e), &e);
    decision_record_put_json(&again, &record);
    assert_true(str_eq(buf_str(&line), buf_str(&again)));
    return d.candidates[d.chosen];
}

static void what_one_found_decides_at_another(void **state)
{
    AUTO(scheduler_free) struct scheduler *keeper = with_workers(&ROUTE_CONF_KV);
    AUTO(scheduler_free) struct scheduler *s = deciding(ROUTE_REMOTE_EVENTS);
    AUTO(prompt_matches_done) struct prompt_matches m = {.n = 0};
    struct route_candidate c;

    (void)state;
    hold(keeper, TWO, -1, 0, 6);
    hold(keeper, TWO, TIER_HOST, 6, 8);
    hold(keeper, ONE, -1, 0, 1);
    scheduler_find_matches(keeper, local, N, true, 1000 * MS, &m);
    assert_int_equal(m.n, 3);
    c = choose(s, &m, "remote", false);
    assert_int_equal(c.worker.worker_id, 2);
    assert_int_equal(c.overlap_blocks, 6);
    assert_int_equal(c.host_blocks, 2);
    assert_int_equal(c.disk_blocks, 0);
    scheduler_find_matches(keeper, local, N, false, 1000 * MS, &m);
    assert_int_equal(m.n, 2);
}

static void strangers_and_too_much_are_not_believed(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = deciding(ROUTE_REMOTE_EVENTS);
    AUTO(prompt_matches_done) struct prompt_matches m = {.told = true};
    struct route_candidate c;

    (void)state;
    prompt_matches_add(&m, &(struct prompt_match){{77, 0}, MATCH_DEVICE, 5});
    prompt_matches_add(&m, &(struct prompt_match){TWO, MATCH_DEVICE, UINT32_MAX});
    prompt_matches_add(&m, &(struct prompt_match){TWO, MATCH_HOST, UINT32_MAX});
    prompt_matches_add(&m, &(struct prompt_match){TWO, MATCH_DISK, UINT32_MAX});
    c = choose(s, &m, "remote", false);
    assert_int_equal(c.worker.worker_id, 2);
    assert_int_equal(c.overlap_blocks, N);
    assert_int_equal(c.host_blocks, 0);
    assert_int_equal(c.disk_blocks, 0);
}

static void who_hears_nothing_goes_by_what_it_placed(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = deciding(ROUTE_REMOTE_EVENTS);
    AUTO(prompt_matches_done) struct prompt_matches m = {.told = true}, lost = {.told = false};
    struct route_candidate c;

    (void)state;
    prompt_matches_add(&m, &(struct prompt_match){TWO, MATCH_DEVICE, 3});
    assert_int_equal(choose(s, &m, "remote", true).worker.worker_id, 2);
    c = choose(s, &lost, "remote-lost", false);
    assert_int_equal(c.worker.worker_id, 2);
    assert_int_equal(c.overlap_blocks, N);
    m.n = 0; /* the index knows better than what was placed */
    assert_int_equal(choose(s, &m, "remote", false).overlap_blocks, 0);
}

static void placements_of_others_are_noted_where_no_events_are(void **state)
{
    AUTO(scheduler_free) struct scheduler *keeper = deciding(ROUTE_REMOTE_NOT);
    AUTO(scheduler_free) struct scheduler *exact = with_workers(&ROUTE_CONF_KV);
    AUTO(prompt_matches_done) struct prompt_matches m = {.n = 0};

    (void)state;
    assert_true(scheduler_note_routed(keeper, ONE, local, sequence, 4, 1000 * MS));
    scheduler_find_matches(keeper, local, N, true, 1001 * MS, &m);
    assert_int_equal(m.n, 1);
    assert_int_equal(m.rows[0].worker.worker_id, 1);
    assert_int_equal(m.rows[0].blocks, 4);
    assert_false(scheduler_note_routed(keeper, (struct worker_rank){9, 0}, local, sequence, 4, 1));
    assert_false(scheduler_note_routed(exact, ONE, local, sequence, 4, 1000 * MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_found_decides_at_another),
        cmocka_unit_test(strangers_and_too_much_are_not_believed),
        cmocka_unit_test(who_hears_nothing_goes_by_what_it_placed),
        cmocka_unit_test(placements_of_others_are_noted_where_no_events_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
