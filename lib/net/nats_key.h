/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NKey of a NATS user: what the server knows is the public half, and what proves it is a signature of
 * the server's challenge. The seed is a secret: it stands in no error and is wiped when it goes. Pure.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"

enum { NATS_KEY_SEED_LEN = 58, NATS_KEY_PUBLIC_LEN = 56 };

/* All zeros: none. */
struct nats_key {
    char seed[NATS_KEY_SEED_LEN + 1];
    char public_half[NATS_KEY_PUBLIC_LEN + 1];
};

/* @seed: "SU…", white space around it or not. -EINVAL when it is none, or not whole. */
MUST_CHECK int nats_key_parse(struct nats_key *ret, const char *seed, struct err *e);
void nats_key_wipe(struct nats_key *k);
