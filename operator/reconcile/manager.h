/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's process: watches on one loop, leader election, reconcile threads, health and
 * metrics. Writes nothing before it leads and has seen everything; exits when it does not lead any
 * more, since two writers would undo each other's work.
 */
#pragma once

#include "lib/kube/kube_config.h"
#include "operator/plan/plan.h"

struct manager_conf {
    struct kube_config_env kube;
    struct plan_config plan;
    const char *restricted_ns;                    /* NULL or "": the whole cluster */
    const char *metrics_address, *health_address; /* ":8080"; "0" = off */
    bool elect;
    const char *lease_name, *lease_ns; /* NULL: the default, and our own namespace */
    const char *identity;              /* NULL: made from the host's name and a random part */
    const char *version;
    uint64_t scope_duration_ms, scope_renew_ms;
    unsigned n_workers; /* threads per kind */
};

/* Runs until SIGTERM or SIGINT. 0, or -errno with @e filled when it could not start. */
MUST_CHECK int manager_run(const struct manager_conf *conf, struct err *e);
