/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real etcd for tests: $ETCD_BIN, what the cluster harness has built, or the system's.
 */
#pragma once

#include <glob.h>

#include "lib/net/http_client.h"
#include "lib/net/nats_server_test.h"

/* Skips the test when there is none; fails it where CI=true. */
static inline const char *etcd_test_program(void)
{
    static char path[512];
    const char *ci = getenv("CI"), *home = getenv("HOME"), *set = getenv("ETCD_BIN");
    AUTO(mem_free)
    char *pattern = xasprintf("%s/.cache/commutator/cluster/*/etcd", home ? home : "");
    glob_t found;

    if (set)
        return set;
    path[0] = '\0';
    if (glob(pattern, 0, NULL, &found) == 0)
        (void)snprintf(path, sizeof(path), "%s", found.gl_pathv[0]);
    globfree(&found);
    if (path[0])
        return path;
    if (access("/usr/bin/etcd", X_OK) == 0)
        return "/usr/bin/etcd";
    if (ci && strcmp(ci, "true") == 0)
        fail_msg("no etcd (ETCD_BIN), and CI=true allows no skip");
    printf("skipped: no etcd\n");
    skip();
    return NULL;
}

struct etcd_test {
    pid_t pid;
    int port, peer_port;
    char dir[64]; /* its data; survives a stop */
};

/* One call, which may fail while etcd starts: true when it was answered with 200. */
static inline bool etcd_test_ask(const struct etcd_test *t, const char *path, const char *body,
                                 struct buf *answer)
{
    AUTO(http_sync_free) struct http_sync *http = NULL;
    AUTO(mem_free) char *url = xasprintf("http://127.0.0.1:%d%s", t->port, path);
    const struct http_client_conf conf = {0};
    const struct http_call_spec spec = {
        .method = "POST", .url = url, .body = str_from(body), .total_ms = 30000};
    struct err e;
    int status;

    EXPECT_OK(http_sync_new(&http, &conf, &e), &e);
    return http_sync_call(http, &spec, 1 << 20, &status, answer, &e) == 0 && status == 200;
}

/*
 * Starts it on the data and ports that it had, and returns when it answers. Alone it has no election
 * to wait for, and its users' passwords are no secret.
 */
static inline void etcd_test_start(struct etcd_test *t)
{
    const char *program = etcd_test_program();
    uint64_t end = clock_now_ns() + UINT64_C(90000000000);
    AUTO(mem_free) char *client = xasprintf("http://127.0.0.1:%d", t->port);
    AUTO(mem_free) char *peer = xasprintf("http://127.0.0.1:%d", t->peer_port);
    AUTO(mem_free) char *cluster = xasprintf("t=%s", peer);

    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
        (void)execl(program, "etcd", "--name", "t", "--data-dir", t->dir, "--listen-client-urls",
                    client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                    "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
                    "--unsafe-no-fsync", "--heartbeat-interval", "10", "--election-timeout", "100",
                    "--bcrypt-cost", "4", (char *)NULL);
        _exit(127);
    }
    for (;;) {
        AUTO(buf_done) struct buf answer = BUF_NULL;

        /* A login is answered whether or not etcd asks for one. */
        if (etcd_test_ask(t, "/v3/kv/range", "{\"key\":\"AA==\"}", &answer) ||
            str_has(buf_str(&answer), STR("user")))
            return;
        if (waitpid(t->pid, NULL, WNOHANG) == t->pid)
            fail_msg("etcd ended while starting");
        if (clock_now_ns() > end)
            fail_msg("etcd did not start in time");
        (void)usleep(20000);
    }
}

static inline void etcd_test_init(struct etcd_test *t)
{
    *t = (struct etcd_test){.dir = "/tmp/etcd_test.XXXXXX"};
    (void)etcd_test_program();
    assert_non_null(mkdtemp(t->dir));
    t->port = nats_test_port();
    t->peer_port = nats_test_port();
    etcd_test_start(t);
}

static inline void etcd_test_kill(struct etcd_test *t)
{
    nats_test_kill(t->pid);
    t->pid = 0;
}
