/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans of traces as bytes: the protobuf of OTLP (opentelemetry-proto 1.x: trace.proto, common.proto,
 * resource.proto, trace_service.proto). Written only: what a collector answers is not looked into.
 * Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"

enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2, SPAN_CLIENT = 3 };
enum { SPAN_TEXT_MAX = 1024 /* bytes of a value; what is longer is cut */ };

/* Text, or a flag when @text is NULL. */
struct span_attribute {
    const char *key;
    struct str text;
    bool flag;
};

/* Borrows all. Ids are hexadecimal, as in struct trace_context. */
struct span {
    const char *name;
    enum span_kind kind;
    const char *trace_id, *span_id;
    const char *parent_id; /* "" = it begins the trace */
    bool parent_is_remote;
    struct str state;          /* tracestate */
    uint64_t start_ns, end_ns; /* clock_now_ns() */
    const struct span_attribute *attributes;
    size_t n_attributes;
    const char *error; /* what went wrong, "" = no words for it; NULL = nothing */
};

/* Appends @s as one of the spans of a request; @wall_ns at clock_now_ns() 0. */
void span_put(struct buf *out, const struct span *s, uint64_t wall_ns);
/* A whole ExportTraceServiceRequest around @spans, which span_put() wrote. */
void span_put_request(struct buf *out, struct str service, struct str spans);
