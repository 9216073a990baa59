/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming JSON writer into a buf: commas and escapes are its job, nesting is the caller's.
 * Output is compact UTF-8; invalid UTF-8 input becomes U+FFFD. Cheap enough for the token path.
 *
 *     struct json_put j = json_put_on(&out);
 *     json_put_object(&j);
 *     json_put_member_u64(&j, "id", id);
 *     json_put_object_end(&j);
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

struct json_put {
    struct buf *out;
    bool comma; /* the next value needs one before it */
};

static inline struct json_put json_put_on(struct buf *out)
{
    return (struct json_put){.out = out};
}
void json_put_object(struct json_put *j);
void json_put_object_end(struct json_put *j);
void json_put_array(struct json_put *j);
void json_put_array_end(struct json_put *j);
void json_put_key(struct json_put *j, const char *key);
void json_put_key_str(struct json_put *j, struct str key);
void json_put_str(struct json_put *j, struct str s);
void json_put_cstr(struct json_put *j, const char *s); /* NULL writes null */
void json_put_u64(struct json_put *j, uint64_t v);
void json_put_i64(struct json_put *j, int64_t v);
/* An array of numbers, faster than one by one. */
void json_put_u32_array(struct json_put *j, const uint32_t *v, size_t n);
/* Shortest text that reads back the same; nan and inf write null. */
void json_put_f64(struct json_put *j, double v);
void json_put_bool(struct json_put *j, bool v);
void json_put_null(struct json_put *j);
/* A key and its value. */
void json_put_member_u64(struct json_put *j, const char *key, uint64_t v);
void json_put_member_str(struct json_put *j, const char *key, struct str s);
void json_put_member_cstr(struct json_put *j, const char *key, const char *s); /* NULL: null */
void json_put_member_bool(struct json_put *j, const char *key, bool v);
/* A value that is JSON already. */
void json_put_raw(struct json_put *j, struct str json);
/* A member of another text, as json_pull_key() and json_pull_skip() give it: the key has its escapes. */
void json_put_member_raw(struct json_put *j, struct str raw_key, struct str json);
/* Only the escaped characters, without quotes. */
void json_escape(struct buf *out, struct str s);
