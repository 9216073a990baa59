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
/* The same of /v1/responses, whose requests are chats in another form. */
void request_serve_responses(struct serving *s, struct http_exchange *x);
