/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Format: the MessagePack specification, "Formats". A value is a head (one byte and up to eight of
 * operand) and, for text, bytes and extensions, a body; the elements of arrays and maps are values
 * of their own.
 */
#include "lib/base/msgpack.h"

#include <assert.h>
#include <errno.h>

#include "lib/base/err.h"

/* First bytes of values; of a short text its upper bits. */
enum { FIRST_SHORT_STR = 0xA0, FIRST_NIL = 0xC0, FIRST_U64 = 0xCF };

struct head {
    enum msgpack_kind kind;
    size_t size;    /* bytes up to the body or the first element */
    uint64_t value; /* the number's bits, the body's length, or the count */
    bool negative;
};

/* First bytes 0xC0 to 0xDF: kind and width of the operand. */
static const struct format {
    uint8_t kind;
    uint8_t width;
} formats[32] = {
    [0x00] = {MSGPACK_NIL, 0},   [0x02] = {MSGPACK_BOOL, 0},  [0x03] = {MSGPACK_BOOL, 0},
    [0x04] = {MSGPACK_BIN, 1},   [0x05] = {MSGPACK_BIN, 2},   [0x06] = {MSGPACK_BIN, 4},
    [0x07] = {MSGPACK_EXT, 1},   [0x08] = {MSGPACK_EXT, 2},   [0x09] = {MSGPACK_EXT, 4},
    [0x0A] = {MSGPACK_FLOAT, 4}, [0x0B] = {MSGPACK_FLOAT, 8}, [0x0C] = {MSGPACK_INT, 1},
    [0x0D] = {MSGPACK_INT, 2},   [0x0E] = {MSGPACK_INT, 4},   [0x0F] = {MSGPACK_INT, 8},
    [0x10] = {MSGPACK_INT, 1},   [0x11] = {MSGPACK_INT, 2},   [0x12] = {MSGPACK_INT, 4},
    [0x13] = {MSGPACK_INT, 8},   [0x14] = {MSGPACK_EXT, 0},   [0x15] = {MSGPACK_EXT, 0},
    [0x16] = {MSGPACK_EXT, 0},   [0x17] = {MSGPACK_EXT, 0},   [0x18] = {MSGPACK_EXT, 0},
    [0x19] = {MSGPACK_STR, 1},   [0x1A] = {MSGPACK_STR, 2},   [0x1B] = {MSGPACK_STR, 4},
    [0x1C] = {MSGPACK_ARRAY, 2}, [0x1D] = {MSGPACK_ARRAY, 4}, [0x1E] = {MSGPACK_MAP, 2},
    [0x1F] = {MSGPACK_MAP, 4},
};

void msgpack_reader_init(struct msgpack_reader *r, struct str bytes)
{
    const uint8_t *begin = (const uint8_t *)(bytes.ptr ? bytes.ptr : "");

    *r = (struct msgpack_reader){.begin = begin, .at = begin, .end = begin + bytes.len};
}

void msgpack_fail(struct msgpack_reader *r, const char *what)
{
    if (!r->error)
        r->error = what;
}

static bool fail(struct msgpack_reader *r, const char *what)
{
    msgpack_fail(r, what);
    return false;
}

/* --- heads ----------------------------------------------------------------------------------- */

static struct head fixed_head(uint8_t first)
{
    if (first < 0x80)
        return (struct head){MSGPACK_INT, 1, first, false};
    if (first < 0x90)
        return (struct head){MSGPACK_MAP, 1, first & 0x0F, false};
    if (first < 0xA0)
        return (struct head){MSGPACK_ARRAY, 1, first & 0x0F, false};
    if (first < 0xC0)
        return (struct head){MSGPACK_STR, 1, first & 0x1F, false};
    return (struct head){MSGPACK_INT, 1, (uint64_t)(int8_t)first, true};
}

static uint64_t load_be(const uint8_t *p, size_t width)
{
    switch (width) {
    case 0:
        return 0;
    case 1:
        return p[0];
    case 2:
        return load_u16be(p);
    case 4:
        return load_u32be(p);
    default:
        return load_u64be(p);
    }
}

/* The operand is known to be there. */
static struct head wide_head(const uint8_t *p)
{
    struct format format = formats[p[0] - 0xC0];
    struct head h = {format.kind, 1u + format.width, load_be(p + 1, format.width), false};

    if (h.kind == MSGPACK_BOOL) {
        h.value = p[0] & 1;
    } else if (p[0] >= 0xD0 && p[0] <= 0xD3) {
        unsigned unused = 64 - 8u * format.width;

        h.value = (uint64_t)((int64_t)(h.value << unused) >> unused); /* the sign fills up */
        h.negative = h.value >> 63;
    } else if (h.kind == MSGPACK_EXT) {
        if (format.width == 0)
            h.value = UINT64_C(1) << (p[0] - 0xD4);
        h.value++; /* its type counts as body */
    }
    return h;
}

