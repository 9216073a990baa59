/* SPDX-License-Identifier: Apache-2.0 */
/* A policy file is refused, or leaves a configuration that can be freed and a policy for each stage. */
#include "router/frontend/policy_file.h"

#include <stdlib.h>

#include "lib/base/err.h"
#include "router/frontend/frontend_conf.h"
#include "router/sched/policy.h"
#include "router/sched/queue_profile.h"
#include "router/sched/worker_selection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(queue_profiles_done) struct queue_profiles classes = {0};
    struct frontend_conf c = {.route.mode = ROUTE_KV};
    struct str text = str_slice(data, size);
    struct err e;

    if (queue_profiles_parse(&classes, text, ROUTE_QUEUE_FCFS, &e) == 0)
        (void)queue_profile_of(&classes, "model");
    if (policy_file_apply_text(&c, text, &e) == 0)
        for (int stage = 0; stage < ROUTE_STAGES; stage++) {
            struct route_conf route = c.route;

            worker_selection_apply(&route, (enum route_stage)stage);
            if (!policy_of(&route))
                abort();
        }
    conf_done(&FRONTEND_CONF_SPEC, &c);
    return 0;
}
