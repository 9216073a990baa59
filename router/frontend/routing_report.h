/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the operator which routing configuration this pod runs: two annotations on the pod's own
 * DynamoWorkerMetadata, which every frontend pod may write. The operator counts them for the
 * graph's RoutingApplied condition.
 *
 * Reports are written one at a time from a pool thread; of those that wait only the newest counts.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct kube_config;
struct routing_report;

/* All borrowed. */
struct routing_report_conf {
    struct loop *loop;
    const struct kube_config *kube;
    const char *ns, *pod_name, *pod_uid;
};

struct routing_report *routing_report_new(const struct routing_report_conf *conf)
    __attribute__((returns_nonnull));
/* A write that runs is waited for by the loop, not here. NULL in, NULL out. */
struct routing_report *routing_report_free(struct routing_report *r);
/* @error: why the newest generation does not apply; "" when it does. */
void routing_report_put(struct routing_report *r, uint64_t generation, const char *mode,
                        const char *error);
