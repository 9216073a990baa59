/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live routing configuration: routing variables that change while the process runs
 * (architecture.md, "Live routing configuration").
 *
 * The source is the ConfigMap that the operator renders (watched through the API server) or a file
 * of NAME=value lines. Flags and the environment keep their precedence: a change is applied by
 * loading the whole configuration again with the source laid over the environment, so that a live
 * value means exactly what it would mean after a restart. A value that does not load changes
 * nothing.
 *
 * One loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/strmap.h"
#include "lib/net/loop.h"

struct kube_config;
struct live_conf;

struct live_conf_spec {
    struct loop *loop;
    const struct kube_config *kube; /* with config_map; borrowed */
    const char *ns, *config_map;    /* or NULL */
    const char *file;               /* or NULL */
    /* Variables in force now (name -> char *) and the generation they carry (0 = none). */
    void (*changed)(void *arg, const struct strmap *variables, uint64_t generation);
    void *arg;
};

MUST_CHECK int live_conf_start(struct live_conf **ret, const struct live_conf_spec *spec,
                               struct err *e);
struct live_conf *live_conf_free(struct live_conf *c);
DEFINE_CLEANUP(struct live_conf *, live_conf_free)
