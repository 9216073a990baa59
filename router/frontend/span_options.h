/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where spans go: OpenTelemetry's environment variables, as 1.6.1 reads them. (0.9.0 reads fewer:
 * OTEL_EXPORT_ENABLED, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_SERVICE_NAME and the samplers.)
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "router/wire/trace_context.h"

struct span_options {
    char *endpoint, *traces_endpoint; /* NULL = not said; the latter is whole */
    char *protocol, *headers, *service;
    char *sampler, *sampler_argument, *sample_ratio;
    uint64_t timeout_ms, delay_ms, queue_max, batch_max;
};

/* Free with span_options_done() in every case. */
MUST_CHECK int span_options_load(struct span_options *ret, const char *(*env)(const char *name),
                                 struct err *e);
void span_options_done(struct span_options *o);
DEFINE_CLEANUP_EMBEDDED(struct span_options, span_options_done)
/* Any protocol but http/protobuf means gRPC. */
bool span_options_grpc(const struct span_options *o);
/* Where to, appended to @out. */
void span_options_put_url(const struct span_options *o, struct buf *out);
/* False when what was said of it means nothing; then the default. */
bool span_options_sampler(const struct span_options *o, struct trace_sampler *ret);
