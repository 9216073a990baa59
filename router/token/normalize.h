/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalizers: what is done to text before it is cut into words. Filled from the file's
 * "normalizer", then immutable; the work area belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/token/charsmap.h"
#include "router/token/form.h"

struct err;
struct json;
struct regex;
struct regex_scratch;
struct added;

enum { NORMALIZE_MAX_STEPS = 16 };

enum normalize_kind {
    NORMALIZE_PREPEND,
    NORMALIZE_REPLACE,
    NORMALIZE_REGEX,
    NORMALIZE_FORM,
    NORMALIZE_CHARSMAP,
    NORMALIZE_STRIP,
    NORMALIZE_EACH,   /* one character after the other */
    NORMALIZE_PIECES, /* SentencePiece's own: all that it does before it cuts a text */
};

/* What a SentencePiece model asks for. */
struct normalize_pieces {
    struct added *kept;  /* owned: symbols that the map must not touch */
    bool prefix, suffix; /* a blank more, before or behind the text */
    bool first_only;     /* the one before: only where the prompt begins */
    bool squeezes;       /* blanks at the ends and in a row go */
    const char *mark;    /* static: what a blank becomes */
};

struct normalize_step {
    enum normalize_kind kind;
    struct regex *regex; /* owned; REGEX only */
    char *pattern;       /* owned; REPLACE only, not empty */
    char *content;       /* owned; what is put there */
    enum form form;
    struct charsmap charsmap;
    struct normalize_pieces pieces;            /* PIECES, and charsmap */
    bool left, right;                          /* STRIP */
    void (*put)(struct buf *out, uint32_t cp); /* EACH: appends what becomes of @cp */
};

/* Embedded by value; zero-initialised changes nothing. */
struct normalize {
    struct normalize_step steps[NORMALIZE_MAX_STEPS];
    size_t n_steps;
    bool drops; /* a step may take characters away */
};

/* @config is the value of "normalizer", null or NULL for none. */
MUST_CHECK int normalize_load(struct normalize *n, const struct json *config, struct err *e);
/* The only step of a SentencePiece model; @map is its compiled one. Takes @p->kept in any case. */
MUST_CHECK int normalize_load_pieces(struct normalize *n, const struct normalize_pieces *p,
                                     struct str map, struct err *e);
void normalize_done(struct normalize *n);

/* Embedded by value; zero-initialised is empty. */
struct normalize_work {
    struct buf text, next;
};

void normalize_work_done(struct normalize_work *w);
/* *ret is @text itself when nothing changes it, else memory of @w. @text must be UTF-8; @at_start: the
 * prompt begins with it. -E2BIG when a pattern takes too much work or the text would grow beyond
 * @limit bytes. */
MUST_CHECK int normalize_run(const struct normalize *n, struct normalize_work *w,
                             struct regex_scratch *scratch, struct str text, bool at_start,
                             size_t limit, struct str *ret);
