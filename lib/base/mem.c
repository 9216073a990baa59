/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

/* Per thread, so that a test which fails allocations does not disturb its neighbours. */
static _Thread_local size_t fail_countdown;
static _Thread_local bool failed;

static void *require(void *p, size_t size)
{
    if (p || size == 0)
        return p;
    fprintf(stderr, "out of memory: %zu bytes\n", size);
    abort();
}

void *xmalloc(size_t size)
{
    return require(malloc(size ? size : 1), size ? size : 1);
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    return require(p, n * size + 1);
}

void *xrealloc(void *p, size_t size)
{
    return require(realloc(p, size ? size : 1), size ? size : 1);
}

void *xreallocarray(void *p, size_t n, size_t size)
{
    if (n == 0 || size == 0)
        return xrealloc(p, 1);
    return require(reallocarray(p, n, size), SIZE_MAX);
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = xmalloc(len + 1);

    memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *xasprintf(const char *format, ...)
{
    char *out = NULL;
    va_list ap;
    int n;

    va_start(ap, format);
    n = vasprintf(&out, format, ap);
    va_end(ap);
    return require(n < 0 ? NULL : out, 1);
}

bool mem_must_fail(void)
{
    if (fail_countdown == 0 || --fail_countdown > 0)
        return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

void *try_alloc(size_t size)
{
    return mem_must_fail() ? NULL : malloc(size ? size : 1);
}

void *try_realloc(void *p, size_t size)
{
    return mem_must_fail() ? NULL : realloc(p, size ? size : 1);
}

static size_t whole_pages(size_t size)
{
    return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

void *try_map_aligned(size_t size, size_t align)
{
    size_t more = align - PAGE; /* the system gives whole pages */
    char *p, *start;

    if (mem_must_fail())
        return NULL;
    p = mmap(NULL, size + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
             -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* What lies before the first aligned address goes back; what lies behind is never touched. */
    start = (char *)(((uintptr_t)p + align - 1) & ~(uintptr_t)(align - 1));
    if (start > p)
        (void)munmap(p, (size_t)(start - p));
    if (start < p + more)
        (void)munmap(start + whole_pages(size), (size_t)(p + more - start));
    return start;
}

void *try_map(size_t size)
{
    enum { HUGE_PAGE = 2 << 20 };
    void *p = try_map_aligned(size, HUGE_PAGE);

    if (p)
        (void)madvise(p, size, MADV_HUGEPAGE);
    return p;
}

void mem_unmap(void *p, size_t size)
{
    if (p)
        (void)munmap(p, size);
}

void mem_fail_at(size_t nth)
{
    fail_countdown = nth;
    failed = false;
}

bool mem_has_failed(void)
{
    return failed;
}
