/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways of writing calls of tools, between reply.c, which finds where a call begins and ends, and
 * reply_calls.c, which reads it.
 */
#pragma once

#include "router/openai/reply.h"

/* Calls found in a text, which tells of them only when all of it could be read. */
struct reply_found {
    struct buf text; /* name, NUL, arguments, NUL, … */
    size_t n;
    struct str named;
};

struct reply_calls {
    const char *name;
    const char *begin, *end; /* marks; begin NULL: the whole content, from a first character on */
    char first;              /* of such content; 0 = any */
    /* False when it is none. */
    bool (*read)(struct str text, struct reply_found *found);
};

extern const struct reply_calls REPLY_CALLS[];
extern const size_t REPLY_CALLS_N;
