/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries the questions of an event_order to the workers, and their answers back (wire.md §7.7).
 *
 * A worker answers on the request plane: at worker_kv_indexer_query (0.9), worker_kv_indexer_query_dp{rank}
 * (1.0) or worker_kv_query_source_{publisher}, which names no rank: its source of events does
 * ("recovery_target"), and where that says nothing several are tried in turn. Where
 * discovery tells no such endpoint, the first two are guessed. A worker that knows none of them is
 * not asked again. One loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"

struct event_order;
struct kv_recovery;
struct plane_client;

/* All borrowed. */
struct kv_recovery_conf {
    struct loop *loop;
    struct plane_client *plane; /* NULL: nobody can be asked, and every question fails */
    struct event_order *order;
    struct metric_registry *metrics;
    const char *ns, *component; /* labels */
};

struct kv_recovery *kv_recovery_new(const struct kv_recovery_conf *conf)
    __attribute__((returns_nonnull));
struct kv_recovery *kv_recovery_free(struct kv_recovery *r); /* cancels what is asked */
/*
 * @address of its generate endpoint: "ip:port/<id hex>/generate". @queries: addresses of its query
 * endpoints, comma separated, with '#' and the rank behind where that is known; NULL or "" when they
 * are not known.
 */
void kv_recovery_put_worker(struct kv_recovery *r, uint64_t worker_id, const char *address,
                            const char *queries);
void kv_recovery_remove_worker(struct kv_recovery *r, uint64_t worker_id);
/* The order may have questions: they are asked at the end of this turn of the loop. */
void kv_recovery_kick(struct kv_recovery *r);
void kv_recovery_withdraw(struct kv_recovery *r, uint64_t question);
