/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Active sequences: what each worker is busy with, as the router books it (router.md §4.3).
 *
 * Per target: the prompt tokens that are not computed yet (prefill tokens) and the distinct blocks
 * of its running requests (active blocks); a block that several requests share counts once. A
 * booking is one request on one target and has one owner, who releases it exactly once.
 *
 * A sequence hash names a block together with all blocks before it, so running prompts form a tree.
 * It is kept path-compressed: blocks that the same requests run through lie in one node. Booking,
 * releasing and the question "how many blocks of this prompt would be new on each of 1,000 workers"
 * cost a comparison of the prompt's hashes and then a few nodes, not blocks × workers. Pure; one
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct sequences;
struct booking;

struct sequences *sequences_new(uint32_t block_size);
struct sequences *sequences_free(struct sequences *s); /* bookings must have been released */
DEFINE_CLEANUP(struct sequences *, sequences_free)

/*
 * Books a request: @isl prompt tokens of which @overlap_blocks blocks are cached. @sequence
 * (copied) are its blocks' sequence hashes; NULL when blocks are not tracked. Never NULL.
 */
struct booking *sequences_book(struct sequences *s, uint32_t slot, const uint64_t *sequence,
                               size_t n, uint32_t isl, uint32_t overlap_blocks)
    __attribute__((returns_nonnull));
/* First token seen: the prompt is computed. Idempotent. */
void booking_prefill_done(struct booking *b);
/* One more output block, which no other request can share; with 0 < @decay < 1 the blocks that this
 * request alone uses on its target then count that much. */
void booking_output_block(struct booking *b, double decay);
/* Ends the booking. NULL in, NULL out. */
struct booking *booking_release(struct booking *b);
uint32_t booking_slot(const struct booking *b);
/* The target is gone: its bookings stay valid for their owners but count for nothing. */
void sequences_drop_slot(struct sequences *s, uint32_t slot);

uint32_t sequences_active_requests(const struct sequences *s, uint32_t slot);
uint64_t sequences_prefill_tokens(const struct sequences *s, uint32_t slot);
uint64_t sequences_active_blocks(const struct sequences *s, uint32_t slot);
/* ret_shared[slot] = how many of @sequence are active there already, for slots below @n_slots. */
void sequences_shared(const struct sequences *s, const uint64_t *sequence, size_t n,
                      uint32_t *ret_shared, size_t n_slots);
size_t sequences_bookings(const struct sequences *s);
/* Asserts every invariant of the structure; O(size). For tests. */
void sequences_check(const struct sequences *s);
