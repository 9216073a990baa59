/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What filters and methods both do to strings, as Python's str does it. jinja_table.inc holds
 * Python's own idea of characters.
 */
#pragma once

#include "router/token/jinja_run.h"

/* JINJA_TITLE is str.title(); JINJA_TITLE_FILTER begins words after blanks, "-" and brackets. */
enum jinja_case {
    JINJA_UPPER,
    JINJA_LOWER,
    JINJA_CAPITALIZE,
    JINJA_TITLE,
    JINJA_TITLE_FILTER,
    JINJA_SWAPCASE
};

struct jinja_value jinja_change_case(struct jinja_run *run, struct str s, enum jinja_case to);
/* Whether all letters with case have this one, and there are some. */
bool jinja_has_case(struct str s, bool upper);
bool jinja_is_printable(uint32_t cp);
bool jinja_is_letter(uint32_t cp);
bool jinja_is_digit(uint32_t cp);
bool jinja_is_space(uint32_t cp);
/* Ends of lines that str.splitlines() knows: bytes of the one at @s, 0 when there is none. */
size_t jinja_line_end(struct str s);
/* Without the characters of @chars on the chosen ends; blanks when @chars.ptr is NULL. */
struct str jinja_strip(struct str s, struct str chars, bool left, bool right);
/* At most @count times; negative: all. An empty @from stands between all characters. */
struct jinja_value jinja_replace(struct jinja_run *run, struct str s, struct str from,
                                 struct str to, int64_t count);
