/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/err.h>

#include "lib/base/log.h"
#include "lib/net/fswatch.h"
#include "lib/net/tls_lib.h"

static const struct log_target LG = {"commutator::net::tls"};

enum { LOOK_MS = 5000 };

struct tls_context {
    SSL_CTX *ctx;
    const SSL_METHOD *method;
    tls_context_fn complete;
    char *cert, *key, *ca;
    struct fswatch *watches[TLS_FILES_MAX];
    struct timer *look; /* NULL until a watch could not be had */
    struct loop *loop;
    bool reload_due;
    uint64_t reloads;
};

/* Of several reasons the first one: the others follow from it. */
static int unusable(struct err *e, const char *what, const char *file)
{
    char text[256];
    unsigned long code = ERR_get_error();

    ERR_error_string_n(code, text, sizeof(text));
    ERR_clear_error();
    return err_set(e, -EINVAL, "%s '%s': %s", what, file, code ? text : "it cannot be used");
}

static int files_load(SSL_CTX *ctx, const struct tls_context *t, struct err *e)
{
    if (t->cert && SSL_CTX_use_certificate_chain_file(ctx, t->cert) != 1)
        return unusable(e, "TLS certificate", t->cert);
    if (t->key && (SSL_CTX_use_PrivateKey_file(ctx, t->key, SSL_FILETYPE_PEM) != 1 ||
                   SSL_CTX_check_private_key(ctx) != 1))
        return unusable(e, "TLS key", t->key);
    if (t->ca) {
        if (SSL_CTX_load_verify_locations(ctx, t->ca, NULL) != 1)
            return unusable(e, "authority of TLS peers", t->ca);
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        /* Whatever is in the file is trusted, also where its own authority is not there. */
        (void)X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ctx), X509_V_FLAG_PARTIAL_CHAIN);
    }
    return 0;
}

static int ctx_load(SSL_CTX **ret, const struct tls_context *t, struct err *e)
{
    SSL_CTX *ctx = SSL_CTX_new(t->method);
    int r;

    if (!ctx)
        return unusable(e, "TLS", "OpenSSL");
    (void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    t->complete(ctx);
    r = files_load(ctx, t, e);
    if (r < 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    *ret = ctx;
    return 0;
}

static bool same_certificate(const SSL_CTX *a, const SSL_CTX *b)
{
    const X509 *x = SSL_CTX_get0_certificate(a), *y = SSL_CTX_get0_certificate(b);

    return x && y ? X509_cmp(x, y) == 0 : x == y;
}

static void reload(void *arg)
{
    struct tls_context *t = arg;
    SSL_CTX *fresh;
    struct err e;

    t->reload_due = false;
    if (ctx_load(&fresh, t, &e) < 0) {
        log_warn(&LG, "changed TLS files cannot be used, keeping the old ones",
                 LOG_STR("why", e.text));
        return;
    }
    if (!same_certificate(fresh, t->ctx)) {
        t->reloads++;
        log_info(&LG, "new TLS certificate in force", LOG_STR("file", t->cert));
    }
    SSL_CTX_free(t->ctx);
    t->ctx = fresh;
}

/* Certificate and key change one after the other: what is between them fails and is tried again. */
static void on_file(void *arg, const char *name, bool gone)
{
    struct tls_context *t = arg;

    (void)name;
    (void)gone;
    if (t->reload_due)
        return;
    t->reload_due = true;
    loop_defer(t->loop, reload, t);
}

static int watch(struct tls_context *t, const char *file, struct fswatch **ret, struct err *e)
{
    AUTO(mem_free) char *dir = xstrdup(file);
    char *slash = strrchr(dir, '/');

    if (slash)
        slash[slash == dir] = '\0';
    return fswatch_start(ret, t->loop, slash ? dir : ".", on_file, t, e);
}

/* Of all files that are not watched yet. */
static int watch_all(struct tls_context *t, struct err *e)
{
    const char *const names[TLS_FILES_MAX] = {t->cert, t->key, t->ca};

    for (size_t i = 0; i < TLS_FILES_MAX; i++) {
        int r = names[i] && !t->watches[i] ? watch(t, names[i], &t->watches[i], e) : 0;

        if (r < 0)
            return r;
    }
    return 0;
}

/* Until there is a watch to have for each file. Watch first, then look: nothing is missed between. */
static void on_look(void *arg)
{
    struct tls_context *t = arg;
    struct err e;

    if (watch_all(t, &e) == 0)
        timer_stop(t->look);
    reload(t);
}

/*
 * The kernel gives a user few watches, and other programs may hold them all. That is no reason not
 * to serve: the files are read every LOOK_MS then.
 */
static int watch_or_look(struct tls_context *t, struct err *e)
{
    int r = watch_all(t, e);

    if (r != -EMFILE && r != -ENOSPC)
        return r;
    log_warn(&LG,
             "no file watch is left for this user, will read TLS files every few seconds instead",
             LOG_STR("why", e->text));
    t->look = timer_new(t->loop, on_look, t);
    timer_start_repeat(t->look, LOOK_MS);
    return 0;
}

int tls_context_new(struct tls_context **ret, struct loop *l, const SSL_METHOD *method,
                    tls_context_fn complete, const struct tls_files *files, struct err *e)
{
    AUTO(tls_context_free) struct tls_context *t = xcalloc(1, sizeof(*t));
    int r;

    t->loop = l;
    t->method = method;
    t->complete = complete;
    t->cert = files->cert ? xstrdup(files->cert) : NULL;
    t->key = files->key ? xstrdup(files->key) : NULL;
    t->ca = files->ca ? xstrdup(files->ca) : NULL;
    r = ctx_load(&t->ctx, t, e);
    if (r == 0)
        r = watch_or_look(t, e);
    if (r < 0)
        return r;
    *ret = TAKE(t);
    return 0;
}

static void context_free(void *arg)
{
    struct tls_context *t = arg;

    SSL_CTX_free(t->ctx);
    free(t->cert);
    free(t->key);
    free(t->ca);
    free(t);
}

struct tls_context *tls_context_free(struct tls_context *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; i < TLS_FILES_MAX; i++)
        t->watches[i] = fswatch_stop(t->watches[i]);
    t->look = timer_free(t->look);
    loop_defer(t->loop, context_free, t); /* behind a reload that is due */
    return NULL;
}

SSL_CTX *tls_context_now(const struct tls_context *t)
{
    return t->ctx;
}

uint64_t tls_context_reloads(const struct tls_context *t)
{
    return t->reloads;
}
