/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/held_table.h"

#include <assert.h>

enum { CAP_MIN = 16 };

void held_table_done(struct held_table *t)
{
    free(t->entries);
    *t = (struct held_table){0};
}

static uint64_t key_of(const struct held_entry *en)
{
    return en->key[0] | (uint64_t)en->key[1] << 32;
}

/* Where the key is, or the free place where it would be. */
static uint32_t locate(const struct held_table *t, uint64_t external)
{
    uint32_t i = held_table_home(t, external);

    while (t->entries[i].position && key_of(&t->entries[i]) != external)
        i = i + 1 < t->cap ? i + 1 : 0;
    return i;
}

/* Entries lie almost in the order of their homes, so both tables are walked from front to back. */
static void resize(struct held_table *t, uint64_t cap)
{
    struct held_table other = {.len = t->len};

    assert(cap <= UINT32_MAX);
    other.cap = (uint32_t)cap;
    other.entries = xcalloc(cap, sizeof(*other.entries));
    for (uint32_t i = 0; i < t->cap; i++)
        if (t->entries[i].position)
            other.entries[locate(&other, key_of(&t->entries[i]))] = t->entries[i];
    free(t->entries);
    *t = other;
}

uint32_t held_table_find(const struct held_table *t, uint64_t external)
{
    return t->len ? t->entries[locate(t, external)].position : 0;
}

uint32_t *held_table_put(struct held_table *t, uint64_t external)
{
    struct held_entry *en;

    if ((uint64_t)t->len * 20 >= (uint64_t)t->cap * 17)
        resize(t, t->cap ? (uint64_t)t->cap + t->cap / 3 : CAP_MIN);
    en = &t->entries[locate(t, external)];
    if (!en->position) {
        en->key[0] = (uint32_t)external;
        en->key[1] = (uint32_t)(external >> 32);
        t->len++;
    }
    return &en->position;
}

static uint32_t distance(const struct held_table *t, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + (t->cap - from);
}

/* Later entries of the probe run move back over the hole, so that lookups need no tombstones. */
static void close_hole(struct held_table *t, uint32_t hole)
{
    for (uint32_t i = hole;;) {
        i = i + 1 < t->cap ? i + 1 : 0;
        if (!t->entries[i].position)
            break;
        if (distance(t, held_table_home(t, key_of(&t->entries[i])), i) >= distance(t, hole, i)) {
            t->entries[hole] = t->entries[i];
            hole = i;
        }
    }
    t->entries[hole].position = 0;
}

uint32_t held_table_remove(struct held_table *t, uint64_t external)
{
    uint32_t at, position;

    if (t->len == 0)
        return 0;
    at = locate(t, external);
    position = t->entries[at].position;
    if (!position)
        return 0;
    close_hole(t, at);
    t->len--;
    if (t->len == 0)
        held_table_done(t);
    else if (t->cap > 4 * CAP_MIN && t->len < t->cap / 3)
        resize(t, (uint64_t)t->len * 3 / 2);
    return position;
}
