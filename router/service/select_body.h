/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a gateway says of a request when it asks for a worker (router.md §8.3): the body of /select and its like, with the
 * members of 1.6.1's. For select_*.c. All lives in the call's arena.
 */
#pragma once

#include "router/service/rest.h"

struct select_body {
    struct str selection_id, model_name, routing_group, lora_name, cache_salt, session_id;
    struct u32_list token_ids;
    struct media_list block_mm_infos;
    struct opt_bool is_eagle;
    struct u64_list block_hashes, sequence_hashes, allowed_worker_ids;
    struct opt_u64 isl_tokens, worker_id, dp_rank, effective_prefill_tokens, strict_priority,
        expected_output_tokens; /* which change nothing: /output_block says how long it will be */
    struct opt_f64 priority_jump;
    /* JSON */
    struct str pinned_worker, affinity_target, router_config_override, routing_constraints,
        mm_routing_info;
};

struct select_target {
    struct opt_u64 worker_id, dp_rank;
};
struct select_override {
    struct opt_f64 weight, temperature, credit, load_scale;
    struct opt_bool assume_kv_reuse, track_prefill_tokens;
};
struct select_constraints {
    struct str_list required;
    struct number_list preferred;
};
/* Members of the body that are objects themselves. */
struct select_details {
    struct select_target pin, affinity;
    struct select_override over;
    struct select_constraints constraints;
};

/* 0 or the status of the error that was written. */
int select_body_read(struct rest_call *c, struct select_body *ret);
/* What of it is routed by: what mm_routing_info says goes before its own tokens. ret->ptr NULL = none is there. */
int select_tokens_read(struct rest_call *c, const struct select_body *b, struct u32_list *ret,
                       struct media_list *ret_media);
int select_details_read(struct rest_call *c, const struct select_body *b,
                        struct select_details *ret);
