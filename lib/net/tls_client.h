/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of what connects: whom to trust, and what to show, from files, which are read at the start
 * and again when they change (connections keep what they began with). TLS 1.2 and up. One loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "lib/net/tls_session.h"

struct tls_client;

struct tls_client_conf {
    const char *ca;         /* PEM file of the authorities of servers; NULL = any server will do */
    const char *cert, *key; /* PEM files of what servers are shown; NULL = nothing */
    const char *name;       /* whose certificate it must be; NULL = the address that is called */
    uint64_t handshake_ms;  /* calls whose handshake takes longer fail; 0 = no limit */
};

/* -EINVAL with the reason when the files cannot be used. */
MUST_CHECK int tls_client_new(struct tls_client **ret, struct loop *l,
                              const struct tls_client_conf *conf, struct err *e);
/* Sessions may outlive it. NULL in, NULL out. */
struct tls_client *tls_client_free(struct tls_client *t);
DEFINE_CLEANUP(struct tls_client *, tls_client_free)
uint64_t tls_client_handshake_ms(const struct tls_client *t);

/* @ip: of the server that is called, as text. */
struct tls_session *tls_client_session(struct tls_client *t, const char *ip)
    __attribute__((returns_nonnull));