/* Bytes that must follow the head: the body, or one for each element. */
static uint64_t least_after(const struct head *h)
{
    switch (h->kind) {
    case MSGPACK_STR:
    case MSGPACK_BIN:
    case MSGPACK_EXT:
    case MSGPACK_ARRAY:
        return h->value;
    case MSGPACK_MAP:
        return 2 * h->value;
    case MSGPACK_NONE:
    case MSGPACK_NIL:
    case MSGPACK_BOOL:
    case MSGPACK_INT:
    case MSGPACK_FLOAT:
        break;
    }
    return 0;
}

/* Whether a value begins with a byte of the kind that (@first, @mask) tell and has @n bytes. Events are
 * long rows of few kinds of values, for which this is all that has to be asked. */
static bool begins(const struct msgpack_reader *r, uint8_t first, uint8_t mask, size_t n)
{
    return !r->error && (size_t)(r->end - r->at) >= n && (r->at[0] & mask) == first;
}

/* Without moving. */
static bool look(struct msgpack_reader *r, struct head *ret)
{
    size_t left = (size_t)(r->end - r->at);
    bool wide = left && r->at[0] >= 0xC0 && r->at[0] < 0xE0;

    if (r->error)
        return false;
    if (left == 0 || (wide && left <= formats[r->at[0] - 0xC0].width))
        return fail(r, "the bytes end early");
    *ret = wide ? wide_head(r->at) : fixed_head(r->at[0]);
    if (ret->kind == MSGPACK_NONE)
        return fail(r, "0xc1 is no format");
    if (least_after(ret) > left - ret->size)
        return fail(r, "a length or count exceeds what is left");
    return true;
}

/* Consumes the head of a @kind. */
static bool take(struct msgpack_reader *r, enum msgpack_kind kind, const char *otherwise,
                 struct head *ret)
{
    if (!look(r, ret))
        return false;
    if (ret->kind != kind)
        return fail(r, otherwise);
    r->at += ret->size;
    return true;
}

/* --- reading --------------------------------------------------------------------------------- */

enum msgpack_kind msgpack_peek(struct msgpack_reader *r)
{
    struct head h;

    if (r->at == r->end)
        return MSGPACK_NONE;
    return look(r, &h) ? h.kind : MSGPACK_NONE;
}

bool msgpack_read_array(struct msgpack_reader *r, uint32_t *ret_n)
{
    struct head h;

    if (!take(r, MSGPACK_ARRAY, "expected an array", &h))
        return false;
    *ret_n = (uint32_t)h.value;
    return true;
}

bool msgpack_read_map(struct msgpack_reader *r, uint32_t *ret_n)
{
    struct head h;

    if (!take(r, MSGPACK_MAP, "expected a map", &h))
        return false;
    *ret_n = (uint32_t)h.value;
    return true;
}

bool msgpack_read_u64(struct msgpack_reader *r, uint64_t *ret)
{
    struct head h;

    if (!take(r, MSGPACK_INT, "expected an integer", &h))
        return false;
    if (h.negative)
        return fail(r, "integer out of range");
    *ret = h.value;
    return true;
}

bool msgpack_read_i64(struct msgpack_reader *r, int64_t *ret)
{
    struct head h;

    if (!take(r, MSGPACK_INT, "expected an integer", &h))
        return false;
    if (!h.negative && h.value > INT64_MAX)
        return fail(r, "integer out of range");
    *ret = (int64_t)h.value;
    return true;
}

bool msgpack_read_hash(struct msgpack_reader *r, uint64_t *ret)
{
    struct head h;

    if (begins(r, FIRST_U64, 0xFF, 1 + sizeof(*ret))) {
        *ret = load_u64be(r->at + 1);
        r->at += 1 + sizeof(*ret);
        return true;
    }
    if (!take(r, MSGPACK_INT, "expected an integer", &h))
        return false;
    *ret = h.value;
    return true;
}

static double float_of(const struct head *h)
{
    uint32_t narrow_bits = (uint32_t)h->value;
    float narrow;
    double wide;

    if (h->size == 1 + sizeof(narrow)) {
        memcpy(&narrow, &narrow_bits, sizeof(narrow));
        return (double)narrow;
    }
    memcpy(&wide, &h->value, sizeof(wide));
    return wide;
}

bool msgpack_read_f64(struct msgpack_reader *r, double *ret)
{
    struct head h;

    if (!look(r, &h))
        return false;
    if (h.kind == MSGPACK_INT)
        *ret = h.negative ? (double)(int64_t)h.value : (double)h.value;
    else if (h.kind == MSGPACK_FLOAT)
        *ret = float_of(&h);
    else
        return fail(r, "expected a number");
    r->at += h.size;
    return true;
}

bool msgpack_read_bool(struct msgpack_reader *r, bool *ret)
{
    struct head h;

    if (!take(r, MSGPACK_BOOL, "expected true or false", &h))
        return false;
    *ret = h.value;
    return true;
}

