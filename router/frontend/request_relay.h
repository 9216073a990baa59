/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on plain OpenAI servers, for the files of a request only.
 */
#pragma once

#include "router/frontend/request_state.h"

/* request_relay.c: what request_output.c does, for a worker that is a plain OpenAI server. */
void request_relay(struct request *rq, const struct pool_worker *w);
struct relay *relay_cancel(struct relay *r); /* NULL in, NULL out */
void relay_resume(struct relay *r);
/* In a stream of the engine's own words: the event that tells @e, unless it has told its own. */
void request_relay_put_error(struct request *rq, const struct api_error *e);
/* The header that lets the request in at the engine, or NULL: our key for it, else the client's. */
const char *request_authorization(struct request *rq, const struct pool_worker *w);
struct relay_answer;
/* Measures and books by what a server or worker says that writes the OpenAI API itself: a chunk with
 * text counts as one token until it says how many there were. */
void request_note_answer(struct request *rq, const struct relay_answer *a);
/* request_tokenize.c: the prompt of a model whose tokenizer is not here. */
enum step_result request_tokenize_there(struct request *rq);
/* What a plain OpenAI server puts before the tokens of a prompt of completions (BOS). */
void request_put_head(struct request *rq);
/* Without ids the request is booked by the length of its text. */
void request_guess_length(struct request *rq);
