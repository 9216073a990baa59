/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/proto.h"

#include <string.h>

enum { VARINT_BYTES = 10, NUMBER_MAX = (1 << 29) - 1 };

static bool take_varint(struct str *s, uint64_t *ret)
{
    uint64_t value = 0;

    for (size_t i = 0; i < MIN(s->len, (size_t)VARINT_BYTES); i++) {
        uint8_t b = (uint8_t)s->ptr[i];

        value |= (uint64_t)(b & 0x7f) << (7 * i); /* of the tenth byte one bit is left */
        if (b < 0x80) {
            *s = str_skip(*s, i + 1);
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool take_fixed(struct str *s, size_t n, uint64_t *ret)
{
    uint64_t value = 0;

    if (s->len < n)
        return false;
    for (size_t i = n; i-- > 0;)
        value = value << 8 | (uint8_t)s->ptr[i];
    *s = str_skip(*s, n);
    *ret = value;
    return true;
}

static bool take_bytes(struct str *s, struct str *ret)
{
    uint64_t len;

    if (!take_varint(s, &len) || len > s->len)
        return false;
    *ret = str_slice(s->ptr, (size_t)len);
    *s = str_skip(*s, (size_t)len);
    return true;
}

static bool take_field(struct str *s, struct proto_field *f)
{
    uint64_t key;

    if (!take_varint(s, &key) || key >> 3 == 0 || key >> 3 > NUMBER_MAX)
        return false;
    f->number = (uint32_t)(key >> 3);
    f->wire = (enum proto_wire)(key & 7);
    switch (f->wire) {
    case PROTO_VARINT:
        return take_varint(s, &f->value);
    case PROTO_FIXED64:
        return take_fixed(s, 8, &f->value);
    case PROTO_FIXED32:
        return take_fixed(s, 4, &f->value);
    case PROTO_BYTES:
        return take_bytes(s, &f->bytes);
    }
    return false;
}

bool proto_next(struct proto *p, struct proto_field *ret)
{
    struct proto_field f = {0};

    if (p->malformed || p->rest.len == 0)
        return false;
    p->malformed = !take_field(&p->rest, &f);
    if (!p->malformed)
        *ret = f;
    return !p->malformed;
}

bool proto_bool(const struct proto_field *f, bool *ret)
{
    if (f->wire != PROTO_VARINT)
        return false;
    *ret = f->value != 0;
    return true;
}

bool proto_u64(const struct proto_field *f, uint64_t *ret)
{
    if (f->wire != PROTO_VARINT)
        return false;
    *ret = f->value;
    return true;
}

bool proto_float(const struct proto_field *f, float *ret)
{
    uint32_t bits = (uint32_t)f->value;

    if (f->wire != PROTO_FIXED32)
        return false;
    memcpy(ret, &bits, sizeof(bits));
    return true;
}

bool proto_bytes(const struct proto_field *f, struct str *ret)
{
    if (f->wire != PROTO_BYTES)
        return false;
    *ret = f->bytes;
    return true;
}
