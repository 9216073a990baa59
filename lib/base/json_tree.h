/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON trees for Kubernetes objects and configuration (cJSON behind our names).
 *
 * Strict where cJSON is lenient: keys match by case, nothing may follow the value, text is UTF-8,
 * depth and size are limited, and an integer beyond ±2^53 is refused (-ERANGE) rather than
 * rounded. What carries full 64-bit ids is read with json_pull instead. Of several members with
 * one name the last stays, as in the API server. A string with NUL inside is refused.
 *
 * A tree has one owner; json_set/json_add take their child. Getters borrow. Not thread safe for
 * writing; a finished tree may be read by many threads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/json_pull.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct json;

enum { JSON_TREE_MAX_BYTES = 64 << 20, JSON_TREE_DEPTH = 128 };

/* 0, -EINVAL (with the byte), -ERANGE (an integer) or -E2BIG. */
MUST_CHECK int json_parse(struct json **ret, struct str text, struct err *e);
/* The same for what clients send to models: integers keep all their digits, up to 64 bits with or without a
 * sign, and one beyond is a float. Printed they are as they were; json_f64() rounds them. */
MUST_CHECK int json_parse_wide(struct json **ret, struct str text, struct err *e);
/* Of the value that comes next, as json_parse_wide() reads it. NULL: the scanner has an error. */
MUST_CHECK struct json *json_pull_tree(struct json_pull *p);
struct json *json_free(struct json *v);
DEFINE_CLEANUP(struct json *, json_free)

/* Compact text, keys in tree order. */
void json_print(const struct json *v, struct buf *out);
char *json_to_cstr(const struct json *v) __attribute__((returns_nonnull));
/* Compact text with keys sorted bytewise at every level: for hashes. */
void json_print_sorted(const struct json *v, struct buf *out);

enum json_kind json_kind_of(const struct json *v); /* NULL is JSON_KIND_NONE */
static inline bool json_is_object(const struct json *v)
{
    return json_kind_of(v) == JSON_KIND_OBJECT;
}
static inline bool json_is_array(const struct json *v)
{
    return json_kind_of(v) == JSON_KIND_ARRAY;
}
static inline bool json_is_string(const struct json *v)
{
    return json_kind_of(v) == JSON_KIND_STRING;
}
static inline bool json_is_null(const struct json *v)
{
    return json_kind_of(v) == JSON_KIND_NULL;
}

/* Every getter takes NULL and other kinds and then finds nothing. */
struct json *json_get(const struct json *object, const char *key);
/* json_path(dgd, "metadata", "name", NULL) */
struct json *json_path(const struct json *object, ...) __attribute__((sentinel));
size_t json_len(const struct json *array_or_object);
struct json *json_at(const struct json *array, size_t i);
const char *json_key(const struct json *member); /* of an object's member, else NULL */
struct json *json_first(const struct json *array_or_object);
struct json *json_next(const struct json *child);
#define JSON_FOREACH(child, parent)                                                                \
    for (struct json *child = json_first(parent); child; child = json_next(child))

const char *json_cstr(const struct json *v);                           /* NULL unless a string */
const char *json_get_cstr(const struct json *object, const char *key); /* NULL unless a string */
/* True and *ret written when present with the right kind (an integer for i64). */
bool json_get_i64(const struct json *object, const char *key, int64_t *ret);
bool json_get_f64(const struct json *object, const char *key, double *ret);
bool json_get_bool(const struct json *object, const char *key, bool *ret);
bool json_i64(const struct json *v, int64_t *ret);
/* Of an integer without a sign that json_parse_wide() kept beyond 2^53. */
bool json_u64(const struct json *v, uint64_t *ret);
bool json_f64(const struct json *v, double *ret);
/* Whether it was parsed from a text with a fraction or exponent: 1.0 and not 1. */
bool json_is_float(const struct json *v);
bool json_bool(const struct json *v, bool *ret);
/* Whether others with its name stood before this member where it was parsed. */
bool json_is_repeated(const struct json *member);

struct json *json_new_object(void) __attribute__((returns_nonnull));
struct json *json_new_array(void) __attribute__((returns_nonnull));
/* Strings end at the first NUL. */
struct json *json_new_str(struct str s) __attribute__((returns_nonnull));
struct json *json_new_cstr(const char *s) __attribute__((returns_nonnull));
struct json *json_new_i64(int64_t v) __attribute__((returns_nonnull)); /* |v| <= 2^53 */
struct json *json_new_f64(double v) __attribute__((returns_nonnull));  /* nan and inf become null */
struct json *json_new_null(void) __attribute__((returns_nonnull));
struct json *json_dup(const struct json *v); /* NULL in, NULL out */

/* Takes @child (NULL removes the key); replaces; returns @child, borrowed. */
struct json *json_set(struct json *object, const char *key, struct json *child);
struct json *json_set_cstr(struct json *object, const char *key, const char *s);
struct json *json_set_i64(struct json *object, const char *key, int64_t v);
struct json *json_set_bool(struct json *object, const char *key, bool v);
/* The member, made an empty object/array if absent or of another kind. */
struct json *json_need_object(struct json *object, const char *key);
struct json *json_need_array(struct json *object, const char *key);
struct json *json_add(struct json *array, struct json *child); /* takes; appends */
struct json *json_insert(struct json *array, size_t i, struct json *child);
void json_del(struct json *object, const char *key);
struct json *json_take(struct json *object, const char *key); /* detached, owned; NULL if absent */
struct json *json_take_at(struct json *array, size_t i);

/* Same value; the order of object keys does not matter. */
bool json_equal(const struct json *a, const struct json *b);
/*
 * Whether everything in @part is in @whole: objects by key, arrays element by element with equal
 * length, scalars equal. How drift from a desired object is seen under API-server defaults.
 */
bool json_contains(const struct json *whole, const struct json *part);
