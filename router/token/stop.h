/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a stream of token text ends: hidden stop ids and stop strings, and what may be sent on.
 *
 * The rules are those of wire.md 8.6 but for one: text that may be the start of a stop string is
 * held back until it is decided, so a stop string spread over tokens never leaks its beginning.
 * With include_string nothing is held back, as that text is sent in any case. Both as in 1.6.1.
 * Pure; one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

enum { STOP_MAX_STRINGS = 32, STOP_MAX_STRING_BYTES = 4096 };

/* What a request asks for; borrowed and constant while a struct stop uses it. */
struct stop_rules {
    const struct str *strings; /* not empty each; the first of the list that is found wins */
    size_t n_strings;
    const uint32_t *hidden_ids; /* end the stream, their text is dropped */
    size_t n_hidden_ids;
    uint64_t min_tokens; /* before this many tokens nothing stops */
    bool include_string; /* the stop string itself is sent too */
};

enum stop_result {
    STOP_GO_ON = 0,
    STOP_AT_ID = 1,     /* a hidden id; no stop_reason */
    STOP_AT_STRING = 2, /* strings[matched] */
};

/* Embedded by value. */
struct stop {
    const struct stop_rules *rules;
    uint64_t tokens; /* pushed so far */
    bool found;      /* STOP_AT_STRING was returned, and then strings[matched] is it */
    size_t matched;
    struct buf held; /* start of a possible stop string */
    size_t told;     /* bytes of it that were let out: none, or with include_string all */
};

void stop_init(struct stop *s, const struct stop_rules *rules);
void stop_done(struct stop *s);
DEFINE_CLEANUP_EMBEDDED(struct stop, stop_done)
/* Counts one token, before it is decoded: STOP_AT_ID when its id ends the stream, and then what was
 * held back is still to be let out by stop_flush(). */
enum stop_result stop_count(struct stop *s, uint32_t id);
/* Takes the text that the tokens counted last have completed (detok_push); appends to @out what may
 * be sent now. After STOP_AT_STRING the stream is over: push nothing more. */
enum stop_result stop_push(struct stop *s, struct str text, struct buf *out);
/* The stream ended otherwise (length, an id, engine's own stop): appends what was held back. */
void stop_flush(struct stop *s, struct buf *out);
