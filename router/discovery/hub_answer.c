/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/hub_answer.h"

#include <string.h>

struct hub_answer hub_answer_none(void)
{
    return (struct hub_answer){.size = HUB_SIZE_UNKNOWN};
}

bool hub_word_is_valid(struct str s)
{
    if (s.len == 0 || s.len > HUB_WORD_MAX || str_is(s, ".") || str_is(s, ".."))
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

bool hub_name_is_valid(struct str s)
{
    struct str rest = s, first;

    /* "--" stands for the slash in names of cache folders. */
    if (str_has(s, STR("--")))
        return false;
    if (!str_cut(&rest, '/', &first))
        return hub_word_is_valid(first);
    return hub_word_is_valid(first) && hub_word_is_valid(rest);
}

static void word_copy(char ret[HUB_WORD_MAX + 1], struct str s)
{
    if (!hub_word_is_valid(s))
        return;
    memcpy(ret, s.ptr, s.len);
    ret[s.len] = '\0';
}

/* "x", W/"x" or x */
static struct str etag_bare(struct str s)
{
    if (str_starts(s, STR("W/")))
        s = str_skip(s, 2);
    if (s.len >= 2 && s.ptr[0] == '"' && s.ptr[s.len - 1] == '"')
        s = str_slice(s.ptr + 1, s.len - 2);
    return s;
}

/* "bytes 5-9/10", an unknown total is "*" */
static void range_add(struct hub_answer *a, struct str s)
{
    uint64_t from, total;
    struct str part;

    if (!str_starts(s, STR("bytes ")))
        return;
    s = str_trim(str_skip(s, 6));
    if (!str_cut(&s, '-', &part) || !str_parse_u64(part, &from))
        return;
    a->from = from;
    a->has_range = true;
    a->size = HUB_SIZE_UNKNOWN;
    if (str_cut(&s, '/', &part) && str_parse_u64(s, &total))
        a->size = total;
}

static void size_add(struct hub_answer *a, struct str s, bool linked)
{
    uint64_t n;

    if (!str_parse_u64(s, &n) || (a->linked && !linked) || a->has_range)
        return;
    a->size = n;
}

void hub_answer_add(struct hub_answer *a, struct str name, struct str value)
{
    if (name.len == 0) {
        /* What was said of a link holds for where it leads; a redirect's own length does not. */
        a->has_range = false;
        a->from = 0;
        a->location[0] = '\0';
        if (!a->linked) {
            a->size = HUB_SIZE_UNKNOWN;
            a->etag[0] = '\0';
        }
    } else if (str_is(name, "x-linked-etag")) {
        if (!a->linked)
            a->size = HUB_SIZE_UNKNOWN;
        a->linked = true;
        a->etag[0] = '\0';
        word_copy(a->etag, etag_bare(value));
    } else if (str_is(name, "x-linked-size")) {
        size_add(a, value, true);
        a->linked = true;
    } else if (str_is(name, "etag")) {
        if (!a->linked)
            word_copy(a->etag, etag_bare(value));
    } else if (str_is(name, "content-length")) {
        size_add(a, value, false);
    } else if (str_is(name, "content-range")) {
        range_add(a, value);
    } else if (str_is(name, "x-repo-commit")) {
        word_copy(a->commit, value);
    } else if (str_is(name, "location") && value.len <= HUB_LOCATION_MAX &&
               !memchr(value.ptr ? value.ptr : "", '\0', value.len)) {
        memcpy(a->location, value.ptr ? value.ptr : "", value.len);
        a->location[value.len] = '\0';
    }
}
