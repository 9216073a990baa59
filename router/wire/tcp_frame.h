/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request frame and acknowledgement of the TCP request plane (wire.md §4.4).
 *
 *     u16 path length | path | u16 header length | JSON headers | u32 payload length | payload
 *
 * answered by u32 length + text, where length 0 means accepted and any text a refusal. Decoders
 * work on what has arrived and hand out views into it. Pure, thread safe.
 */
#pragma once

#include <stddef.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum {
    TCP_FRAME_MORE = 1, /* outcome: not complete yet */
    TCP_FRAME_PATH_MAX = 1024,
    TCP_FRAME_DEFAULT_MAX = 32 << 20,
    TCP_ACK_TEXT_MAX = 4096,
};

struct tcp_frame {
    struct str path;    /* "<instance id, hex>/<endpoint>" */
    struct str headers; /* JSON object of strings; may be empty or unparsable, then ignored */
    struct str payload; /* a two-part message */
};

/* 0, TCP_FRAME_MORE, or -EBADMSG (path length) / -EMSGSIZE (frame above @max), known early. */
MUST_CHECK int tcp_frame_decode(struct str in, size_t max, struct tcp_frame *ret, size_t *ret_used,
                                struct err *e);
/* -EMSGSIZE when a part does not fit its length field; then @out is as before. */
MUST_CHECK int tcp_frame_put(struct buf *out, struct str path, struct str headers,
                             struct str control, struct str body, struct err *e);

/* 0 and the text (empty = accepted), TCP_FRAME_MORE, or -EMSGSIZE. */
MUST_CHECK int tcp_ack_decode(struct str in, struct str *ret_text, size_t *ret_used, struct err *e);
void tcp_ack_put(struct buf *out, struct str text); /* cut at TCP_ACK_TEXT_MAX */
