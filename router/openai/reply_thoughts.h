/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways of writing thoughts: the marks that reply.c looks for. Sources: the names and marks of
 * ai-dynamo 1.6.1, by what its frontend answers (wire.md §8.9).
 */
#pragma once

#include "router/openai/reply.h"

struct harmony_dialect;

enum {
    REPLY_MARKS_MAX = 6,
    /* When an answer begins with thoughts, whether or not their mark is there. */
    REPLY_INSIDE = 1,
    REPLY_INSIDE_WITH_EFFORT = 2,
    /* What stands before the first mark is what that mark says: held back until then. */
    REPLY_EITHER = 4,
    REPLY_IF_ASKED = 8,     /* only read when the request asks for thoughts */
    REPLY_UNLESS_NONE = 16, /* not read when it asks for none */
    REPLY_BY_MODE = 32,     /* thinking_mode asks, too */
    REPLY_NO_MARKS =
        64, /* the mark that begins them is no text of theirs, however often it comes */
};

/* Marks around what a model says, which are no content. NULL ends the list. */
struct reply_frame {
    const char *header; /* what stands behind it, up to another mark, is no content either */
    const char *marks[REPLY_MARKS_MAX];
};

struct reply_thoughts {
    const char *name;
    const char *begin[2], *end[2]; /* wordings */
    const char *opened_by;         /* a prompt that ends with it begins them; NULL = none does */
    const char *label;             /* behind the mark that begins them, and no part of them */
    const char *calls[2];          /* marks that end thoughts as they begin a call */
    bool special;                  /* its models write the marks as special tokens */
    const char *said_first;        /* put before the answer, which has no thoughts of its own */
    const struct reply_frame *frame;
    const struct harmony_dialect *dialect; /* a format of messages with headers, read first */
    unsigned how;
};

extern const struct reply_frame REPLY_KIMI_FRAME, REPLY_INKLING_FRAME;
