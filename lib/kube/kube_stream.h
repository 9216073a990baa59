/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the API server sends to list and watch requests, taken apart. Pure: bytes in, views out.
 *
 * A watch is a stream of JSON lines, each {"type":…,"object":…}, cut anywhere by the network. A page
 * of a list is one JSON object whose items are handed on as their own text, so that nobody holds a
 * tree of five hundred objects. Fuzzed.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/str.h"

enum kube_event_type {
    KUBE_EVENT_ADDED,
    KUBE_EVENT_MODIFIED,
    KUBE_EVENT_DELETED,
    KUBE_EVENT_BOOKMARK,
    KUBE_EVENT_ERROR, /* the object is a Status */
};

struct kube_event {
    enum kube_event_type type;
    struct str object; /* its JSON text */
};

/* Embedded by value; zero-initialised is empty. One thread. */
struct kube_lines {
    struct buf bytes;
    size_t scanned; /* no line break before this */
    size_t handed;  /* bytes of the line that was handed out last */
};

void kube_lines_done(struct kube_lines *l);
void kube_lines_clear(struct kube_lines *l);
void kube_lines_feed(struct kube_lines *l, struct str bytes);
/*
 * Next complete line without its break, skipping empty ones; a view until the next call. False when
 * there is none yet. Call until false before feeding more.
 */
MUST_CHECK bool kube_lines_next(struct kube_lines *l, struct str *ret_line);
/* Bytes of the incomplete line at the end: what the caller limits. */
size_t kube_lines_pending(const struct kube_lines *l);

/* -EBADMSG when the line is no watch event. */
MUST_CHECK int kube_event_parse(struct str line, struct kube_event *ret, struct err *e);

struct kube_page {
    struct str resource_version;
    struct str next; /* token of the next page; empty = this was the last */
};

/*
 * Calls @item with the text of each element of "items". Views of @text. -EBADMSG when it is not a
 * list; some items may have been handed on by then.
 */
MUST_CHECK int kube_page_parse(struct str text, void (*item)(void *arg, struct str object),
                               void *arg, struct kube_page *ret, struct err *e);
