/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans on their way to a collector: OTLP over gRPC or HTTP (both carry the messages of span.h), as
 * the OpenTelemetry SDK does it that the reference is built with.
 *
 *     span_export_put() ─▶ batches, oldest first ─▶ one call at a time ─▶ collector
 *
 * A span becomes bytes at once and waits in memory, never more than queue_max of them or
 * SPAN_BYTES_MAX bytes: then it is dropped, and counted. A batch leaves when it is full, else delay_ms
 * after its first span; one that the collector cannot take now is offered SPAN_ATTEMPTS times. Nothing
 * here waits: libcurl sends from the loop. gRPC is one HTTP/2 call with a length before its message
 * and its outcome in a trailer, which libcurl can do; a gRPC library would add nothing but itself.
 *
 *     commutator_spans_total{outcome}   sent, dropped (no room), failed (the collector did not take them)
 *
 * One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "router/wire/span.h"

enum { SPAN_BYTES_MAX = 8 << 20, SPAN_ATTEMPTS = 3, SPAN_FLUSH_MS = 5000 };

/* Borrowed during the call. */
struct span_export_conf {
    struct loop *loop;
    struct metric_registry *metrics;
    const char *url; /* whole; of gRPC the path of its method is put behind scheme and host */
    bool grpc;
    const char *headers; /* "name=value,…", values percent-encoded; NULL = none */
    const char *service;
    size_t queue_max, batch_max; /* spans */
    uint64_t delay_ms, timeout_ms;
};

struct span_export;

MUST_CHECK int span_export_new(struct span_export **ret, const struct span_export_conf *conf,
                               struct err *e);
struct span_export *span_export_free(struct span_export *x); /* what waits is lost */
DEFINE_CLEANUP(struct span_export *, span_export_free)
void span_export_put(struct span_export *x, const struct span *s);
/*
 * Sends what waits now, each batch once, and calls @done when none is left or SPAN_FLUSH_MS are over;
 * from the loop, or at once when there is nothing to send. Once. NULL has nothing to send.
 */
void span_export_flush(struct span_export *x, loop_fn done, void *arg);
