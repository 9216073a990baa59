/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/bootstrap.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"

#include <errno.h>

#include "lib/net/tcp.h"

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

/* As the reference's decode worker sent it: 0.9.0/disagg/bootstrap/008, room 8452538498673828691. */
static void the_room_is_little_endian(void **state)
{
    static const char captured[] = {0x53, 0x63, (char)0xc4, 0x27, (char)0xfb, 0x72, 0x4d, 0x75};
    static const struct tcp_handlers none = {0};
    struct tcp *raw;
    struct rig rig;
    struct err e;

    (void)state;
    rig_open(&rig);
    bootstrap_server_ready(rig.server, UINT64_C(8452538498673828691));
    EXPECT_OK(tcp_connect(&raw, rig.loop, "127.0.0.1", bootstrap_server_port(rig.server), &none,
                          NULL, &e),
              &e);
    tcp_write(raw, str_slice(captured, 3));
    LOOP_UNTIL(rig.loop, waiting(&rig) == 1);
    tcp_write(raw, str_slice(captured + 3, 5));
    LOOP_UNTIL(rig.loop, bootstrap_server_stats(rig.server).served == 1);
    tcp_abort(raw);
    rig_close(&rig);
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
