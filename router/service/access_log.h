/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of JSON per request, in the form of 1.6.1's indexer (router.md §8.2):
 *
 *     {"ts":"2026-11-23T02:08:57.425Z","trace_id":"-","method":"POST","path":"/query","model":"m",
 *      "status":200,"duration_ms":0.063}
 *
 * Bodies and queries are not in it. A line that cannot be written is dropped and counted: requests
 * do not wait for a log. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/base/str.h"

struct access_log;

enum { ACCESS_TEXT_MAX = 256 /* bytes of what the caller says that are written */ };

struct access_entry {
    struct str trace_id, method, path, model; /* empty = "-" */
    int status;
    uint64_t wall_ms, duration_ns;
};

/* Appends to @path, which is made if it is not there. @local: times of the local zone. @lost is
 * counted up. */
MUST_CHECK int access_log_open(struct access_log **ret, const char *path, bool local,
                               struct metric *lost, struct err *e);
struct access_log *access_log_close(struct access_log *l);
DEFINE_CLEANUP(struct access_log *, access_log_close)
/* The file was moved away: goes on with a new one. Goes on with the old one where that fails. */
MUST_CHECK int access_log_reopen(struct access_log *l, struct err *e);
void access_log_write(struct access_log *l, const struct access_entry *entry);
