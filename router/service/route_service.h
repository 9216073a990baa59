/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-alone router (router.md §6.2, 8.1): registers {ns}.router.generate, which routes and
 * streams, and {ns}.router.best_worker_id, which only selects; follows the workers of one endpoint
 * and their KV events.
 *
 * Workers are known by their model cards, as in the frontend; the block size is an option, as in
 * the reference. One loop thread.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct route_options;
struct route_service;

/* @o is derived, and outlives the service. */
MUST_CHECK int route_service_start(struct route_service **ret, struct loop *l,
                                   const struct route_options *o, struct err *e);
/* Withdraws its records and ends what runs within the drain time, then calls @stopped. */
void route_service_stop(struct route_service *s, loop_fn stopped, void *arg);
struct route_service *route_service_free(struct route_service *s);
DEFINE_CLEANUP(struct route_service *, route_service_free)
