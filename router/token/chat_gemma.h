/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemma 4's template shows an assistant's thoughts (`reasoning`) only before calls behind the last
 * question, as one text. The frontend of 1.x knows the three places by their very words and makes
 * them show `reasoning_content`: thought i before call i, what is left behind the last call, and
 * without calls all of them. e2e/test_prompts_interop.py holds such templates against it. Pure.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/str.h"

/* Appends @source as such a template, or as it is where it is none. */
void chat_gemma_put(struct str source, struct buf *out);
