/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of etcd v3's JSON gateway (/v3/kv, /v3/watch, /v3/lease, /v3/auth): ours, and what its
 * answers say. 64-bit numbers are strings there, zeros are left out, keys and values are base64.
 * Source: etcd's published v3 API; answers as etcd 3.6.4 and 3.4.23 give them. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* Outcomes of calls: gRPC codes, as the gateway passes them on. */
enum {
    ETCD_INVALID_ARGUMENT = 3,
    ETCD_NOT_FOUND = 5,           /* the lease */
    ETCD_FAILED_PRECONDITION = 9, /* the lease is there already; authentication is off */
    ETCD_UNAUTHENTICATED = 16,
};

/* --- what we say: each appends one JSON object --- */

/* Keys from @from up to the end of @prefix, ascending; @revision 0 = now, @limit 0 = only count. */
void etcd_put_range(struct buf *out, struct str from, struct str prefix, uint64_t revision,
                    uint64_t limit);
/* From @revision on; long answers come in fragments. */
void etcd_put_watch(struct buf *out, struct str prefix, uint64_t revision);
void etcd_put_put(struct buf *out, struct str key, struct str value, uint64_t lease);
void etcd_put_delete(struct buf *out, struct str key);
void etcd_put_grant(struct buf *out, uint64_t lease, uint64_t ttl_s);
void etcd_put_lease(struct buf *out, uint64_t lease); /* keepalive, revoke */
void etcd_put_login(struct buf *out, const char *user, const char *password);

/* --- what etcd says: 0, or -EINVAL with what is wrong --- */

struct etcd_kv {
    struct str key, value; /* decoded; an end has no value */
    bool is_end;           /* the key was deleted */
    uint64_t revision;     /* of this change */
};
/* Called for each pair in order; its texts are borrowed. */
typedef void (*etcd_kv_fn)(void *arg, const struct etcd_kv *kv);

struct etcd_range {
    uint64_t revision;
    bool more; /* the limit cut it */
};
MUST_CHECK int etcd_range_parse(struct str json, struct etcd_range *ret, etcd_kv_fn fn, void *arg,
                                struct err *e);

/* Keys that a range has: of an answer to a call with limit 0. */
MUST_CHECK int etcd_count_parse(struct str json, uint64_t *ret, struct err *e);

struct etcd_watch_answer {
    uint64_t revision;         /* of the store */
    uint64_t compact_revision; /* cancelled because the wanted revision is older than this */
    bool created, cancelled;
    bool fragment;     /* the rest of its events follows */
    struct str reason; /* of the cancelling; raw, view into the line */
};
/* One line of the stream. An error in place of a result is told as such. */
MUST_CHECK int etcd_watch_parse(struct str json, struct etcd_watch_answer *ret, etcd_kv_fn fn,
                                void *arg, struct err *e);
/* Seconds that a lease has; 0 = it is gone. */
MUST_CHECK int etcd_keepalive_parse(struct str json, uint64_t *ret_ttl_s, struct err *e);
/* Appends the token. */
MUST_CHECK int etcd_login_parse(struct str json, struct buf *token, struct err *e);
/* The gRPC code of a refusal, 2 (unknown) when it names none; its words go to @e. */
int etcd_refusal_parse(struct str json, struct err *e);
