/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Characters that are newer than the Unicode version of PCRE2, but not newer than the one that
 * tokenizers were trained with. Before text is matched against a pattern, each is replaced by an
 * older character of the same category and length, so that matches come out as they should and
 * their offsets hold for the text itself. Pure and thread safe.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/str.h"

/* @text (UTF-8) itself when it has no such characters, else a copy of the same length in @out. */
struct str newer_replaced(struct str text, struct buf *out);
