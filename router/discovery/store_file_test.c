/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file store against itself and against writers that behave like the reference's: in place,
 * half written, dead.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/base/log.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "router/discovery/store_seen_test.h"
#include "router/wire/walk.h"

struct rig {
    char root[64];
    struct loop *loop;
    struct store_seen saw;
};

static void rig_init(struct rig *rig)
{
    struct err e;

    *rig = (struct rig){.root = "/tmp/store_file_test.XXXXXX"};
    store_seen_init(&rig->saw);
    assert_non_null(mkdtemp(rig->root));
    EXPECT_OK(log_setup("off", false, &e), &e);
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
}

static void rig_done(struct rig *rig)
{
    assert_int_equal(rig->saw.silent, rig->saw.gones); /* a file cannot say why it went */
    loop_run_once(rig->loop, 0);
    rig->loop = loop_free(rig->loop);
    store_seen_done(&rig->saw);
    remove_tree(rig->root);
}

static char *path_of(struct rig *rig, const char *name)
{
    return xasprintf("%s/v1/instances/%s", rig->root, name);
}

static void write_in_place(const char *path, const char *text, bool append)
{
    int fd = open(path, O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC), 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

static void test_publish_and_withdraw(void **state)
{
    struct record a = store_test_endpoint(UINT64_C(0xa77b124025c541e6), "1.2.3.4:5/x/generate"), b;
    AUTO(mem_free) char *path = NULL;
    struct store *worker = NULL, *frontend = NULL;
    struct rig rig;
    struct stat st;
    struct err e;
    nlink_t links;

    (void)state;
    rig_init(&rig);
    EXPECT_OK(store_file_new(&worker, rig.loop, rig.root, &e), &e);
    EXPECT_OK(store_publish(worker, &a, &e), &e);
    path = path_of(&rig, "dynamo%2Fbackend%2Fgenerate%2Fa77b124025c541e6");
    assert_int_equal(stat(path, &st), 0);
    links = st.st_nlink;
    assert_int_equal(links, 1); /* the temporary name is gone */

    EXPECT_OK(store_file_new(&frontend, rig.loop, rig.root, &e), &e);
    EXPECT_OK(store_watch(frontend, &store_seen_watcher, &rig.saw, &e), &e);
    assert_int_equal(rig.saw.puts, 1);
    assert_int_equal(rig.saw.synced, 1);

    b = store_test_endpoint(7, "1.2.3.4:6/7/generate");
    EXPECT_OK(store_publish(worker, &b, &e), &e);
    LOOP_UNTIL(rig.loop, rig.saw.puts == 2);
    a.address = STR("9.9.9.9:1/x/generate"); /* changed: unlinked and linked again */
    EXPECT_OK(store_publish(worker, &a, &e), &e);
    LOOP_UNTIL(rig.loop, rig.saw.puts >= 3 && strmap_len(rig.saw.records) == 2);
    store_withdraw(worker, &b);
    LOOP_UNTIL(rig.loop, strmap_len(rig.saw.records) == 1);
    worker = store_free(worker); /* takes the rest along */
    LOOP_UNTIL(rig.loop, strmap_len(rig.saw.records) == 0);
    frontend = store_free(frontend);
    rig_done(&rig);
}

/* A release worker creates the file and then writes it; temporary names are none of ours. */
static void test_written_in_place(void **state)
{
    AUTO(mem_free) char *path = NULL, *temp = NULL;
    struct store *frontend = NULL;
    struct rig rig;
    struct err e;
    int fd;

    (void)state;
    rig_init(&rig);
    EXPECT_OK(store_file_new(&frontend, rig.loop, rig.root, &e), &e);
    EXPECT_OK(store_watch(frontend, &store_seen_watcher, &rig.saw, &e), &e);
    path = path_of(&rig, "x");
    temp = path_of(&rig, ".tmp_0123456789abcdef");
    fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    loop_run_once(rig.loop, 20); /* seen empty */
    assert_int_equal(rig.saw.puts, 0);
    assert_int_equal(write(fd, "{\"a\":", 5), 5);
    loop_run_once(rig.loop, 0);
    assert_int_equal(write(fd, "1}", 2), 2);
    (void)close(fd);
    LOOP_UNTIL(rig.loop, rig.saw.puts == 1);
    assert_string_equal(strmap_get(rig.saw.records, STR("v1/instances/x")), "{\"a\":1}");

    write_in_place(temp, "{}", false);
    assert_int_equal(rename(temp, path), 0); /* as main at 3967ec0fb does */
    LOOP_UNTIL(rig.loop, rig.saw.puts == 2);
    write_in_place(path, "{\"broken\":", false); /* the last good stays */
    LOOP_UNTIL(rig.loop, store_stats(frontend).bad == 1);
    assert_int_equal(strmap_len(rig.saw.records), 1);
    assert_int_equal(unlink(path), 0);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 1);
    assert_int_equal(rig.saw.puts, 2);
    frontend = store_free(frontend);
    rig_done(&rig);
}