bool msgpack_read_str(struct msgpack_reader *r, struct str *ret)
{
    struct head h;

    if (begins(r, FIRST_SHORT_STR, 0xE0, 1) &&
        begins(r, FIRST_SHORT_STR, 0xE0, 1 + (r->at[0] & 31u))) {
        *ret = str_slice(r->at + 1, r->at[0] & 31u);
        r->at += 1 + ret->len;
        return true;
    }
    if (!look(r, &h))
        return false;
    if (h.kind != MSGPACK_STR && h.kind != MSGPACK_BIN)
        return fail(r, "expected text or bytes");
    *ret = str_slice(r->at + h.size, h.value);
    r->at += h.size + h.value;
    return true;
}

bool msgpack_read_nil(struct msgpack_reader *r)
{
    if (msgpack_peek(r) != MSGPACK_NIL)
        return false;
    r->at++;
    return true;
}

static bool skip_nested(struct msgpack_reader *r)
{
    uint64_t open[MSGPACK_DEPTH + 1]; /* values still to come, a level each */
    size_t level = 0;
    struct head h;

    open[0] = 1;
    for (;;) {
        while (open[level] == 0) {
            if (level == 0)
                return true;
            level--;
        }
        open[level]--;
        if (!look(r, &h))
            return false;
        r->at += h.size;
        if (h.kind != MSGPACK_ARRAY && h.kind != MSGPACK_MAP) {
            r->at += least_after(&h);
        } else {
            if (level == MSGPACK_DEPTH)
                return fail(r, "nested too deeply");
            open[++level] = least_after(&h);
        }
    }
}

bool msgpack_skip(struct msgpack_reader *r)
{
    if (!begins(r, FIRST_NIL, 0xFF, 1))
        return skip_nested(r);
    r->at++;
    return true;
}

int msgpack_end(struct msgpack_reader *r, struct err *e)
{
    if (!r->error && r->at < r->end)
        r->error = "something follows the value";
    if (!r->error)
        return 0;
    return err_set(e, -EBADMSG, "byte %zu: %s", (size_t)(r->at - r->begin), r->error);
}

/* --- writing --------------------------------------------------------------------------------- */

/* A first byte and the low @width bytes of @v, most significant first. */
static void put_wide(struct buf *out, uint8_t first, uint64_t v, size_t width)
{
    char bytes[9] = {(char)first};

    for (size_t i = width; i > 0; i--, v >>= 8)
        bytes[i] = (char)v;
    buf_put(out, bytes, 1 + width);
}

/* In the narrowest of the formats for 1, 2, 4 and 8 bytes, whose first bytes follow each other. */
static void put_narrowest(struct buf *out, uint8_t first, uint64_t v, uint64_t needed)
{
    uint8_t step = needed <= UINT8_MAX    ? 0
                   : needed <= UINT16_MAX ? 1
                   : needed <= UINT32_MAX ? 2
                                          : 3;

    put_wide(out, (uint8_t)(first + step), v, (size_t)1 << step);
}

void msgpack_put_nil(struct buf *out)
{
    put_wide(out, 0xC0, 0, 0);
}

void msgpack_put_bool(struct buf *out, bool v)
{
    put_wide(out, v ? 0xC3 : 0xC2, 0, 0);
}

void msgpack_put_u64(struct buf *out, uint64_t v)
{
    if (v < 0x80)
        put_wide(out, (uint8_t)v, 0, 0);
    else
        put_narrowest(out, 0xCC, v, v);
}

void msgpack_put_i64(struct buf *out, int64_t v)
{
    if (v >= 0)
        msgpack_put_u64(out, (uint64_t)v);
    else if (v >= -32)
        put_wide(out, (uint8_t)v, 0, 0);
    else
        put_narrowest(out, 0xD0, (uint64_t)v, ~(uint64_t)v << 1); /* a bit more for the sign */
}

void msgpack_put_f64(struct buf *out, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    put_wide(out, 0xCB, bits, sizeof(bits));
}

void msgpack_put_str(struct buf *out, struct str s)
{
    assert(s.len <= UINT32_MAX);
    if (s.len < 32)
        put_wide(out, (uint8_t)(0xA0 | s.len), 0, 0);
    else
        put_narrowest(out, 0xD9, s.len, s.len);
    buf_put_str(out, s);
}

void msgpack_put_cstr(struct buf *out, const char *s)
{
    msgpack_put_str(out, str_from(s));
}

void msgpack_put_bin(struct buf *out, struct str bytes)
{
    assert(bytes.len <= UINT32_MAX);
    put_narrowest(out, 0xC4, bytes.len, bytes.len);
    buf_put_str(out, bytes);
}

/* Arrays and maps count up to 15 in their first byte and have no format with a one-byte count. */
static void put_count(struct buf *out, uint8_t fixed, uint8_t wide, uint32_t n)
{
    if (n < 16)
        put_wide(out, (uint8_t)(fixed | n), 0, 0);
    else if (n <= UINT16_MAX)
        put_wide(out, wide, n, 2);
    else
        put_wide(out, (uint8_t)(wide + 1), n, 4);
}

void msgpack_put_array(struct buf *out, uint32_t n)
{
    put_count(out, 0x90, 0xDC, n);
}

void msgpack_put_map(struct buf *out, uint32_t n)
{
    put_count(out, 0x80, 0xDE, n);
}
