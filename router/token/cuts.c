/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/cuts.h"

#include <string.h>

#include "router/token/bpe.h"
#include "router/token/utf8.h"

static uint8_t class_of(const struct cuts *c, struct str text, size_t at)
{
    if ((uint8_t)text.ptr[at] < 0x80)
        return c->class[(uint8_t)text.ptr[at]];
    return str_starts(str_skip(text, at), STR(CUTS_MARK)) ? CUTS_AT_MARK : CUTS_OTHER;
}

void cuts_init(struct cuts *c, const struct bpe *b)
{
    *c = (struct cuts){.on = vocab_find(b->words, STR(CUTS_MARK)) != VOCAB_NONE};
    for (uint8_t i = 0; i < 128; i++)
        c->class[i] = b->ascii_ids[i] != VOCAB_NONE ? i : CUTS_OTHER;
    /* Of several that the model does not know, some become one token. */
    c->joined[CUTS_OTHER][CUTS_OTHER] = true;
}

static bool is_byte(struct str token)
{
    return token.len == 6 && str_starts(token, STR("<0x"));
}

void cuts_merge(struct cuts *c, struct str left, struct str right)
{
    const char *last;

    /* These stand for characters that are not spelt here. */
    if (left.len == 0 || right.len == 0 || is_byte(left) || is_byte(right)) {
        c->on = false;
        return;
    }
    last = utf8_prev(left.ptr, left.ptr + left.len);
    c->joined[class_of(c, left, (size_t)(last - left.ptr))][class_of(c, right, 0)] = true;
}

size_t cuts_next(const struct cuts *c, struct str word, size_t from)
{
    uint8_t left = class_of(c, word, from);

    if (!c->on)
        return word.len;
    for (from += utf8_len(word.ptr[from]); from < word.len; from += utf8_len(word.ptr[from])) {
        uint8_t right = class_of(c, word, from);

        if (!c->joined[left][right])
            break;
        left = right;
    }
    return from;
}
