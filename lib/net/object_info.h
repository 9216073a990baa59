/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What JetStream and others tell of an object in its store: JSON of a message, of the object's
 * description (ADR-20 of the NATS project). Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

struct object_info {
    char nuid[64]; /* names its pieces; no "." in it */
    uint64_t size, pieces;
    char digest[80]; /* "SHA-256=<base64url>" */
};

/* False when it is none, says that the object is deleted, or goes beyond the bounds. */
bool object_info_parse(struct object_info *ret, struct str json, uint64_t bytes_max,
                       uint64_t pieces_max);
/* The message in an answer of STREAM.MSG.GET: its number, and its bytes appended to @out. */
bool object_message_parse(struct str answer, uint64_t *ret_seq, struct buf *out);
