/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of Anthropic's /v1/messages, as 1.6.1 takes them: each is made a chat.
 *
 * Taken: `messages` of text, images, thoughts, calls of tools and their results, `system`, `tools` of the client, `tool_choice`, `thinking`, `output_config.format`, `max_tokens`, `stop_sequences`, the
 * numbers of sampling, `stream`, `nvext`. Other keys are passed over. Bounded as chats are. Pure.
 */
#pragma once

#include "router/openai/openai.h"

struct messages_facts {
    /* In: a first line of the system's text that bills Claude Code, and so differs from request to
     * request, is left out. */
    bool strips_preamble;
    uint64_t
        estimate; /* out: what 1.6.1 calls tokens of a prompt that is not cut yet: bytes by 3 */
};

/* As openai_request_parse(). */
MUST_CHECK bool messages_request_parse(struct str body, struct arena *a, struct openai_request *ret,
                                       struct messages_facts *facts, struct api_error *e);
/* Of /v1/messages/count_tokens: the estimate alone. */
MUST_CHECK bool messages_count(struct str body, struct messages_facts *facts, struct api_error *e);
void messages_put_count(struct buf *out, const struct messages_facts *facts); /* its answer */
