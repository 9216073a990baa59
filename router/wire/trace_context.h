/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request says of the trace that it belongs to, and what workers are told of it in the headers
 * of the request plane (wire.md §4.4, W3C Trace Context).
 *
 * Recording (DYN_LOGGING_JSONL or OTEL_EXPORT_ENABLED): the request is a span of ours, in the
 * client's trace or in a new one, which lines of the log and workers name. Otherwise what the client
 * sent is handed on as it came, as nobody would know a span of ours. The rules for what cannot be
 * read are those of 1.6.1, which are W3C's; 0.9.0 took more.
 *
 * Which spans are exported is decided once per trace (OpenTelemetry's samplers): for a new one by
 * its id, else by the client's word, unless the sampler asks for nobody's.
 *
 * Pure but for the random numbers of new ids. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/buf.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "router/wire/plane_client.h"

enum {
    TRACE_ID_SIZE = 33,
    SPAN_ID_SIZE = 17,
    TRACE_PARENT_SIZE = 56,
    TRACE_VALUE_MAX =
        1024, /* bytes of a tracestate or an id of the client; longer ones are left out */
    TRACE_HEADERS_MAX = 4,
};

/* OTEL_TRACES_SAMPLER. */
struct trace_sampler {
    bool by_parent; /* who has one does as it does */
    double ratio;   /* of the others, 0 to 1 */
};
#define TRACE_SAMPLER_DEFAULT ((struct trace_sampler){true, 1})
/*
 * From its name and argument as OpenTelemetry's SDKs have them, or @ratio alone, which wins (1.6.1's
 * OTEL_TRACES_SAMPLE_RATIO); each may be NULL. False, and the default, when they mean nothing.
 */
bool trace_sampler_parse(struct trace_sampler *ret, const char *name, const char *argument,
                         const char *ratio);

/* Texts are borrowed from who filled it; empty = none. */
struct trace_context {
    char trace_id[TRACE_ID_SIZE];
    char parent_id[SPAN_ID_SIZE];   /* the client's span */
    char span_id[SPAN_ID_SIZE];     /* ours, when recording */
    char parent[TRACE_PARENT_SIZE]; /* what workers get as traceparent */
    struct str state;
    struct str client_id, dynamo_id; /* x-request-id, x-dynamo-request-id */
    bool sampled;                    /* recorded, and to be exported */
};

struct trace_headers {
    struct str parent, state, client_id, dynamo_id; /* as they came */
};
/* Those among the headers of a frame (tcp_frame.h), a JSON object; all empty when it is none. They lie in
 * @json, or decoded in @scratch, which is cleared first. */
void trace_headers_parse(struct trace_headers *ret, struct str json, struct buf *scratch);

/* @sampler NULL = nothing is recorded. */
void trace_context_init(struct trace_context *t, const struct trace_headers *in,
                        const struct trace_sampler *sampler);
/* A span within that of @t, which is recorded. */
struct trace_context trace_context_child(const struct trace_context *t);
/* For workers; returns how many. They borrow from @t. */
size_t trace_context_headers(const struct trace_context *t,
                             struct plane_header ret[TRACE_HEADERS_MAX]);

/* The fields of a line about a request; those of @t only when it is recorded. */
#define LOG_REQUEST(id, t)                                                                         \
    LOG_STR("request_id", (id)), trace_field((t), "trace_id", (t)->trace_id),                      \
        trace_field((t), "span_id", (t)->span_id), trace_field((t), "parent_id", (t)->parent_id),  \
        trace_field_view((t), "x_request_id", (t)->client_id)

static inline struct log_field trace_field_view(const struct trace_context *t, const char *key,
                                                struct str value)
{
    return t->span_id[0] && value.len ? LOG_VIEW(key, value) : LOG_NONE;
}

static inline struct log_field trace_field(const struct trace_context *t, const char *key,
                                           const char *value)
{
    return trace_field_view(t, key, str_from(value));
}
