/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/bootstrap.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"

#include <errno.h>

#include "lib/net/tcp.h"
#include "router/wire/walk.h"

struct rig {
    struct loop *loop;
    struct bootstrap_server *server;
};

struct outcome {
    struct bootstrap_fetch *fetch;
    bool over;
    int error;
};

static void rig_open(struct rig *rig)
{
    struct err e;

    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(bootstrap_server_start(&rig->server, rig->loop, "127.0.0.1", 0, &e), &e);
}

static void rig_close(struct rig *rig)
{
    bootstrap_server_free(rig->server);
    loop_free(rig->loop);
}

static void on_done(void *arg, int error)
{
    struct outcome *o = arg;

    assert_false(o->over);
    o->over = true;
    o->error = error;
}

static void fetch(struct rig *rig, uint64_t room, struct outcome *ret)
{
    struct err e;

    *ret = (struct outcome){.over = false};
    EXPECT_OK(bootstrap_fetch_start(&ret->fetch, rig->loop, "127.0.0.1",
                                    bootstrap_server_port(rig->server), room, on_done, ret, &e),
              &e);
}

static size_t waiting(const struct rig *rig)
{
    return bootstrap_server_stats(rig->server).waiting;
}

static void either_side_may_be_first(void **state)
{
    struct outcome early, other, late;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    fetch(&rig, UINT64_MAX, &early);
    fetch(&rig, 7, &other);
    LOOP_UNTIL(rig.loop, waiting(&rig) == 2);
    for (int i = 0; i < 5; i++)
        loop_run_once(rig.loop, 5);
    assert_false(early.over || other.over);
    bootstrap_server_ready(rig.server, UINT64_MAX);
    LOOP_UNTIL(rig.loop, early.over);
    assert_int_equal(early.error, 0);
    assert_false(other.over);

    bootstrap_server_ready(rig.server, 8);
    assert_int_equal(bootstrap_server_stats(rig.server).ready, 1);
    fetch(&rig, 8, &late);
    LOOP_UNTIL(rig.loop, late.over);
    assert_int_equal(late.error, 0);
    /* A room is fetched once. */
    assert_int_equal(bootstrap_server_stats(rig.server).ready, 0);

    other.fetch = bootstrap_fetch_cancel(other.fetch);
    LOOP_UNTIL(rig.loop, waiting(&rig) == 0);
    assert_false(other.over);
    assert_int_equal(bootstrap_server_stats(rig.server).served, 2);
    rig_close(&rig);
}

/* As a decode worker of 0.9.0 sent it; in two pieces here. */
static void serve_captured(struct rig *rig, struct str room)
{
    static const struct tcp_handlers none = {0};
    uint64_t served = bootstrap_server_stats(rig->server).served;
    struct tcp *raw;
    struct err e;

    bootstrap_server_ready(rig->server, __builtin_bswap64(load_u64be(room.ptr)));
    EXPECT_OK(tcp_connect(&raw, rig->loop, "127.0.0.1", bootstrap_server_port(rig->server), &none,
                          NULL, &e),
              &e);
    tcp_write(raw, str_head(room, 3));
    LOOP_UNTIL(rig->loop, waiting(rig) == 1);
    tcp_write(raw, str_skip(room, 3));
    LOOP_UNTIL(rig->loop, bootstrap_server_stats(rig->server).served == served + 1);
    tcp_abort(raw);
}

struct captures {
    struct rig rig;
    size_t rooms, ends;
};

static void check_captured(void *arg, const char *path, struct str content)
{
    struct captures *c = arg;

    if (!strstr(path, "/bootstrap/") || !str_ends(str_from(path), STR(".bin")))
        return;
    if (content.len == 8) {
        serve_captured(&c->rig, content);
        c->rooms++;
    } else {
        assert_true(str_is(content, "\1"));
        c->ends++;
    }
}

static void the_room_is_little_endian(void **state)
{
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire/0.9.0", test_shared());
    struct captures c = {.rooms = 0};

    (void)state;
    rig_open(&c.rig);
    walk(dir, check_captured, &c);
    assert_true(c.rooms > 0 && c.ends == c.rooms);
    rig_close(&c.rig);
}

static void a_server_that_is_gone_is_an_error(void **state)
{
    struct outcome o;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    fetch(&rig, 1, &o);
    LOOP_UNTIL(rig.loop, waiting(&rig) == 1);
    rig.server = bootstrap_server_free(rig.server);
    LOOP_UNTIL(rig.loop, o.over);
    assert_true(o.error < 0);
    rig_close(&rig);
}

int main(void)
{
    return TEST_RUN(T(either_side_may_be_first), T(the_room_is_little_endian),
                    T(a_server_that_is_gone_is_an_error));
}
