/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optional numbers of the payloads: a key that is absent or null is not the same as 0.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/json_put.h"

struct opt_u64 {
    bool set;
    uint64_t v;
};
struct opt_i64 {
    bool set;
    int64_t v;
};
struct opt_f64 {
    bool set;
    double v;
};
struct opt_bool {
    bool set;
    bool v;
};

#define OPT_U64(x) ((struct opt_u64){true, (x)})
#define OPT_I64(x) ((struct opt_i64){true, (x)})
#define OPT_F64(x) ((struct opt_f64){true, (x)})
#define OPT_BOOL(x) ((struct opt_bool){true, (x)})

/* The member @key: its number, or null. */
static inline void opt_u64_put(struct json_put *j, const char *key, struct opt_u64 v)
{
    json_put_key(j, key);
    if (v.set)
        json_put_u64(j, v.v);
    else
        json_put_null(j);
}
