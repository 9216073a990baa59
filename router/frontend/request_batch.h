/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How requests come to be (request_serve.c): alone, or as choices of one answer (request_batch.c).
 * For the files of requests only.
 */
#pragma once

#include "router/frontend/request_state.h"

/* What a request is made of. */
struct request_parts {
    struct serving *s;
    struct http_exchange *x;
    struct model *m;
    struct arena *arena;      /* taken */
    struct openai_request in; /* taken */
    struct request_batch *batch;
    const struct responses_echo *echo; /* of /v1/responses; NULL = not */
    uint32_t choice;
    const char *id; /* NULL = by the client, or a new one */
};
struct request *request_new(const struct request_parts *parts);
/* Takes the first step. */
void request_start(struct request *rq);
/* request_batch.c: several choices, each a request of its own, in one answer. */
void request_batch_serve(const struct request_parts *parts);
void request_batch_write(struct request *rq);
/* @rq has made its choice; it is freed. */
void request_batch_complete(struct request *rq);
/* One choice failed, and so the answer; @rq is still there. */
void request_batch_fail(struct request *rq, const struct api_error *e);
void request_batch_forget(struct request *rq); /* it is being freed */
struct str request_batch_id(const struct request_batch *b);
