/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 request parser (RFC 9112), without I/O: bytes in, one request at a time out.
 *
 * Incremental: http1_parse() is given all unread bytes again until it says that a request is
 * complete. Every part is limited. Refuses what proxies disagree about: both Content-Length and
 * Transfer-Encoding, repeated or malformed lengths, obsolete line folding, bare CR, spaces before a
 * colon, control bytes in values. Fuzzed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

enum { HTTP1_HEADERS_MAX = 64, HTTP1_TARGET_MAX = 8192 };

struct http1_header {
    struct str name, value; /* value trimmed */
};

struct http1_request {
    struct str method, path, query; /* path as sent, without the query; query without '?' */
    struct http1_header headers[HTTP1_HEADERS_MAX];
    size_t n_headers;
    uint8_t minor; /* HTTP/1.<minor> */
    bool keep_alive;
    bool expects_continue;
    struct str body; /* complete, de-chunked */
};

struct http1_limits {
    size_t head_bytes; /* request line and headers; 431 beyond */
    size_t body_bytes; /* 413 beyond */
    /* When set: the limit of this request's body instead of body_bytes, asked once per head. */
    size_t (*body_limit)(void *arg, const struct http1_request *head);
    void *arg;
};

enum {
    HTTP1_COMPLETE = 1, /* request filled; *ret_used bytes are done with */
    HTTP1_MORE = 2,     /* not enough bytes yet */
};

struct http1_parser; /* holds the de-chunked body and progress of the current request */
struct http1_parser *http1_parser_new(const struct http1_limits *limits)
    __attribute__((returns_nonnull));
struct http1_parser *http1_parser_free(struct http1_parser *p);
DEFINE_CLEANUP(struct http1_parser *, http1_parser_free)
/*
 * HTTP1_COMPLETE, HTTP1_MORE, or the negative of the HTTP status to answer with before closing
 * (-400, -413, -414, -431, -501, -505). Views of @bytes and of the parser, until the next call.
 * *ret_wants_continue is set once when "100 Continue" is due.
 */
MUST_CHECK int http1_parse(struct http1_parser *p, struct str bytes, struct http1_request *ret,
                           size_t *ret_used, bool *ret_wants_continue);
/* Whether the head of the current request is complete and its body is still coming. */
bool http1_in_body(const struct http1_parser *p);
/* Value of the first header of that name, ASCII case ignored; ptr NULL when absent. */
struct str http1_header_get(const struct http1_request *r, const char *name);
const char *http_status_text(int status);
/* Appends what %XX stand for, and in a @form a space for '+'; what is no escape stays. */
void http_percent_decode(struct str s, bool form, struct buf *out);
/* Replaces @out with the value of ?key=…, percent-decoded; false when absent. */
MUST_CHECK bool http_query_get(struct str query, const char *key, struct buf *out);
