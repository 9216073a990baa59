/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's system server (wire.md §6.4): /health, /live, /metrics, /metadata, and the model's
 * files as 1.x serves them (§15.6); that of a router also /explain and /decisions.
 *
 * Healthy as soon as every worker of the process takes requests, so that a readiness probe works
 * without a canary (the reference answers 503 for ever), or from the start where that is asked for;
 * alive as long as it answers. One loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

struct explain;
struct metric_registry;
struct system_options;
struct system_server;

struct system_server_conf {
    const struct system_options *options; /* derived; copied but for its texts */
    const char *ns, *component, *endpoint;
    struct metric_registry *metrics;
    bool (*ready)(void *arg);
    void (*measure)(void *arg); /* before metrics are printed */
    /* Appends the record of Kubernetes discovery; NULL = there is none. */
    void (*put_metadata)(void *arg, struct buf *out);
    /* Bytes of a file below /v1/metadata/, borrowed for the call; false when there is none. */
    bool (*file)(void *arg, struct str path, struct str *ret_bytes);
    struct explain *explain; /* answers /explain/{id} and /decisions; NULL = nobody does */
    void *arg;
};

/* Without a port in the options there is none, and no error. */
MUST_CHECK int system_server_start(struct system_server **ret, struct loop *l,
                                   const struct system_server_conf *conf, struct err *e);
struct system_server *system_server_free(struct system_server *s);
DEFINE_CLEANUP(struct system_server *, system_server_free)
/* Of NULL: 0. */
uint16_t system_server_port(const struct system_server *s);
/* What is not ready from here on is not healthy, though it has not been ready yet. */
void system_server_end_start(struct system_server *s);
