/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times as Kubernetes writes them. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"

enum { STAMP_SIZE = 32 };

/* "2026-11-21T12:00:00Z"; @ms since the epoch. */
void stamp_format(uint64_t ms, char ret_text[STAMP_SIZE]);
/* MicroTime: "2026-11-21T12:00:00.000000Z" */
void stamp_format_micro(uint64_t ms, char ret_text[STAMP_SIZE]);
/* Both forms, UTC only ("Z"). */
MUST_CHECK bool stamp_parse(struct str text, uint64_t *ret_ms);
