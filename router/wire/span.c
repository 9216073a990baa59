/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/span.h"

/* Numbers of fields, by message. */
enum { REQUEST_RESOURCE_SPANS = 1 };
enum { RESOURCE_SPANS_RESOURCE = 1, RESOURCE_SPANS_SCOPE_SPANS = 2 };
enum { RESOURCE_ATTRIBUTES = 1 };
enum { SCOPE_SPANS_SCOPE = 1, SCOPE_SPANS_SPANS = 2 };
enum { SCOPE_NAME = 1 };
enum {
    SPAN_TRACE_ID = 1,
    SPAN_SPAN_ID = 2,
    SPAN_TRACE_STATE = 3,
    SPAN_PARENT_SPAN_ID = 4,
    SPAN_NAME = 5,
    SPAN_KIND = 6,
    SPAN_START = 7,
    SPAN_END = 8,
    SPAN_ATTRIBUTES = 9,
    SPAN_STATUS = 15,
    SPAN_FLAGS = 16
};
enum { STATUS_MESSAGE = 2, STATUS_CODE = 3 };
enum { KEY_VALUE_KEY = 1, KEY_VALUE_VALUE = 2 };
enum { ANY_STRING = 1, ANY_BOOL = 2 };

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
enum { CODE_ERROR = 2 };
enum { FLAG_SAMPLED = 1, FLAG_KNOWS_REMOTE = 0x100, FLAG_IS_REMOTE = 0x200 };
enum { VARINT_MAX = 10, ID_BYTES_MAX = 16 };

/* --- protobuf --------------------------------------------------------------------------------
 */

static size_t varint(uint8_t out[VARINT_MAX], uint64_t v)
{
    size_t n = 0;

    for (; v >= 0x80; v >>= 7)
        out[n++] = (uint8_t)(v | 0x80);
    out[n++] = (uint8_t)v;
    return n;
}

static void put_varint(struct buf *out, uint64_t v)
{
    uint8_t bytes[VARINT_MAX];

    buf_put(out, bytes, varint(bytes, v));
}

static void put_tag(struct buf *out, unsigned field, unsigned wire)
{
    put_varint(out, field << 3 | wire);
}

static void put_number(struct buf *out, unsigned field, uint64_t v)
{
    put_tag(out, field, WIRE_VARINT);
    put_varint(out, v);
}

static void put_fixed(struct buf *out, unsigned field, unsigned wire, uint64_t v)
{
    put_tag(out, field, wire);
    for (size_t i = 0; i < (wire == WIRE_FIXED64 ? 8 : 4); i++)
        buf_put_char(out, (char)(v >> 8 * i));
}

static void put_bytes(struct buf *out, unsigned field, struct str bytes)
{
    put_tag(out, field, WIRE_BYTES);
    put_varint(out, bytes.len);
    buf_put_str(out, bytes);
}

/* A message within: what is put until end() belongs to it. */
static size_t begin(struct buf *out, unsigned field)
{
    put_tag(out, field, WIRE_BYTES);
    return out->len;
}

/* Its length goes before it, in as few bytes as will do. */
static void end(struct buf *out, size_t at)
{
    uint8_t length[VARINT_MAX];
    size_t inner = out->len - at, n = varint(length, inner);
    char *p;

    buf_reserve(out, n);
    buf_commit(out, n);
    p = buf_data(out) + at;
    memmove(p + n, p, inner);
    memcpy(p, length, n);
}

/* --- the messages ----------------------------------------------------------------------------
 */

static uint8_t nibble(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void put_id(struct buf *out, unsigned field, const char *hex)
{
    uint8_t bytes[ID_BYTES_MAX];
    size_t n = MIN(strlen(hex) / 2, sizeof(bytes));

    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
    if (n > 0)
        put_bytes(out, field, str_slice(bytes, n));
}

/* A string of protobuf is UTF-8; a client's bytes need not be. */
static struct str text_of(struct str s)
{
    size_t n = 0, step;

    while ((step = str_utf8_char(str_skip(s, n))) > 0 && n + step <= SPAN_TEXT_MAX)
        n += step;
    return str_head(s, n);
}

static void put_attribute(struct buf *out, unsigned field, const struct span_attribute *a)
{
    size_t pair = begin(out, field), value;

    put_bytes(out, KEY_VALUE_KEY, str_from(a->key));
    value = begin(out, KEY_VALUE_VALUE);
    if (a->text.ptr)
        put_bytes(out, ANY_STRING, text_of(a->text));
    else
        put_number(out, ANY_BOOL, a->flag);
    end(out, value);
    end(out, pair);
}

static void put_status(struct buf *out, const char *error)
{
    size_t status = begin(out, SPAN_STATUS);

    if (*error)
        put_bytes(out, STATUS_MESSAGE, text_of(str_from(error)));
    put_number(out, STATUS_CODE, CODE_ERROR);
    end(out, status);
}

void span_put(struct buf *out, const struct span *s, uint64_t wall_ns)
{
    size_t span = begin(out, SCOPE_SPANS_SPANS);

    put_id(out, SPAN_TRACE_ID, s->trace_id);
    put_id(out, SPAN_SPAN_ID, s->span_id);
    if (s->state.len)
        put_bytes(out, SPAN_TRACE_STATE, text_of(s->state));
    put_id(out, SPAN_PARENT_SPAN_ID, s->parent_id);
    put_bytes(out, SPAN_NAME, str_from(s->name));
    put_number(out, SPAN_KIND, s->kind);
    put_fixed(out, SPAN_START, WIRE_FIXED64, wall_ns + s->start_ns);
    put_fixed(out, SPAN_END, WIRE_FIXED64, wall_ns + s->end_ns);
    for (size_t i = 0; i < s->n_attributes; i++)
        put_attribute(out, SPAN_ATTRIBUTES, &s->attributes[i]);
    if (s->error)
        put_status(out, s->error);
    put_fixed(out, SPAN_FLAGS, WIRE_FIXED32,
              FLAG_SAMPLED | FLAG_KNOWS_REMOTE | (s->parent_is_remote ? FLAG_IS_REMOTE : 0));
    end(out, span);
}

void span_put_request(struct buf *out, struct str service, struct str spans)
{
    const struct span_attribute name = {.key = "service.name", .text = service};
    size_t all = begin(out, REQUEST_RESOURCE_SPANS);
    size_t inner = begin(out, RESOURCE_SPANS_RESOURCE);

    put_attribute(out, RESOURCE_ATTRIBUTES, &name);
    end(out, inner);
    inner = begin(out, RESOURCE_SPANS_SCOPE_SPANS);
    {
        size_t scope = begin(out, SCOPE_SPANS_SCOPE);

        put_bytes(out, SCOPE_NAME, service);
        end(out, scope);
    }
    buf_put_str(out, spans);
    end(out, inner);
    end(out, all);
}
