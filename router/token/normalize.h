/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalizers: what is done to text before it is cut into words. Filled from the file's
 * "normalizer", then immutable; the work area belongs to one thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct json;
struct regex;
struct regex_scratch;

enum { NORMALIZE_MAX_STEPS = 16 };

enum normalize_kind { NORMALIZE_PREPEND, NORMALIZE_REPLACE, NORMALIZE_REGEX, NORMALIZE_NFC };

struct normalize_step {
    enum normalize_kind kind;
    struct regex *regex; /* owned; REGEX only */
    char *pattern;       /* owned; REPLACE only, not empty */
    char *content;       /* owned; what is put there */
};

/* Embedded by value; zero-initialised changes nothing. */
struct normalize {
    struct normalize_step steps[NORMALIZE_MAX_STEPS];
    size_t n_steps;
};

/* @config is the value of "normalizer", null or NULL for none. */
MUST_CHECK int normalize_load(struct normalize *n, const struct json *config, struct err *e);
void normalize_done(struct normalize *n);

/* Embedded by value; zero-initialised is empty. */
struct normalize_work {
    struct buf text, next;
};

void normalize_work_done(struct normalize_work *w);
/* *ret is @text itself when nothing changes it, else memory of @w. @text must be UTF-8. -E2BIG when
 * a pattern takes too much work or the text would grow beyond @limit bytes. */
MUST_CHECK int normalize_run(const struct normalize *n, struct normalize_work *w,
                             struct regex_scratch *scratch, struct str text, size_t limit,
                             struct str *ret);
