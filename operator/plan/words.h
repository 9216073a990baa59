/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of a container's command and arguments, as far as they can be told without running a
 * shell: its text is cut at blanks, quotes and backslashes are taken away, nothing is expanded. At
 * most WORDS_MAX, further ones are left out. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/json_tree.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { WORDS_MAX = 1024 };

struct words {
    char *at[WORDS_MAX]; /* owned */
    size_t n;
};

/* Adds those of @container, which may be NULL. */
void words_read(struct words *w, const struct json *container);
void words_done(struct words *w);
DEFINE_CLEANUP_EMBEDDED(struct words, words_done)

bool words_at_is(const struct words *w, size_t i, const char *want);
/* --name value or --name=value; NULL when it is not there. Valid as long as @w. */
const char *words_option(const struct words *w, const char *name);
/* What comes behind the last slash. */
struct str words_base_name(const char *path);
