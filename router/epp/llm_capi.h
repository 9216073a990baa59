/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface of Dynamo's router (router.md §8.4), by which endpoint pickers of the Gateway API
 * inference extension choose workers: names, types and codes are those of the reference's
 * libdynamo_llm_capi, in the layout that llm_generation.h names.
 *
 * A router lives in the calling process with a thread of its own and follows discovery and KV
 * events by the same DYN_* variables as a frontend. The route_* calls choose and book nothing;
 * who sends the request then says so by add_request(), and ends it with free_request(). Every call
 * but create_routers() and destroy() may be made by any thread, several at a time; they block for
 * what the work takes. Strings end with NUL; what they and @token_ids point to is borrowed for the call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/epp/llm_generation.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t query_router_result_t;
enum {
    QUERY_ROUTER_OK = 0,
    QUERY_ROUTER_ERR_INVALID_HANDLE = 1, /* not given out by us: NULL is an invalid parameter */
    QUERY_ROUTER_ERR_INVALID_PARAM = 2,  /* a pointer is NULL, or the request is no chat */
    QUERY_ROUTER_ERR_INIT_FAILED = 3,    /* the options are wrong, or no model can tokenize */
    QUERY_ROUTER_ERR_QUERY_FAILED = 4,   /* the prompt cannot be made, or nobody may be chosen */
    QUERY_ROUTER_ERR_DISAGG_ENFORCED = 5,
    QUERY_ROUTER_ERR_TIMEOUT = 6,      /* of add_request() and its kin: 5 s */
    QUERY_ROUTER_ERR_BACKPRESSURE = 7, /* every worker is busy, or a bound is reached */
};

typedef struct RouterHandles RouterHandles;

typedef struct {
    bool is_disaggregated;
    uint64_t prefill_worker_id; /* of route_prefill_request(), else 0 */
    uint64_t decode_worker_id;  /* of route_decode_request(), else 0 */
#if LLM_CAPI_GENERATION >= LLM_CAPI_RANKS
    uint32_t prefill_dp_rank, decode_dp_rank;
#endif
    uint32_t *token_ids; /* the prompt; free_routing_result() frees it */
    size_t token_count;
#if LLM_CAPI_GENERATION >= LLM_CAPI_NAMESPACES
    /* What keeps its blocks apart from others' (the request's cache salt), with a NUL behind it; NULL =
     * nothing does. free_routing_result() frees it. */
    char *cache_namespace;
    size_t cache_namespace_len;
#endif
} CRoutingResult;

/*
 * Returns when a model of that namespace (or of one whose name begins so) is served by that
 * component ("backend" when NULL or empty) and its tokenizer is loaded, however long that takes:
 * a start-up probe limits it. @enforce_disagg waits for a prefill worker as well, and later refuses
 * to decode without one. On failure *out_handle is untouched.
 */
query_router_result_t create_routers(const char *namespace_c_str, const char *component_c_str,
                                     bool enforce_disagg, RouterHandles **out_handle);
/* No call on it may be under way, and none may follow. NULL: nothing. */
void destroy(RouterHandles *handle);

/*
 * @request_json is a chat completion. @pods_json (may be NULL or empty) is an array of objects with
 * "podName", at the top or in "pod": only workers of these pods are candidates; a text that names
 * none restricts nothing. *out_result is written on success only.
 */
query_router_result_t route_prefill_request(RouterHandles *handle, const char *request_json,
                                            const char *pods_json, CRoutingResult *out_result);
/* @is_disaggregated: the prompt will have been computed elsewhere, so caches do not matter. */
query_router_result_t route_decode_request(RouterHandles *handle, const char *request_json,
                                           const char *pods_json, bool is_disaggregated,
                                           CRoutingResult *out_result);
void free_routing_result(CRoutingResult *result); /* NULL: nothing; twice: harmless */

/* Books the request on the worker it goes to. An id in use or an unknown worker is logged, and OK. */
query_router_result_t add_request(RouterHandles *handle, const char *request_id,
                                  const uint32_t *token_ids, size_t token_count, uint64_t worker_id,
                                  uint32_t dp_rank);
#if LLM_CAPI_GENERATION >= LLM_CAPI_NAMESPACES
/* The same for a prompt whose blocks are kept apart. @cache_namespace: UTF-8; NULL or length 0 = they are
 * not. */
query_router_result_t add_request_with_cache_namespace(
    RouterHandles *handle, const char *request_id, const uint32_t *token_ids, size_t token_count,
    uint64_t worker_id, uint32_t dp_rank, const char *cache_namespace, size_t cache_namespace_len);
#endif
/* At the first token. Unknown ids are logged, and OK. */
query_router_result_t mark_prefill_complete(RouterHandles *handle, const char *request_id);
/* At the end of the answer. Likewise. */
query_router_result_t free_request(RouterHandles *handle, const char *request_id);

#ifdef __cplusplus
}
#endif
