/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders: what each token contributes to text. Whatever the file's "decoder" does to a token
 * alone is done once at load; at run time there is a table of byte strings and one of three ways
 * to join them. Filled once, then immutable.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct json;

enum { DECODE_MAX_REPLACE = 8 };

enum decode_join {
    DECODE_SPACED,   /* no decoder: tokens with spaces between them */
    DECODE_PLAIN,    /* one after the other */
    DECODE_BYTES,    /* byte-level: bytes, then read as UTF-8 */
    DECODE_FALLBACK, /* "<0x0A>" in a row are bytes, the rest is text */
};

struct decode_replace {
    char *pattern, *content; /* owned */
};

struct decode_entry {
    uint32_t start, len;
    int16_t byte; /* of a byte token under DECODE_FALLBACK, else -1 */
    bool whole;   /* valid UTF-8 by itself */
};

/* Embedded by value; zero-initialised, then decode_load(). */
struct decode {
    enum decode_join join;
    struct decode_replace replaces[DECODE_MAX_REPLACE];
    size_t n_replaces;
    char drop_first[8]; /* Metaspace: this character vanishes from the first token; "" none */
    char strip[8];      /* this character is taken off the start of the whole text ... */
    uint32_t n_strip;   /* ... at most so often */
    uint32_t limit;
    struct decode_entry *entries; /* by id */
    struct buf text;
};

/* @config is the value of "decoder", null or NULL for none. */
MUST_CHECK int decode_load(struct decode *d, const struct json *config, struct err *e);
void decode_done(struct decode *d);
/* Makes the table of ids below @limit, all empty; then decode_add() each token once. */
void decode_size(struct decode *d, uint32_t limit);
void decode_add(struct decode *d, uint32_t id, struct str spelling);

static inline struct str decode_text(const struct decode *d, uint32_t id)
{
    return (struct str){buf_data(&d->text) + d->entries[id].start, d->entries[id].len};
}

/* The byte that a letter of the byte alphabet stands for, -1 for any other character. */
int decode_letter(uint32_t cp);
/* Appends the bytes that a token spelt in the byte alphabet stands for; false, and nothing
 * appended, when it has other letters. */
bool decode_letters(struct str spelling, struct buf *out);
