/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/nats_key.h"

#include <errno.h>

#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/nats_link.h"
#include "lib/net/nats_server_test.h"

/* A pair that NATS's documents show. */
#define SEED "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
#define PUBLIC "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"

static void test_a_seed_has_its_public_half(void **state)
{
    struct nats_key k;
    struct err e;

    (void)state;
    EXPECT_OK(nats_key_parse(&k, SEED, &e), &e);
    assert_string_equal(k.public_half, PUBLIC);
    assert_string_equal(k.seed, SEED);
    EXPECT_OK(nats_key_parse(&k, " " SEED "\n", &e), &e); /* as files of secrets end */
    assert_string_equal(k.public_half, PUBLIC);
    nats_key_wipe(&k);
    assert_string_equal(k.seed, "");
}

/* Whichever letter is wrong, and without a word of it in the error. */
static void test_what_is_no_seed_is_refused(void **state)
{
    static const char *const bad[] = {"", "S", PUBLIC, SEED "A", "SA" /* an account's */};
    struct nats_key k;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(nats_key_parse(&k, bad[i], &e), -EINVAL);
    for (size_t i = 0; i < strlen(SEED); i++) {
        char text[] = SEED;

        for (const char *other = "A7a1=\xff"; *other; other++) {
            text[i] = *other;
            if (text[i] == SEED[i])
                continue;
            assert_int_equal(nats_key_parse(&k, text, &e), -EINVAL);
            assert_string_equal(k.seed, "");
            assert_null(strstr(e.text, "SSL3UAHUD"));
        }
    }
}

/* --- at a server ------------------------------------------------------------------------------ */

struct bench {
    struct loop *loop;
    int port;
    pid_t server;
    char *url;
    bool up;
    unsigned n_messages;
};

static void on_state(void *arg, bool up)
{
    ((struct bench *)arg)->up = up;
}

static void on_message(void *arg, const struct nats_message *m)
{
    (void)m;
    ((struct bench *)arg)->n_messages++;
}

static void bench_open(struct bench *b)
{
    struct err e;

    *b = (struct bench){.port = nats_test_port()};
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    b->url = xasprintf("nats://127.0.0.1:%d", b->port);
    b->server = nats_test_start_guarded(b->port, "users: [{nkey: " PUBLIC
                                                 "}, {user: someone, password: secret}]");
}

static void bench_close(struct bench *b)
{
    nats_test_kill(b->server);
    (void)loop_free(b->loop);
    free(b->url);
}

static void expect_up(struct bench *b, struct nats_link_conf conf)
{
    struct nats_link *n = NULL;
    uint64_t id;
    struct err e;

    conf.servers = b->url;
    conf.state = on_state;
    conf.arg = b;
    b->up = false;
    b->n_messages = 0;
    EXPECT_OK(nats_link_start(&n, b->loop, &conf, &e), &e);
    EXPECT_OK(nats_link_subscribe(n, "s", on_message, b, &id, &e), &e);
    LOOP_UNTIL(b->loop, b->up);
    assert_int_equal(nats_link_publish(n, "s", STR("x")), 0);
    LOOP_UNTIL(b->loop, b->n_messages == 1);
    assert_null(nats_link_free(n));
}

static void test_a_server_takes_the_signature(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b);
    expect_up(&b, (struct nats_link_conf){.nkey = SEED});
    bench_close(&b);
}

static void test_the_server_that_comes_back_takes_it_too(void **state)
{
    struct nats_link *n = NULL;
    struct bench b;
    struct err e;

    (void)state;
    bench_open(&b);
    EXPECT_OK(nats_link_start(&n, b.loop,
                              &(struct nats_link_conf){
                                  .servers = b.url, .nkey = SEED, .state = on_state, .arg = &b},
                              &e),
              &e);
    LOOP_UNTIL(b.loop, b.up);
    nats_test_kill(b.server);
    LOOP_UNTIL(b.loop, !b.up);
    b.server = nats_test_start_guarded(b.port, "users: [{nkey: " PUBLIC "}]");
    LOOP_UNTIL(b.loop, b.up);
    assert_null(nats_link_free(n));
    bench_close(&b);
}

/* User and password, token, NKey, credentials file. */
static void test_the_first_that_is_set_counts(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b);
    expect_up(&b, (struct nats_link_conf){.user = "someone",
                                          .password = "secret",
                                          .token = "none of its",
                                          .nkey = SEED,
                                          .credentials_file = "/nonexistent"});
    expect_up(&b, (struct nats_link_conf){
                      .user = "nobody", .nkey = SEED, .credentials_file = "/nonexistent"});
    nats_test_kill(b.server);
    b.server = nats_test_start_guarded(b.port, "token: \"its own\"");
    expect_up(&b, (struct nats_link_conf){
                      .token = "its own", .nkey = SEED, .credentials_file = "/nonexistent"});
    bench_close(&b);
}

static void test_a_link_with_no_seed_does_not_start(void **state)
{
    const struct nats_link_conf conf = {.servers = "nats://127.0.0.1:1", .nkey = PUBLIC};
    struct nats_link *n = NULL;
    struct loop *loop = NULL;
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&loop, &e), &e);
    assert_int_equal(nats_link_start(&n, loop, &conf, &e), -EINVAL);
    assert_null(n);
    assert_non_null(strstr(e.text, "NKey"));
    assert_null(loop_free(loop));
}

int main(void)
{
    return TEST_RUN(
        T(test_a_seed_has_its_public_half), T(test_what_is_no_seed_is_refused),
        T(test_a_server_takes_the_signature), T(test_the_server_that_comes_back_takes_it_too),
        T(test_the_first_that_is_set_counts), T(test_a_link_with_no_seed_does_not_start));
}
