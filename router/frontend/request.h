/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One completion, from its HTTP request to its last byte.
 *
 *     TOKENIZE ─▶ CHECK ─▶ ROUTE ─▶ SEND ──▶ answer
 *                            ▲        │ worker failed before its first token
 *                            └────────┘
 *
 * A request holds at most one booking and one stream, and gives both back on every way out:
 * finished, stopped here, refused, failed, client gone. Nothing was sent to the client before the
 * worker's first token, so until then another worker can take over.
 */
#pragma once

#include "router/openai/openai.h"
#include "router/frontend/serving.h"

struct http_exchange;

/* Answers @x now or later. */
void request_serve(struct serving *s, struct http_exchange *x, enum api api);
void request_serve_embeddings(struct serving *s, struct http_exchange *x);
/* The same of /v1/responses, whose requests are chats in another form. */
void request_serve_responses(struct serving *s, struct http_exchange *x);
/* And of Anthropic's /v1/messages, and /v1/messages/count_tokens. */
void request_serve_messages(struct serving *s, struct http_exchange *x);
void request_count_messages(struct serving *s, struct http_exchange *x);
/* What plain OpenAI servers alone serve: one of own_apis.h, by its path. */
void request_serve_own(struct serving *s, struct http_exchange *x);
