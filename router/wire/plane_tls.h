/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of the request plane's TCP connections, as of 1.6.1: requests and the connections home alike.
 *
 * Either side both listens and calls, and the two are configured apart: what listens speaks TLS
 * when it has a certificate and its key, what calls does when it knows whom to trust. Nothing in
 * records or requests says so: each caller has to be configured for those whom it calls.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct tls_client;
struct tls_server;

/* DYN_TCP_TLS_…; PEM files. All NULL: plain. */
struct plane_tls_conf {
    char *cert, *key; /* of what listens */
    char *client_ca;  /* whose certificate callers must show; NULL = none */
    char *ca;         /* of those who are called */
    bool insecure;    /* who is called is taken for whom it says; @ca does not matter */
    char *name;       /* whose certificate it must be; NULL = the address that is called */
    char *client_cert, *client_key; /* what those who are called are shown; NULL = nothing */
    uint64_t handshake_ms;
};

struct plane_tls {
    struct tls_server *server; /* NULL: what listens is plain */
    struct tls_client *client; /* NULL: calls are plain */
};

/* Whether the parts go together, without reading a file: -EINVAL with what is missing. */
MUST_CHECK int plane_tls_check(const struct plane_tls_conf *conf, struct err *e);
/* @conf NULL: plain. Free with plane_tls_done(), in every case. */
MUST_CHECK int plane_tls_start(struct plane_tls *ret, struct loop *l,
                               const struct plane_tls_conf *conf, struct err *e);
void plane_tls_done(struct plane_tls *t);
