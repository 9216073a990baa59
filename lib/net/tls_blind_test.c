/* SPDX-License-Identifier: Apache-2.0 */
/* TLS files where the kernel has no file watch left for this user: read all the same. */
#include "lib/net/fswatch.h"
#include "lib/net/loop_test.h"
#include "lib/net/tls_identity_test.h"

static bool no_watch_left;
static int watch_if_left(struct fswatch **ret, struct loop *l, const char *dir, fswatch_fn fn,
                         void *arg, struct err *e);

#define fswatch_start watch_if_left
#include "lib/net/tls_context.c"
#undef fswatch_start

static int watch_if_left(struct fswatch **ret, struct loop *l, const char *dir, fswatch_fn fn,
                         void *arg, struct err *e)
{
    if (no_watch_left)
        return err_errno(e, -EMFILE, "watch files");
    return fswatch_start(ret, l, dir, fn, arg, e);
}

struct rig {
    char dir[32];
    char *cert, *key;
    struct loop *loop;
    struct tls_context *tls;
};

static void put_identity(struct rig *g, const char *name)
{
    struct identity id;

    free(g->cert);
    free(g->key);
    identity_init(&id, name);
    g->cert = identity_put(g->dir, "cert", buf_str(&id.cert_pem));
    g->key = identity_put(g->dir, "key", buf_str(&id.key_pem));
    identity_done(&id);
}

static void complete_nothing(SSL_CTX *ctx)
{
    (void)ctx;
}

static void rig_init(struct rig *g)
{
    struct tls_files files;
    struct err e;

    *g = (struct rig){.dir = "/tmp/tls_blind_test.XXXXXX"};
    assert_non_null(mkdtemp(g->dir));
    put_identity(g, "first");
    files = (struct tls_files){.cert = g->cert, .key = g->key};
    assert_int_equal(log_setup("off", false, NULL), 0);
    EXPECT_OK(loop_new(&g->loop, &e), &e);
    no_watch_left = true;
    EXPECT_OK(tls_context_new(&g->tls, g->loop, TLS_server_method(), complete_nothing, &files, &e),
              &e);
}

static void rig_done(struct rig *g)
{
    g->tls = tls_context_free(g->tls);
    g->loop = loop_free(g->loop);
    (void)unlink(g->cert);
    (void)unlink(g->key);
    free(g->cert);
    free(g->key);
    assert_int_equal(rmdir(g->dir), 0);
}

static void changed_files_are_found_by_looking(void **state)
{
    struct rig g;

    (void)state;
    rig_init(&g);
    assert_true(timer_active(g.tls->look));
    put_identity(&g, "second");
    timer_start(g.tls->look, 0); /* now rather than in LOOK_MS */
    LOOP_UNTIL(g.loop, tls_context_reloads(g.tls) == 1);
    rig_done(&g);
}

static void a_watch_that_comes_free_is_taken(void **state)
{
    struct rig g;

    (void)state;
    rig_init(&g);
    put_identity(&g, "second");
    no_watch_left = false;
    timer_start_repeat(g.tls->look, 1);
    LOOP_UNTIL(g.loop, tls_context_reloads(g.tls) == 1); /* what came before the watch */
    assert_false(timer_active(g.tls->look));
    put_identity(&g, "third");
    LOOP_UNTIL(g.loop, tls_context_reloads(g.tls) == 2);
    rig_done(&g);
}

int main(void)
{
    return TEST_RUN(T(changed_files_are_found_by_looking), T(a_watch_that_comes_free_is_taken));
}
