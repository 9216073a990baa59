/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What filters and methods both do to strings. Letters of Latin, Greek, Cyrillic and Armenian
 * change case; others stay as they are.
 */
#pragma once

#include "router/token/jinja_run.h"

enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_CAPITALIZE, JINJA_TITLE };

struct jinja_value jinja_change_case(struct jinja_run *run, struct str s, enum jinja_case to);
/* Without the characters of @chars on the chosen ends; White_Space when @chars.ptr is NULL. */
struct str jinja_strip(struct str s, struct str chars, bool left, bool right);
/* At most @count times; negative: all. An empty @from stands between all characters. */
struct jinja_value jinja_replace(struct jinja_run *run, struct str s, struct str from,
                                 struct str to, int64_t count);
