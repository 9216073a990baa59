/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/bpe.h"

#include <stdio.h>

#include "lib/base/mem.h"
#include "router/token/decode.h"
#include "router/token/utf8.h"

enum {
    SHORT_WORD = 32, /* symbols up to which a scan beats the heap */
    WHOLE_TEXT = 32, /* bytes up to which it is known whether a token is whole */
};

static const uint64_t NO_PAIR = UINT64_MAX;

void bpe_done(struct bpe *b)
{
    free(b->merges);
    free(b->whole);
    free(b->prefix);
    free(b->suffix);
    *b = (struct bpe){0};
}

void bpe_prepare(struct bpe *b)
{
    for (int i = 0; i < 256; i++) {
        char text[8];
        int n = 1;

        if (b->byte_level)
            text[0] = (char)i;
        else
            n = snprintf(text, sizeof(text), "<0x%02X>", (unsigned)i);
        b->byte_ids[i] = vocab_find(b->words, str_slice(text, (size_t)n));
    }
    for (int i = 0; i < 128; i++)
        b->ascii_ids[i] = vocab_find(b->words, str_slice(&(char){(char)i}, 1));
}

/* --- merge table ------------------------------------------------------------------------------ */

static uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static struct bpe_merge *merge_slot(const struct bpe *b, uint64_t pair)
{
    uint64_t h = pair * UINT64_C(0x9e3779b97f4a7c15);
    size_t i = (h ^ h >> 32) & b->mask;

    while (b->merges[i].pair != pair && b->merges[i].pair != NO_PAIR)
        i = (i + 1) & b->mask;
    return &b->merges[i];
}

static void grow_merges(struct bpe *b)
{
    struct bpe_merge *old = b->merges;
    size_t n_old = old ? b->mask + 1 : 0;
    size_t n = old ? n_old * 2 : 1024;

    b->merges = xreallocarray(NULL, n, sizeof(*b->merges));
    b->mask = n - 1;
    for (size_t i = 0; i < n; i++)
        b->merges[i].pair = NO_PAIR;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].pair != NO_PAIR)
            *merge_slot(b, old[i].pair) = old[i];
    free(old);
}

void bpe_add_merge(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    struct bpe_merge *m;

    if (!b->merges || b->n_merges * 2 > b->mask)
        grow_merges(b);
    m = merge_slot(b, pair_of(left, right));
    b->n_merges += m->pair == NO_PAIR;
    *m = (struct bpe_merge){pair_of(left, right), rank, id};
}

/* NULL when the two do not merge. */
static const struct bpe_merge *find_merge(const struct bpe *b, uint32_t left, uint32_t right)
{
    const struct bpe_merge *m;

    if (!b->merges)
        return NULL;
    m = merge_slot(b, pair_of(left, right));
    return m->pair == NO_PAIR ? NULL : m;
}

/* --- symbols ---------------------------------------------------------------------------------- */

void bpe_work_done(struct bpe_work *w)
{
    free(w->symbols);
    free(w->heap);
    buf_done(&w->spelt);
    *w = (struct bpe_work){0};
}

static void push_symbol(struct bpe_work *w, uint32_t id)
{
    int32_t i = (int32_t)w->n_symbols++;

    w->symbols[i] = (struct bpe_symbol){id, i - 1, i + 1};
}

static bool has_affix(const struct bpe *b)
{
    return b->prefix || b->suffix;
}

/* How the vocabulary spells the character from @at to @end of @word. */
static void spell_symbol(const struct bpe *b, struct str word, size_t at, size_t end,
                         struct buf *out)
{
    struct str c = str_slice(word.ptr + at, end - at);

    buf_clear(out);
    if (b->prefix && at > 0)
        buf_put_cstr(out, b->prefix);
    if (b->byte_level)
        decode_put_letters(c, out);
    else
        buf_put_str(out, c);
    if (b->suffix && end == word.len)
        buf_put_cstr(out, b->suffix);
}

static uint32_t symbol_of(const struct bpe *b, struct str c)
{
    if (b->byte_level)
        return b->byte_ids[(uint8_t)c.ptr[0]];
    if (c.len == 1)
        return b->ascii_ids[(uint8_t)c.ptr[0]];
    return vocab_find(b->words, c);
}

