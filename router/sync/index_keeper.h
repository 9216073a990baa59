/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a pool's index in a file, so that the next process starts with it.
 *
 *     <folder>/<namespace>.<component>.<endpoint>.index
 *
 * At the start the file is mapped and its blocks go into the scheduler, for all workers that it
 * names. Each worker, when it appears, is asked for the events since (event_order_resume()): a
 * worker whose numbers have fallen, whose engine is another one (event_proof.h), that cannot be asked
 * or does not appear loses them again. A file
 * that is damaged, of another block size or of another pool is passed over with a warning.
 *
 * It is written every `period_ms`, by a pool thread while events go on (index_image.h), under
 * another name first, and once more when the keeper goes: so what a graceful stop leaves is no
 * older than the stop. Ranks whose blocks were replaced, or whose slot got another rank, while the
 * file was written are not named in it; nor are those with blocks on slower tiers, for which it has
 * no place: a dump brings both.
 *
 * One loop thread; keeper_free() waits for a write that is under way.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"

struct index_keeper;
struct kv_intake;
struct scheduler;

/* All borrowed. */
struct index_keeper_conf {
    struct loop *loop;
    struct scheduler *scheduler;
    struct kv_intake *intake;
    struct metric_registry *metrics;
    const char *folder, *ns, *component, *endpoint;
    uint64_t period_ms; /* 0 = only when it goes */
};

/* Reads the file, if there is one. Never NULL. */
struct index_keeper *index_keeper_new(const struct index_keeper_conf *conf);
/* Writes the file; before the intake and the scheduler go. */
struct index_keeper *index_keeper_free(struct index_keeper *k);
DEFINE_CLEANUP(struct index_keeper *, index_keeper_free)
