/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The salts of an engine's blocks. vLLM names a prompt's salt with its first block alone, and later
 * blocks by their parent: those have the parent's. Kept is what a salt adds to a seed of hashes
 * (block_hash_seed()), for each block on each tier until it is removed there; of at most
 * SALTED_BLOCKS_MAX, beyond which blocks have no heirs. Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/map64.h"
#include "router/wire/kv_event.h"

enum { SALTED_BLOCKS_MAX = 1 << 18 /* 10 MB; prompts of 4 million tokens in blocks of 16 */ };

/* Embedded by value; zero-initialised is empty. */
struct salt_chains {
    struct map64 tiers[KV_TIER_UNKNOWN];
};

void salt_chains_done(struct salt_chains *c);
void salt_chains_clear(struct salt_chains *c);
/* 0 when the block has none, or is not known. */
uint64_t salt_chains_find(const struct salt_chains *c, uint64_t block);
/* @salt is not 0. False when not all could be kept. */
bool salt_chains_put(struct salt_chains *c, enum kv_tier tier, const uint64_t *blocks, size_t n,
                     uint64_t salt);
void salt_chains_remove(struct salt_chains *c, enum kv_tier tier, const uint64_t *blocks, size_t n);
