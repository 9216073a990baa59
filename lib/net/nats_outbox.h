/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on their way to a NATS server: a bounded queue of copies. Not thread safe: who shares it
 * has a lock around every call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/list.h"
#include "lib/base/mem.h"
#include "lib/net/nats_link.h"

enum { NATS_OUTBOX_MESSAGES = 65536, NATS_OUTBOX_BYTES = 64 << 20 };

struct nats_parcel {
    struct list link;
    size_t size;
    struct nats_outgoing out;
    struct nats_header headers[]; /* and behind them the texts and the payload */
};

/* Embedded by value. */
struct nats_outbox {
    struct list parcels;
    size_t n, bytes;
};

void nats_outbox_init(struct nats_outbox *o);
/* Drops what is left. Returns how many that were. */
size_t nats_outbox_clear(struct nats_outbox *o);
/* Copies. False when it is full. */
MUST_CHECK bool nats_outbox_put(struct nats_outbox *o, const struct nats_outgoing *out);
/* The oldest, which is then the caller's to free(); NULL when there is none. */
struct nats_parcel *nats_outbox_take(struct nats_outbox *o);
