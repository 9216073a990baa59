/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/wordpiece.h"

#include "router/token/utf8.h"

void wordpiece_done(struct wordpiece *w)
{
    vocab_done(&w->inner);
}

void wordpiece_prepare(struct wordpiece *w, struct str prefix)
{
    for (uint32_t id = 0; id < w->words->limit; id++) {
        struct str text = vocab_text(w->words, id);

        if (!text.ptr)
            continue;
        w->longest = MAX(w->longest, text.len);
        if (str_starts(text, prefix) && vocab_find(w->words, text) == id)
            (void)vocab_add(&w->inner, id, str_skip(text, prefix.len));
    }
}

static bool is_too_long(const struct wordpiece *w, struct str word)
{
    size_t chars = 0;

    for (size_t i = 0; i < word.len; i += utf8_len(word.ptr[i]))
        chars++;
    return chars > w->max_chars;
}

/* The longest piece that @rest begins with; VOCAB_NONE when there is none. */
static uint32_t longest_piece(const struct vocab *pieces, size_t longest, struct str rest,
                              size_t *ret_len)
{
    size_t end = MIN(longest, rest.len);

    while (end > 0 && end < rest.len && utf8_is_continuation(rest.ptr[end]))
        end--;
    while (end > 0) {
        uint32_t id = vocab_find(pieces, str_head(rest, end));

        if (id != VOCAB_NONE) {
            *ret_len = end;
            return id;
        }
        end = (size_t)(utf8_prev(rest.ptr, rest.ptr + end) - rest.ptr);
    }
    return VOCAB_NONE;
}

void wordpiece_encode(const struct wordpiece *w, struct str word, struct token_ids *out)
{
    size_t before = out->len, at = 0, len = 0;
    uint32_t id = is_too_long(w, word) ? VOCAB_NONE : w->unk;

    while (at < word.len && id != VOCAB_NONE) {
        id = longest_piece(at ? &w->inner : w->words, w->longest, str_skip(word, at), &len);
        token_ids_push(out, id);
        at += len;
    }
    if (id == VOCAB_NONE) {
        out->len = before;
        token_ids_push(out, w->unk);
    }
}
