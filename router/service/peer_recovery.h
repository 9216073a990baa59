/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches what a peer service knows (GET /dump) when this one starts or meets a new group, so that
 * it need not wait for engines to say everything again (router.md §8.2).
 *
 * Peers are asked in order until one answers. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/wire/kv_event.h"

struct peer_recovery;

enum { PEERS_MAX = 64, PEER_DUMP_BYTES_MAX = 1 << 30 };

struct peer_recovery_conf {
    struct loop *loop;
    uint64_t
        delay_ms; /* before the first question, so that peers that start together are up; 0 = 1 s */
    const char *urls,
        *flag; /* the first peers, a comma list or NULL; and the option that names them */
    /* One group of a dump; NULL skips its events. What it returns is the argument of `event`. */
    void *(*group)(void *arg, struct str model, struct str name, uint32_t block_size);
    kv_event_fn event;
    void *arg;
};

MUST_CHECK int peer_recovery_new(struct peer_recovery **ret, const struct peer_recovery_conf *conf,
                                 struct err *e);
struct peer_recovery *peer_recovery_free(struct peer_recovery *p);
DEFINE_CLEANUP(struct peer_recovery *, peer_recovery_free)
/* "http://host:port", told twice is told once. -EINVAL; -ENOSPC beyond PEERS_MAX. */
MUST_CHECK int peer_recovery_add(struct peer_recovery *p, struct str url, struct err *e);
bool peer_recovery_remove(struct peer_recovery *p, struct str url);
void peer_recovery_put(const struct peer_recovery *p, struct json_put *j); /* an array */
/* Asks, after the delay, unless that is under way; without peers nothing happens. */
void peer_recovery_ask(struct peer_recovery *p);
/*
 * Reads a dump: {"model:group":{"block_size":n,"events":[…]},…}. -EINVAL when it is none; what was
 * read before the bad part stays applied.
 */
MUST_CHECK int peer_dump_parse(struct str json, const struct peer_recovery_conf *conf,
                               struct err *e);
