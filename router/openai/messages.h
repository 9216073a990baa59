/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of Anthropic's /v1/messages as 1.6.1 writes them: the message, and the events of a stream.
 *
 * An answer is a list of blocks: thoughts, text, and a tool_use for each call. In a stream one block
 * is open at a time, and blocks come in the order in which the model wrote them; a body that is not
 * streamed has thoughts, calls and text, each joined, as there. Pure.
 */
#pragma once

#include "router/openai/dialect.h"
#include "router/openai/messages_read.h"

struct messages;

/* @model is borrowed. @estimate: see messages_facts. */
struct messages *messages_new(struct str model, uint64_t estimate);

extern const struct dialect MESSAGES; /* its @self is a struct messages */
