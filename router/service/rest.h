/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON over HTTP for services: routes with a name in the path, errors in one form, metrics.
 *
 * A handler reads the call, writes JSON to call->out and returns the status; the answer is sent
 * for it, or later, when it calls rest_defer(). Errors are {"error":"…"}, those of unknown routes and methods too. Metrics, with the
 * service's prefix: <p>_requests_total{endpoint,method}, <p>_errors_total{endpoint,status_class},
 * <p>_request_duration_seconds{endpoint}. One loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/service/body.h"

struct access_log;
struct metric_registry;
struct rest;

struct rest_call {
    struct str name; /* what stands for {} in the path, percent-decoded */
    struct str query, body;
    bool is_json;         /* by its content-type */
    struct str model;     /* that it is about, for the access log; set by the handler */
    struct json_put json; /* the answer, on `out` */
    struct buf out;
    const char *content_type; /* "application/json" unless the handler says otherwise */
    struct arena *arena;      /* until the answer is sent */
};

struct rest_route {
    const char *method;
    const char *path;                                  /* "/workers/{}": {} is one segment */
    int (*handle)(void *service, struct rest_call *c); /* returns the status or REST_LATER */
};

struct rest_conf {
    const char *host;
    uint16_t port;
    const struct rest_route *routes; /* borrowed */
    size_t n_routes;
    void *service;
    struct metric_registry *metrics;
    const char *prefix;           /* of metrics */
    const struct log_target *log; /* where it says that it serves */
    struct access_log *access;    /* borrowed; NULL = none. Known paths but /metrics are written */
    const char *trace_header;     /* whose value is its trace_id */
    struct explain *explain;      /* answers /explain/{id} and /decisions; NULL = nobody does */
};

enum { REST_BODY_BYTES_MAX = 8 << 20 };

MUST_CHECK int rest_start(struct rest **ret, struct loop *l, const struct rest_conf *conf,
                          struct err *e);
struct rest *rest_free(struct rest *r);
DEFINE_CLEANUP(struct rest *, rest_free)
/*
 * Takes nothing new and answers what runs, for 5 s at most; then calls @stopped, once. Without effect
 * while an earlier call is still at it.
 */
void rest_stop(struct rest *r, loop_fn stopped, void *arg);

/* --- for handlers --- */

/* Replaces the answer by {"error":"…"}; returns @status. */
int rest_error(struct rest_call *c, int status, const char *format, ...) PRINTF_LIKE(3, 4);
/* {"status":"ok"}; returns @status. */
int rest_ok(struct rest_call *c, int status);
/* 0, or 415 with the error written: the body does not say that it is JSON. */
int rest_expect_json(struct rest_call *c);
/* Reads the body. 0, or the status of the error that was written. */
int rest_body(struct rest_call *c, const struct body_field *table, size_t n, void *into);
/* Value of a header of the request, STR_NULL when absent; lives as long as the call. */
struct str rest_header(struct rest_call *c, const char *name);

enum { REST_LATER = 0 };
/*
 * Keeps the call beyond its handler, which returns REST_LATER. It ends with rest_answer(), or with @gone when
 * the client leaves or the service ends before; either frees it.
 */
void rest_defer(struct rest_call *c, loop_fn gone, void *arg);
void rest_answer(struct rest_call *c, int status);
/* Value of a query parameter, STR_NULL when absent; lives as long as the call. */
struct str rest_query(struct rest_call *c, const char *key);
/* A key that is a number. */
void rest_put_key_u64(struct json_put *j, uint64_t key);
/* /metrics: prints @metrics. Returns 200. */
int rest_metrics(struct rest_call *c, struct metric_registry *metrics);
