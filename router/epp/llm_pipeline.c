/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/llm_pipeline.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/log.h"
#include "router/epp/annotate.h"
#include "router/epp/calls.h"
#include "router/epp/export.h"

static const struct log_target LG = {"commutator::epp"};

enum { BOOKKEEPING_MS = 30000, FLAGS_MAX = 6, FLAG_BYTES = 96 };

/* The type that callers know by name only. */
struct WorkerSelectionPipeline {
    struct picker *picker;
    bool keeps_account;
};

/* --- life -------------------------------------------------------------------------------------- */

/* A frontend's flags. */
struct flags {
    char text[FLAGS_MAX][FLAG_BYTES];
    const char *list[FLAGS_MAX + 1];
    size_t n;
};

static void flag(struct flags *f, const char *name, const char *value)
{
    (void)snprintf(f->text[f->n], FLAG_BYTES, "--%s=%s", name, value);
    f->list[f->n] = f->text[f->n];
    f->n++;
}

static void flag_number(struct flags *f, const char *name, double value)
{
    char text[32];

    if (!(value >= 0))
        return;
    (void)snprintf(text, sizeof(text), "%.17g", value);
    flag(f, name, text);
}

EXPORT dynamo_llm_result_t dynamo_create_worker_selection_pipeline(
    const char *namespace_c_str, const char *component_c_str, const char *model_name_c_str,
    bool use_kv_routing, double busy_threshold, double overlap_score_weight,
    double router_temperature, bool use_kv_events, bool router_replica_sync, bool enforce_disagg,
    WorkerSelectionPipeline **pipeline_out)
{
    struct flags f = {.n = 0};
    const struct picker_conf conf = {.ns = namespace_c_str,
                                     .component = export_component(component_c_str),
                                     .model = model_name_c_str,
                                     .flags = f.list,
                                     .enforce_disagg = enforce_disagg,
                                     .env = export_env};
    struct picker *p;
    struct err e;

    if (!namespace_c_str || !model_name_c_str || !pipeline_out || !llm_engine_is_up()) {
        log_error(&LG, "no pipeline without a name, a place for it and dynamo_llm_init()");
        return DYNAMO_LLM_ERR;
    }
    flag(&f, "router-mode", use_kv_routing ? "kv" : "round-robin");
    flag_number(&f, "active-decode-blocks-threshold", busy_threshold);
    if (use_kv_routing) {
        flag_number(&f, "kv-overlap-score-weight", overlap_score_weight);
        flag_number(&f, "router-temperature", router_temperature);
        flag(&f, "kv-events", use_kv_events ? "true" : "false");
        flag(&f, "router-replica-sync", router_replica_sync ? "true" : "false");
    }
    if (picker_start(&p, &conf, &e) < 0) {
        log_error(&LG, "no pipeline", LOG_STR("why", e.text));
        return DYNAMO_LLM_ERR;
    }
    *pipeline_out = xcalloc(1, sizeof(**pipeline_out));
    (*pipeline_out)->picker = p;
    (*pipeline_out)->keeps_account = use_kv_routing;
    return DYNAMO_LLM_OK;
}

EXPORT dynamo_llm_result_t
dynamo_destroy_worker_selection_pipeline(WorkerSelectionPipeline *pipeline)
{
    if (!pipeline)
        return DYNAMO_LLM_ERR;
    picker_free(pipeline->picker);
    free(pipeline);
    return DYNAMO_LLM_OK;
}

/* --- routing ----------------------------------------------------------------------------------- */

static int annotated(const struct call_answer *found, const char *request, char **ret)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    const struct annotation a = {.decode_id = found->worker.worker_id,
                                 .prefill_id = found->prefill,
                                 .tokens = found->tokens,
                                 .n_tokens = found->n_tokens};
    struct err e;
    int r = annotate_request(&out, str_from(request), &a, &e);

    if (r < 0)
        log_error(&LG, "a request cannot be annotated", LOG_STR("why", e.text));
    else
        *ret = buf_take_cstr(&out);
    return r;
}

