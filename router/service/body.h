/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON bodies of requests, read into structs by tables.
 *
 * Members that no row names are ignored, null is the same as absent. Arrays and decoded strings go
 * to the arena; how large they can get is bounded by the body, which the HTTP server limits.
 * Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/service/media_list.h"
#include "router/wire/optional.h"

enum body_type {
    BODY_STR,     /* struct str; ptr NULL when absent */
    BODY_U64,     /* struct opt_u64 */
    BODY_U32,     /* struct opt_u64 below 2^32 */
    BODY_F64,     /* struct opt_f64 */
    BODY_BOOL,    /* struct opt_bool */
    BODY_TOKENS,  /* struct u32_list */
    BODY_HASHES,  /* struct u64_list: signed or unsigned 64-bit integers, the same bits */
    BODY_STRINGS, /* struct str_list */
    BODY_NUMBERS, /* struct number_list: an object of numbers by their names */
    BODY_MEDIA, /* struct media_list: of blocks, null or {"mm_objects": [{"mm_hash", "offsets"}]} */
    BODY_OBJECT, /* struct str: the object's text, to be read by a table of its own */
    BODY_JSON,   /* struct str: the text of any value */
};

struct u32_list {
    const uint32_t *ptr; /* NULL when absent */
    size_t len;
};
struct u64_list {
    const uint64_t *ptr; /* NULL when absent */
    size_t len;
};

struct str_list {
    const struct str *ptr; /* NULL when absent */
    size_t len;
};
struct named_number {
    struct str name;
    double v;
};
struct number_list {
    const struct named_number *ptr; /* NULL when absent */
    size_t len;
};

struct body_field {
    const char *key;
    enum body_type type;
    size_t offset;
    bool required;
};

/* Whether a body with this content-type is to be taken for JSON: application/json or application/…+json, with
 * parameters or without. */
bool body_is_json(struct str content_type);

enum { BODY_NOT_JSON = 1 }; /* outcome: the text is no JSON at all; @e says why */

/*
 * Fills what the body has; *into starts zeroed or with what is to be kept. 0, BODY_NOT_JSON (400 to
 * a client) or -EINVAL, which names the member (422).
 */
MUST_CHECK int body_parse(struct arena *a, struct str json, const struct body_field *table,
                          size_t n, void *into, struct err *e);
