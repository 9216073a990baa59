/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/vocab.h"

#include "lib/base/mem.h"

void vocab_done(struct vocab *v)
{
    buf_done(&v->text);
    free(v->entries);
    free(v->slots);
    *v = (struct vocab){0};
}

static size_t slot_of(const struct vocab *v, struct str text)
{
    size_t i = vocab_hash(text) & v->mask;

    while (v->slots[i] && !str_eq(vocab_text(v, v->slots[i] - 1), text))
        i = (i + 1) & v->mask;
    return i;
}

static void grow_slots(struct vocab *v)
{
    size_t n = v->mask ? (v->mask + 1) * 2 : 256;

    free(v->slots);
    v->slots = xcalloc(n, sizeof(*v->slots));
    v->mask = n - 1;
    for (uint32_t id = 0; id < v->limit; id++)
        if (v->entries[id].present)
            v->slots[slot_of(v, vocab_text(v, id))] = id + 1;
}

static void grow_entries(struct vocab *v, uint32_t id)
{
    uint32_t cap = MAX(v->cap * 2, 256U);

    if (id < v->cap)
        return;
    cap = MAX(cap, id + 1);
    v->entries = xreallocarray(v->entries, cap, sizeof(*v->entries));
    memset(v->entries + v->cap, 0, (cap - v->cap) * sizeof(*v->entries));
    v->cap = cap;
}

bool vocab_add(struct vocab *v, uint32_t id, struct str text)
{
    size_t slot;

    if (id < v->limit && v->entries[id].present)
        return false;
    grow_entries(v, id);
    if (!v->slots || v->len * 2 > v->mask)
        grow_slots(v);
    /* An empty text still needs an address of its own, to differ from "absent". */
    (void)buf_reserve(&v->text, text.len + 1);
    slot = slot_of(v, text);
    v->entries[id] = (struct vocab_entry){(uint32_t)v->text.len, (uint32_t)text.len, true};
    buf_put_str(&v->text, text);
    v->limit = MAX(v->limit, id + 1);
    v->slots[slot] = id + 1; /* of two ids with one text the later is found */
    v->len++;
    return true;
}

uint32_t vocab_find(const struct vocab *v, struct str text)
{
    return v->slots ? v->slots[slot_of(v, text)] - 1 : VOCAB_NONE;
}
