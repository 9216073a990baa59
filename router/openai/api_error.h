/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of the HTTP API: status and words.
 *
 * The body carries OpenAI's shape, {"error":{"message","type","param","code"}}, and beside it the
 * flat keys of the reference, {"message","type","code"} (wire.md §9.5), so that clients of either
 * find what they look for.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct http_exchange;

enum { API_ERROR_TEXT_MAX = 512 };

/* status 0 = no error. */
struct api_error {
    int status;
    bool malformed; /* the body is no request: too little of it is known to count it */
    char param[64]; /* the field that is wrong, "" = none */
    char text[API_ERROR_TEXT_MAX];
};

/* Fills @e and returns false, so that a check can end with `return api_fail(…)`. */
bool api_fail(struct api_error *e, int status, const char *param, const char *format, ...)
    PRINTF_LIKE(4, 5);
/* As api_fail() with 400, of a body that is no request at all. */
bool api_malformed(struct api_error *e, const char *param, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* As dashboards know it: the label error_type of requests that ended with that status. */
const char *api_error_type(int status);
/* The JSON body. */
void api_error_put(struct buf *out, const struct api_error *e);
/* Answers the exchange with it. */
void api_error_respond(struct http_exchange *x, const struct api_error *e);
/* For http_server_conf: errors found before any handler. */
void api_error_from_server(struct http_exchange *x, int status, const char *why, void *arg);
