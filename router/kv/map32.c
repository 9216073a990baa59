/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/map32.h"

#include <assert.h>

enum { CAP_MIN = 8 };

void map32_done(struct map32 *m, struct kv_mem *mem)
{
    kv_free(mem, m->entries, map32_bytes(m));
    *m = (struct map32){0};
}

static uint32_t home_of(const struct map32 *m, uint32_t key)
{
    return (uint32_t)((uint64_t)(key * UINT32_C(0x9E3779B1)) * m->cap >> 32);
}

static uint32_t after(const struct map32 *m, uint32_t i)
{
    return i + 1 < m->cap ? i + 1 : 0;
}

/* Where the key is, or the free place where it would be. */
static uint32_t locate(const struct map32 *m, uint32_t key)
{
    uint32_t i = home_of(m, key);

    while (m->entries[i].key && m->entries[i].key != key)
        i = after(m, i);
    return i;
}

static bool resize(struct map32 *m, struct kv_mem *mem, uint32_t cap)
{
    struct map32 other = {.cap = cap, .len = m->len};

    other.entries = kv_alloc(mem, map32_bytes(&other));
    if (!other.entries)
        return false;
    for (uint32_t i = 0; i < m->cap; i++)
        if (m->entries[i].key)
            other.entries[locate(&other, m->entries[i].key)] = m->entries[i];
    map32_done(m, mem);
    *m = other;
    return true;
}

uint32_t *map32_find(const struct map32 *m, uint32_t key)
{
    uint32_t at = m->len ? locate(m, key) : 0;

    return m->len && m->entries[at].key ? &m->entries[at].value : NULL;
}

bool map32_reserve(struct map32 *m, struct kv_mem *mem)
{
    if (((uint64_t)m->len + 1) * 4 <= (uint64_t)m->cap * 3)
        return true;
    /* Fuller than it should be is better than failing. */
    return resize(m, mem, m->cap ? m->cap + m->cap / 2 : CAP_MIN) || m->len + 1 < m->cap;
}

uint32_t *map32_put(struct map32 *m, uint32_t key)
{
    struct map32_entry *en = &m->entries[locate(m, key)];

    assert(key);
    if (!en->key) {
        *en = (struct map32_entry){.key = key};
        m->len++;
        assert(m->len < m->cap);
    }
    return &en->value;
}

static uint32_t distance(const struct map32 *m, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + (m->cap - from);
}

/* Later entries of the probe run move back over the hole, so that lookups need no tombstones. */
static void close_hole(struct map32 *m, uint32_t hole)
{
    for (uint32_t i = after(m, hole); m->entries[i].key; i = after(m, i)) {
        if (distance(m, home_of(m, m->entries[i].key), i) < distance(m, hole, i))
            continue;
        m->entries[hole] = m->entries[i];
        hole = i;
    }
    m->entries[hole].key = 0;
}

void map32_remove(struct map32 *m, struct kv_mem *mem, uint32_t key)
{
    uint32_t at = m->len ? locate(m, key) : 0;

    if (m->len == 0 || !m->entries[at].key)
        return;
    close_hole(m, at);
    m->len--;
    if (m->len == 0)
        map32_done(m, mem);
    else if (m->cap > 4 * CAP_MIN && m->len < m->cap / 3)
        (void)resize(m, mem, m->len * 2); /* without memory it stays large */
}
