/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which identity the blocks of running requests get (tracking_hash.h): the option and its key.
 */
#pragma once

#include "lib/base/err.h"
#include "router/kv/tracking_hash.h"

enum tracking_word { TRACKING_PUBLIC, TRACKING_KEYED };
extern const char *const TRACKING_WORDS[]; /* in that order, NULL-ended */

struct tracking_options {
    int hash;                /* enum tracking_word */
    char *key_file, *key_id; /* needed for TRACKING_KEYED, and not looked at before */
};

/* Reads the key, which the caller owns: NULL for public identities. Blocks; see file.h. */
MUST_CHECK int tracking_load(struct tracking_key **ret, const struct tracking_options *o,
                             struct err *e);
/* Wipes it. NULL in, NULL out. */
struct tracking_key *tracking_free(struct tracking_key *k);
