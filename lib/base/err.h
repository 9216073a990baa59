/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors as values: what went wrong, in words for the person who must act on it.
 *
 * A function that can fail returns 0, a negative errno, or a positive outcome that its header
 * names. It fills its `struct err` exactly when the result is negative. A negative result is
 * passed up unchanged or wrapped once per layer; a positive one is handled by the direct caller.
 * A message reads from the outside in: "kube: service account token: open '/x': No such file".
 */
#pragma once

#include <stddef.h>

enum { ERR_TEXT_MAX = 512 };

struct err {
    char text[ERR_TEXT_MAX]; /* NUL-terminated; cut at the end when too long */
};

/* Writes the message and returns @code, which must be negative. @e may be NULL. */
int err_set(struct err *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* As err_set(), with ": " and the text of @code's errno appended. */
int err_errno(struct err *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "format: " before the message that is there and returns @code. @e may be NULL. */
int err_wrap(struct err *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
