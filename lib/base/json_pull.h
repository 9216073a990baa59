/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pull scanner for JSON that is hot or carries 64-bit ids: no tree, no copies, exact integers.
 *
 * Strict RFC 8259: one value, valid UTF-8, no trailing bytes (json_pull_end). Nesting is limited
 * to JSON_PULL_DEPTH. The first error sticks: later calls fail too, so a reader may check once at
 * the end. Values are views into the input; a string with escapes is decoded on request.
 *
 *     struct json_pull p;
 *     json_pull_init(&p, text);
 *     if (json_pull_object(&p))
 *         while (json_pull_key(&p, &key)) {
 *             if (str_is(key, "token_ids")) ...
 *             else json_pull_skip(&p);
 *         }
 *     r = json_pull_end(&p, e);
 *
 * Thread safe per object. Fuzzed; oracle: cJSON on the common subset.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum { JSON_PULL_DEPTH = 128 };

enum json_kind {
    JSON_KIND_NONE, /* error or end */
    JSON_KIND_OBJECT,
    JSON_KIND_ARRAY,
    JSON_KIND_STRING,
    JSON_KIND_NUMBER,
    JSON_KIND_BOOL,
    JSON_KIND_NULL,
};

struct json_pull {
    const char *begin, *at, *end;
    const char *error; /* NULL while all is well; static text */
    uint16_t depth;
    bool after_value;                         /* a comma or a closing bracket must come next */
    uint8_t stack[(JSON_PULL_DEPTH + 7) / 8]; /* one bit a level: 1 = object */
};

void json_pull_init(struct json_pull *p, struct str text);
/* Kind of the value that comes next, without consuming it. */
enum json_kind json_pull_peek(struct json_pull *p);
/* Enters; false when the next value is of another kind (an error, except null: then consumed). */
MUST_CHECK bool json_pull_object(struct json_pull *p);
MUST_CHECK bool json_pull_array(struct json_pull *p);
/* Next key of the current object; false at its end (then left) or on error. Keys come decoded-raw:
 * a key with escapes is returned raw, as written between the quotes. */
MUST_CHECK bool json_pull_key(struct json_pull *p, struct str *ret_key);
/* Whether another element follows in this array; false at its end (then left) or on error. */
MUST_CHECK bool json_pull_element(struct json_pull *p);

/* Scalars; false, and *ret untouched, on another kind or range: an error that json_pull_end()
 * tells, so that a reader which has set its defaults need not look at each result. */
bool json_pull_u64(struct json_pull *p, uint64_t *ret);
bool json_pull_i64(struct json_pull *p, int64_t *ret);
bool json_pull_f64(struct json_pull *p, double *ret);
bool json_pull_bool(struct json_pull *p, bool *ret);
/* True and consumed when the next value is null; false otherwise (not an error). */
bool json_pull_null(struct json_pull *p);
/* View of the string between its quotes, escapes not decoded. */
bool json_pull_raw_string(struct json_pull *p, struct str *ret_raw);
/* The string, decoded. A view of the input when it has no escapes, else of @scratch (appended):
 * then it lives until @scratch changes. */
bool json_pull_string(struct json_pull *p, struct buf *scratch, struct str *ret);
/* Skips one value; *ret_text (may be NULL) is its text, to be scanned later or passed through. */
bool json_pull_skip(struct json_pull *p, struct str *ret_text);
/* Records @what as the error (a wrong value found by the caller). */
void json_pull_fail(struct json_pull *p, const char *what);
static inline bool json_pull_ok(const struct json_pull *p)
{
    return !p->error;
}
/* 0 when exactly one value was read and nothing follows; -EINVAL with offset and reason else. */
MUST_CHECK int json_pull_end(struct json_pull *p, struct err *e);

/* JSON text of a member; empty when @object is no object, or has no such member before an error. */
struct str json_pull_member(struct str object, const char *key);
/* Decodes the escapes of a raw string, appending to @out. False, and @out as before, on a malformed
 * escape or half of a surrogate pair. */
MUST_CHECK bool json_unescape(struct str raw, struct buf *out);
