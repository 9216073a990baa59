/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routers before pools of workers, found in discovery: {namespace}.router.generate, any number of
 * them for a namespace, which take turns.
 *
 * Last known good: a router that the store is not sure to have lost (STORE_END_DOUBTFUL, store.h) is asked
 * until it fails. One loop.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/list.h"
#include "lib/base/mem.h"

struct plane_client;
struct pool_routers;
struct store;

struct pool_router {
    struct list link;
    uint64_t id;   /* instance id */
    char *address; /* on its request plane: text of plane_address.h */
    struct pool_place *place;
    bool doubtful;
};

/* Becomes the watcher of @store. What left is forgotten by @plane, too. Both are borrowed. */
MUST_CHECK int pool_routers_new(struct pool_routers **ret, struct store *store,
                                struct plane_client *plane, struct err *e);
struct pool_routers *pool_routers_free(struct pool_routers *r);
DEFINE_CLEANUP(struct pool_routers *, pool_routers_free)

/* The next of that namespace that is none of @avoid; NULL = there is none. Borrowed until the loop turns. */
const struct pool_router *pool_routers_next(struct pool_routers *r, const char *ns,
                                            const uint64_t *avoid, size_t n_avoid);
/* It cannot be reached: if it is one of doubt, it is gone. */
void pool_routers_failed(struct pool_routers *r, const char *ns, uint64_t id);
