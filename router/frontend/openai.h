/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of /v1/chat/completions and /v1/completions: reading and checking (wire.md §9.3, 9.4).
 *
 * One table names every key that is accepted, by which of the two APIs, and how it is read; a key
 * outside it is refused as the reference does. All memory comes from the arena given; strings view
 * the body or the arena. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/json_tree.h"
#include "lib/base/str.h"
#include "router/frontend/api_error.h"
#include "router/wire/engine_request.h"

enum api { API_CHAT = 1, API_COMPLETIONS = 2 };

struct openai_request {
    enum api api;
    struct str model;
    /* chat: trees, owned by this struct (openai_request_done) */
    struct json *messages, *tools, *template_args;
    /* completions: text or ids */
    bool prompt_is_ids;
    struct str prompt;
    uint32_t *prompt_ids;
    size_t n_prompt_ids;

    bool stream, include_usage, continuous_usage;
    bool echo;
    struct str user;
    struct engine_stop stop;
    struct engine_sampling sampling;
    struct engine_output_options output;
    bool wants_logprobs;
    struct opt_u64 top_logprobs, logprobs, max_tokens, max_completion_tokens;
    bool tool_choice_none;

    /* nvext */
    bool has_nvext, greedy;
    struct str *annotations;
    size_t n_annotations;
    struct opt_u64 backend_instance_id, prefill_worker_id, decode_worker_id, expected_output_tokens;
    struct opt_bool enable_local_updates;
    bool wants_tracking; /* which worker answered, and when: extra_fields or query_instance_id */
};

/* False with @e filled: 400 for what is malformed or out of range, 501 for functions. */
MUST_CHECK bool openai_request_parse(enum api api, struct str body, struct arena *a,
                                     struct openai_request *ret, struct api_error *e);
void openai_request_done(struct openai_request *r); /* the trees */
