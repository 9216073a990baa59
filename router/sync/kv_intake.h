/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events and load reports of one model's workers, from core NATS into its scheduler
 * (router.md §2, wire.md §7).
 *
 * Subscribes to the subjects of both generations. A message that cannot be read is counted and
 * dropped; what it said before the bad part stays applied. Events carry ids that count up per
 * worker and rank: a jump is a gap, counted and logged, a fall means the engine restarted, and its
 * old blocks are dropped at once. Blocks on other tiers than the device are not indexed.
 *
 * One loop thread, that of the scheduler.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "lib/net/nats_link.h"

struct kv_intake;
struct scheduler;

struct kv_intake_conf {
    struct loop *loop;
    struct nats_link *nats;      /* borrowed */
    struct scheduler *scheduler; /* borrowed */
    struct metric_registry *metrics;
    const char *ns, *component, *endpoint;
    /* An event could not be applied in order: ask the worker for what is missing. May be NULL. */
    void (*gap)(void *arg, uint64_t worker_id, uint32_t dp_rank);
    void *arg;
};

struct kv_intake *kv_intake_free(struct kv_intake *k);
DEFINE_CLEANUP(struct kv_intake *, kv_intake_free)
MUST_CHECK int kv_intake_start(struct kv_intake **ret, const struct kv_intake_conf *conf,
                               struct err *e);
/* What is remembered of a worker's event ids ends. */
void kv_intake_forget(struct kv_intake *k, uint64_t worker_id);
/* Applies the answer of a recovery query ({"TreeDump":[…]} or {"Events":[…]}). */
MUST_CHECK int kv_intake_apply_dump(struct kv_intake *k, struct str json, struct err *e);