/* The bytes of a character as tokens, if the model has all of them. */
static bool push_fallback(const struct bpe *b, struct bpe_work *w, struct str c)
{
    if (!b->byte_fallback)
        return false;
    for (size_t i = 0; i < c.len; i++)
        if (b->byte_ids[(uint8_t)c.ptr[i]] == VOCAB_NONE)
            return false;
    for (size_t i = 0; i < c.len; i++)
        push_symbol(w, b->byte_ids[(uint8_t)c.ptr[i]]);
    return true;
}

/*
 * Unknown characters in a row become one unknown token when they are fused. A pending one comes
 * out at the next known symbol and not at fallback bytes: the library does so, and ids must agree.
 */
static void split_symbols(const struct bpe *b, struct bpe_work *w, struct str word)
{
    bool pending = false;

    w->n_symbols = 0;
    for (size_t at = 0, len; at < word.len; at += len) {
        struct str c;
        uint32_t id;

        len = b->byte_level ? 1 : utf8_len(word.ptr[at]);
        c = (struct str){word.ptr + at, len};
        if (has_affix(b)) {
            spell_symbol(b, word, at, at + len, &w->spelt);
            c = buf_str(&w->spelt);
            id = vocab_find(b->spelt, c);
        } else {
            id = symbol_of(b, c);
        }
        if (id != VOCAB_NONE) {
            if (pending)
                push_symbol(w, b->unk);
            pending = false;
            push_symbol(w, id);
        } else if (!push_fallback(b, w, c) && b->unk != VOCAB_NONE) {
            if (pending && !b->fuse_unk)
                push_symbol(w, b->unk);
            pending = true;
        }
    }
    if (pending)
        push_symbol(w, b->unk);
    if (w->n_symbols > 0)
        w->symbols[w->n_symbols - 1].next = -1;
}

/* --- merging short words ---------------------------------------------------------------------- */

struct short_word {
    size_t n;
    uint32_t ids[SHORT_WORD];
    uint32_t ranks[SHORT_WORD]; /* of the pair that starts here; UINT32_MAX: none */
    uint32_t merged[SHORT_WORD];
};

static void rate(const struct bpe *b, struct short_word *s, size_t i)
{
    const struct bpe_merge *m = NULL;

    if (i + 1 < s->n)
        m = find_merge(b, s->ids[i], s->ids[i + 1]);
    s->ranks[i] = m ? m->rank : UINT32_MAX;
    s->merged[i] = m ? m->id : 0;
}

static void close_gap(uint32_t *a, size_t at, size_t n)
{
    memmove(a + at, a + at + 1, (n - at - 1) * sizeof(*a));
}

static void merge_short(const struct bpe *b, const struct bpe_work *w, struct token_ids *out)
{
    struct short_word s = {.n = w->n_symbols};

    for (size_t i = 0; i < s.n; i++)
        s.ids[i] = w->symbols[i].id;
    for (size_t i = 0; i < s.n; i++)
        rate(b, &s, i);
    for (;;) {
        size_t best = 0;

        for (size_t i = 1; i < s.n; i++)
            if (s.ranks[i] < s.ranks[best])
                best = i;
        if (s.n == 0 || s.ranks[best] == UINT32_MAX)
            break;
        s.ids[best] = s.merged[best];
        close_gap(s.ids, best + 1, s.n);
        close_gap(s.ranks, best + 1, s.n);
        close_gap(s.merged, best + 1, s.n);
        s.n--;
        rate(b, &s, best);
        if (best > 0)
            rate(b, &s, best - 1);
    }
    memcpy(token_ids_reserve(out, s.n), s.ids, s.n * sizeof(*s.ids));
    out->len += s.n;
}

/* --- merging long words ----------------------------------------------------------------------- */

