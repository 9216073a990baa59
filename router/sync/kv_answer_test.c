/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_answer.h"
#include "lib/base/test.h"
#include "router/sync/event_order.h"

static void answers_of_both_generations_are_read(void **state)
{
    static const struct {
        const char *json;
        enum kv_answer_kind kind;
        const char *events, *why;
        struct opt_u64 newest;
    } cases[] = {
        {"{\"Events\":[]}", KV_ANSWER_EVENTS, "[]", "", {0}},
        {"{\"TreeDump\":[{\"a\":1}]}", KV_ANSWER_DUMP, "[{\"a\":1}]", "", {0}},
        {"{\"Events\":{\"events\":[1],\"last_event_id\":9}}",
         KV_ANSWER_EVENTS,
         "[1]",
         "",
         {true, 9}},
        {"{\"TreeDump\":{\"last_event_id\":null,\"reset_scope\":{\"x\":[]},\"events\":[]}}",
         KV_ANSWER_DUMP,
         "[]",
         "",
         {0}},
        {"{\"TooNew\":{\"requested_start\":7,\"requested_end\":null,\"newest_available\":5}}",
         KV_ANSWER_TOO_NEW,
         "",
         "",
         {true, 5}},
        {"{\"InvalidRange\":{\"start_id\":5,\"end_id\":4}}",
         KV_ANSWER_REFUSED,
         "",
         "InvalidRange",
         {0}},
        {"{\"Error\":\"no such rank\"}", KV_ANSWER_REFUSED, "", "no such rank", {0}},
        {"{\"TreeDumpFailed\":\"busy\"}", KV_ANSWER_REFUSED, "", "busy", {0}},
        {"\"TreeDumpFailed\"", KV_ANSWER_REFUSED, "", "TreeDumpFailed", {0}},
        {"{\"NeverHeardOf\":[1,2]}", KV_ANSWER_REFUSED, "", "NeverHeardOf", {0}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kv_answer a;
        struct err e;

        EXPECT_OK(kv_answer_parse(str_from(cases[i].json), &a, &e), &e);
        assert_int_equal(a.kind, cases[i].kind);
        assert_true(str_is(a.events, cases[i].events));
        assert_true(str_is(a.why, cases[i].why));
        assert_int_equal(a.newest.set, cases[i].newest.set);
        if (a.newest.set)
            assert_int_equal(a.newest.v, cases[i].newest.v);
    }
}

static void what_is_no_answer_is_refused(void **state)
{
    static const char *const cases[] = {
        "",
        "[]",
        "null",
        "{}",
        "7",
        "{\"Events\":7}",
        "{\"Events\":null}",
        "{\"Events\":{}}",
        "{\"TooNew\":{}}",
        "{\"TooNew\":{\"newest_available\":null}}",
        "{\"Events\":[],\"TreeDump\":[]}",
        "{\"Events\":[]",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kv_answer a = {.kind = KV_ANSWER_DUMP};
        struct err e;

        if (kv_answer_parse(str_from(cases[i]), &a, &e) >= 0)
            fail_msg("taken for an answer: %s", cases[i]);
        assert_int_equal(a.kind, KV_ANSWER_DUMP);
    }
}

static void questions_are_written_as_workers_read_them(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct event_question q = {.worker = {UINT64_MAX, 3}, .first = OPT_U64(5)};

    (void)state;
    kv_query_put(&out, &q);
    assert_string_equal(buf_cstr(&out),
                        "{\"worker_id\":18446744073709551615,\"start_event_id\":5,"
                        "\"end_event_id\":null,\"dp_rank\":3,"
                        "\"supports_tree_dump_failed\":true,\"kind\":\"recovery\"}");
}

int main(void)
{
    return TEST_RUN(T(answers_of_both_generations_are_read), T(what_is_no_answer_is_refused),
                    T(questions_are_written_as_workers_read_them));
}
