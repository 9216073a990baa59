/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and ownership in one vocabulary.
 *
 * AUTO(x_free) on a local that owns; TAKE(p) hands it over. x_free() takes NULL and half-built
 * objects and returns NULL. The x-allocators abort when memory is gone: they are for sizes that
 * we choose. Whatever a peer sizes is limited first and uses try_alloc(), which may fail and
 * which tests make fail on purpose (mem_fail_at).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) min_a_ = (a);                                                                \
        __typeof__(b) min_b_ = (b);                                                                \
        min_a_ < min_b_ ? min_a_ : min_b_;                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) max_a_ = (a);                                                                \
        __typeof__(b) max_b_ = (b);                                                                \
        max_a_ > max_b_ ? max_a_ : max_b_;                                                         \
    })
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Runs fn(local) when the variable leaves its scope. Declare with DEFINE_CLEANUP(type, fn). */
#define AUTO(fn) __attribute__((cleanup(fn##_auto_)))

/* DEFINE_CLEANUP(struct x *, x_free): x_free(NULL) must be harmless. */
#define DEFINE_CLEANUP(type, fn)                                                                   \
    static inline __attribute__((unused)) void fn##_auto_(type *cleanup_ptr_)                      \
    {                                                                                              \
        (void)fn(*cleanup_ptr_);                                                                   \
    }

/* DEFINE_CLEANUP_EMBEDDED(struct x, x_done): for values, x_done(struct x *). */
#define DEFINE_CLEANUP_EMBEDDED(type, fn)                                                          \
    static inline __attribute__((unused)) void fn##_auto_(type *cleanup_ptr_)                      \
    {                                                                                              \
        fn(cleanup_ptr_);                                                                          \
    }

/* Moves ownership out of a pointer variable, which becomes NULL. */
#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

/* Never return NULL; abort when memory is gone. */
void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t size) __attribute__((returns_nonnull));
void *xreallocarray(void *p, size_t n, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
char *xstrndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
char *xasprintf(const char *format, ...) __attribute__((malloc, returns_nonnull)) PRINTF_LIKE(1, 2);

/* malloc() and realloc() that tests can fail. NULL when memory is gone. */
MUST_CHECK void *try_alloc(size_t size);
MUST_CHECK void *try_realloc(void *p, size_t size);

/*
 * Zeroed memory straight from the system, which has it back at once with mem_unmap(); on huge pages
 * if there are some. For megabytes. Fails like try_alloc().
 */
MUST_CHECK void *try_map(size_t size);
/* Likewise on small pages, at a multiple of @align, which is a power of two and a page or more. */
MUST_CHECK void *try_map_aligned(size_t size, size_t align);
void mem_unmap(void *p, size_t size); /* @p may be NULL */

/* The @nth call of a try_ function from now on fails (1 = the next); 0 = never. For tests. */
void mem_fail_at(size_t nth);
/* For allocators that have a stock: whether this call is the one that fails, as those of try_alloc(). */
bool mem_must_fail(void);
/* Whether the failure armed by mem_fail_at() has happened. */
bool mem_has_failed(void);

/* free() with NULL returned, so that it works with AUTO. */
static inline void *mem_free(void *p)
{
    free(p);
    return NULL;
}
static inline __attribute__((unused)) void mem_free_auto_(void *pp)
{
    free(*(void **)pp);
}
