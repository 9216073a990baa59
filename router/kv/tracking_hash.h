/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity of the blocks of running requests, for the tracker of active sequences and for what
 * replicas tell each other (router.md §1.7).
 *
 * Public identities are block_hash_sequence() with its published seed: who sees them can try prompts
 * until one fits. Keyed ones have two seeds of their own, for blocks and for the chain, drawn by
 * keyed BLAKE3 from a secret and from what the prompt belongs to; replicas with the same key agree.
 * Never for look-ups in an index, whose hashes are those of the workers. Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/str.h"

enum { TRACKING_KEY_SIZE = 32 };

struct tracking_key {
    uint8_t bytes[TRACKING_KEY_SIZE]; /* secret: never logged */
    struct str id;                    /* tells generations of keys apart; not secret */
};

/* What prompts must share for their blocks to be the same. */
struct tracking_scope {
    struct str model, routing_group;
    uint32_t block_size;
    struct str cache_namespace, lora_name; /* empty = none */
    bool eagle;                            /* block_hash_local_eagle() */
};

struct tracking_seeds {
    uint64_t block, chain;
};

struct tracking_seeds tracking_hash_seeds(const struct tracking_key *key,
                                          const struct tracking_scope *scope);
/* Writes and returns as many as block_hash_local(), or its eagle kind, would. */
size_t tracking_hash_sequence(const struct tracking_key *key, const struct tracking_scope *scope,
                              const uint32_t *tokens, size_t n_tokens, uint64_t *ret_sequence);
