/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a protobuf message, field by field. Each field is a number of its own, or bytes within
 * the message: text, or a message in turn. Nothing is copied, allocated or trusted: lengths are
 * checked, and groups, which protobuf gave up, are malformed. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

enum proto_wire { PROTO_VARINT = 0, PROTO_FIXED64 = 1, PROTO_BYTES = 2, PROTO_FIXED32 = 5 };

/* Start with {.rest = message}. */
struct proto {
    struct str rest;
    bool malformed;
};

struct proto_field {
    uint32_t number;
    enum proto_wire wire;
    uint64_t value;   /* of all but BYTES */
    struct str bytes; /* of BYTES */
};

/* The next field; false at the end, and where the message is malformed, which it then says. */
MUST_CHECK bool proto_next(struct proto *p, struct proto_field *ret);
/* The field as what it must be; false, and nothing written, when it has another wire type. */
bool proto_bool(const struct proto_field *f, bool *ret);
bool proto_u64(const struct proto_field *f, uint64_t *ret);
bool proto_float(const struct proto_field *f, float *ret);
bool proto_bytes(const struct proto_field *f, struct str *ret);
