/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/buf.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { BUF_MIN = 256 };

void buf_done(struct buf *b)
{
    free(b->base);
    *b = BUF_NULL;
}

void buf_clear(struct buf *b)
{
    b->start = 0;
    b->len = 0;
}

static void make_room(struct buf *b, size_t n)
{
    size_t cap = MAX(b->cap, (size_t)BUF_MIN);

    /* Consumed bytes are reclaimed before the buffer grows. */
    if (b->start && b->len + n <= b->cap) {
        memmove(b->base, b->base + b->start, b->len);
        b->start = 0;
        return;
    }
    while (cap < b->start + b->len + n)
        cap *= 2;
    b->base = xrealloc(b->base, cap);
    b->cap = cap;
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->cap - b->start - b->len < n || !b->base)
        make_room(b, n);
    return b->base + b->start + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
    assert(b->start + b->len + n <= b->cap);
    b->len += n;
}

void buf_put(struct buf *b, const void *data, size_t n)
{
    if (n == 0)
        return;
    memcpy(buf_reserve(b, n), data, n);
    b->len += n;
}

void buf_put_str(struct buf *b, struct str s)
{
    buf_put(b, s.ptr, s.len);
}

void buf_put_cstr(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

void buf_put_char(struct buf *b, char c)
{
    *buf_reserve(b, 1) = c;
    b->len++;
}

void buf_put_u16be(struct buf *b, uint16_t v)
{
    uint8_t bytes[2] = {(uint8_t)(v >> 8), (uint8_t)v};

    buf_put(b, bytes, sizeof(bytes));
}

void buf_put_u32be(struct buf *b, uint32_t v)
{
    buf_put_u16be(b, (uint16_t)(v >> 16));
    buf_put_u16be(b, (uint16_t)v);
}

void buf_put_u64be(struct buf *b, uint64_t v)
{
    buf_put_u32be(b, (uint32_t)(v >> 32));
    buf_put_u32be(b, (uint32_t)v);
}

void buf_put_u64dec(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    buf_put(b, digits + at, sizeof(digits) - at);
}

void buf_vprintf(struct buf *b, const char *format, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(buf_reserve(b, BUF_MIN), BUF_MIN, format, ap);
    assert(n >= 0);
    if (n >= BUF_MIN)
        (void)vsnprintf(buf_reserve(b, (size_t)n + 1), (size_t)n + 1, format, again);
    va_end(again);
    b->len += (size_t)n;
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    buf_vprintf(b, format, ap);
    va_end(ap);
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    b->start += n;
    b->len -= n;
    if (b->len == 0)
        b->start = 0;
}

void buf_truncate(struct buf *b, size_t len)
{
    assert(len <= b->len);
    b->len = len;
}

const char *buf_cstr(struct buf *b)
{
    *buf_reserve(b, 1) = '\0';
    return buf_data(b);
}

char *buf_take_cstr(struct buf *b)
{
    char *text;

    if (b->start) {
        memmove(b->base, b->base + b->start, b->len);
        b->start = 0;
    }
    (void)buf_cstr(b);
    text = b->base;
    *b = BUF_NULL;
    return text;
}
