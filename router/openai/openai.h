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
#include "router/openai/api_error.h"
#include "router/openai/call_tags.h"
#include "router/openai/guided.h"
#include "router/sched/route_conf.h"
#include "router/wire/engine_request.h"

enum api { API_CHAT = 1, API_COMPLETIONS = 2, API_EMBEDDINGS = 4 }; /* the last: embeddings.h */

/* Text or ids. */
struct openai_prompt {
    bool is_ids;
    struct str text;
    uint32_t *ids;
    size_t n_ids;
};

enum { OPENAI_CHOICES_MAX = 128 }; /* prompts times n (wire.md §9.4) */

struct openai_request {
    enum api api;
    struct str model;
    struct str made_chat; /* JSON: what a request of another API was made; empty = it is a chat */
    uint64_t estimate;    /* tokens of the prompt before it is cut, of /v1/messages; else 0 */
    /* chat: trees, owned by this struct (openai_request_done) */
    struct json *messages, *tools, *template_args;
    /* completions */
    struct openai_prompt *prompts;
    size_t n_prompts;            /* at least 1 */
    struct openai_prompt prompt; /* the first of them */

    /* embeddings, whose inputs are prompts; format "" = not said */
    struct {
        struct str format;
        struct opt_u64 dimensions;
        /* of 1.x: tokens of each text, -1 = as many as the model takes; special tokens around it */
        struct opt_i64 truncate;
        struct opt_bool special;
        const char *wrong; /* the key of these two that is of another type; NULL = none */
    } embedding;

    /* chat */
    struct opt_bool generation_prompt, continue_message;

    bool stream, include_usage, continuous_usage, has_stream_options;
    bool echo;
    struct str user;
    struct engine_stop stop;
    struct engine_sampling sampling;
    struct engine_output_options output;
    bool wants_logprobs;
    struct opt_u64 top_logprobs, logprobs, max_tokens, max_completion_tokens;
    enum tool_choice tool_choice;
    struct str named_tool; /* of TOOL_NAMED */
    bool one_call;         /* parallel_tool_calls: false */
    bool tagged; /* calls are guided by tags, and written as its model's parser reads them */
    struct guided guided;
    /* of 1.x; empty = absent */
    struct str cache_salt, extra_args_json, mm_processor_kwargs_json;
    struct str allowed_token_ids_json;
    struct opt_bool thinking;
    bool thinks_adaptively;
    bool thinks_by_default; /* its template's arguments ask for thoughts, and the client did not */
    struct str reasoning_effort;

    /* nvext */
    bool has_nvext, greedy;
    struct str *annotations;
    size_t n_annotations;
    struct opt_u64 backend_instance_id, prefill_worker_id, decode_worker_id, expected_output_tokens;
    struct opt_bool enable_local_updates;
    /* nvext.agent_hints, for the router queue; priority is what latency_sensitivity was called */
    struct opt_i64 priority;
    struct opt_f64 latency_sensitivity;
    struct opt_u64 strict_priority;
    struct opt_u64 prefill_dp_rank;
    bool has_targets;
    struct opt_f64 ttft_target_ms, itl_target_ms;   /* nvext.router */
    struct str constraints_json, extra_fields_json; /* of nvext, as they came; empty = absent */
    struct str *required_taints;                    /* routing_constraints */
    struct route_taint *preferred_taints;
    size_t n_required_taints, n_preferred_taints;
    uint32_t *token_data; /* the prompt's ids */
    size_t n_token_data;
    bool tell_id, tell_prompt, tell_tokens; /* annotations that are events of a stream */
    bool query_only;                        /* query_instance_id:…: who would be chosen? */
    bool wants_worker, wants_timing;        /* in nvext: extra_fields or query_instance_id */
    /* In nvext, of workers of 1.x: tokens of the answer, which then is one choice, and of the prompt. */
    bool wants_ids, wants_prompt_ids;
};

/* False with @e filled: 400 for what is malformed or out of range, 501 for functions. */
MUST_CHECK bool openai_request_parse(enum api api, struct str body, struct arena *a,
                                     struct openai_request *ret, struct api_error *e);
/* The same, but keys that it does not know are passed over. */
MUST_CHECK bool openai_request_parse_loosely(enum api api, struct str body, struct arena *a,
                                             struct openai_request *ret, struct api_error *e);
/* Templates and parsers know by several names whether thoughts are asked for; 1.x gives each of them what one
 * says: `thinking`, `enable_thinking`, `thinking_mode`, `reasoning_effort`, the first that is clear. @args: an
 * object, or NULL. */
void openai_settle_thinking(struct json *args);
/* Of a chat whose template's arguments say nothing of it, under none of these names: what the model's
 * deployment says. */
void openai_default_thinking(struct openai_request *r, bool on);
/* Of a chat that thinks_by_default and whose model is read without a parser of thoughts. */
void openai_drop_default_thinking(struct openai_request *r);
/* Of a chat: members of messages, calls and tools that are not of their type in the eyes of 1.6.1 or,
 * unless @of_1, of 0.9.0, which knows fewer of them. False with @e filled. */
MUST_CHECK bool openai_check_strictly(const struct openai_request *r, bool of_1,
                                      struct api_error *e);
/* Of a chat: tags for its calls, where the model's card asks for them and nothing of the client's goes before
 * them; @a holds them. */
void openai_settle_tags(struct openai_request *r, const struct call_tags *c, struct arena *a);
/* A salt that goes before the body's; @a holds what follows from it. */
void openai_request_set_salt(struct openai_request *r, struct str salt, struct arena *a);
/* Whether a body is read at all: application/json, or another type that is written in it. */
bool openai_content_is_json(struct str content_type);
void openai_request_done(struct openai_request *r); /* the trees */
/* Choices of its answer. */
size_t openai_request_choices(const struct openai_request *r);
