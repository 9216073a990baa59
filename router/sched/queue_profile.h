/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy classes of the router queue, from a YAML file (--router-policy-config), in the schema of
 * the reference 1.x:
 *
 *     default_policy_family: standard      # of requests that name none, or one that is not known
 *     uncached_isl_buckets:                # by tokens that no worker has cached; floors from 0 up
 *       - {min_tokens: 0, bucket: cached}
 *       - {min_tokens: 3072, bucket: uncached}
 *     policy_classes:                      # one for every family and bucket
 *       - name: cached
 *         policy_family: standard
 *         cache_bucket: cached
 *         quantum: 2048                    # share: uncached tokens a round (route_queue.h)
 *         queue_policy: wspt               # fcfs, lcfs, wspt; unset = --router-queue-policy
 *         prefill_busy_threshold: 32000    # active prefill tokens from which a worker is full
 *         prefill_busy_threshold_frac: 16  # the same in max_num_batched_tokens; either is enough
 *         busy_worker_ratio: 0.95          # wait from this share of full workers on; unset = all
 *         request_queue_limit_per_worker: 512
 *         raw_isl_token_queue_limit_per_worker: 1048576
 *         cached_token_queue_limit_per_worker: 2097152
 *       - name: urgent                     # neither family nor bucket: by its own name
 *         quantum: 4096
 *     models:                              # a model's own profile replaces all of the above
 *       my/model: {default_policy_family: …, uncached_isl_buckets: …, policy_classes: …}
 *
 * A request asks with the header x-dynamo-meta-policy-class for a family, or for a class without
 * family; a class of the matrix cannot be named, so that nobody leaves the bucket of its prompt. A
 * class without threshold lets everything through at once. Names are letters, digits, '_' and '-',
 * as they become metric labels. A key that is not known is an error that names it.
 *
 * Without a file, and for models that a file of models only does not name, there is one class,
 * "default". Pure; immutable once made.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/sched/route_queue.h"
#include "router/sched/scheduler.h"

struct err;

struct queue_class {
    char *name;
    char *family, *bucket; /* both or neither */
    struct route_queue_rule rule;
    struct room_limit limit;
};

struct queue_bucket {
    uint64_t min_tokens;
    char *name;
};

struct queue_profile {
    struct queue_class *classes;
    size_t n_classes;
    struct queue_bucket *buckets;
    size_t n_buckets;
    char *default_family;
};

struct queue_profiles {
    struct queue_profile root;
    struct queue_profile *models;
    char **model_names;
    size_t n_models;
};

/* The one class "default". @share NAN = it lets everything through; @max_requests as in the rule. */
void queue_profiles_single(struct queue_profiles *ret, enum route_queue_order order, double share,
                           uint64_t max_requests);
/* Replaces what the file says. @order: of classes that do not name theirs. -EINVAL with the place and
 * what is wrong there; @p is left alone then. */
MUST_CHECK int queue_profiles_parse(struct queue_profiles *p, struct str yaml,
                                    enum route_queue_order order, struct err *e);
void queue_profiles_done(struct queue_profiles *p);
DEFINE_CLEANUP_EMBEDDED(struct queue_profiles, queue_profiles_done)

const struct queue_profile *queue_profile_of(const struct queue_profiles *p, const char *model);
/* Whether the class of a request depends on what is cached of it. */
bool queue_profile_has_buckets(const struct queue_profile *p);
/* @wanted: of the header, may be empty. */
size_t queue_profile_class(const struct queue_profile *p, struct str wanted,
                           uint64_t uncached_tokens);
/* Whether a request of this class can ever have to wait. */
bool queue_class_waits(const struct queue_class *c);
/* Whether one of any class, of any model, can. */
bool queue_profiles_wait(const struct queue_profiles *p);
