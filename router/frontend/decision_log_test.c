/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/decision_log.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"

#include <errno.h>
#include <sys/stat.h>

static char folder[] = "/tmp/decision_log_test.XXXXXX";

/* Runs the loop until @done says so; a file system answers within a second. */
static size_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

static void lines_are_appended_and_the_rest_when_it_ends(void **state)
{
    AUTO(mem_free) char *path = xasprintf("%s/lines", folder);
    AUTO(buf_done) struct buf text = BUF_NULL;
    AUTO(loop_free) struct loop *loop = NULL;
    struct decision_log *log;
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&loop, &e), &e);
    for (int i = 0; i < 2; i++) { /* the second time behind what is there */
        EXPECT_OK(decision_log_open(&log, loop, path, 1000, &e), &e);
        decision_log_put(log, STR("one"));
        LOOP_UNTIL(loop, size_of(path) == (size_t)i * 8 + 4);
        decision_log_put(log, STR("two"));
        decision_log_free(log);
        LOOP_UNTIL(loop, size_of(path) == (size_t)i * 8 + 8);
    }
    assert_true(test_read_file(path, &text));
    assert_string_equal(buf_cstr(&text), "one\ntwo\none\ntwo\n");
}

static void a_full_file_becomes_the_older_one(void **state)
{
    AUTO(mem_free) char *path = xasprintf("%s/full", folder);
    AUTO(mem_free) char *older = xasprintf("%s.1", path);
    AUTO(buf_done) struct buf text = BUF_NULL;
    AUTO(loop_free) struct loop *loop = NULL;
    struct decision_log *log;
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&loop, &e), &e);
    EXPECT_OK(decision_log_open(&log, loop, path, 20, &e), &e);
    for (unsigned i = 0; i < 9; i++) { /* four lines of five bytes fit */
        char line[8];

        (void)snprintf(line, sizeof(line), "%04u", i);
        decision_log_put(log, str_from(line));
        LOOP_UNTIL(loop, size_of(path) == (i % 4 + 1) * 5);
        assert_int_equal(size_of(older), i < 4 ? 0 : 20);
    }
    decision_log_free(log);
    assert_true(test_read_file(older, &text));
    assert_string_equal(buf_cstr(&text), "0004\n0005\n0006\n0007\n");
}

static void what_cannot_be_written_is_counted(void **state)
{
    AUTO(loop_free) struct loop *loop = NULL;
    struct decision_log *log;
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&loop, &e), &e);
    assert_int_equal(decision_log_open(&log, loop, "/none/there", 10, &e), -ENOENT);
    EXPECT_OK(decision_log_open(&log, loop, "/dev/full", 1000, &e), &e);
    decision_log_put(log, STR("one"));
    decision_log_put(log, STR("two"));
    LOOP_UNTIL(loop, decision_log_dropped(log) == 2);
    decision_log_free(log);
}

static void what_waits_is_bounded(void **state)
{
    AUTO(buf_done) struct buf line = BUF_NULL;
    AUTO(loop_free) struct loop *loop = NULL;
    struct decision_log *log;
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&loop, &e), &e);
    EXPECT_OK(decision_log_open(&log, loop, "/dev/null", 1 << 30, &e), &e);
    memset(buf_reserve(&line, 1 << 20), 'x', 1 << 20);
    buf_commit(&line, 1 << 20);
    for (int i = 0; i < 20; i++)
        decision_log_put(log, buf_str(&line));
    assert_int_equal(decision_log_dropped(log), 5);
    decision_log_free(log);
}

int main(void)
{
    int failed;

    if (!mkdtemp(folder))
        return 1;
    failed = TEST_RUN(T(lines_are_appended_and_the_rest_when_it_ends),
                      T(a_full_file_becomes_the_older_one), T(what_cannot_be_written_is_counted),
                      T(what_waits_is_bounded));
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"lines", "full", "full.1"};
        AUTO(mem_free) char *path = xasprintf("%s/%s", folder, names[i]);

        (void)unlink(path);
    }
    (void)rmdir(folder);
    return failed;
}
