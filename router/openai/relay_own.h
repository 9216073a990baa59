/* SPDX-License-Identifier: Apache-2.0 */
/*
 * APIs that an engine serves in its own words, beside chats and completions: /v1/responses,
 * /v1/messages and whatever else it has. What the router needs of their requests, events and answers
 * is read; nothing but the model's name is changed. Pure.
 */
#pragma once

#include "router/openai/openai.h"
#include "router/openai/relay.h"

/*
 * The model, whether a stream is wanted, the user and the salt: of bodies that are not read further,
 * or not understood. Errors as by openai_request_parse(), of what no engine would take.
 */
MUST_CHECK bool relay_own_parse(struct str body, struct arena *a, struct openai_request *ret,
                                struct api_error *e);

/*
 * An event's data or a whole answer of /v1/responses or /v1/messages; of others nothing is found
 * but errors. Text is what a delta has; the end is told by the event that closes a stream, or by a
 * whole answer. Cached tokens that are told beside the prompt's are added to those. @scratch and
 * errors as by relay_answer_read().
 */
MUST_CHECK int relay_own_read(struct str json, struct buf *scratch, struct relay_answer *ret,
                              struct err *e);
/* It with @model for the engine's name, also where the answer stands within an event; empty = as it
 * came. */
void relay_own_put(struct buf *out, struct str json, struct str model);
