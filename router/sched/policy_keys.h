/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of the mappings in a policy file: each is read where it is expected, and what is wrong is told
 * with its place. All return 0 or -EINVAL; what is not there leaves *ret alone. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/json_tree.h"
#include "lib/base/mem.h"

struct err;

/* Where we are, for messages: "policy_classes[2]". */
struct policy_place {
    char text[128];
};

struct policy_place policy_place(const char *format, ...) PRINTF_LIKE(1, 2);
/* @known ends with NULL. */
MUST_CHECK int policy_check_keys(const struct json *object, const char *const *known,
                                 const char *where, struct err *e);
/* *ret is a copy: letters, digits, '_' and '-', at most 63. */
MUST_CHECK int policy_read_name(const struct json *object, const char *key, bool needed,
                                const char *where, char **ret, struct err *e);
MUST_CHECK int policy_read_count(const struct json *object, const char *key, int64_t min,
                                 const char *where, uint64_t *ret, struct err *e);
/* From 0 on. */
MUST_CHECK int policy_read_number(const struct json *object, const char *key, const char *where,
                                  double *ret, struct err *e);
