/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in an image. All in multiples of 8 bytes. */
#pragma once

#include <stdint.h>

#define IMAGE_MAGIC UINT64_C(0x3230584449565443) /* "CTVIDX02" on this byte order */

struct image_head {
    uint64_t magic, generation;
    uint32_t block_size, owner_len; /* the owner follows, filled up with zeros */
};

/*
 * Follows: u64 local[len], u64 external[len] (a name where the bit in `named` is set), u32
 * holders[n_holders] (slot << 16 | cells known by name, filled up to an even number), struct
 * image_alias aliases[n_aliases].
 */
struct image_record {
    uint32_t id, up; /* `up` is a position: node × 16 + cell; 0 = nothing */
    uint16_t len, named;
    uint32_t n_holders, n_aliases, zero;
};

struct image_alias {
    uint64_t external;
    uint32_t slot, cell;
};

struct image_foot {
    uint64_t n_records, n_workers, n_bytes; /* before the foot */
    uint64_t checksum;                      /* of all before this field */
};

static inline uint64_t image_record_words(const struct image_record *r)
{
    return sizeof(*r) / 8 + 2 * (uint64_t)r->len + ((uint64_t)r->n_holders + 1) / 2 +
           (uint64_t)r->n_aliases * (sizeof(struct image_alias) / 8);
}
