/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs of this project downloaded into the hub's cache, which other programs of the node
 * use too, and how it stays below a bound:
 *
 *     <hub>/.commutator/hub/models--org--name    a line a file: "<etag> <revision> <file>"
 *
 * The file's time is when the model was last taken into use or given up. Who uses the model holds
 * the file (flock, shared), so that the one who makes room (flock, exclusive) sees that nobody does,
 * in whichever process. Only repositories that hold nothing but what their ledger lists go, and they
 * go as a whole: what Hugging Face's own client added, it may want again without the hub.
 *
 * Blocks, shortly. Any thread; a hold is used by one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { HUB_LEDGER_BYTES_MAX = 65536 }; /* of one ledger; a longer one is left alone */

/* --- lines ------------------------------------------------------------------------------------ */

/* Views. */
struct hub_entry {
    struct str etag, commit, file;
};

/* The next line of @rest that can be read; false when there is none. Parts are words of hub_answer.h. */
bool hub_entry_next(struct str *rest, struct hub_entry *ret);
void hub_entry_put(struct buf *out, const struct hub_entry *entry);

/* --- use -------------------------------------------------------------------------------------- */

struct hub_hold;

/*
 * Takes a repository (the name of its folder) into use: until hub_hold_free() it does not go. *ret
 * stays NULL for one that others downloaded, unless @create, which is for who is about to add to it.
 */
MUST_CHECK int hub_hold_new(struct hub_hold **ret, const char *hub_cache, const char *folder,
                            bool create, struct err *e);
/*
 * Lists a file, before it is there. @there: its blob is already; unless some line has it, it is of
 * others and is not listed.
 */
MUST_CHECK int hub_hold_add(struct hub_hold *h, const struct hub_entry *entry, bool there,
                            struct err *e);
/* NULL in, NULL out. */
struct hub_hold *hub_hold_free(struct hub_hold *h);
DEFINE_CLEANUP(struct hub_hold *, hub_hold_free)

/* --- room ------------------------------------------------------------------------------------- */

struct hub_room {
    uint64_t bytes;   /* that all ledgers list, after it */
    unsigned evicted; /* repositories that went */
};

/* While there are more than @max_bytes, the repository that was unused for the longest time goes. */
void hub_ledger_trim(const char *hub_cache, uint64_t max_bytes, struct hub_room *ret);
