/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/word_cache.h"

#include "lib/base/mem.h"
#include "router/token/vocab.h"

_Static_assert(sizeof(struct word_short) == 32, "half a cache line");
_Static_assert(sizeof(struct word_long) == 224, "three and a half cache lines");

enum { LINE = 64 };

/* The first @n bytes of eight. */
#define FIRST(n) ((n) <= 0 ? 0 : (n) >= 8 ? UINT64_MAX : (UINT64_C(1) << ((n)&7) * 8) - 1)
#define KEPT(n)                                                                                    \
    {                                                                                              \
        FIRST(n), FIRST((n)-8)                                                                     \
    }

const uint64_t WORD_KEPT[WORD_SHORT_TEXT + 1][2] = {
    KEPT(0), KEPT(1), KEPT(2),  KEPT(3),  KEPT(4),  KEPT(5),  KEPT(6),  KEPT(7),
    KEPT(8), KEPT(9), KEPT(10), KEPT(11), KEPT(12), KEPT(13), KEPT(14), KEPT(15),
};

void word_cache_init(struct word_cache *c)
{
    size_t short_bytes = WORD_SETS * sizeof(*c->sets);
    uintptr_t at;

    c->memory = xcalloc(1, short_bytes + WORD_LONG_SLOTS * sizeof(*c->slots) + LINE);
    at = ((uintptr_t)c->memory + LINE - 1) / LINE * LINE;
    c->sets = (struct word_short(*)[2])at;
    c->slots = (struct word_long *)(at + short_bytes);
}

void word_cache_done(struct word_cache *c)
{
    free(c->memory);
    *c = (struct word_cache){0};
}

static struct word_long *slot_of(const struct word_cache *c, struct str word)
{
    return &c->slots[vocab_hash(word) & (WORD_LONG_SLOTS - 1)];
}

void word_key_at_end(struct word_key *k, struct str word)
{
    char padded[WORD_SHORT_TEXT + 1] = "";

    memcpy(padded, word.ptr, word.len);
    word_key_set(k, str_slice(padded, word.len), sizeof(padded));
}

const uint32_t *word_cache_find_long(const struct word_cache *c, struct str word, size_t *ret_n)
{
    const struct word_long *slot;

    if (word.len > WORD_LONG_TEXT)
        return NULL;
    slot = slot_of(c, word);
    if (slot->len != word.len || memcmp(slot->text, word.ptr, word.len) != 0)
        return NULL;
    *ret_n = slot->n_ids;
    return slot->ids;
}

/* Where a short word goes that is not there yet. */
static struct word_short *make_room(struct word_cache *c, const struct word_key *k)
{
    struct word_short *set = word_home(c, k), *other = word_other_home(c, k);

    for (uint32_t i = 0; i < 2; i++)
        if (set[i].part[1] == 0)
            return &set[i];
    for (uint32_t i = 0; i < 2; i++)
        if (other[i].part[1] == 0)
            return &other[i];
    set[1] = set[0];
    return set;
}

void word_cache_put(struct word_cache *c, const struct word_key *k, struct str word,
                    const uint32_t *ids, size_t n)
{
    if (k->part[1] != WORD_NOT_SHORT && n <= WORD_SHORT_IDS) {
        struct word_short *w = make_room(c, k);

        *w = (struct word_short){.part = {k->part[0], k->part[1]}, .n_ids = (uint32_t)n};
        memcpy(w->ids, ids, n * sizeof(*ids));
    } else if (word.len <= WORD_LONG_TEXT && n <= WORD_LONG_IDS) {
        struct word_long *slot = slot_of(c, word);

        slot->len = (uint16_t)word.len;
        slot->n_ids = (uint16_t)n;
        memcpy(slot->text, word.ptr, word.len);
        memcpy(slot->ids, ids, n * sizeof(*ids));
    }
}
