/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index of open-addressed positions over an array of entries in insertion order. Removal leaves a
 * dead entry, which goes at the next growth; the index never holds more than 3/4 of its slots.
 */
#include "lib/base/strmap.h"

#include "lib/base/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { STRMAP_MIN = 8, INDEX_FREE = 0 };

struct entry {
    char *key; /* NULL = dead */
    size_t key_len;
    uint64_t hash;
    void *value;
};

struct strmap {
    struct entry *entries;
    size_t n_entries, cap_entries, n_live;
    uint32_t *index; /* position + 1 */
    size_t cap_index;
    uint64_t seed;
};

struct strmap *strmap_new(void)
{
    struct strmap *m = xcalloc(1, sizeof(*m));

    m->seed = random_u64();
    return m;
}

struct strmap *strmap_free_with(struct strmap *m, void (*drop)(void *value))
{
    if (!m)
        return NULL;
    for (size_t i = 0; i < m->n_entries; i++) {
        if (m->entries[i].key && drop)
            drop(m->entries[i].value);
        free(m->entries[i].key);
    }
    free(m->entries);
    free(m->index);
    free(m);
    return NULL;
}

struct strmap *strmap_free(struct strmap *m)
{
    return strmap_free_with(m, NULL);
}

size_t strmap_len(const struct strmap *m)
{
    return m->n_live;
}

static uint64_t hash_of(const struct strmap *m, struct str key)
{
    return XXH3_64bits_withSeed(key.ptr, key.len, m->seed);
}

static struct entry *find(const struct strmap *m, struct str key, uint64_t hash)
{
    if (m->cap_index == 0)
        return NULL;
    for (size_t i = hash & (m->cap_index - 1);; i = (i + 1) & (m->cap_index - 1)) {
        struct entry *en;

        if (m->index[i] == INDEX_FREE)
            return NULL;
        en = &m->entries[m->index[i] - 1];
        if (en->key && en->hash == hash && str_eq(str_slice(en->key, en->key_len), key))
            return en;
    }
}

static void index_entry(struct strmap *m, size_t position)
{
    size_t i = m->entries[position].hash & (m->cap_index - 1);

    while (m->index[i] != INDEX_FREE)
        i = (i + 1) & (m->cap_index - 1);
    m->index[i] = (uint32_t)position + 1;
}

/* Drops dead entries and makes room for twice as many as live. */
static void rebuild(struct strmap *m)
{
    size_t live = 0;

    for (size_t i = 0; i < m->n_entries; i++)
        if (m->entries[i].key)
            m->entries[live++] = m->entries[i];
    m->n_entries = live;
    m->cap_entries = MAX((size_t)STRMAP_MIN, live * 2);
    m->entries = xreallocarray(m->entries, m->cap_entries, sizeof(*m->entries));

    for (m->cap_index = STRMAP_MIN; m->cap_index * 3 < m->cap_entries * 4; m->cap_index *= 2)
        ;
    free(m->index);
    m->index = xcalloc(m->cap_index, sizeof(*m->index));
    for (size_t i = 0; i < live; i++)
        index_entry(m, i);
}

void *strmap_get(const struct strmap *m, struct str key)
{
    struct entry *en = find(m, key, hash_of(m, key));

    return en ? en->value : NULL;
}

void *strmap_set(struct strmap *m, struct str key, void *value)
{
    uint64_t hash = hash_of(m, key);
    struct entry *en = find(m, key, hash);
    void *before = NULL;

    if (en) {
        before = en->value;
        en->value = value;
        return before;
    }
    if (m->n_entries == m->cap_entries)
        rebuild(m);
    m->entries[m->n_entries] = (struct entry){str_dup(key), key.len, hash, value};
    index_entry(m, m->n_entries++);
    m->n_live++;
    return NULL;
}

void *strmap_remove(struct strmap *m, struct str key)
{
    struct entry *en = find(m, key, hash_of(m, key));

    if (!en)
        return NULL;
    free(en->key);
    en->key = NULL;
    m->n_live--;
    return en->value;
}

bool strmap_next(const struct strmap *m, size_t *at, struct str *ret_key, void **ret_value)
{
    while (*at < m->n_entries) {
        const struct entry *en = &m->entries[(*at)++];

        if (en->key) {
            *ret_key = str_slice(en->key, en->key_len);
            *ret_value = en->value;
            return true;
        }
    }
    return false;
}
