/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends lines to a file without ever blocking the loop: a pool thread writes.
 *
 * When the file would grow beyond its limit it is renamed to <path>.1, in place of the one before,
 * and begun anew: at most twice the limit is on disk. What waits to be written is bounded too; lines
 * that do not fit are dropped and counted. One loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

struct decision_log;

/* -errno when the file cannot be opened for appending. */
MUST_CHECK int decision_log_open(struct decision_log **ret, struct loop *l, const char *path,
                                 uint64_t bytes_max, struct err *e);
/* Writes what is left, then closes. */
struct decision_log *decision_log_free(struct decision_log *log);
/* @line without its end. */
void decision_log_put(struct decision_log *log, struct str line);
uint64_t decision_log_dropped(const struct decision_log *log);
