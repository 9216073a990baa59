/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/log.h"
#include "lib/base/json_tree.h"
#include "lib/base/test.h"

#include <errno.h>

static const struct log_target SCHED = {"dynamo_llm::kv_router::scheduler"};
static const struct log_target OTHER = {"commutator::frontend"};

static struct buf lines;

static void keep(struct str line, void *arg)
{
    (void)arg;
    buf_put_str(&lines, line);
}

static int begin(void **state)
{
    (void)state;
    buf_clear(&lines);
    log_set_sink(keep, NULL);
    return 0;
}

static int end(void **state)
{
    struct err e;

    (void)state;
    log_set_sink(NULL, NULL);
    buf_done(&lines);
    return log_setup(NULL, false, &e);
}

static void longest_target_of_the_filter_decides(void **state)
{
    struct err e;

    (void)state;
    EXPECT_OK(log_setup("warn,dynamo_llm=info,dynamo_llm::kv_router=debug", false, &e), &e);
    assert_true(log_enabled(&SCHED, LOG_DEBUG));
    assert_false(log_enabled(&SCHED, LOG_TRACE));
    assert_false(log_enabled(&OTHER, LOG_INFO));
    assert_true(log_enabled(&OTHER, LOG_WARN));

    EXPECT_OK(log_setup("off", false, &e), &e);
    assert_false(log_enabled(&OTHER, LOG_ERROR));
    EXPECT_OK(log_setup(NULL, false, &e), &e);
    assert_true(log_enabled(&OTHER, LOG_INFO));
    assert_false(log_enabled(&OTHER, LOG_DEBUG));
}

static void a_bad_filter_is_refused_and_the_old_one_stays(void **state)
{
    struct err e;

    (void)state;
    EXPECT_OK(log_setup("error", false, &e), &e);
    assert_int_equal(log_setup("info,x=loud", false, &e), -EINVAL);
    assert_string_equal(e.text, "log filter: no level named 'loud'");
    assert_false(log_enabled(&OTHER, LOG_WARN));
}

static void lines_that_belong_together_leave_together(void **state)
{
    char text[1000] = "";

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    log_hold();
    log_info(&OTHER, "one");
    log_info(&OTHER, "two");
    assert_int_equal(lines.len, 0);
    log_release();
    assert_true(str_has(buf_str(&lines), STR(" commutator::frontend: one\n")));
    assert_true(str_has(buf_str(&lines), STR(" commutator::frontend: two\n")));
    buf_clear(&lines);
    log_info(&OTHER, "three");
    assert_true(str_ends(buf_str(&lines), STR("three\n")));
    assert_false(str_has(buf_str(&lines), STR("two")));
    buf_clear(&lines);
    log_hold();
    for (int i = 0; i < 10; i++)
        log_info(&OTHER, text);
    assert_true(lines.len > 4000); /* what is held is bounded */
    log_release();
    assert_true(lines.len > 10000);
}

static void text_form_is_that_of_the_reference(void **state)
{
    struct err e;

    (void)state;
    EXPECT_OK(log_setup("info", false, &e), &e);
    log_info(&SCHED, "Selected worker", LOG_U64("worker_id", UINT64_MAX),
             LOG_STR("why", "two words"), LOG_STR("id", "a-b"));
    /* 2026-02-17T12:52:42.123456Z, 27 bytes */
    assert_string_equal(buf_cstr(&lines) + 27,
                        "  INFO dynamo_llm::kv_router::scheduler: Selected worker "
                        "worker_id=18446744073709551615 why=\"two words\" id=a-b\n");
}

static void foreign_text_cannot_forge_a_line(void **state)
{
    struct err e;

    (void)state;
    EXPECT_OK(log_setup("info", false, &e), &e);
    log_info(&OTHER, "peer said", LOG_STR("text", "x\n2026 ERROR forged"));
    assert_int_equal(str_index(buf_str(&lines), '\n'), lines.len - 1);
}

static void json_lines_parse_and_keep_64_bits(void **state)
{
    AUTO(json_free) struct json *v = NULL;
    struct err e;

    (void)state;
    EXPECT_OK(log_setup("info", true, &e), &e);
    log_warn(&OTHER, "odd", LOG_STR("name", "q\"\n"), LOG_BOOL("on", true), LOG_F64("f", 0.5));
    EXPECT_OK(json_parse(&v, str_trim(buf_str(&lines)), &e), &e);
    assert_string_equal(json_get_cstr(v, "level"), "WARN");
    assert_string_equal(json_get_cstr(v, "target"), "commutator::frontend");
    assert_string_equal(json_get_cstr(v, "message"), "odd");
    assert_string_equal(json_get_cstr(v, "name"), "q\"\n");

    buf_clear(&lines);
    log_warn(&OTHER, "id", LOG_U64("worker_id", UINT64_C(12068259693190267366)));
    assert_true(str_has(buf_str(&lines), STR("\"worker_id\":12068259693190267366")));
}

#define LINES(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
    return TEST_RUN(
        LINES(longest_target_of_the_filter_decides),
        LINES(a_bad_filter_is_refused_and_the_old_one_stays),
        LINES(lines_that_belong_together_leave_together), LINES(text_form_is_that_of_the_reference),
        LINES(foreign_text_cannot_forge_a_line), LINES(json_lines_parse_and_keep_64_bits));
}
