/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as Python writes them, which is how models saw them in training, and as the Rust libraries
 * write them that the reference uses. Pure.
 */
#pragma once

#include "lib/base/buf.h"

struct json;

/* How large and small floats look. */
enum float_form {
    FLOAT_PYTHON,    /* 1e+16, 1e-05 */
    FLOAT_SERDE,     /* 1e+16, 0.00001, 1e-6: serde_json in 1.x */
    FLOAT_OLD_SERDE, /* 1e16, 0.00001, 1e-6: in 0.9.0 */
    FLOAT_DEBUG,     /* 1e16, 1e-5: Rust's, of values in values */
    FLOAT_IN_FULL,   /* 10000000000000000.0, 0.0000001 */
};
/* The shortest digits that read back the same. */
void text_put_float(struct buf *out, double f, enum float_form form);
/* repr() of a float: exponents from 1e16 on and below 1e-4, else a point. */
void python_put_float(struct buf *out, double f);
/* json.dumps(v, ensure_ascii=False) but for floats: a blank behind each comma and colon. */
void text_put_json(struct buf *out, const struct json *v, enum float_form floats);
/* json.dumps(v, ensure_ascii=False). */
void python_put_json(struct buf *out, const struct json *v);
/* Without blanks, keys in the order of their bytes. */
void serde_put_sorted(struct buf *out, const struct json *v);
