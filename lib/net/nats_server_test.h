/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real nats-server for tests: $NATS_SERVER_BIN, or one in the usual places.
 */
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "lib/base/test.h"
#include "lib/net/loop.h"

/* What the cluster harness has built lies in its cache. */
static inline const char *nats_test_built(void)
{
    static char path[512];
    AUTO(mem_free)
    char *pattern = xasprintf("%s/.cache/commutator/cluster/*/nats-server",
                              getenv("HOME") ? getenv("HOME") : "");
    glob_t found;

    path[0] = '\0';
    if (glob(pattern, 0, NULL, &found) == 0)
        (void)snprintf(path, sizeof(path), "%s", found.gl_pathv[0]);
    globfree(&found);
    return path[0] ? path : NULL;
}

/* Skips the test when there is none; fails it where CI=true. */
static inline const char *nats_test_program(void)
{
    static const char *const places[] = {"/usr/sbin/nats-server", "/usr/bin/nats-server",
                                         "/usr/local/bin/nats-server"};
    const char *path = getenv("NATS_SERVER_BIN") ? getenv("NATS_SERVER_BIN") : nats_test_built();
    const char *ci = getenv("CI");

    if (path)
        return path;
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    if (ci && strcmp(ci, "true") == 0)
        fail_msg("no nats-server (NATS_SERVER_BIN), and CI=true allows no skip");
    printf("skipped: no nats-server\n");
    skip();
    return NULL;
}

/* Whether nobody else of those who claim ports like this, which tests that run beside us do (and
 * e2e/conftest.py), has this one: a lock on byte N of the file stands for port N until we end. */
static inline bool nats_test_claim(int port)
{
    static int claims = -1;
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = port, .l_len = 1};
    char path[64];

    (void)snprintf(path, sizeof(path), "/tmp/commutator-ports.%u", (unsigned)getuid());
    if (claims < 0)
        claims = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(claims >= 0);
    return fcntl(claims, F_SETLK, &byte) == 0;
}

/*
 * A port that stays free while its server is away: below the range of which the kernel takes ports
 * for outgoing connections. A client that tries such a one again and again may be connected to
 * itself, and then the server cannot come back.
 */
static inline int nats_test_port(void)
{
    static uint64_t turn; /* steps through all of them, so that none is given twice */

    for (turn = turn ? turn : clock_now_ns() / 64;; turn += 7919) {
        int port = (int)(10000 + turn % 20000);
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)port)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool free_now = nats_test_claim(port) && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;

        (void)close(fd);
        if (free_now) {
            turn += 7919;
            return port;
        }
    }
}

/* With these arguments, and without answering for when it is ready. */
static inline pid_t nats_test_run(const char *const *args)
{
    const char *program = nats_test_program();
    pid_t server = fork();

    assert_true(server >= 0);
    if (server == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
        (void)execv(program, (char *const *)(uintptr_t)args);
        _exit(127);
    }
    return server;
}

/* @store: folder of JetStream, NULL = without it. */
static inline pid_t nats_test_start(int port, const char *store)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d", port);
    return nats_test_run((const char *const[]){"nats-server", "-a", "127.0.0.1", "-p", text,
                                               "--user", "user", "--pass", "user",
                                               store ? "-js" : NULL, "-sd", store, NULL});
}

/* With users, tokens or the like as @authorization says, in the words of its configuration. */
static inline pid_t nats_test_start_guarded(int port, const char *authorization)
{
    AUTO(mem_free)
    char *text = xasprintf("listen: \"127.0.0.1:%d\"\nauthorization { %s }\n", port, authorization);
    int fd = memfd_create("nats-server.conf", 0); /* it inherits it */
    char path[32];
    pid_t server;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    server = nats_test_run((const char *const[]){"nats-server", "-c", path, NULL});
    (void)close(fd);
    return server;
}

static inline void nats_test_kill(pid_t server)
{
    if (server <= 0)
        return;
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
}
