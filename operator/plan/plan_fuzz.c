/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any JSON as a graph: checks, plans and status neither crash nor leak. The schema refuses most of
 * it before an operator sees it, but an operator that crashes on one graph serves none.
 */
#include "operator/api/check.h"
#include "operator/api/graph.h"
#include "operator/plan/plan.h"
#include "operator/plan/status.h"

static void plan_component(const struct plan_config *config, const struct plan_inputs *inputs,
                           const struct json *dcd)
{
    AUTO(object_set_free) struct object_set *children = component_plan(config, inputs, dcd);
    AUTO(problems_done) struct problems problems = PROBLEMS_NULL;
    const struct component_view view = {.deployment = dcd, .want_replicas = 1, .now = "t"};
    AUTO(json_free) struct json *status = component_status(dcd, &view);

    check_component(dcd, &problems);
    (void)children;
    (void)status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct plan_config config = {.frontend_image = "i", .planner_cluster_role = "r"};
    static const struct plan_inputs inputs;
    AUTO(json_free) struct json *dgd = NULL;
    AUTO(object_set_free) struct object_set *set = NULL;
    AUTO(problems_done) struct problems problems = PROBLEMS_NULL;
    AUTO(json_free) struct json *status = NULL;
    AUTO(mem_free) char *text = NULL;

    if (json_parse(&dgd, str_slice(data, size), NULL) < 0)
        return 0;
    check_graph(dgd, &problems);
    text = problems_text(&problems);
    set = graph_plan(&config, &inputs, dgd);
    for (size_t i = 0; i < set->n; i++) {
        if (set->at[i].kind == &KIND_DCD)
            plan_component(&config, &inputs, set->at[i].object);
    }
    plan_component(&config, &inputs, dgd);
    status = graph_status(dgd, &(struct graph_view){.want = set, .now = "t"});
    return 0;
}
