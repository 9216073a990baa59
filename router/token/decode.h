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

enum {
    DECODE_MAX_STEPS = 8,
    DECODE_MAX_CONTENT = 256,   /* bytes that a step may put for a pattern */
    DECODE_MAX_TOKEN = 1 << 20, /* bytes of one token, decoded */
    DECODE_MAX_TEXT = 1 << 28,  /* bytes of all tokens, decoded */
};

#define DECODE_MARK "\xe2\x96\x81" /* U+2581 */

enum decode_join {
    DECODE_SPACED,   /* no decoder: tokens with spaces between them */
    DECODE_PLAIN,    /* one after the other */
    DECODE_BYTES,    /* byte-level: bytes, then read as UTF-8 */
    DECODE_FALLBACK, /* "<0x0A>" in a row are bytes, the rest is text */
    DECODE_PIECES,   /* the same as SentencePiece does it: each byte stands for itself */
};

/* The blank that a piece brings along, at the start of the text. */
enum decode_drop { DECODE_DROP_NONE, DECODE_DROP_ONE, DECODE_DROP_ALL };

enum decode_kind { DECODE_REPLACE, DECODE_METASPACE, DECODE_WORDPIECE, DECODE_CLEANUP };

/* What is done to one token; the first of a text may be treated differently. */
struct decode_step {
    enum decode_kind kind;
    char *pattern; /* owned; what is replaced, Metaspace's mark, WordPiece's prefix */
    char *content; /* owned; what comes in its place */
    bool first;    /* Metaspace: the mark vanishes from the first token */
};

struct decode_entry {
    uint32_t start, len;
    int16_t byte; /* of a byte token under DECODE_FALLBACK, else -1 */
    bool whole;   /* valid UTF-8 by itself */
    bool mark;    /* PIECES: begins with the mark of a blank */
};

/* Embedded by value; zero-initialised, then decode_load(). */
struct decode {
    enum decode_join join;
    bool first_differs;  /* the first token of a text comes from decode_put_first() */
    bool drops_repeated; /* CTC: of equal tokens in a row one is left */
    char *suffix;        /* owned; BPEDecoder: a blank, and nothing in the last token; else NULL */
    bool has_bytes;      /* PIECES: "<0x0A>" are bytes */
    enum decode_drop drop; /* PIECES */
    uint32_t n_strip, limit;
    struct decode_entry *entries; /* by id */
    struct buf text;
    char strip
        [8]; /* this character is taken off the start of the whole text, n_strip times at most */
    struct decode_step steps[DECODE_MAX_STEPS];
    size_t n_steps;
};

/* @config is the value of "decoder", null or NULL for none. */
MUST_CHECK int decode_load(struct decode *d, const struct json *config, struct err *e);
/* SentencePiece's, which replaces what it writes for a blank. */
void decode_load_pieces(struct decode *d, enum decode_drop drop, bool has_bytes);
void decode_done(struct decode *d);
/* Makes the table of ids below @limit, all empty; then decode_add() each token once: -E2BIG when
 * the steps make it, or all of them, too long. */
void decode_size(struct decode *d, uint32_t limit);
MUST_CHECK int decode_add(struct decode *d, uint32_t id, struct str spelling);
/* BPEDecoder: appends what the token contributes as the last one of a text. */
void decode_put_last(const struct decode *d, struct str spelling, struct buf *out);
/* Appends what the token contributes as the first one of a text. */
void decode_put_first(const struct decode *d, struct str spelling, struct buf *out);

static inline struct str decode_text(const struct decode *d, uint32_t id)
{
    return (struct str){buf_data(&d->text) + d->entries[id].start, d->entries[id].len};
}

/* The byte that a letter of the byte alphabet stands for, -1 for any other character. */
int decode_letter(uint32_t cp);
/* Appends the letters of @bytes. */
void decode_put_letters(struct str bytes, struct buf *out);
/* Appends the bytes that a token spelt in the byte alphabet stands for; false, and nothing
 * appended, when it has other letters. */
bool decode_letters(struct str spelling, struct buf *out);
