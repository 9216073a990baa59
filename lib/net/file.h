/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole files. Blocks: for start-up, pool threads and reconcile threads, never on a loop's.
 */
#pragma once

#include <stddef.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

/* Appends the file. -EFBIG beyond @max bytes; any other failure is the system's, with the path. */
MUST_CHECK int file_read(const char *path, size_t max, struct buf *out, struct err *e);
/* All of it, whatever interrupts; 0 or -errno. */
MUST_CHECK int file_write_all(int fd, struct str bytes);
