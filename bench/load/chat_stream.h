/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a streamed answer of an OpenAI-style server: chat or completions chunks in server-sent
 * events. Pure: bytes in, what they told out. One thread. Bounded: a line CHAT_LINE_MAX, the text
 * CHAT_TEXT_MAX.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { CHAT_LINE_MAX = 1 << 20, CHAT_TEXT_MAX = 4 << 20 };

enum chat_fault {
    CHAT_FINE,
    CHAT_ERROR_EVENT, /* the server told of an error in the stream */
    CHAT_MALFORMED,   /* what came is no chunk, or too large */
};

struct chat_usage {
    bool known;
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
};

struct chat_stream;

/* @keep_text: the answer is wanted, not only its timing. */
struct chat_stream *chat_stream_new(bool keep_text);
struct chat_stream *chat_stream_free(struct chat_stream *s);
DEFINE_CLEANUP(struct chat_stream *, chat_stream_free)
/* Returns how many chunks with text were in these bytes. */
size_t chat_stream_feed(struct chat_stream *s, struct str bytes);
/* The end mark "[DONE]" was seen: whatever ends earlier is broken. */
bool chat_stream_done(const struct chat_stream *s);
bool chat_stream_finished(const struct chat_stream *s); /* a finish_reason was seen */
enum chat_fault chat_stream_fault(const struct chat_stream *s);
struct str chat_stream_text(const struct chat_stream *s); /* borrowed */
struct chat_usage chat_stream_usage(const struct chat_stream *s);
uint64_t chat_stream_worker(const struct chat_stream *s); /* nvext.worker_id; 0 = unknown */
