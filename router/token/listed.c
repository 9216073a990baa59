/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/listed.h"

#include <stdio.h>

#include "router/token/decode.h"
#include "router/token/utf8.h"

void listed_prepare(struct listed *l)
{
    for (unsigned i = 0; i < 256; i++) {
        char text[8];
        int n = snprintf(text, sizeof(text), "<0x%02X>", i);

        l->byte_ids[i] = vocab_find(l->words, str_slice(text, (size_t)n));
    }
}

/* Where the word that begins at @at ends. */
static size_t next_end(const struct listed *l, struct str text, size_t at)
{
    at += utf8_len(text.ptr[at]);
    while (!l->characters && at < text.len && !str_starts(str_skip(text, at), STR(DECODE_MARK)))
        at += utf8_len(text.ptr[at]);
    return at;
}

static void put_bytes(const struct listed *l, struct str word, struct token_ids *out)
{
    for (size_t i = 0; i < word.len; i++)
        token_ids_push(out, l->byte_ids[(uint8_t)word.ptr[i]]);
}

void listed_encode(const struct listed *l, struct str text, struct token_ids *out)
{
    bool was_unknown = false;

    for (size_t at = 0, end; at < text.len; at = end) {
        struct str word = str_slice(text.ptr + at, (end = next_end(l, text, at)) - at);
        uint32_t id = vocab_find(l->words, word);
        bool unknown = id == VOCAB_NONE || id == l->unk;

        if (unknown && l->byte_fallback)
            put_bytes(l, word, out);
        else if (!unknown || !was_unknown)
            token_ids_push(out, unknown ? l->unk : id);
        was_unknown = unknown;
    }
}
