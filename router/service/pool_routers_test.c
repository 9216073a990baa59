/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/pool_routers.h"

#include "lib/base/log.h"
#include "lib/base/test.h"
#include "router/discovery/store.h"
#include "router/wire/plane_client.h"

/* A store that tells what the test says. */
struct told {
    struct store store; /* first */
    const struct store_watcher *watcher;
    void *arg;
};

static int told_watch(struct store *s, const struct store_watcher *w, void *arg, struct err *e)
{
    struct told *t = (struct told *)s;

    (void)e;
    t->watcher = w;
    t->arg = arg;
    return 0;
}

static void told_unwatch(struct store *s)
{
    ((struct told *)s)->watcher = NULL;
}

static const struct store_ops TOLD = {.watch = told_watch, .unwatch = told_unwatch};

struct rig {
    struct told told;
    struct loop *loop;
    struct plane_client *plane;
    struct pool_routers *routers;
};

static void rig_init(struct rig *rig)
{
    const struct plane_client_conf conf = {.listen_host = "127.0.0.1", .advertise_ip = "127.0.0.1"};
    struct err e;

    *rig = (struct rig){.told.store.ops = &TOLD};
    EXPECT_OK(log_setup("off", false, &e), &e);
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(plane_client_new(&rig->plane, rig->loop, &conf, &e), &e);
    EXPECT_OK(pool_routers_new(&rig->routers, &rig->told.store, rig->plane, &e), &e);
}

static void rig_done(struct rig *rig)
{
    pool_routers_free(rig->routers);
    assert_null(rig->told.watcher);
    plane_client_free(rig->plane);
    loop_free(rig->loop);
}

static void put(struct rig *rig, const char *key, const char *ns, const char *endpoint, uint64_t id)
{
    AUTO(mem_free)
    char *json = xasprintf("{\"type\":\"Endpoint\",\"namespace\":\"%s\",\"component\":\"router\","
                           "\"endpoint\":\"%s\",\"instance_id\":%llu,"
                           "\"transport\":{\"tcp\":\"127.0.0.1:9/%s/generate\"}}",
                           ns, endpoint, (unsigned long long)id, key);

    rig->told.watcher->put(rig->told.arg, str_from(key), str_from(json));
}

static void gone(struct rig *rig, const char *key, enum store_end how)
{
    rig->told.watcher->gone(rig->told.arg, str_from(key), how);
}

/* 0 = nobody. */
static uint64_t next(struct rig *rig, const char *ns, uint64_t avoid)
{
    const struct pool_router *found = pool_routers_next(rig->routers, ns, &avoid, avoid != 0);

    return found ? found->id : 0;
}

static void test_they_take_turns(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig);
    assert_int_equal(next(&rig, "a", 0), 0);
    put(&rig, "1", "a", "generate", 1);
    put(&rig, "2", "a", "generate", 2);
    put(&rig, "3", "b", "generate", 3);
    put(&rig, "4", "a", "best_worker_id", 4);
    assert_int_equal(next(&rig, "a", 0), 1);
    assert_int_equal(next(&rig, "a", 0), 2);
    assert_int_equal(next(&rig, "a", 0), 1);
    assert_int_equal(next(&rig, "a", 2), 1);
    assert_int_equal(next(&rig, "b", 0), 3);
    assert_int_equal(next(&rig, "b", 3), 0);
    rig_done(&rig);
}

static void test_who_leaves_is_not_asked(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig);
    put(&rig, "1", "a", "generate", 1);
    put(&rig, "2", "a", "generate", 2);
    gone(&rig, "1", STORE_END_TOLD);
    gone(&rig, "1", STORE_END_TOLD);
    assert_int_equal(next(&rig, "a", 0), 2);
    assert_int_equal(next(&rig, "a", 0), 2);
    gone(&rig, "2", STORE_END_SILENT);
    assert_int_equal(next(&rig, "a", 0), 0);
    put(&rig, "1", "a", "generate", 1);
    rig.told.watcher->put(rig.told.arg, STR("1"), STR("{\"type\":")); /* keeps what it was */
    assert_int_equal(next(&rig, "a", 0), 1);
    rig_done(&rig);
}

static void test_who_is_in_doubt_is_asked_last_and_until_it_fails(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig);
    put(&rig, "1", "a", "generate", 1);
    put(&rig, "2", "a", "generate", 2);
    gone(&rig, "1", STORE_END_DOUBTFUL);
    assert_int_equal(next(&rig, "a", 0), 2);
    assert_int_equal(next(&rig, "a", 0), 2);
    assert_int_equal(next(&rig, "a", 2), 1);
    pool_routers_failed(rig.routers, "a", 2); /* told to be there: it is asked again */
    assert_int_equal(next(&rig, "a", 0), 2);
    pool_routers_failed(rig.routers, "a", 1);
    assert_int_equal(next(&rig, "a", 2), 0);
    gone(&rig, "2", STORE_END_DOUBTFUL);
    put(&rig, "2", "a", "generate", 2);
    pool_routers_failed(rig.routers, "a", 2);
    assert_int_equal(next(&rig, "a", 0), 2);
    rig_done(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_they_take_turns), T(test_who_leaves_is_not_asked),
                    T(test_who_is_in_doubt_is_asked_last_and_until_it_fails));
}
