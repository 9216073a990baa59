/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways of writing calls of tools, between reply.c, which finds where a call begins and ends, and
 * reply_calls.c, which reads it.
 */
#pragma once

#include "router/openai/reply.h"

/* Calls found in a text, which tells of them only when all of it could be read. */
struct reply_found {
    struct buf text; /* name, NUL, arguments, NUL, id, NUL, … */
    size_t n;
    struct str named;
    const struct json *tools; /* of the request; NULL = not known */
};

struct reply_calls {
    const char *name;
    const char *begin, *end; /* marks; begin NULL: the whole content, from a first character on */
    char first;              /* of such content; 0 = any */
    /* False when it is none. */
    bool (*read)(struct str text, struct reply_found *found);
};

/* Another call; false when there are too many or a text cannot be one. An empty @id is none. */
bool reply_add_call(struct reply_found *f, struct str name, struct str arguments, struct str id);
/* @text up to @mark into *ret, and *rest behind it; false when there is none. */
bool reply_take_to(struct str *rest, const char *mark, struct str *ret);
/* The same JSON without blanks, numbers as they were written; false when it is none. */
bool reply_compact_json(struct str text, struct buf *ret);
/* Bytes of @text before @mark, or before an end of @text that may become one; *ret_found. */
size_t reply_find_mark(struct str text, const char *mark, bool *ret_found);

/* Arguments as elements with their names and values (reply_marked.c). */
bool reply_read_elements(struct str text, struct reply_found *f);
bool reply_read_invokes(struct str text, struct reply_found *f);
bool reply_read_dsml(struct str text, struct reply_found *f);
bool reply_read_pairs(struct str text, struct reply_found *f);

/* The format of gpt-oss (reply_harmony.h), which has no marks of this kind. */
extern const struct reply_calls REPLY_HARMONY_CALLS;

extern const struct reply_calls REPLY_CALLS[];
extern const size_t REPLY_CALLS_N;
