/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/llm_capi.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "router/epp/calls.h"
#include "router/epp/export.h"

static const struct log_target LG = {"commutator::epp"};

enum { BOOKKEEPING_MS = 5000 };

/* The type that callers know by name only. */
struct RouterHandles {
    struct picker *picker;
};

/* --- life -------------------------------------------------------------------------------------- */

EXPORT query_router_result_t create_routers(const char *namespace_c_str,
                                            const char *component_c_str, bool enforce_disagg,
                                            RouterHandles **out_handle)
{
    static const char *const by_caches[] = {"--router-mode=kv", NULL};
    struct picker_conf conf = {.ns = namespace_c_str,
                               .component = export_component(component_c_str),
                               .flags = by_caches, /* as the reference's picker, always */
                               .enforce_disagg = enforce_disagg,
                               .env = export_env};
    struct picker *p;
    struct err e;

    if (!namespace_c_str || !out_handle)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    if (picker_start(&p, &conf, &e) < 0) {
        log_error(&LG, "no router", LOG_STR("why", e.text));
        return QUERY_ROUTER_ERR_INIT_FAILED;
    }
    *out_handle = xcalloc(1, sizeof(**out_handle));
    (*out_handle)->picker = p;
    return QUERY_ROUTER_OK;
}

EXPORT void destroy(RouterHandles *handle)
{
    if (!handle)
        return;
    picker_free(handle->picker);
    free(handle);
}

/* --- routing ----------------------------------------------------------------------------------- */

static query_router_result_t route(const RouterHandles *handle, enum call_for what,
                                   const char *request_json, const char *pods_json,
                                   CRoutingResult *out)
{
    query_router_result_t result;
    struct call_answer a;

    if (!handle || !request_json || !out)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    result = call_route(handle->picker, what, request_json, pods_json, &a);
    if (result != QUERY_ROUTER_OK)
        return result;
    *out = (CRoutingResult){.is_disaggregated = what != CALL_DECODE,
                            .token_ids = TAKE(a.tokens),
                            .token_count = a.n_tokens};
    if (what == CALL_PREFILL)
        out->prefill_worker_id = a.worker.worker_id;
    else
        out->decode_worker_id = a.worker.worker_id;
#if LLM_CAPI_GENERATION >= LLM_CAPI_RANKS
    if (what == CALL_PREFILL)
        out->prefill_dp_rank = a.worker.dp_rank;
    else
        out->decode_dp_rank = a.worker.dp_rank;
#endif
#if LLM_CAPI_GENERATION >= LLM_CAPI_NAMESPACES
    out->cache_namespace_len = a.salt_len;
    out->cache_namespace = TAKE(a.salt);
#endif
    call_answer_done(&a);
    return result;
}

EXPORT query_router_result_t route_prefill_request(RouterHandles *handle, const char *request_json,
                                                   const char *pods_json,
                                                   CRoutingResult *out_result)
{
    return route(handle, CALL_PREFILL, request_json, pods_json, out_result);
}

EXPORT query_router_result_t route_decode_request(RouterHandles *handle, const char *request_json,
                                                  const char *pods_json, bool is_disaggregated,
                                                  CRoutingResult *out_result)
{
    return route(handle, is_disaggregated ? CALL_DECODE_ONLY : CALL_DECODE, request_json, pods_json,
                 out_result);
}

EXPORT void free_routing_result(CRoutingResult *result)
{
    if (!result)
        return;
    free(result->token_ids);
    result->token_ids = NULL;
    result->token_count = 0;
#if LLM_CAPI_GENERATION >= LLM_CAPI_NAMESPACES
    free(result->cache_namespace);
    result->cache_namespace = NULL;
    result->cache_namespace_len = 0;
#endif
}

/* --- account ----------------------------------------------------------------------------------- */

static query_router_result_t add(const RouterHandles *handle, const char *request_id,
                                 const struct call_booking *b)
{
    if (!handle || !request_id || b->n_tokens > UINT32_MAX)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    return call_book(handle->picker, request_id, b, BOOKKEEPING_MS);
}

EXPORT query_router_result_t add_request(RouterHandles *handle, const char *request_id,
                                         const uint32_t *token_ids, size_t token_count,
                                         uint64_t worker_id, uint32_t dp_rank)
{
    const struct call_booking b = {
        .tokens = token_ids, .n_tokens = token_count, .worker = {worker_id, dp_rank}};

    return add(handle, request_id, &b);
}

#if LLM_CAPI_GENERATION >= LLM_CAPI_NAMESPACES
EXPORT query_router_result_t add_request_with_cache_namespace(
    RouterHandles *handle, const char *request_id, const uint32_t *token_ids, size_t token_count,
    uint64_t worker_id, uint32_t dp_rank, const char *cache_namespace, size_t cache_namespace_len)
{
    const struct call_booking b = {
        .tokens = token_ids,
        .n_tokens = token_count,
        .worker = {worker_id, dp_rank},
        .salt = {cache_namespace, cache_namespace ? cache_namespace_len : 0}};

    if (cache_namespace_len > UINT32_MAX || (b.salt.len && !str_is_utf8(b.salt)))
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    return add(handle, request_id, &b);
}
#endif

EXPORT query_router_result_t mark_prefill_complete(RouterHandles *handle, const char *request_id)
{
    if (!handle || !request_id)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    return call_prefilled(handle->picker, request_id, BOOKKEEPING_MS);
}

EXPORT query_router_result_t free_request(RouterHandles *handle, const char *request_id)
{
    if (!handle || !request_id)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    return call_end(handle->picker, request_id, BOOKKEEPING_MS);
}
