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
    const struct dialect *dialect;     /* NULL = a chat or its kin */
    void *told;                        /* the answer in it; taken */
    const struct own_api *own;         /* see struct request */
    const struct trace_context *trace; /* of the batch */
    uint64_t start_ns;
    uint32_t choice;
    const char *id; /* NULL = by the client, or a new one */
};
/* The trace of @x, in which texts live as long as @arena. */
void request_take_trace(const struct serving *s, struct http_exchange *x, struct arena *arena,
                        struct trace_context *ret);
/* What is known of it at its beginning; likewise. */
struct http_span request_http_span(const struct request_parts *parts);
struct request *request_new(const struct request_parts *parts);
/* Takes the first step. */
void request_start(struct request *rq);
/* request_serve.c: an error instead of an answer, in the words of the API; NULL = OpenAI's. */
void request_refuse(struct http_exchange *x, const struct dialect *d, const struct api_error *e);
/* request_error.c: the answer of a request that fails, or its stream's last event. */
void request_put_failure(struct request *rq, const struct api_error *e);
/* A client that gave no id of its own learns ours. */
void request_tell_id(struct http_exchange *x, const char *id);
/* request_batch.c: several choices, each a request of its own, in one answer. */
size_t request_batch_size(const struct model *m, const struct openai_request *in);
void request_batch_serve(const struct request_parts *parts);
void request_batch_write(struct request *rq);
/* @rq has made its choice; it is freed. */
void request_batch_complete(struct request *rq);
/* One choice failed, and so the answer; @rq is still there. */
void request_batch_fail(struct request *rq, const struct api_error *e);
void request_batch_forget(struct request *rq); /* it is being freed */
struct str request_batch_id(const struct request_batch *b);
