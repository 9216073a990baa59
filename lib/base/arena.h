/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bump arena: many small allocations with one lifetime, freed at once.
 *
 * For what belongs to one request or one reconcile pass. Never returns NULL: what a peer sizes is
 * limited before it is copied in. One thread at a time.
 */
#pragma once

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct arena;

struct arena *arena_new(void);
struct arena *arena_free(struct arena *a);
DEFINE_CLEANUP(struct arena *, arena_free)

/* Aligned for any type, zeroed. */
void *arena_alloc(struct arena *a, size_t size) __attribute__((returns_nonnull));
/* NUL-terminated copies that live as long as the arena. */
char *arena_strdup(struct arena *a, struct str s) __attribute__((returns_nonnull));
char *arena_printf(struct arena *a, const char *format, ...) PRINTF_LIKE(2, 3)
    __attribute__((returns_nonnull));
/* Bytes handed out so far. */
size_t arena_used(const struct arena *a);
/* Empties the arena, keeping one block for the next use. */
void arena_reset(struct arena *a);
