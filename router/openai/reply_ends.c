/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls without a mark at their end, or at either: where they end, and whether an answer may be one.
 */
#include <string.h>

#include "router/openai/reply_calls.h"

static size_t skip_blanks(struct str text, size_t at)
{
    while (at < text.len && text.ptr[at] && strchr(" \t\r\n", text.ptr[at]))
        at++;
    return at;
}

/* Behind the text that is quoted at @at; its end when that is still to come. */
static size_t skip_quoted(struct str text, size_t at)
{
    char quote = text.ptr[at];

    for (at++; at < text.len && text.ptr[at] != quote; at++)
        at += text.ptr[at] == '\\';
    return MIN(at + 1, text.len + 1);
}

/* Behind the brackets that open at *at, blanks before them aside; false while they are open or where
 * there are none. */
static bool skip_value(struct str text, const char *quotes, size_t *at)
{
    size_t i = skip_blanks(text, *at), depth = 0;

    while (i < text.len) {
        char c = text.ptr[i];

        if (depth > 0 && c && strchr(quotes, c)) {
            i = skip_quoted(text, i);
            continue;
        }
        i++;
        depth += c && strchr("[{(", c) ? 1 : 0;
        if (depth == 0)
            return false;
        if (c && strchr("]})", c) && --depth == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

size_t reply_find_json_end(struct str text, bool *ret_found)
{
    size_t at = 0;

    *ret_found = skip_value(text, "\"", &at);
    return *ret_found ? at : text.len;
}

size_t reply_find_python_end(struct str text, bool *ret_found)
{
    size_t at = 0;

    *ret_found = skip_value(text, "\"'", &at);
    return *ret_found ? at : text.len;
}

/* Several have ";" between: only what follows says that there is no other. */
size_t reply_find_json_list_end(struct str text, bool *ret_found)
{
    size_t at = 0, next;

    *ret_found = false;
    while (skip_value(text, "\"", &at)) {
        next = skip_blanks(text, at);
        if (next == text.len)
            return text.len;
        if (text.ptr[next] != ';') {
            *ret_found = true;
            return at;
        }
        at = next + 1;
    }
    return text.len;
}

/* Some templates put a mark behind them, which counts as theirs. */
size_t reply_find_mistral_end(struct str text, bool *ret_found)
{
    static const struct str mark = {"[/TOOL_CALLS]", sizeof("[/TOOL_CALLS]") - 1};
    size_t at = 0, next;
    struct str rest;

    *ret_found = false;
    if (!skip_value(text, "\"", &at))
        return text.len;
    next = skip_blanks(text, at);
    rest = str_skip(text, next);
    if (str_starts(mark, rest) && rest.len < mark.len)
        return text.len;
    *ret_found = true;
    return str_starts(rest, mark) ? next + mark.len : at;
}

enum reply_bare reply_begins_bare(struct str text)
{
    static const struct str key = {"\"name\"", sizeof("\"name\"") - 1};
    size_t at = skip_blanks(text, 0);

    if (at < text.len && text.ptr[at] == '[')
        at = skip_blanks(text, at + 1);
    if (at == text.len)
        return REPLY_BARE_PERHAPS;
    if (text.ptr[at] != '{')
        return REPLY_BARE_NOT;
    text = str_skip(text, skip_blanks(text, at + 1));
    if (str_starts(text, key))
        return REPLY_BARE;
    return str_starts(key, text) ? REPLY_BARE_PERHAPS : REPLY_BARE_NOT;
}
