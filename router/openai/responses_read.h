/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of /v1/responses, as 1.6.1 takes them: each is made a chat, which is what workers know.
 *
 * Taken: `input` as a text or as items (messages, thoughts, calls of functions and what came of them;
 * references are passed over), `instructions`, tools that are functions, `text.format`,
 * `reasoning.effort`, the numbers of sampling and `nvext`. What needs a store of earlier answers is a
 * 501; keys that are not known are ignored. Bounded as chats are. Pure.
 */
#pragma once

#include "router/openai/openai.h"

/* What an answer repeats of its request: JSON in the arena of the request. */
struct responses_echo {
    struct str instructions, max_output_tokens, metadata, parallel_tool_calls, prompt_cache_key,
        reasoning, safety_identifier, service_tier, store, temperature, text, tool_choice, tools,
        top_p, truncation;
};

/* As openai_request_parse(); what is wrong with the chat is told of it. */
MUST_CHECK bool responses_request_parse(struct str body, struct arena *a,
                                        struct openai_request *ret, struct responses_echo *ret_echo,
                                        struct api_error *e);
