/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unicode normalization forms (UAX 15), for tokenizers that ask for them (Qwen: NFC, ALBERT: NFKD).
 * The tables in form_table.inc are made by form_table.py. Pure and thread safe.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

enum form { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD };

/* Whether @text (UTF-8) certainly is in @form. False may be a false alarm. */
bool form_is(enum form form, struct str text);
/* Appends @text (UTF-8) in @form, which may be 11 times as long. Stops soon after @out has more than
 * @limit bytes. */
void form_apply(enum form form, struct str text, size_t limit, struct buf *out);
