/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers: cutting normalised text into the words that the model encodes one by one.
 *
 * A chain of steps, each cutting every span of the step before. Filled from the file's
 * "pre_tokenizer", then immutable; the work area belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "router/token/scan.h"

struct err;
struct json;
struct regex;
struct regex_scratch;

enum { SPLIT_MAX_STEPS = 16 };

enum split_kind { SPLIT_REGEX, SPLIT_METASPACE, SPLIT_PREFIX_SPACE, SPLIT_SCRIPTS };

/* What becomes of the matches of a pattern. */
enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_CONTIGUOUS,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
};

enum split_prepend { SPLIT_PREPEND_ALWAYS, SPLIT_PREPEND_FIRST, SPLIT_PREPEND_NEVER };

struct split_step {
    enum split_kind kind;
    struct regex *regex; /* owned; also what Metaspace cuts at, NULL when it does not cut */
    struct scan scan;    /* how to match it by hand, if it is one of those */
    enum split_behavior behavior;
    bool invert;  /* the pattern describes what is kept */
    bool exact;   /* the pattern lists characters, and must see the text without newer.h */
    bool letters; /* after ByteLevel: the pattern sees the byte alphabet */
    enum split_prepend prepend;
    char mark[4]; /* Metaspace: what a space becomes */
    size_t mark_len;
};

/* Embedded by value; zero-initialised does not cut at all. */
struct split {
    struct split_step steps[SPLIT_MAX_STEPS];
    size_t n_steps;
    bool byte_level; /* words are bytes to the model, and not characters */
};

/* @config is the value of "pre_tokenizer", null or NULL for none. */
MUST_CHECK int split_load(struct split *sp, const struct json *config, struct err *e);
void split_done(struct split *sp);

struct split_spans {
    struct split_span *ptr;
    size_t len, cap;
};

/* Embedded by value; zero-initialised is empty. */
struct split_work {
    struct split_spans spans, next; /* spans: the words found by the last run */
    struct buf text, rewritten;
    struct buf letters;
    struct buf matched; /* what patterns see in place of the text, see newer.h */
};

void split_work_done(struct split_work *w);
/*
 * Cuts @text (UTF-8, below 4 GiB) into w->spans over *ret_text, which is @text itself or, when a
 * step rewrites it, memory of @w. @at_start: the prompt begins here. -E2BIG when a pattern
 * takes too much work.
 */
MUST_CHECK int split_run(const struct split *sp, struct split_work *w,
                         struct regex_scratch *scratch, struct str text, bool at_start,
                         struct str *ret_text);
