/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decision_record in as few words as it needs, for keeping many of them in memory.
 *
 * Only entries that are there are kept, and of those the words of 8 bytes that are not zero, behind a
 * map of 64 bits that tells which these are. All bits come back as they were. Not for files or other
 * processes: pointers to policies are among the words. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "router/sched/decision_record.h"

enum {
    DECISION_WORDS = sizeof(struct decision_record) / 8,
    /* Of a record without a zero in it: its words, the maps, and one that is written in vain. */
    DECISION_PACKED_MAX = DECISION_WORDS + DECISION_WORDS / 64 + 5,
};

/* Writes at most DECISION_PACKED_MAX words to @out, returns how many of them count. */
size_t decision_pack(const struct decision_record *r, uint64_t *out);
/* As decision_record_fill(), *ret keeps its bytes where its counts do not cover them. */
void decision_unpack(const uint64_t *in, struct decision_record *ret);
