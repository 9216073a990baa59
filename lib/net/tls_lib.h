/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal to lib/net: OpenSSL's contexts out of files, for tls_server.c and tls_client.c.
 *
 * The files are read at the start and again when something changes in their folders, as when
 * Kubernetes renews a mounted secret; every few seconds while no file watch can be had. What cannot be used then is logged and the old ones stay;
 * sessions keep what they began with. TLS 1.2 and up. One loop thread.
 */
#pragma once

#include <openssl/ssl.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "lib/net/tls_session.h"

struct tls_context;

enum { TLS_FILES_MAX = 3 };

struct tls_files {
    const char *cert, *key; /* of this side; NULL = it shows none */
    const char *ca; /* that the other side's certificate must be of; NULL = none is needed */
};

/* Completes what is common to both sides, before the files are read. */
typedef void (*tls_context_fn)(SSL_CTX *ctx);

/* -EINVAL with the reason when the files cannot be used. */
MUST_CHECK int tls_context_new(struct tls_context **ret, struct loop *l, const SSL_METHOD *method,
                               tls_context_fn complete, const struct tls_files *files,
                               struct err *e);
/* Sessions may outlive it. NULL in, NULL out. */
struct tls_context *tls_context_free(struct tls_context *t);
DEFINE_CLEANUP(struct tls_context *, tls_context_free)
SSL_CTX *tls_context_now(const struct tls_context *t); /* borrowed */
uint64_t tls_context_reloads(const struct tls_context *t);

/* Takes @ssl, whose role is set. */
struct tls_session *tls_session_of(SSL *take_ssl) __attribute__((returns_nonnull));
