/* SPDX-License-Identifier: Apache-2.0 */
/* What only a resync of the file store shows: events that never came, a machine that slept. */
#include <sys/time.h>

#include "lib/base/test.h"
#include "lib/net/fswatch.h"
#include "router/wire/walk.h"

static bool no_watch_left;
static int watch_if_left(struct fswatch **ret, struct loop *l, const char *dir, fswatch_fn fn,
                         void *arg, struct err *e);

#define fswatch_start watch_if_left
#include "router/discovery/store_file.c"
#undef fswatch_start

static int watch_if_left(struct fswatch **ret, struct loop *l, const char *dir, fswatch_fn fn,
                         void *arg, struct err *e)
{
    if (no_watch_left)
        return err_errno(e, -EMFILE, "watch files");
    return fswatch_start(ret, l, dir, fn, arg, e);
}

struct seen {
    char last[256];
    size_t puts, gones, downs;
};

static void on_put(void *arg, struct str key, struct str json)
{
    struct seen *seen = arg;

    (void)key;
    seen->puts++;
    (void)snprintf(seen->last, sizeof(seen->last), "%.*s", STR_ARG(json));
}

static void on_gone(void *arg, struct str key, enum store_end how)
{
    (void)key;
    (void)how;
    ((struct seen *)arg)->gones++;
}

static void on_state(void *arg, bool up, const char *why)
{
    (void)why;
    ((struct seen *)arg)->downs += !up;
}

static const struct store_watcher watcher = {.put = on_put, .gone = on_gone, .state = on_state};

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

struct rig {
    char root[64];
    struct loop *loop;
    struct store *store;
    struct store_file *f;
    struct seen seen;
    char *path;
};

static void rig_init(struct rig *rig)
{
    struct err e;

    *rig = (struct rig){.root = "/tmp/store_file_resync.XXXXXX"};
    assert_non_null(mkdtemp(rig->root));
    EXPECT_OK(log_setup("off", false, &e), &e);
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(store_file_new(&rig->store, rig->loop, rig->root, &e), &e);
    rig->f = of(rig->store);
    rig->path = xasprintf("%s/v1/instances/x", rig->root);
    write_file(rig->path, "{\"a\":1}");
    EXPECT_OK(store_watch(rig->store, &watcher, &rig->seen, &e), &e);
    assert_int_equal(rig->seen.puts, 1);
    /* From here on no event comes. */
    for (size_t i = 0; i < N_BUCKETS; i++)
        rig->f->buckets[i].watch = fswatch_stop(rig->f->buckets[i].watch);
}

static void rig_done(struct rig *rig)
{
    rig->store = store_free(rig->store);
    loop_run_once(rig->loop, 0);
    rig->loop = loop_free(rig->loop);
    remove_tree(rig->root);
    free(rig->path);
}

/* The same file with as many bytes: only its content tells. */
static void test_values_are_compared_after_lost_events(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig);
    write_file(rig.path, "{\"a\":2}");
    on_file(&rig.f->buckets[0], NULL, false); /* the queue overflowed */
    assert_int_equal(rig.seen.puts, 2);
    assert_string_equal(rig.seen.last, "{\"a\":2}");
    on_file(&rig.f->buckets[0], NULL, false);
    assert_int_equal(rig.seen.puts, 2); /* equal: no news */
    assert_int_equal(rig.seen.gones + rig.seen.downs, 0);
    rig_done(&rig);
}

/* All life signs look old after a sleep: they get the time to be renewed. */
static void test_sleep_kills_nobody(void **state)
{
    const struct timeval old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct rig rig;

    (void)state;
    rig_init(&rig);
    assert_int_equal(utimes(rig.path, old), 0);
    rig.f->swept_ms -= 2 * TTL_MS; /* nobody swept for so long */
    on_sweep(rig.f);
    assert_int_equal(access(rig.path, F_OK), 0);
    assert_int_equal(rig.seen.gones, 0);
    assert_int_equal(rig.seen.downs, 1); /* so that what others deleted may be kept, too */
    rig.f->no_expiry_ms = clock_wall_ms();
    on_sweep(rig.f);
    assert_int_not_equal(access(rig.path, F_OK), 0); /* it was not renewed */
    on_sweep(rig.f);
    assert_int_equal(rig.seen.gones, 1);
    rig_done(&rig);
}

/* Sweeps tell what events would have told, and watching begins as soon as it can. */
static void test_without_watches_the_sweep_tells(void **state)
{
    struct rig rig;

    (void)state;
    no_watch_left = true;
    rig_init(&rig);
    assert_null(rig.f->buckets[0].watch);
    write_file(rig.path, "{\"a\":2}");
    on_sweep(rig.f);
    assert_string_equal(rig.seen.last, "{\"a\":2}");
    write_file(rig.path, "{\"a\":3}");
    no_watch_left = false;
    on_sweep(rig.f);
    assert_string_equal(rig.seen.last, "{\"a\":3}");
    assert_non_null(rig.f->buckets[0].watch);
    assert_int_equal(unlink(rig.path), 0);
    on_sweep(rig.f);
    assert_int_equal(rig.seen.gones, 1);
    assert_int_equal(rig.seen.downs, 0);
    rig_done(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_values_are_compared_after_lost_events), T(test_sleep_kills_nobody),
                    T(test_without_watches_the_sweep_tells));
}
