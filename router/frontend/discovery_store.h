/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store that the options name: file, etcd, Kubernetes, or memory of this process alone.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct frontend_conf;
struct kube_config;
struct store;
struct store_hub;

struct store_ways {
    struct loop *loop;
    const char *(*env)(const char *name);
    bool publishes; /* of Kubernetes: writes this pod's record, if the pod is known */
    bool needs_pod; /* and does not start without */
    bool alone;     /* memory will do: nobody is to be found */
};

/* All the caller's: @ret_kube is set in Kubernetes, @ret_hub (freed after the store) with memory. */
MUST_CHECK int store_open(struct store **ret, struct kube_config **ret_kube,
                          struct store_hub **ret_hub, const struct frontend_conf *c,
                          const struct store_ways *ways, struct err *e);
