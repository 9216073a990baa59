/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PreprocessedRequest: what a frontend asks of an engine (wire.md §5.1, 15.4).
 *
 * The struct borrows everything. A pointer that is NULL is written as null, one that is not with
 * n = 0 as []. Members named *_json are JSON text passed through as it is; empty = absent.
 * The writer emits the keys and the order of the reference, so that equal requests are equal bytes.
 * Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/optional.h"

struct arena;
struct err;

struct engine_stop {
    struct opt_u64 max_tokens, min_tokens, max_thinking_tokens;
    struct opt_bool ignore_eos;
    const struct str *stop; /* NULL = null */
    size_t n_stop;
    const uint32_t *ids; /* stop_token_ids, of 1.x; NULL = absent */
    size_t n_ids;
    const uint32_t *hidden_ids; /* stop_token_ids_hidden; NULL = null */
    size_t n_hidden_ids;
};

struct engine_sampling {
    struct opt_u64 n, best_of;
    struct opt_f64 presence_penalty, frequency_penalty, repetition_penalty, temperature, top_p,
        min_p, length_penalty;
    struct opt_i64 top_k, seed;
    struct opt_bool use_beam_search, include_stop_str_in_output;
    struct str guided_decoding_json;
};

struct engine_output_options {
    struct opt_u64 logprobs, prompt_logprobs;
    struct opt_bool skip_special_tokens, formatted_prompt;
};

struct engine_routing {
    struct opt_u64 backend_instance_id, prefill_worker_id, decode_worker_id, dp_rank,
        expected_output_tokens;
    struct opt_bool enable_local_updates;
    /* of 1.x; empty = absent */
    struct str lora_name, cache_salt, constraints_json;
    struct opt_u64 prefill_dp_rank, strict_priority;
    struct opt_f64 priority_jump; /* seconds ahead of others in a router's queue */
    struct opt_i64 priority;      /* in the engine's queue; higher goes first */
};

/* What the user wants, by which the router of several pools chooses one. */
struct engine_targets {
    struct opt_f64 ttft_ms, itl_ms;
};

struct engine_bootstrap {
    struct str host;
    uint16_t port;
    uint64_t room;
    struct str handoff_id; /* UUID that 1.x wants (wire.md §15.4); empty = absent */
};

struct engine_request {
    struct str model;
    const uint32_t *token_ids;
    size_t n_token_ids;
    struct engine_stop stop;
    struct engine_sampling sampling;
    struct engine_output_options output;
    const uint32_t *eos_token_ids; /* NULL is written as [] */
    size_t n_eos_token_ids;
    struct str mdc_sum;            /* empty = null */
    const struct str *annotations; /* NULL is written as [] */
    size_t n_annotations;
    bool has_routing;
    struct engine_routing routing;
    bool has_override; /* router_config_override; else null */
    struct opt_f64 overlap_score_weight, router_temperature;
    struct opt_f64 overlap_score_credit; /* set: the override is one of 1.x, without the weight */
    struct opt_bool assume_kv_reuse, track_prefill_tokens;
    bool has_targets; /* `router`, of 1.x */
    struct engine_targets targets;
    bool has_bootstrap;
    struct engine_bootstrap bootstrap;
    struct str prompt_embeds; /* base64; empty = absent */
    struct str multi_modal_data_json, prefill_result_json, extra_args_json;
    struct str multi_modal_uuids_json, mm_processor_kwargs_json; /* of 1.x */
    /* The first n_routing_prompt tokens: the prompt as routing sees it, its images in it; none = as it is.
     * Workers of 1.x are told of all n_routing_token_ids, up to a whole block, in mm_routing_info; 0 = not. */
    const uint32_t *routing_token_ids;
    size_t n_routing_prompt, n_routing_token_ids;
};

void engine_request_put(struct buf *out, const struct engine_request *rq);

/*
 * Arrays and decoded strings go to @a; everything else views @json. Unknown keys are ignored; a
 * missing required key or a wrong type is -EINVAL with its name. Keys of later releases than 0.9.0
 * (max_tokens absent, no eos_token_ids) are tolerated where 1.x workers tolerate them.
 */
MUST_CHECK int engine_request_parse(struct arena *a, struct str json, struct engine_request *ret,
                                    struct err *e);
