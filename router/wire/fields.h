/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables between the members of JSON objects and structs of optionals, so that reader, writer and
 * order of keys have one source. Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "router/wire/optional.h"

enum field_type { FIELD_U64, FIELD_U32, FIELD_I64, FIELD_F64, FIELD_BOOL };

struct field {
    const char *key;
    enum field_type type;
    size_t offset; /* of a struct opt_u64 (also for U32), opt_i64, opt_f64 or opt_bool */
};

/* Whether @key is in the table; then its value has been read into @base (null: left unset). */
bool fields_pull(struct json_pull *p, struct str key, const struct field *table, size_t n,
                 void *base);
/* One member; unset is written as null or, with @skip_unset, left out. */
void field_put(struct json_put *j, const struct field *f, const void *base, bool skip_unset);
void fields_put(struct json_put *j, const struct field *table, size_t n, const void *base,
                bool skip_unset);
/* As the reference prints floats: integral values keep their ".0". */
void float_put(struct json_put *j, double v);

/* A string or null, which leaves *ret alone; errors stick to @p. */
static inline void text_pull(struct json_pull *p, struct buf *scratch, struct str *ret)
{
    if (!json_pull_null(p) && !json_pull_string(p, scratch, ret))
        return;
}
/* The text of any value but null, which leaves *ret alone. */
static inline void json_text_pull(struct json_pull *p, struct str *ret)
{
    if (!json_pull_null(p))
        (void)json_pull_skip(p, ret);
}
static inline void skip_pull(struct json_pull *p)
{
    (void)json_pull_skip(p, NULL);
}
