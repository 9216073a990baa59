/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/access_log.h"
#include "lib/base/test.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>

struct bench {
    char folder[64];
    char *path, *moved;
    struct metric_registry *metrics;
    struct metric *lost;
};

static const struct access_entry ENTRY = {.trace_id = STR("a\"b"),
                                          .method = STR("POST"),
                                          .path = STR("/query"),
                                          .model = STR("m"),
                                          .status = 200,
                                          .wall_ms = UINT64_C(1795396650223),
                                          .duration_ns = 62500};
#define LINE                                                                                       \
    "{\"ts\":\"2026-11-23T01:17:30.223Z\",\"trace_id\":\"a\\\"b\",\"method\":\"POST\","            \
    "\"path\":\"/query\",\"model\":\"m\",\"status\":200,\"duration_ms\":0.0625}\n"

static const char TEMPLATE[] = "/tmp/access_log_test.XXXXXX";

static int set_up(void **state)
{
    static const struct metric_desc lost = {.name = "lost", .help = "x", .type = METRIC_COUNTER};
    struct bench *b = xcalloc(1, sizeof(*b));

    *state = b;
    memcpy(b->folder, TEMPLATE, sizeof(TEMPLATE));
    assert_non_null(mkdtemp(b->folder));
    b->path = xasprintf("%s/log", b->folder);
    b->moved = xasprintf("%s/old", b->folder);
    b->metrics = metric_registry_new();
    b->lost = metric_plain(metric_family(b->metrics, &lost));
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    (void)unlink(b->path);
    (void)rmdir(b->path);
    (void)unlink(b->moved);
    (void)rmdir(b->folder);
    metric_registry_free(b->metrics);
    free(b->path);
    free(b->moved);
    free(b);
    return 0;
}

static void assert_file(const char *path, const char *want)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    assert_true(test_read_file(path, &text));
    buf_put_char(&text, '\0');
    assert_string_equal(buf_data(&text), want);
}

static void a_line_is_that_of_the_reference(void **state)
{
    AUTO(access_log_close) struct access_log *l = NULL;
    struct bench *b = *state;
    struct err e;

    EXPECT_OK(access_log_open(&l, b->path, false, b->lost, &e), &e);
    access_log_write(l, &ENTRY);
    assert_file(b->path, LINE);
    access_log_write(l, &(struct access_entry){.method = STR("GET"), .path = STR("/health")});
    assert_file(b->path, LINE "{\"ts\":\"1970-01-01T00:00:00.000Z\",\"trace_id\":\"-\","
                              "\"method\":\"GET\",\"path\":\"/health\",\"model\":\"-\","
                              "\"status\":0,\"duration_ms\":0}\n");
}

static void local_times_tell_their_zone(void **state)
{
    AUTO(access_log_close) struct access_log *l = NULL;
    struct bench *b = *state;
    struct err e;
    AUTO(buf_done) struct buf text = BUF_NULL;

    assert_int_equal(setenv("TZ", "XST-5:30", 1), 0);
    tzset();
    EXPECT_OK(access_log_open(&l, b->path, true, b->lost, &e), &e);
    access_log_write(l, &ENTRY);
    assert_true(test_read_file(b->path, &text));
    assert_true(str_starts(buf_str(&text), STR("{\"ts\":\"2026-11-23T06:47:30.223+05:30\",")));
}

static void a_moved_file_is_left_alone(void **state)
{
    AUTO(access_log_close) struct access_log *l = NULL;
    struct bench *b = *state;
    struct err e;

    EXPECT_OK(access_log_open(&l, b->path, false, b->lost, &e), &e);
    access_log_write(l, &ENTRY);
    assert_int_equal(rename(b->path, b->moved), 0);
    access_log_write(l, &ENTRY);
    assert_file(b->moved, LINE LINE);
    EXPECT_OK(access_log_reopen(l, &e), &e);
    access_log_write(l, &ENTRY);
    assert_file(b->moved, LINE LINE);
    assert_file(b->path, LINE);
    /* Where there cannot be a new one, it goes on with what it has. */
    assert_int_equal(unlink(b->path), 0);
    assert_int_equal(mkdir(b->path, 0700), 0);
    assert_int_equal(access_log_reopen(l, &e), -EISDIR);
    access_log_write(l, &ENTRY);
    assert_int_equal((int)metric_value(b->lost), 0);
}

static void what_callers_say_is_cut(void **state)
{
    static char text[ACCESS_TEXT_MAX + 2];
    AUTO(access_log_close) struct access_log *l = NULL;
    struct access_entry entry = ENTRY;
    AUTO(buf_done) struct buf line = BUF_NULL;
    struct bench *b = *state;
    struct err e;

    memset(text, 'x', sizeof(text) - 1);
    entry.trace_id = str_from(text);
    EXPECT_OK(access_log_open(&l, b->path, false, b->lost, &e), &e);
    access_log_write(l, &entry);
    assert_true(test_read_file(b->path, &line));
    text[ACCESS_TEXT_MAX] = '\0';
    assert_true(str_has(buf_str(&line), STR("x\",\"method\"")));
    assert_int_equal(line.len, strlen(LINE) - strlen("a\\\"b") + ACCESS_TEXT_MAX);
    assert_int_equal(access_log_open(&l, "/nowhere/log", false, b->lost, &e), -ENOENT);
}

static void lines_that_do_not_fit_are_counted(void **state)
{
    AUTO(access_log_close) struct access_log *l = NULL;
    struct bench *b = *state;
    struct err e;

    EXPECT_OK(access_log_open(&l, "/dev/full", false, b->lost, &e), &e);
    access_log_write(l, &ENTRY);
    assert_int_equal((int)metric_value(b->lost), 1);
}

#define BENCH(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(BENCH(a_line_is_that_of_the_reference), BENCH(local_times_tell_their_zone),
                    BENCH(a_moved_file_is_left_alone), BENCH(what_callers_say_is_cut),
                    BENCH(lines_that_do_not_fit_are_counted));
}
