/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, int code, const char *format, ...)
{
    va_list ap;

    assert(code < 0);
    if (!e)
        return code;

    va_start(ap, format);
    (void)vsnprintf(e->text, sizeof(e->text), format, ap);
    va_end(ap);
    return code;
}

int err_errno(struct err *e, int code, const char *format, ...)
{
    char what[ERR_TEXT_MAX];
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(what, sizeof(what), format, ap);
    va_end(ap);
    return err_set(e, code, "%.400s: %s", what, strerrordesc_np(-code));
}

int err_wrap(struct err *e, int code, const char *format, ...)
{
    char inner[ERR_TEXT_MAX];
    va_list ap;
    size_t used;

    assert(code < 0);
    if (!e)
        return code;

    memcpy(inner, e->text, sizeof(inner));
    inner[sizeof(inner) - 1] = '\0';

    va_start(ap, format);
    (void)vsnprintf(e->text, sizeof(e->text), format, ap);
    va_end(ap);
    used = strlen(e->text);
    (void)snprintf(e->text + used, sizeof(e->text) - used, ": %.*s", ERR_TEXT_MAX, inner);
    return code;
}