static bool comes_before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct bpe_work *w, struct bpe_candidate c)
{
    size_t i = w->n_heap++;

    if (i == w->cap_heap) {
        w->cap_heap = w->cap_heap ? w->cap_heap * 2 : 256;
        w->heap = xreallocarray(w->heap, w->cap_heap, sizeof(*w->heap));
    }
    while (i > 0 && comes_before(&c, &w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = c;
}

static struct bpe_candidate heap_pop(struct bpe_work *w)
{
    struct bpe_candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < w->n_heap) {
        if (child + 1 < w->n_heap && comes_before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!comes_before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

/* Offers the pair that starts at @at to the heap, if it merges. */
static void offer(const struct bpe *b, struct bpe_work *w, int32_t at)
{
    const struct bpe_merge *m;

    if (at < 0 || w->symbols[at].next < 0)
        return;
    m = find_merge(b, w->symbols[at].id, w->symbols[w->symbols[at].next].id);
    if (m)
        heap_push(w, (struct bpe_candidate){m->rank, m->id, at});
}

/* A candidate is stale when its left symbol is gone or the pair there is another by now. */
static bool still_holds(const struct bpe *b, const struct bpe_work *w, struct bpe_candidate c)
{
    const struct bpe_symbol *left = &w->symbols[c.at];
    const struct bpe_merge *m;

    if (left->id == VOCAB_NONE || left->next < 0)
        return false;
    m = find_merge(b, left->id, w->symbols[left->next].id);
    return m && m->id == c.id;
}

static void join(struct bpe_work *w, struct bpe_candidate c)
{
    struct bpe_symbol *left = &w->symbols[c.at], *right = &w->symbols[left->next];

    left->id = c.id;
    left->next = right->next;
    if (right->next >= 0)
        w->symbols[right->next].prev = c.at;
    right->id = VOCAB_NONE;
}

static void merge_long(const struct bpe *b, struct bpe_work *w, struct token_ids *out)
{
    w->n_heap = 0;
    for (size_t i = 0; i < w->n_symbols; i++)
        offer(b, w, (int32_t)i);
    while (w->n_heap > 0) {
        struct bpe_candidate c = heap_pop(w);

        if (!still_holds(b, w, c))
            continue;
        join(w, c);
        offer(b, w, w->symbols[c.at].prev);
        offer(b, w, c.at);
    }
    for (int32_t i = 0; i >= 0; i = w->symbols[i].next)
        token_ids_push(out, w->symbols[i].id);
}

/* --- words ------------------------------------------------------------------------------------ */

/* A word has at most as many symbols as bytes, those of the prefixes and the suffix among them. */
static void reserve_symbols(const struct bpe *b, struct bpe_work *w, size_t n)
{
    if (b->byte_fallback && has_affix(b))
        n = n * (1 + (b->prefix ? strlen(b->prefix) : 0)) + BPE_MAX_AFFIX;
    if (n <= w->cap_symbols)
        return;
    free(w->symbols);
    w->cap_symbols = MAX(n, (size_t)256);
    w->symbols = xreallocarray(NULL, w->cap_symbols, sizeof(*w->symbols));
}

static uint32_t find_whole(const struct bpe *b, struct str word)
{
    uint32_t id = VOCAB_NONE;

    if (b->ignore_merges || (b->whole && word.len <= WHOLE_TEXT))
        id = vocab_find(b->words, word);
    return id != VOCAB_NONE && (b->ignore_merges || b->whole[id]) ? id : VOCAB_NONE;
}

void bpe_mark_whole(struct bpe *b)
{
    struct bpe_work work = {0};
    struct token_ids ids = {0};
    bool *whole = xcalloc(MAX(b->words->limit, 1U), sizeof(*whole));

    for (uint32_t id = 0; !b->ignore_merges && !has_affix(b) && id < b->words->limit; id++) {
        struct str text = vocab_text(b->words, id);

        if (text.len == 0 || text.len > WHOLE_TEXT)
            continue;
        ids.len = 0;
        bpe_encode(b, &work, text, &ids);
        whole[id] = ids.len == 1 && ids.ptr[0] == id;
    }
    b->whole = whole;
    bpe_work_done(&work);
    token_ids_done(&ids);
}

void bpe_encode(const struct bpe *b, struct bpe_work *w, struct str word, struct token_ids *out)
{
    uint32_t whole = find_whole(b, word);

    if (word.len == 0)
        return;
    if (whole != VOCAB_NONE) {
        token_ids_push(out, whole);
        return;
    }
    reserve_symbols(b, w, word.len);
    split_symbols(b, w, word);
    if (w->n_symbols <= SHORT_WORD)
        merge_short(b, w, out);
    else
        merge_long(b, w, out);
}
