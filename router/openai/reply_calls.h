/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways of writing calls of tools, between reply.c, which finds where a call begins and ends, and
 * reply_calls.c, which reads it.
 */
#pragma once

#include "router/openai/reply.h"

/* Calls found in a text, which tells of them only when all of it could be read. */
struct json_put;

struct reply_found {
    struct buf text; /* name, NUL, arguments, NUL, id, NUL, … */
    size_t n;
    struct str named;
    const struct json *tools; /* of the request; NULL = not known */
};

struct harmony_dialect;
struct reply_frame;

struct reply_calls {
    const char *name;
    const char *begin, *end; /* marks; begin NULL: the whole content, from a first character on */
    char first;              /* of such content; 0 = any */
    bool special;            /* its models write the marks as special tokens */
    bool bare; /* an answer that is nothing but such JSON is a call without its marks */
    /* False when it is none. */
    bool (*read)(struct str text, struct reply_found *found);
    /* As reply_find_mark(), where the mark that ends a call may stand in its texts, or where @end is "",
     * and the call ends by itself; NULL = the mark is its end wherever it stands. */
    size_t (*find_end)(struct str text, bool *ret_found);
    const struct reply_frame *frame;       /* around what is said besides */
    const struct harmony_dialect *dialect; /* a format of messages with headers, instead */
};

/* Another call; false when there are too many or a text cannot be one. An empty @id is none. */
bool reply_add_call(struct reply_found *f, struct str name, struct str arguments, struct str id);
/* Tells all of them, in one go. */
void reply_tell_found(struct reply_found *f, reply_fn tell, void *arg);
/* @text up to @mark into *ret, and *rest behind it; false when there is none. */
bool reply_take_to(struct str *rest, const char *mark, struct str *ret);
/* The same JSON without blanks, numbers as they were written; false when it is none. */
bool reply_compact_json(struct str text, struct buf *ret);
/* Bytes of @text before @mark, or before an end of @text that may become one; *ret_found. */
size_t reply_find_mark(struct str text, const char *mark, bool *ret_found);

/* Where calls end that no mark ends (reply_ends.c): JSON, several with ";" between, JSON and perhaps
 * Mistral's mark, a Python list. */
size_t reply_find_json_end(struct str text, bool *ret_found);
size_t reply_find_json_list_end(struct str text, bool *ret_found);
size_t reply_find_mistral_end(struct str text, bool *ret_found);
size_t reply_find_python_end(struct str text, bool *ret_found);
/* Whether an answer begins as a JSON call without its marks does. */
enum reply_bare { REPLY_BARE_NOT, REPLY_BARE_PERHAPS, REPLY_BARE };
enum reply_bare reply_begins_bare(struct str text);

/* Arguments as elements with their names and values (reply_marked.c). */
bool reply_read_elements(struct str text, struct reply_found *f);
bool reply_read_invokes(struct str text, struct reply_found *f);
bool reply_read_dsml(struct str text, struct reply_found *f);
bool reply_read_pairs(struct str text, struct reply_found *f);
bool reply_read_dsml_v41(struct str text, struct reply_found *f);
bool reply_read_atem(struct str text, struct reply_found *f);
bool reply_read_kimi_k3(struct str text, struct reply_found *f);
/* The schema of @tool's arguments; NULL when the request has none. */
const struct json *reply_schema(const struct reply_found *f, struct str tool);
const struct json *reply_property(const struct json *schema, struct str key);
/* As JSON when it is what @schema says; one that names no single type takes any but texts. */
void reply_put_value(struct json_put *j, struct str text, const struct json *schema);

/* Formats with a file each. */
bool reply_read_gemma(struct str text, struct reply_found *f);
size_t reply_find_gemma_end(struct str text, bool *ret_found);
bool reply_read_minimax_m3(struct str text, struct reply_found *f);
bool reply_read_inkling(struct str text, struct reply_found *f);
size_t reply_find_inkling_end(struct str text, bool *ret_found);

extern const struct reply_calls REPLY_CALLS[];
extern const size_t REPLY_CALLS_N;
