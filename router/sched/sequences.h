/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Active sequences: what each worker is busy with, as the router books it (router.md §4.3).
 *
 * Per target: the prompt tokens that are not computed yet (prefill tokens) and the distinct blocks
 * of its running requests (active blocks); a block that several requests share counts once. A
 * booking is one request on one target and has one owner, who ends it exactly once. From the times
 * of bookings the tracker learns how fast the workers are (learned.h). A booking without a sign of
 * life for the expiry time counts for nothing any more, though its owner still ends it: a safety
 * net, counted.
 *
 * A sequence hash names a block together with all blocks before it, so running prompts form a tree.
 * It is kept path-compressed: blocks that the same requests run through lie in one node. Booking,
 * releasing and the question "how many blocks of this prompt would be new on each of 1,000 workers"
 * cost a comparison of the prompt's hashes and then a few nodes, not blocks × workers. Pure: times
 * are arguments, in nanoseconds of a monotonic clock. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct sequences;
struct booking;
struct learned;

/* Told after the fact; they note what happened and neither book nor end. */
struct sequences_hooks {
    void (*prefilled)(void *arg, const struct booking *b); /* once, at its first token */
    void (*grown)(void *arg, const struct booking *b);     /* one more output block */
    void (*ended)(void *arg, const struct booking *b);     /* the pointer is dead afterwards */
    void *arg;
};

struct sequences *sequences_new(void);
struct sequences *sequences_free(struct sequences *s); /* bookings must have been released */
DEFINE_CLEANUP(struct sequences *, sequences_free)
void sequences_set_hooks(struct sequences *s, struct sequences_hooks hooks);

/* 0 = never. Takes effect with the next sequences_expire(). */
void sequences_set_expiry(struct sequences *s, uint64_t expiry_ns);
/* Detaches what was silent for the expiry time; returns how many since the start. */
uint64_t sequences_expire(struct sequences *s, uint64_t now_ns);

struct booking_spec {
    uint32_t slot;
    const uint64_t
        *sequence; /* its blocks' sequence hashes, copied; NULL: blocks are not tracked */
    size_t n_blocks;
    uint32_t isl; /* prompt tokens */
    uint64_t cached_tokens;
    uint64_t max_num_seqs; /* 0 = unknown; a request beyond it waits, and teaches nothing */
    bool no_prefill;       /* its prompt is computed elsewhere */
    bool no_lesson;        /* its times are not those of the worker */
    uint64_t now_ns;
};
struct booking *sequences_book(struct sequences *s, const struct booking_spec *spec)
    __attribute__((returns_nonnull));
/* First token seen: the prompt is computed. Idempotent. */
void booking_first_token(struct booking *b, uint64_t now_ns);
/* The stream is alive: the expiry time starts anew. */
void booking_touch(struct booking *b, uint64_t now_ns);
/* One more output block, which no other request can share; with 0 <= @decay < 1 the blocks that this
 * request alone uses on its target then count that much. */
void booking_output_block(struct booking *b, double decay);
/* Ends the booking; @ok: the answer came to its end, so that its length teaches. NULL in, NULL out. */
struct booking *booking_end(struct booking *b, uint64_t now_ns, bool ok);
uint32_t booking_slot(const struct booking *b);
/* The target is gone: its bookings stay valid for their owners but count for nothing. */
void sequences_drop_slot(struct sequences *s, uint32_t slot);

/* What runs on a target, as booked. */
struct sequences_load {
    uint32_t requests;
    uint64_t prefill_tokens;
    uint64_t queued_tokens; /* the same, at least one of each booking without first token */
    uint64_t active_blocks;
};
/* Borrowed until the next booking. */
const struct sequences_load *sequences_load(const struct sequences *s, uint32_t slot)
    __attribute__((returns_nonnull));
/* ret_shared[slot] = how many of @sequence are active there already, for slots below @n_slots. */
void sequences_shared(const struct sequences *s, const uint64_t *sequence, size_t n,
                      uint32_t *ret_shared, size_t n_slots);
const struct learned *sequences_learned(const struct sequences *s);
size_t sequences_bookings(const struct sequences *s);
/* Asserts every invariant of the structure; O(size). For tests. */
void sequences_check(const struct sequences *s);
