/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending subscriptions while their messages arrive. When nats.c's reader (3.4.1, mended in a later
 * release) has found the subscription of a message, it lets the lock go that kept it alive. Here the
 * reader is slow whenever it has let a lock go, so that what elsewhere takes a loaded machine and a
 * thousand attempts happens at once.
 */
#include "lib/net/nats_link.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "lib/net/nats_server_test.h"

enum { DEADLINE_MS = 60000, ROUNDS = 40, LATE_NS = 1000000 };

/* --- a slow reader ---------------------------------------------------------------------------------- */

static _Thread_local bool is_reader;
static atomic_bool slow;
static ssize_t (*real_recv)(int, void *, size_t, int);
static int (*real_unlock)(pthread_mutex_t *);

ssize_t recv(int fd, void *bytes, size_t n, int flags);
int pthread_mutex_unlock(pthread_mutex_t *m);

__attribute__((constructor)) static void find_real_ones(void)
{
    *(void **)&real_recv = dlsym(RTLD_NEXT, "recv");
    *(void **)&real_unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
}

/* The library receives with it in the thread that reads a connection; libuv and cmocka do not. */
ssize_t recv(int fd, void *bytes, size_t n, int flags)
{
    is_reader = true;
    return real_recv(fd, bytes, n, flags);
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    int r;

    if (!real_unlock)
        find_real_ones();
    r = real_unlock(m);
    if (is_reader && atomic_load(&slow))
        (void)nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
    return r;
}

/* --- tests ------------------------------------------------------------------------------------------ */

struct rig {
    struct loop *loop;
    struct nats_link *from, *to;
    pid_t server;
    unsigned n_up, n_messages;
};

static void on_state(void *arg, bool up)
{
    ((struct rig *)arg)->n_up += up;
}

static void on_message(void *arg, const struct nats_message *m)
{
    (void)m;
    ((struct rig *)arg)->n_messages++;
}

static void turn_until(struct rig *rig, const unsigned *count, unsigned least)
{
    uint64_t deadline_ns = clock_now_ns() + (uint64_t)DEADLINE_MS * 1000000;

    while (*count < least) {
        if (clock_now_ns() > deadline_ns)
            fail_msg("%u of %u", *count, least);
        loop_run_once(rig->loop, 20);
    }
}

static void rig_open(struct rig *rig)
{
    int port = nats_test_port();
    AUTO(mem_free) char *url = xasprintf("nats://127.0.0.1:%d", port);
    struct nats_link_conf conf = {.servers = url, .state = on_state, .arg = rig};
    struct err e;

    rig->server = nats_test_start(port, NULL);
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(nats_link_start(&rig->from, rig->loop, &conf, &e), &e);
    EXPECT_OK(nats_link_start(&rig->to, rig->loop, &conf, &e), &e);
    turn_until(rig, &rig->n_up, 2);
}

static void rig_close(struct rig *rig)
{
    atomic_store(&slow, false);
    assert_null(nats_link_free(rig->from));
    assert_null(nats_link_free(rig->to));
    (void)loop_free(rig->loop);
    nats_test_kill(rig->server);
}

static uint64_t subscribe(struct rig *rig)
{
    uint64_t id;
    struct err e;

    EXPECT_OK(nats_link_subscribe(rig->to, "s", on_message, rig, &id, &e), &e);
    return id;
}

static void publish(struct rig *rig, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        (void)nats_link_publish(rig->from, "s", STR("x"));
}

static void test_unsubscribing_while_messages_arrive(void **state)
{
    struct rig rig = {0};

    (void)state;
    rig_open(&rig);
    atomic_store(&slow, true);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t id = subscribe(&rig), other = subscribe(&rig);
        unsigned before = rig.n_messages;

        /* Until the server knows of it, nothing of this arrives. */
        while (rig.n_messages == before) {
            publish(&rig, 1);
            loop_run_once(rig.loop, 5);
        }
        publish(&rig, 8);
        turn_until(&rig, &rig.n_messages, before + 2);
        nats_link_unsubscribe(rig.to, id);
        nats_link_unsubscribe(rig.to, other);
        before = rig.n_messages;
        loop_run_once(rig.loop, 0);
        assert_int_equal(rig.n_messages, before); /* none comes after it */
    }
    rig_close(&rig);
}

/* As a program does that stops. */
static void test_unsubscribing_and_freeing_while_messages_arrive(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 5; round++) {
        struct rig rig = {0};
        uint64_t id;

        rig_open(&rig);
        atomic_store(&slow, true);
        id = subscribe(&rig);
        while (rig.n_messages == 0) {
            publish(&rig, 1);
            loop_run_once(rig.loop, 5);
        }
        publish(&rig, 8);
        turn_until(&rig, &rig.n_messages, 2);
        nats_link_unsubscribe(rig.to, id);
        rig_close(&rig);
    }
}

int main(void)
{
    (void)mallopt(M_PERTURB, 0x55); /* what is freed shows it */
    return TEST_RUN(T(test_unsubscribing_while_messages_arrive),
                    T(test_unsubscribing_and_freeing_while_messages_arrive));
}
