/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One streamed request and how it went, as its client saw it.
 *
 * Every call ends: by the server, by an error or by a deadline. One loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bench/load/chat_stream.h"
#include "bench/load/latency.h"
#include "lib/net/http_client.h"

enum load_outcome {
    LOAD_OK,
    LOAD_CONNECT, /* no connection, or it broke before the answer began */
    LOAD_TIMEOUT,
    LOAD_CLIENT,      /* status 4xx */
    LOAD_SERVER,      /* status 5xx, or another that is no success */
    LOAD_BROKEN,      /* the stream ended before [DONE] */
    LOAD_ERROR_EVENT, /* an error in the stream */
    LOAD_MALFORMED,   /* the stream is no stream of chunks */
    LOAD_OUTCOMES,
};
const char *load_outcome_name(enum load_outcome o); /* "ok", "connect", "http_4xx" … */

struct load_result {
    enum load_outcome outcome;
    int status;                          /* of HTTP; 0 = none */
    uint64_t start_ns, first_ns, end_ns; /* clock_now_ns(); first_ns 0 = no text came */
    struct chat_usage usage;
    uint64_t n_chunks; /* with text */
    uint64_t worker;   /* 0 = unknown */
};

struct load_call;

struct load_call_spec {
    struct http_client *http;
    const char *url;
    struct str body;     /* copied */
    uint64_t timeout_ms; /* of the whole call */
    bool keep_text;
    struct latency *gaps; /* each time between two chunks is added; borrowed */
    /* @text: the answer, when it was to be kept; borrowed. The handle is dead. */
    void (*done)(void *arg, const struct load_result *r, struct str text);
    void *arg;
};

/* `done` never comes from within. */
struct load_call *load_call_start(const struct load_call_spec *spec)
    __attribute__((returns_nonnull));
/* Ends it without `done`. NULL in, NULL out. */
struct load_call *load_call_cancel(struct load_call *c);
