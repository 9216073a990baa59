/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The orderly end of a router among components: it is withdrawn, callers that have not seen that yet get a
 * clear "Unknown endpoint" for a moment, and what runs may finish within a limit. One loop.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/net/loop.h"

struct log_target;

/* Embedded by value. */
struct drain {
    const struct log_target *log;
    const size_t *running; /* streams; borrowed */
    loop_fn cut;           /* ends them all */
    void *arg;
    struct timer *linger, *deadline;
    loop_fn stopped; /* NULL: not begun, or over */
    void *stopped_arg;
};

void drain_init(struct drain *d, struct loop *l, const struct log_target *log,
                const size_t *running, loop_fn cut, void *arg);
/* Calls nobody. */
void drain_done(struct drain *d);

/* False: it had begun, and now ends at once. @stopped is called when nothing runs any more. */
bool drain_begin(struct drain *d, uint64_t limit_ms, loop_fn stopped, void *arg);
bool drain_has_begun(const struct drain *d);
void drain_check(struct drain *d); /* a stream has ended */
/* Who asked is not told any more. */
void drain_forget(struct drain *d);
