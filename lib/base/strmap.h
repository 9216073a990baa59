/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Map from byte string to pointer; owns copies of its keys, not the values. Hash-flooding safe
 * (keyed by a per-process seed). Iteration is in insertion order (removal keeps the order).
 * One thread at a time.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct strmap;

struct strmap *strmap_new(void);
struct strmap *strmap_free(struct strmap *m); /* keys only */
/* Frees with @drop called on each value first. */
struct strmap *strmap_free_with(struct strmap *m, void (*drop)(void *value));
DEFINE_CLEANUP(struct strmap *, strmap_free)
size_t strmap_len(const struct strmap *m);
void *strmap_get(const struct strmap *m, struct str key); /* NULL when absent */
/* Returns the value that was replaced, or NULL. @value must not be NULL. */
void *strmap_set(struct strmap *m, struct str key, void *value);
void *strmap_remove(struct strmap *m, struct str key); /* the removed value or NULL */
/* Start with *at = 0. Only removal of the current key is allowed meanwhile. */
bool strmap_next(const struct strmap *m, size_t *at, struct str *ret_key, void **ret_value);
