/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of etcd's JSON gateway on a loop: one endpoint at a time of several, the next one after a
 * failure; a token where there is a user, fetched anew when it is refused. Never retries: that is
 * the caller's, who knows what still matters.
 *
 * One loop; calls are freed after `done`, which may start others but not free the client.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/conf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

/* Names as in the environment; all borrowed, NULL or "" = not set. */
struct etcd_conf {
    char *endpoints;       /* ETCD_ENDPOINTS: a comma list; default http://localhost:2379 */
    char *user, *password; /* ETCD_AUTH_USERNAME, ETCD_AUTH_PASSWORD */
    char *ca_file, *cert_file, *key_file; /* ETCD_AUTH_CA, _CLIENT_CERT, _CLIENT_KEY */
    uint64_t lease_ttl_s;                 /* ETCD_LEASE_TTL */
};

#define ETCD_CONF_FIELD_(owner, at, name, kind, start, least, most, words)                         \
    {                                                                                              \
        .env = (name), .type = (kind), .offset = offsetof(owner, at), .initial = (start),          \
        .min = (least), .max = (most), .help = (words)                                             \
    }
/* Rows of a program's table of options. */
#define ETCD_CONF_FIELDS(owner, at)                                                                \
    ETCD_CONF_FIELD_(owner, at.endpoints, "ETCD_ENDPOINTS", CONF_STR, "http://localhost:2379", 0,  \
                     0, "etcd servers, a comma list"),                                             \
        ETCD_CONF_FIELD_(owner, at.user, "ETCD_AUTH_USERNAME", CONF_STR, NULL, 0, 0, "etcd user"), \
        ETCD_CONF_FIELD_(owner, at.password, "ETCD_AUTH_PASSWORD", CONF_STR, NULL, 0, 0,           \
                         "etcd password"),                                                         \
        ETCD_CONF_FIELD_(owner, at.ca_file, "ETCD_AUTH_CA", CONF_STR, NULL, 0, 0,                  \
                         "file of the authority that etcd's certificate is from"),                 \
        ETCD_CONF_FIELD_(owner, at.cert_file, "ETCD_AUTH_CLIENT_CERT", CONF_STR, NULL, 0, 0,       \
                         "file of our certificate towards etcd"),                                  \
        ETCD_CONF_FIELD_(owner, at.key_file, "ETCD_AUTH_CLIENT_KEY", CONF_STR, NULL, 0, 0,         \
                         "file of its key"),                                                       \
        ETCD_CONF_FIELD_(owner, at.lease_ttl_s, "ETCD_LEASE_TTL", CONF_U64, "10", 1, 9000000,      \
                         "seconds that our records outlive us in etcd")

struct etcd_client;
struct etcd_call;

struct etcd_call_spec {
    const char *path; /* "/v3/kv/range" */
    struct str body;  /* copied */
    /* NULL: the answer is one body. Else a stream: each of its lines, without deadline. */
    void (*line)(void *arg, struct str json);
    /* 0 with the body, a positive gRPC code, or -errno, with words; the body is borrowed. */
    void (*done)(void *arg, int r, struct str body, const char *why);
    void *arg;
};

MUST_CHECK int etcd_client_new(struct etcd_client **ret, struct loop *l,
                               const struct etcd_conf *conf, struct err *e);
struct etcd_client *etcd_client_free(struct etcd_client *c); /* without callbacks */
DEFINE_CLEANUP(struct etcd_client *, etcd_client_free)
struct etcd_call *etcd_call_start(struct etcd_client *c, const struct etcd_call_spec *spec)
    __attribute__((returns_nonnull));
/* No callback after it. NULL in, NULL out. */
struct etcd_call *etcd_call_cancel(struct etcd_call *call);
/* The next call logs in again: for a refusal that came inside of a stream. */
void etcd_client_drop_token(struct etcd_client *c);
/* Where calls go now; for messages. */
const char *etcd_client_endpoint(const struct etcd_client *c);
/* Blocks for a second at most and ignores the outcome: the last call before the process ends. */
void etcd_client_last_call(struct etcd_client *c, const char *path, struct str body);
