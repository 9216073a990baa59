/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which policy chooses among the workers of a stage: `worker_selection` of a policy file, in the
 * schema of the reference 1.6:
 *
 *     worker_selection:
 *       aggregated: tuned                  # also prefill, decode; unset or default: --router-policy
 *       instances:
 *         - name: tuned
 *           type: dynamo-two-tier-cost-fn  # policy two-tier
 *           parameters: {cache_threshold: 0.5, balance_abs_threshold: 32, balance_rel_threshold: 1.1}
 *         - name: costs
 *           type: dynamo-default-cost-fn   # policy dynamo-1.x; what is not here is as the options say
 *           parameters: {overlap_score_credit: 1, router_temperature: 0}
 *         - {name: agents, type: thunderagent}  # policy thunderagent, without parameters
 *
 * As there, an instance that no stage names may be of any type, and a stage of encoders is read and
 * not served. What one chooses has a meaning in mode kv alone. Pure.
 */
#pragma once

#include "lib/base/json_tree.h"
#include "lib/base/mem.h"
#include "router/sched/route_conf.h"

struct err;

/*
 * Fills @ret[ROUTE_STAGES] from the section, NULL = there is none. @prefill and @decode name
 * instances instead of those of the section, NULL = they do not. -EINVAL with the place and what is
 * wrong there; @ret is unchanged then.
 */
MUST_CHECK int worker_selection_read(struct route_selector *ret, const struct json *section,
                                     const char *prefill, const char *decode, struct err *e);
/* Makes what is selected for the stage that which @c says. */
void worker_selection_apply(struct route_conf *c, enum route_stage stage);
