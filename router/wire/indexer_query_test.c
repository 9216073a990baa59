/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/indexer_query.h"
#include "lib/base/test.h"

#include <errno.h>

#include "lib/base/err.h"

/* What a frontend of 1.6.1 with --serve-indexer answered to JSON. */
static const char ONE[] = "{\"TieredScores\":{\"device\":{\"scores\":[[{\"worker_id\":"
                          "11750779670361239134,\"dp_rank\":0},"
                          "3]],\"frequencies\":[]},\"lower_tier\":[]}}";
static const char TWO[] =
    "{\"TieredScores\":{\"device\":{\"scores\":[[{\"worker_id\":9932065079115193984,\"dp_rank\":0},"
    "2]"
    ",[{\"worker_id\":77,\"dp_rank\":3},2]],\"frequencies\":[]},\"lower_tier\":[]}}";
static const char NONE[] =
    "{\"TieredScores\":{\"device\":{\"scores\":[],\"frequencies\":[]},\"lower_tier\":[]}}";
static const char STRANGER[] = "{\"Error\":\"served indexer model other is not registered\"}";
static const char RECORDED[] = "\"Recorded\"";
/* And what one with --use-remote-indexer asked and wrote, as it came in JSON. */
static const char QUERY[] =
    "{\"model_name\":\"example\",\"block_hashes\":[17863182269597592868,14340445833846710668,"
    "8209021226136440894],\"device_only\":false}";
static const char DECISION[] =
    "{\"model_name\":\"example\",\"worker\":{\"worker_id\":3146539347401449056,\"dp_rank\":0},"
    "\"local_hashes\":[17863182269597592868,14340445833846710668],"
    "\"sequence_hashes\":[17863182269597592868,4422518191793896761]}";

static void answers_of_the_reference_are_read_and_written_alike(void **state)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0};
    const char *captures[] = {ONE, TWO, NONE, STRANGER, RECORDED};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
        AUTO(buf_done) struct buf again = BUF_NULL;
        struct indexer_answer a;
        struct err e;

        EXPECT_OK(indexer_answer_parse(&r, str_from(captures[i]), &a, &e), &e);
        indexer_answer_put(&again, &a);
        assert_string_equal(buf_cstr(&again), captures[i]);
    }
}

static void hits_name_worker_rank_and_blocks(void **state)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0};
    struct indexer_answer a;
    struct err e;

    (void)state;
    EXPECT_OK(indexer_answer_parse(&r, str_from(TWO), &a, &e), &e);
    assert_int_equal(a.kind, INDEXER_ANSWER_HITS);
    assert_int_equal(a.n_hits, 2);
    assert_true(a.hits[0].worker_id == UINT64_C(9932065079115193984));
    assert_int_equal(a.hits[1].worker_id, 77);
    assert_int_equal(a.hits[1].dp_rank, 3);
    assert_int_equal(a.hits[1].blocks, 2);
    assert_int_equal(a.hits[1].tier, KV_TIER_DEVICE);
}

static void lower_tiers_survive_writing_and_reading(void **state)
{
    const struct indexer_hit hits[] = {{1, 0, KV_TIER_DEVICE, 5},
                                       {2, 1, KV_TIER_HOST, 7},
                                       {1, 0, KV_TIER_HOST, 2},
                                       {1, 0, KV_TIER_DISK, 1}};
    AUTO(indexer_reader_done) struct indexer_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct indexer_answer a = {INDEXER_ANSWER_HITS, hits, ARRAY_LEN(hits), STR_NULL};
    struct err e;

    (void)state;
    indexer_answer_put(&out, &a);
    assert_non_null(strstr(buf_cstr(&out), "[\"host_pinned\",{\"hits\":[[{\"worker_id\":2,"));
    EXPECT_OK(indexer_answer_parse(&r, buf_str(&out), &a, &e), &e);
    assert_int_equal(a.n_hits, ARRAY_LEN(hits));
    for (size_t i = 0; i < a.n_hits; i++) {
        assert_int_equal(a.hits[i].worker_id, hits[i].worker_id);
        assert_int_equal(a.hits[i].dp_rank, hits[i].dp_rank);
        assert_int_equal(a.hits[i].tier, hits[i].tier);
        assert_int_equal(a.hits[i].blocks, hits[i].blocks);
    }
}

