/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frontend: discovery in, HTTP out, and the router between.
 *
 *     workers' records ─▶ instances ─▶ models ─┐
 *     KV events (NATS) ──────────────▶ index ──┼─▶ request ─▶ worker ─▶ chunks
 *     routing ConfigMap ─▶ live_conf ─▶ mode ──┘
 *
 * Everything runs on the loop given; files are read and long prompts are tokenized on pool threads.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "router/frontend/frontend_conf.h"

struct frontend;

/* How the configuration was loaded, to load it again with live values over the environment. */
struct frontend_args {
    int argc;
    char *const *argv;
    const char *(*env)(const char *name);
    bool embedded; /* in another program, which asks frontend_serving(): it does not listen */
};

/* Listens when it returns, unless it is embedded. @conf and @args are borrowed. */
MUST_CHECK int frontend_start(struct frontend **ret, struct loop *l,
                              const struct frontend_conf *conf, const struct frontend_args *args,
                              struct err *e);
/* Refuses new work, lets running requests end (at most conf.drain_ms), then calls @stopped. */
void frontend_stop(struct frontend *f, loop_fn stopped, void *arg);
struct frontend *frontend_free(struct frontend *f);
DEFINE_CLEANUP(struct frontend *, frontend_free)
/* Brings sampled metrics up to date, for whoever prints the registry of its serving. */
void frontend_measure(struct frontend *f);
/* Borrowed; on the loop's thread. */
struct serving;
struct serving *frontend_serving(struct frontend *f);
