/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is responsible for a namespace when a cluster-wide operator and namespace-restricted ones live
 * in the same cluster (operator.md §3.2).
 *
 * A restricted operator keeps the marker Lease "dynamo-operator-namespace-scope" in its namespace; a
 * cluster-wide one leaves every namespace alone that holds a marker which has not expired.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/kube/kube_config.h"
#include "operator/ctrl/cache.h"

#define SCOPE_LEASE "dynamo-operator-namespace-scope"

struct scope_marker;

struct scope_conf {
    const char *ns;
    const char *version; /* told in the holder's name */
    uint64_t duration_ms, renew_ms;
    void (*lost)(void *arg,
                 const char *why); /* not renewed in time; on the marker's thread, once */
    void *arg;
};

/* The first marker is written before this returns, with its renewTime. */
MUST_CHECK int scope_marker_start(struct scope_marker **ret, const struct kube_config *config,
                                  const struct scope_conf *conf, struct err *e);
struct scope_marker *scope_marker_stop(struct scope_marker *m); /* deletes the marker */

/*
 * For the cluster-wide operator: how many milliseconds from @wall_ms a namespace is still none of
 * its business; 0 when it is. Reads the marker from the cache.
 */
uint64_t scope_excluded_ms(struct cache *cache, const char *ns, uint64_t wall_ms);
/* The same of a given marker (NULL: none). Pure. */
uint64_t scope_marker_left_ms(const struct json *lease, uint64_t wall_ms);
