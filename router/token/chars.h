/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What normalizers must know of single characters, with the `tokenizers` library's own idea of
 * Unicode: chars_table.inc is made by chars_table.py. Pure and thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"

/* Appends @cp in lower case, without regard to what is around it. */
void chars_put_lower(struct buf *out, uint32_t cp);
bool chars_is_mark(uint32_t cp);       /* categories Mn, Mc, Me */
bool chars_is_nonspacing(uint32_t cp); /* category Mn */
bool chars_is_control(uint32_t cp);    /* what BERT drops: Cc, Cf, Co, U+FFFD; not tab, LF, CR */
bool chars_is_ideograph(uint32_t cp);  /* what BERT takes for a Chinese word of its own */
/* The compatibility decomposition, in full; NULL when it is no other than the canonical one. */
const uint32_t *chars_compat(uint32_t cp, size_t *ret_n);
