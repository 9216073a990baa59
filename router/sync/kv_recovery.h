/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks workers for the blocks that they hold, when events were missed or before the first came
 * (wire.md §7.7): the endpoint worker_kv_indexer_query, on the request plane.
 *
 * A worker is asked for everything it has; its old entries go when the answer is there, so that a
 * worker that cannot answer loses nothing. One question per worker at a time, a few at once over
 * all, and not again before a while: a burst of gaps costs one dump.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct kv_intake;
struct kv_recovery;
struct plane_client;
struct scheduler;

/* All borrowed. */
struct kv_recovery_conf {
    struct loop *loop;
    struct plane_client *plane;
    struct kv_intake *intake;
    struct scheduler *scheduler;
};

struct kv_recovery *kv_recovery_new(const struct kv_recovery_conf *conf)
    __attribute__((returns_nonnull));
struct kv_recovery *kv_recovery_free(struct kv_recovery *r); /* cancels questions */
/* @address of its generate endpoint: "ip:port/<id hex>/generate". Copied. */
void kv_recovery_put_worker(struct kv_recovery *r, uint64_t worker_id, const char *address);
void kv_recovery_remove_worker(struct kv_recovery *r, uint64_t worker_id);
void kv_recovery_ask(struct kv_recovery *r, uint64_t worker_id);
/* Every worker that was asked before: events of all of them may have been missed. */
void kv_recovery_ask_again(struct kv_recovery *r);
