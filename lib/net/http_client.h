/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP client on a loop (libcurl multi inside): TLS, HTTP/2, kept connections, streaming bodies.
 *
 * Calls never block. Callbacks come on the loop's thread. A call is freed by the client after
 * `done`; http_call_cancel() ends it earlier without further callbacks and may be made in one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

struct http_client;
struct http_call;

struct http_client_conf {
    const char *ca_file;          /* PEM, NULL = system */
    struct str ca_pem;            /* instead of a file */
    struct str cert_pem, key_pem; /* client certificate, or empty */
    bool insecure;                /* no verification; only when the user asked for it */
    long connections_max;         /* per host; 0 = 64 */
};

struct http_call_spec {
    const char *method;
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated; may be NULL */
    struct str body;            /* copied */
    uint64_t connect_ms;        /* 0 = 5 s */
    uint64_t total_ms;          /* 0 = none (watches) */
    uint64_t idle_ms;           /* no byte for so long ends the call; 0 = none */
    bool http2;                 /* of http: too, which is not asked whether it speaks it (gRPC) */
    /* Each header of the answer, and behind its body each trailer; borrowed; may be NULL. */
    void (*field)(void *arg, struct str name, struct str value);
    void (*head)(void *arg, int status);       /* may be NULL */
    void (*data)(void *arg, struct str bytes); /* borrowed; may be NULL */
    /* error 0: complete, status says which; else -errno with words (timeout is -ETIMEDOUT). */
    void (*done)(void *arg, int status, int error, const char *why);
    void *arg;
};

MUST_CHECK int http_client_new(struct http_client **ret, struct loop *l,
                               const struct http_client_conf *conf, struct err *e);
struct http_client *http_client_free(struct http_client *c); /* cancels what runs */
DEFINE_CLEANUP(struct http_client *, http_client_free)
struct http_call *http_client_start(struct http_client *c, const struct http_call_spec *spec)
    __attribute__((returns_nonnull));
struct http_call *http_call_cancel(struct http_call *call);
/* Back-pressure: a paused call's socket is not read. Allowed in its callbacks, once its head has come. */
void http_call_pause(struct http_call *call);
/* What libcurl had read is delivered from within the call, which may end it. */
void http_call_resume(struct http_call *call);

/*
 * The blocking form, for reconcile threads and start-up: one client per thread, connections kept.
 * Never on a loop thread.
 */
struct http_sync;

/* One of several calls that are made together. */
struct http_sync_job {
    struct http_call_spec spec; /* its callbacks are ignored, its body is borrowed */
    size_t max_body;            /* a longer answer is -EMSGSIZE */
    struct buf *body;           /* the answer's is appended; unchanged on failure */
    int status;                 /* out, when r == 0 */
    int r;                      /* out: 0, or -errno with err filled */
    struct err err;
    void (*done)(void *arg, struct http_sync_job *job); /* as soon as it is; may be NULL */
    void *arg;
};

MUST_CHECK int http_sync_new(struct http_sync **ret, const struct http_client_conf *conf,
                             struct err *e);
struct http_sync *http_sync_free(struct http_sync *c);
DEFINE_CLEANUP(struct http_sync *, http_sync_free)
/*
 * Returns when all are answered or have failed. Over HTTP/2 they share a connection. At most
 * HTTP_SYNC_JOBS_MAX are under way at a time, in the order given.
 */
enum { HTTP_SYNC_JOBS_MAX = 16 };
void http_sync_run(struct http_sync *c, struct http_sync_job *jobs, size_t n);
/* One call. */
MUST_CHECK int http_sync_call(struct http_sync *c, const struct http_call_spec *spec,
                              size_t max_body, int *ret_status, struct buf *ret_body,
                              struct err *e);