static void age(const char *path, time_t seconds)
{
    struct timespec t[2];

    assert_int_equal(clock_gettime(CLOCK_REALTIME, &t[0]), 0);
    t[0].tv_sec -= seconds;
    t[1] = t[0];
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

/* Of a worker that was killed: deleted by whoever sees it; and a live one that was taken for dead.
 */
static void test_stale(void **state)
{
    struct record own = store_test_endpoint(9, "1.2.3.4:5/9/generate");
    AUTO(mem_free) char *old = NULL, *fresh = NULL, *mine = NULL;
    struct store *frontend = NULL, *worker = NULL;
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig);
    EXPECT_OK(store_file_new(&frontend, rig.loop, rig.root, &e), &e);
    EXPECT_OK(store_file_new(&worker, rig.loop, rig.root, &e), &e);
    old = path_of(&rig, "old");
    fresh = path_of(&rig, "fresh");
    mine = path_of(&rig, "dynamo%2Fbackend%2Fgenerate%2F9");
    write_in_place(old, "{}", false);
    write_in_place(fresh, "{}", false);
    age(old, 11);
    age(fresh, 2);
    EXPECT_OK(store_publish(worker, &own, &e), &e);
    EXPECT_OK(store_watch(frontend, &store_seen_watcher, &rig.saw, &e), &e);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(rig.saw.puts, 2);
    assert_int_equal(unlink(mine), 0);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 1);
    LOOP_UNTIL(rig.loop, rig.saw.puts == 3); /* renewed within three seconds */
    frontend = store_free(frontend);
    worker = store_free(worker);
    rig_done(&rig);
}

static void test_no_directory(void **state)
{
    struct store *s = NULL;
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig);
    assert_true(store_file_new(&s, rig.loop, "/proc/none/such", &e) < 0);
    assert_non_null(strstr(e.text, "/proc/none/such"));
    rig_done(&rig);
}

/* Somebody deletes the whole tree under living workers: told as an interruption, and made again. */
static void test_tree_deleted(void **state)
{
    struct record a = store_test_endpoint(1, "1.2.3.4:5/a/generate"),
                  b = store_test_endpoint(2, "1.2.3.4:6/b/generate");
    AUTO(mem_free) char *dir = NULL;
    struct store *worker = NULL, *frontend = NULL;
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig);
    EXPECT_OK(store_file_new(&worker, rig.loop, rig.root, &e), &e);
    EXPECT_OK(store_publish(worker, &a, &e), &e);
    EXPECT_OK(store_publish(worker, &b, &e), &e);
    EXPECT_OK(store_file_new(&frontend, rig.loop, rig.root, &e), &e);
    EXPECT_OK(store_watch(frontend, &store_seen_watcher, &rig.saw, &e), &e);
    assert_int_equal(strmap_len(rig.saw.records), 2);

    dir = xasprintf("%s/v1", rig.root);
    remove_tree(dir);
    LOOP_UNTIL(rig.loop, rig.saw.downs == 1 && rig.saw.ups == 1 && rig.saw.gones == 2);
    assert_false(rig.saw.up_at_end); /* so that what went may be kept */
    LOOP_UNTIL(rig.loop,
               strmap_len(rig.saw.records) == 2); /* the worker finds out at its next life sign */
    worker = store_free(worker);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 4);
    assert_true(rig.saw.up_at_end);
    frontend = store_free(frontend);
    rig_done(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_publish_and_withdraw), T(test_written_in_place), T(test_stale),
                    T(test_no_directory), T(test_tree_deleted));
}
