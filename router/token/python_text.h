/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as Python writes them, which is how models saw them in training. Pure.
 */
#pragma once

#include "lib/base/buf.h"

struct json;

/* repr() of a float: exponents from 1e16 on and below 1e-4, else a point. */
void python_put_float(struct buf *out, double f);
/* json.dumps(v, ensure_ascii=False): a blank behind each comma and colon. */
void python_put_json(struct buf *out, const struct json *v);
