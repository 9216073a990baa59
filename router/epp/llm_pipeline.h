/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface of 0.9.0 to its router (router.md §8.4): one call asks for both workers of a request.
 *
 * Threads, strings and what a pipeline is are as llm_capi.h says of routers. dynamo_llm_init() of
 * llm_engine.h comes first. What fails answers DYNAMO_LLM_ERR, tells the log why and writes nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/epp/llm_engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct WorkerSelectionPipeline WorkerSelectionPipeline;

/*
 * Returns when that model is served there, however long that takes. Numbers below 0 leave the choice to
 * the variables of a frontend, and so to their defaults. Without @use_kv_routing workers take turns, and
 * the account below is kept for nobody. @enforce_disagg: no decode worker without one for the prompt.
 */
dynamo_llm_result_t dynamo_create_worker_selection_pipeline(
    const char *namespace_c_str, const char *component_c_str, const char *model_name_c_str,
    bool use_kv_routing, double busy_threshold, double overlap_score_weight,
    double router_temperature, bool use_kv_events, bool router_replica_sync, bool enforce_disagg,
    WorkerSelectionPipeline **pipeline_out);
/* No call on it may be under way. NULL is an error. */
dynamo_llm_result_t dynamo_destroy_worker_selection_pipeline(WorkerSelectionPipeline *pipeline);

/*
 * *@prefill_worker_id_out is that of the decode worker where workers answer alone, and -1 with turns.
 * @token_ids_out may get NULL. @annotated_request_json_out is the request, whose nvext names the workers,
 * has the prompt as token_data and leaves the account to the caller: a frontend sends it there.
 */
dynamo_llm_result_t dynamo_query_worker_selection_and_annotate(
    WorkerSelectionPipeline *pipeline, const char *request_json_c_str,
    int64_t *decode_worker_id_out, int64_t *prefill_worker_id_out, uint32_t **token_ids_out,
    size_t *token_count_out, char **annotated_request_json_out);
/* Any of them may be NULL. */
dynamo_llm_result_t dynamo_free_worker_selection_result(uint32_t *token_ids, size_t token_count,
                                                        char *annotated_request_json);

/* An unknown worker, an id that is in use or not known, and a call that takes more than 30 s (then it is
 * done later) are logged, and OK. */
dynamo_llm_result_t dynamo_router_add_request(WorkerSelectionPipeline *pipeline,
                                              const char *request_id_c_str,
                                              const uint32_t *token_ids, size_t token_count,
                                              uint64_t worker_id, uint32_t dp_rank);
dynamo_llm_result_t dynamo_router_mark_prefill_complete(WorkerSelectionPipeline *pipeline,
                                                        const char *request_id_c_str);
dynamo_llm_result_t dynamo_router_free_request(WorkerSelectionPipeline *pipeline,
                                               const char *request_id_c_str);

#ifdef __cplusplus
}
#endif