EXPORT dynamo_llm_result_t dynamo_query_worker_selection_and_annotate(
    WorkerSelectionPipeline *pipeline, const char *request_json_c_str,
    int64_t *decode_worker_id_out, int64_t *prefill_worker_id_out, uint32_t **token_ids_out,
    size_t *token_count_out, char **annotated_request_json_out)
{
    struct call_answer found;
    int64_t alone;
    char *text;

    if (!pipeline || !request_json_c_str || !decode_worker_id_out || !prefill_worker_id_out ||
        !token_ids_out || !token_count_out || !annotated_request_json_out)
        return DYNAMO_LLM_ERR;
    if (call_route(pipeline->picker, CALL_PAIR, request_json_c_str, NULL, &found) !=
        QUERY_ROUTER_OK)
        return DYNAMO_LLM_ERR;
    if (annotated(&found, request_json_c_str, &text) < 0) {
        call_answer_done(&found);
        return DYNAMO_LLM_ERR;
    }
    /* By caches one worker is told of as both; by turns nobody was asked who would compute the prompt. */
    alone = pipeline->keeps_account ? (int64_t)found.worker.worker_id : -1;
    *decode_worker_id_out = (int64_t)found.worker.worker_id;
    *prefill_worker_id_out = found.prefill.set ? (int64_t)found.prefill.v : alone;
    *token_count_out = found.n_tokens;
    *token_ids_out = TAKE(found.tokens);
    *annotated_request_json_out = text;
    call_answer_done(&found);
    return DYNAMO_LLM_OK;
}

EXPORT dynamo_llm_result_t dynamo_free_worker_selection_result(uint32_t *token_ids,
                                                               size_t token_count,
                                                               char *annotated_request_json)
{
    (void)token_count;
    free(token_ids);
    free(annotated_request_json);
    return DYNAMO_LLM_OK;
}

/* --- account ----------------------------------------------------------------------------------- */

/* What does not come about is for the log: a caller has nothing to do about it. */
static dynamo_llm_result_t settled(const char *what, query_router_result_t result)
{
    if (result != QUERY_ROUTER_OK)
        log_warn(&LG, "the account is not as it was told", LOG_STR("call", what),
                 LOG_U64("code", result));
    return DYNAMO_LLM_OK;
}

EXPORT dynamo_llm_result_t dynamo_router_add_request(WorkerSelectionPipeline *pipeline,
                                                     const char *request_id_c_str,
                                                     const uint32_t *token_ids, size_t token_count,
                                                     uint64_t worker_id, uint32_t dp_rank)
{
    const struct call_booking b = {
        .tokens = token_ids, .n_tokens = token_count, .worker = {worker_id, dp_rank}};

    if (!pipeline || !request_id_c_str || token_count > UINT32_MAX)
        return DYNAMO_LLM_ERR;
    if (!pipeline->keeps_account)
        return DYNAMO_LLM_OK;
    return settled("add_request",
                   call_book(pipeline->picker, request_id_c_str, &b, BOOKKEEPING_MS));
}

EXPORT dynamo_llm_result_t dynamo_router_mark_prefill_complete(WorkerSelectionPipeline *pipeline,
                                                               const char *request_id_c_str)
{
    if (!pipeline || !request_id_c_str)
        return DYNAMO_LLM_ERR;
    if (!pipeline->keeps_account)
        return DYNAMO_LLM_OK;
    return settled("mark_prefill_complete",
                   call_prefilled(pipeline->picker, request_id_c_str, BOOKKEEPING_MS));
}

EXPORT dynamo_llm_result_t dynamo_router_free_request(WorkerSelectionPipeline *pipeline,
                                                      const char *request_id_c_str)
{
    if (!pipeline || !request_id_c_str)
        return DYNAMO_LLM_ERR;
    if (!pipeline->keeps_account)
        return DYNAMO_LLM_OK;
    return settled("free_request", call_end(pipeline->picker, request_id_c_str, BOOKKEEPING_MS));
}
