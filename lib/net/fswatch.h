/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells what happens to the files of one directory (inotify), not recursively.
 *
 * A hint, not a truth: what a file holds is for the caller to read. On the loop's thread.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct fswatch;

/*
 * @name appeared, was written and closed, or was renamed to; or is @gone. NULL: events were lost,
 * look at the whole directory.
 */
typedef void (*fswatch_fn)(void *arg, const char *name, bool gone);

MUST_CHECK int fswatch_start(struct fswatch **ret, struct loop *l, const char *dir, fswatch_fn fn,
                             void *arg, struct err *e);
/* No callback after it; allowed in callbacks. NULL in, NULL out. */
struct fswatch *fswatch_stop(struct fswatch *w);
