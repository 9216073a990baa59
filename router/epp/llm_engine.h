/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface by which an engine in this process tells routers of its KV blocks (router.md §8.4), in
 * the layout that llm_generation.h names.
 *
 * One publisher per process, with a thread of its own; DYN_* and NATS_* variables say where discovery is
 * and what carries events. Any thread may call, several at a time; what fails is logged.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "router/epp/llm_generation.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t dynamo_llm_result_t;
enum { DYNAMO_LLM_OK = 0, DYNAMO_LLM_ERR = 1 };

/*
 * Returns when discovery knows of a model and what carries events takes them, however long that takes.
 * Component NULL or "" is "backend". A second one while the first is there does nothing; one that
 * differs keeps the first and is OK, or an error since cache namespaces.
 */
#if LLM_CAPI_GENERATION >= LLM_CAPI_NAMESPACES
dynamo_llm_result_t dynamo_llm_init(const char *namespace_c_str, const char *component_c_str,
                                    const char *endpoint_c_str, uint32_t kv_block_size);
#else
dynamo_llm_result_t dynamo_llm_init(const char *namespace_c_str, const char *component_c_str,
                                    uint32_t kv_block_size);
#endif
/* Ends the publisher, and an init that still waits: that one is an error then. An error before the
 * first init. */
dynamo_llm_result_t dynamo_llm_shutdown(void);
/* Nothing to do, for callers that do it. */
dynamo_llm_result_t dynamo_llm_load_publisher_create(void);

/*
 * Blocks @block_ids, in order behind @parent_hash (NULL: at the start of a prompt), each of its
 * @num_block_tokens of @token_ids. The first that is not of the block size, and all behind it, are left
 * out, which is logged three times. Returns when they have left; an error when they could not.
 */
dynamo_llm_result_t dynamo_kv_event_publish_stored(uint64_t event_id, const uint32_t *token_ids,
                                                   const size_t *num_block_tokens,
                                                   const uint64_t *block_ids, size_t num_blocks,
                                                   const uint64_t *parent_hash,
#if LLM_CAPI_GENERATION >= LLM_CAPI_RANKS
                                                   const char *lora_name /* NULL: no adapter */
#else
                                                   uint64_t lora_id /* not heeded, as in 0.9.0 */
#endif
);
dynamo_llm_result_t dynamo_kv_event_publish_removed(uint64_t event_id, const uint64_t *block_ids,
                                                    size_t num_blocks);

#ifdef __cplusplus
}
#endif
