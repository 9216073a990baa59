/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's flags: those of the reference (Go style, one or two dashes) and a few of ours. What
 * has no effect here is accepted all the same, so that the arguments of a chart hold.
 */
#pragma once

#include "lib/base/conf.h"
#include "operator/reconcile/manager.h"

struct flags {
    char *kubeconfig, *metrics_address, *health_address;
    char *lease_name, *lease_ns, *restricted_ns;
    char *nats, *etcd, *model_express, *prometheus;
    char *ingress_class, *ingress_tls, *ingress_suffix;
    char *planner_role, *version, *frontend_image, *frontend_pull_policy;
    bool elect;
    int discovery, frontend_override;
    uint64_t scope_duration_ms, scope_renew_ms, workers;
    char *ignored[16];
    bool ignored_switches[8];
};

extern const struct conf_spec flags_spec;

/* The configuration that the flags stand for; borrows from them. @env: the environment. */
struct manager_conf flags_to_conf(const struct flags *f, const char *(*env)(const char *name));
/* Calls @tell with the name of each flag that was given and has no effect. */
void flags_each_ignored(const struct flags *f, void (*tell)(const char *flag));
