/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events, both directions (WHATWG HTML, "Server-sent events"). Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

/* "data: <data>\n\n"; @data must hold no line break. */
void sse_put_data(struct buf *out, struct str data);
/* The same behind "event: <event>\n", unless that is empty; nor must it hold a line break. */
void sse_put_named(struct buf *out, struct str event, struct str data);

struct sse_event {
    struct str event;   /* empty = message */
    struct str data;    /* lines joined by \n */
    struct str comment; /* text of comment lines, joined by \n */
};

/* Incremental reader; a line longer than @max_bytes is an error. */
struct sse_reader;
struct sse_reader *sse_reader_new(size_t max_bytes) __attribute__((returns_nonnull));
struct sse_reader *sse_reader_free(struct sse_reader *r);
DEFINE_CLEANUP(struct sse_reader *, sse_reader_free)
/* Feeds bytes; then take events until false. Views until the next call. */
void sse_reader_feed(struct sse_reader *r, struct str bytes);
MUST_CHECK bool sse_reader_next(struct sse_reader *r, struct sse_event *ret);
bool sse_reader_failed(const struct sse_reader *r);
