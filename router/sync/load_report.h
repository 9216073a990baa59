/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this router tells of its decisions (router.md §2.8, 2.9): the hit rate of each on kv-hit-rate,
 * and on kv_metrics the booked load of each target whose bookings have changed.
 *
 * Both are of the namespace, as in 0.9.0. Reports leave five milliseconds later, so that many changes
 * of a target are one report. Only in mode kv, like the reference's. One loop thread, that of the
 * scheduler.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct event_bus;
struct load_report;
struct scheduler;

/* All borrowed. */
struct load_report_conf {
    struct loop *loop;
    struct event_bus *bus;
    struct scheduler *scheduler;
    const char *ns;
};

MUST_CHECK int load_report_start(struct load_report **ret, const struct load_report_conf *conf,
                                 struct err *e);
/* Before its scheduler and its bus. */
struct load_report *load_report_free(struct load_report *r);
DEFINE_CLEANUP(struct load_report *, load_report_free)