static void tiers_of_later_releases_are_passed_over(void **state)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0};
    struct indexer_answer a;
    struct err e;

    (void)state;
    EXPECT_OK(
        indexer_answer_parse(
            &r,
            STR("{\"TieredScores\":{\"device\":{\"scores\":[[{\"worker_id\":1},4]]},\"x\":[1],"
                "\"lower_tier\":[[\"tape\",{\"hits\":[[{\"worker_id\":1},9]]}]]}}"),
            &a, &e),
        &e);
    assert_int_equal(a.n_hits, 1);
}

static void questions_are_read_and_written_alike(void **state)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct indexer_query q;
    struct indexer_decision d;
    struct err e;

    (void)state;
    EXPECT_OK(indexer_query_parse(&r, str_from(QUERY), &q, &e), &e);
    assert_int_equal(q.n_blocks, 3);
    assert_true(q.local[1] == UINT64_C(14340445833846710668));
    indexer_query_put(&out, &q);
    assert_string_equal(buf_cstr(&out), QUERY);

    buf_clear(&out);
    EXPECT_OK(indexer_decision_parse(&r, str_from(DECISION), &d, &e), &e);
    assert_true(d.worker_id == UINT64_C(3146539347401449056));
    assert_true(d.sequence[1] == UINT64_C(4422518191793896761));
    indexer_decision_put(&out, &d);
    assert_string_equal(buf_cstr(&out), DECISION);
}

static void what_lacks_something_is_refused(void **state)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0};
    static const char *const queries[] = {
        "{\"block_hashes\":[1]}",
        "{\"model_name\":\"m\"}",
        "[]",
        "",
        "{\"model_name\":\"m\",\"block_hashes\":[-1]}",
        "{\"model_name\":\"m\",\"block_hashes\":[1],\"block_hashes\":[1]} x",
    };
    static const char *const decisions[] = {
        "{\"model_name\":\"m\",\"local_hashes\":[1],\"sequence_hashes\":[1]}",
        "{\"model_name\":\"m\",\"worker\":{\"dp_rank\":0},\"local_hashes\":[],\"sequence_hashes\":["
        "]}",
        "{\"model_name\":\"m\",\"worker\":{\"worker_id\":1},\"local_hashes\":[1],"
        "\"sequence_hashes\":[]}",
        "{\"model_name\":\"m\",\"worker\":{\"worker_id\":1,\"dp_rank\":4294967296},"
        "\"local_hashes\":[],\"sequence_hashes\":[]}",
    };
    static const char *const answers[] = {
        "{}",
        "\"Done\"",
        "null",
        "{\"Error\":\"a\",\"Error\":\"b\"}",
        "{\"Scores\":[]}",
        "{\"TieredScores\":{\"device\":{\"scores\":[[{\"worker_id\":1}]]}}}",
    };
    struct indexer_query q;
    struct indexer_decision d;
    struct indexer_answer a;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(queries); i++)
        assert_int_equal(indexer_query_parse(&r, str_from(queries[i]), &q, &e), -EINVAL);
    for (size_t i = 0; i < ARRAY_LEN(decisions); i++)
        assert_int_equal(indexer_decision_parse(&r, str_from(decisions[i]), &d, &e), -EINVAL);
    for (size_t i = 0; i < ARRAY_LEN(answers); i++)
        assert_int_equal(indexer_answer_parse(&r, str_from(answers[i]), &a, &e), -EINVAL);
}

static void a_prompt_without_end_is_refused(void **state)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0};
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct indexer_query q;
    struct err e;

    (void)state;
    buf_put_cstr(&json, "{\"model_name\":\"m\",\"block_hashes\":[0");
    for (size_t i = 0; i < INDEXER_BLOCKS_MAX; i++)
        buf_put_cstr(&json, ",1");
    buf_put_cstr(&json, "]}");
    assert_int_equal(indexer_query_parse(&r, buf_str(&json), &q, &e), -EMSGSIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_of_the_reference_are_read_and_written_alike),
        cmocka_unit_test(hits_name_worker_rank_and_blocks),
        cmocka_unit_test(lower_tiers_survive_writing_and_reading),
        cmocka_unit_test(tiers_of_later_releases_are_passed_over),
        cmocka_unit_test(questions_are_read_and_written_alike),
        cmocka_unit_test(what_lacks_something_is_refused),
        cmocka_unit_test(a_prompt_without_end_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
