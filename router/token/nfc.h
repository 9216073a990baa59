/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unicode canonical composition (NFC, UAX 15), for tokenizers that ask for it (Qwen). The tables in
 * nfc_table.inc are made by nfc_table.py. Pure and thread safe.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

/* Whether @text (UTF-8) certainly is in NFC. False may be a false alarm. */
bool nfc_is_composed(struct str text);
/* Appends the NFC of @text (UTF-8). */
void nfc_compose(struct str text, struct buf *out);
