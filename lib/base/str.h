/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view of bytes: pointer and length, never owning, not necessarily NUL-terminated.
 *
 * Parsers hand out views into the buffer that they were given, so nothing is copied until it
 * must outlive that buffer. Pure and thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/mem.h"

struct str {
    const char *ptr; /* may be NULL when len is 0 */
    size_t len;
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
#define STR_NULL ((struct str){NULL, 0})
/* printf("%.*s", STR_ARG(s)) */
#define STR_ARG(s) (int)(s).len, (s).ptr ? (s).ptr : ""

/* NULL becomes an empty view. */
static inline struct str str_from(const char *cstr)
{
    return (struct str){cstr, cstr ? strlen(cstr) : 0};
}
static inline struct str str_slice(const void *ptr, size_t len)
{
    return (struct str){ptr, len};
}
static inline bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}
static inline bool str_is(struct str a, const char *cstr)
{
    return str_eq(a, str_from(cstr));
}
bool str_eq_nocase(struct str a, struct str b); /* ASCII only */
int str_cmp(struct str a, struct str b);        /* bytewise, shorter first */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
bool str_has(struct str s, struct str needle);
/* Index of the first @c, or s.len. */
size_t str_index(struct str s, char c);
/* Without white space (space, tab, CR, LF) on both ends. */
struct str str_trim(struct str s);
struct str str_skip(struct str s, size_t n); /* without the first n bytes; n may exceed len */
struct str str_head(struct str s, size_t n); /* at most the first n bytes */
/*
 * Cuts off the part before the first @sep: *rest is what follows it. Returns false, and *ret_part
 * all of it, when there is no separator left.
 *
 *     for (bool more = true; more;) {
 *         more = str_cut(&rest, ',', &part);
 *         ...
 *     }
 */
bool str_cut(struct str *rest, char sep, struct str *ret_part);
/* Owned NUL-terminated copy; stops at nothing, so embedded NULs are kept. */
char *str_dup(struct str s) __attribute__((malloc, returns_nonnull));
bool str_is_utf8(struct str s);
/* Bytes of the well-formed character that s begins with; 0 when it is malformed or s is empty. */
size_t str_utf8_char(struct str s);

/*
 * Whole-string numbers: no spaces, no trailing bytes, no overflow. False leaves *ret alone.
 * u64 takes digits only, hex lower- or upper-case digits without 0x, f64 no inf or nan,
 * bool true/false/1/0/yes/no/on/off without regard to case.
 */
MUST_CHECK bool str_parse_u64(struct str s, uint64_t *ret);
MUST_CHECK bool str_parse_hex64(struct str s, uint64_t *ret);
MUST_CHECK bool str_parse_base(struct str s, unsigned base, uint64_t *ret); /* base 2 to 16 */
MUST_CHECK bool str_parse_i64(struct str s, int64_t *ret);
MUST_CHECK bool str_parse_f64(struct str s, double *ret);
MUST_CHECK bool str_parse_bool(struct str s, bool *ret);
