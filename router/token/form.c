/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/form.h"

#include <stdint.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "router/token/chars.h"
#include "router/token/utf8.h"

struct form_pair {
    uint32_t first, second; /* second 0: a single character */
    uint32_t whole;
};

struct form_range {
    uint32_t first, last, value;
};

#include "router/token/form_table.inc"

/* Hangul syllables are computed (Unicode 3.12). */
enum {
    S_BASE = 0xac00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

struct mark {
    uint32_t cp, class, order;
};

/* Characters from one that starts afresh to the next, decomposed. */
struct run {
    struct mark *marks;
    size_t n, cap;
};

/* --- tables ----------------------------------------------------------------------------------- */

static int compare_range(const void *key, const void *item)
{
    uint32_t cp = *(const uint32_t *)key;
    const struct form_range *r = item;

    return cp < r->first ? -1 : cp > r->last;
}

static uint32_t class_of(uint32_t cp)
{
    const struct form_range *r =
        cp < 0x300 ? NULL
                   : bsearch(&cp, CLASSES, ARRAY_LEN(CLASSES), sizeof(CLASSES[0]), compare_range);

    return r ? r->value : 0;
}

/* Whether NFC may change @cp or join it to what is before it. */
static bool is_unsure(uint32_t cp)
{
    return cp >= 0x300 && bsearch(&cp, UNSURE, ARRAY_LEN(UNSURE), sizeof(UNSURE[0]), compare_range);
}

static int compare_whole(const void *key, const void *item)
{
    uint32_t cp = *(const uint32_t *)key;
    const struct form_pair *p = item;

    return cp < p->whole ? -1 : cp > p->whole;
}

static int compare_pair(const void *key, const void *item)
{
    const struct form_pair *a = key, *b = item;

    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->second < b->second ? -1 : a->second > b->second;
}

/* 0 when the two do not compose. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    struct form_pair key = {first, second, 0};
    const struct form_pair *p;
    uint32_t l = first - L_BASE, v = second - V_BASE, s = first - S_BASE, t = second - T_BASE;

    if (l < L_COUNT && v < V_COUNT)
        return S_BASE + (l * V_COUNT + v) * T_COUNT;
    if (s < S_COUNT && s % T_COUNT == 0 && t > 0 && t < T_COUNT)
        return first + t;
    p = bsearch(&key, COMPOSITIONS, ARRAY_LEN(COMPOSITIONS), sizeof(COMPOSITIONS[0]), compare_pair);
    return p ? p->whole : 0;
}

/* --- runs ------------------------------------------------------------------------------------- */

static void push_mark(struct run *run, uint32_t cp)
{
    if (run->n == run->cap) {
        run->cap = run->cap ? run->cap * 2 : 64;
        run->marks = xreallocarray(run->marks, run->cap, sizeof(*run->marks));
    }
    run->marks[run->n] = (struct mark){cp, class_of(cp), (uint32_t)run->n};
    run->n++;
}

/* Recursion ends after four levels: decompositions of decompositions are that deep. */
static void push_decomposed(struct run *run, uint32_t cp)
{
    const struct form_pair *p;
    uint32_t s = cp - S_BASE;

    if (s < S_COUNT) {
        push_mark(run, L_BASE + s / (V_COUNT * T_COUNT));
        push_mark(run, V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT);
        if (s % T_COUNT)
            push_mark(run, T_BASE + s % T_COUNT);
        return;
    }
    p = bsearch(&cp, DECOMPOSITIONS, ARRAY_LEN(DECOMPOSITIONS), sizeof(DECOMPOSITIONS[0]),
                compare_whole);
    if (!p) {
        push_mark(run, cp);
        return;
    }
    push_decomposed(run, p->first);
    if (p->second)
        push_decomposed(run, p->second);
}

static int compare_marks(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;

    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* Puts combining marks between two starters in the order of their classes. */
static void sort_marks(struct run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        size_t end = i;

        while (end < run->n && run->marks[end].class != 0)
            end++;
        if (end - i > 1)
            qsort(run->marks + i, end - i, sizeof(*run->marks), compare_marks);
        i = end;
    }
}

/* Joins marks to the starters before them, where they compose. */
static void compose_run(struct run *run)
{
    size_t starter = SIZE_MAX, kept = 0;

    for (size_t i = 0; i < run->n; i++) {
        struct mark m = run->marks[i];
        /* A mark is blocked from the starter by one of its own class or a higher one. */
        bool open = starter != SIZE_MAX &&
                    (kept == starter + 1 ||
                     (run->marks[kept - 1].class < m.class && run->marks[kept - 1].class != 0));
        uint32_t whole = open ? compose(run->marks[starter].cp, m.cp) : 0;

        if (whole) {
            run->marks[starter].cp = whole;
            continue;
        }
        if (m.class == 0)
            starter = kept;
        run->marks[kept++] = m;
    }
    run->n = kept;
}

static void flush(struct run *run, bool composed, struct buf *out)
{
    sort_marks(run);
    if (composed)
        compose_run(run);
    for (size_t i = 0; i < run->n; i++)
        utf8_append(out, run->marks[i].cp);
    run->n = 0;
}

/* --- text ------------------------------------------------------------------------------------- */

static bool is_composed(enum form form)
{
    return form == FORM_NFC || form == FORM_NFKC;
}

bool form_is(enum form form, struct str text)
{
    size_t at = 0;
    /* Below U+0300 nothing changes under NFC, below U+00A0 under any form. */
    uint8_t lowest = form == FORM_NFC ? 0xcc : 0xc2;

    while ((at = utf8_skip_ascii(text, at)) < text.len) {
        const char *p = text.ptr + at;

        if ((uint8_t)*p >= lowest && (form != FORM_NFC || is_unsure(utf8_get(p))))
            return false;
        at += utf8_len(*p);
    }
    return true;
}

/* Decomposes @cp at the end of @run, which is flushed first if nothing of it can join @cp. */
static void push(struct run *run, enum form form, uint32_t cp, struct buf *out)
{
    bool compat = form == FORM_NFKC || form == FORM_NFKD;
    size_t n = 0;
    const uint32_t *parts = compat && cp >= 0xa0 ? chars_compat(cp, &n) : NULL;
    uint32_t first = parts ? parts[0] : cp;

    if (!is_unsure(first))
        flush(run, is_composed(form), out);
    if (!parts)
        push_decomposed(run, cp);
    for (size_t i = 0; i < n; i++)
        push_mark(run, parts[i]);
}

void form_apply(enum form form, struct str text, size_t limit, struct buf *out)
{
    struct run run = {0};
    const char *end = text.ptr + text.len;

    for (const char *p = text.ptr; p < end && out->len <= limit; p += utf8_len(*p))
        push(&run, form, utf8_get(p), out);
    flush(&run, is_composed(form), out);
    free(run.marks);
}
