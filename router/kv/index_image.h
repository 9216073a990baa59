/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prefix index as bytes, from which another process makes it again.
 *
 *     head      magic, version, generation, block size, whose index it is
 *     records   one for each node: its number, what it follows, its blocks' hashes and names, who
 *               holds which, aliases
 *     workers   which worker a slot was, and how far its events had come
 *     foot      sizes, checksum over all before it
 *
 * Records are written some at a time while the index changes, so that nobody waits for long. They
 * need not fit together then: what an event touched meanwhile may be there before or after it, or
 * hang from what is not there any more. What no event touched is right. Hence a worker's position is
 * taken before the first record, and who restores the image applies the worker's events from that
 * position on, which brings everything they touch to its final state.
 *
 * Reading trusts nothing: the checksum, each size and reference is checked, and records that hang
 * from nothing or from each other in a circle are left out. Multiples of 8 bytes, in this machine's
 * byte order (the magic of another does not match). Pure; files are the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/str.h"
#include "router/kv/worker_table.h"

struct prefix_index;

enum { INDEX_IMAGE_OWNER_MAX = 1024 };

struct index_image_head {
    uint64_t generation; /* grows from image to image */
    uint32_t block_size;
    struct str owner; /* at most INDEX_IMAGE_OWNER_MAX bytes */
};

struct index_image_worker {
    uint64_t worker_id;
    uint32_t dp_rank;
    uint32_t slot;
    uint64_t next_event; /* id of the first that was not applied */
    uint64_t newest_ms;  /* when the last was sent, 0 = unknown */
    uint64_t proof;      /* what the last one said, 0 = unknown */
};

/* --- writing: begin, nodes until it returns false, end; the bytes follow each other in `out` --- */

struct index_image_writer {
    uint64_t checksum, n_bytes, n_records;
    uint32_t at; /* node that comes next */
};

void index_image_begin(struct index_image_writer *w, const struct index_image_head *head,
                       struct buf *out);
/* Some nodes, under one lock; false when there are no more. */
bool index_image_nodes(struct index_image_writer *w, struct prefix_index *ix, struct buf *out);
void index_image_end(struct index_image_writer *w, const struct index_image_worker *workers,
                     size_t n, struct buf *out);

/* --- reading --- */

struct index_image {
    struct index_image_head head;             /* borrows from the bytes, */
    const struct index_image_worker *workers; /* as do these */
    size_t n_workers, n_records;
    const uint64_t *records, *records_end;
};

/* @bytes begin at a multiple of 8 and outlive the image. -EBADMSG when they are no whole image. */
MUST_CHECK int index_image_open(struct index_image *ret, struct str bytes, struct err *e);
/*
 * Adds to the index what the workers of the image hold. @slots is by the image's slots, for all
 * 65,536: the slot here, or WORKER_SLOT_NONE to leave that worker out. 0, or -ENOMEM when memory or
 * the budget ended before.
 */
MUST_CHECK int index_image_restore(const struct index_image *im, struct prefix_index *ix,
                                   const uint32_t *slots);
/* The checksum that belongs at the end of the image. For tests. */
uint64_t index_image_checksum(uint64_t before, const void *bytes, size_t n);
