/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chat request for a frontend that is to send it where it is told, without cutting its prompt again
 * (router.md §4.4). Pure, thread safe.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/optional.h"

struct annotation {
    uint64_t decode_id;
    struct opt_u64 prefill_id; /* unset, or that of the decode worker: one worker does both */
    const uint32_t *tokens;
    size_t n_tokens;
};

/* Appends @request with its other members as they are, but for those of nvext that @a says. -EINVAL when it
 * is no object, or its nvext is none. */
MUST_CHECK int annotate_request(struct buf *out, struct str request, const struct annotation *a,
                                struct err *e);
