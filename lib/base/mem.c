/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

static bool must_fail(void)
{
    if (fail_countdown == 0 || --fail_countdown > 0)
        return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

void *try_alloc(size_t size)
{
    return must_fail() ? NULL : malloc(size ? size : 1);
}

void *try_realloc(void *p, size_t size)
{
    return must_fail() ? NULL : realloc(p, size ? size : 1);
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
