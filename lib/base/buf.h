/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growable byte buffer: append at the end, consume from the front.
 *
 * Embedded by value; zero-initialised is empty. Growth aborts on memory exhaustion, so whoever
 * fills a buffer from a peer checks its own limit first. Bytes below `len` start at buf_data().
 * One thread at a time.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct buf {
    char *base;
    size_t start; /* bytes already consumed */
    size_t len;   /* unread bytes */
    size_t cap;
};

#define BUF_NULL ((struct buf){0})

void buf_done(struct buf *b); /* frees; the buffer is empty and usable again */
DEFINE_CLEANUP_EMBEDDED(struct buf, buf_done)

static inline char *buf_data(const struct buf *b)
{
    return b->start ? b->base + b->start : b->base; /* NULL + 0 is undefined */
}
/* Borrowed until the next change. */
static inline struct str buf_str(const struct buf *b)
{
    return (struct str){b->len ? buf_data(b) : NULL, b->len};
}
void buf_clear(struct buf *b); /* keeps the memory */
/* Room for @n more bytes; returns where they go. Follow with buf_commit(). */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);
void buf_put(struct buf *b, const void *data, size_t n);
void buf_put_str(struct buf *b, struct str s);
void buf_put_cstr(struct buf *b, const char *s);
void buf_put_char(struct buf *b, char c);
void buf_put_u16be(struct buf *b, uint16_t v);
void buf_put_u32be(struct buf *b, uint32_t v);
void buf_put_u64be(struct buf *b, uint64_t v);
void buf_put_u64dec(struct buf *b, uint64_t v);
void buf_printf(struct buf *b, const char *format, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *b, const char *format, va_list ap) PRINTF_LIKE(2, 0);
/* Drops @n bytes from the front; n <= len. */
void buf_consume(struct buf *b, size_t n);
/* Drops all bytes behind the first @len. */
void buf_truncate(struct buf *b, size_t len);
/* NUL-terminates (not counted in len) and returns the text; borrowed. */
const char *buf_cstr(struct buf *b);
/* Moves the bytes out as a NUL-terminated heap string; the buffer becomes empty. */
char *buf_take_cstr(struct buf *b) __attribute__((returns_nonnull));

static inline uint16_t load_u16be(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] << 8 | b[1]);
}
static inline uint32_t load_u32be(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}
static inline uint64_t load_u64be(const void *p)
{
    return (uint64_t)load_u32be(p) << 32 | load_u32be((const uint8_t *)p + 4);
}
