/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/map64.h"

#include <string.h>

enum { MAP64_MIN = 16 };

void map64_done(struct map64 *m)
{
    free(m->slots);
    free(m->used);
    *m = (struct map64){0};
}

void map64_clear(struct map64 *m)
{
    if (m->cap)
        memset(m->used, 0, m->cap);
    m->len = 0;
}

/* Multiplication spreads consecutive ids, the fold brings the high bits down to the mask. */
static size_t home_of(const struct map64 *m, uint64_t key)
{
    uint64_t h = key * UINT64_C(0x9E3779B97F4A7C15);

    return (size_t)(h ^ (h >> 32)) & (m->cap - 1);
}

static size_t locate(const struct map64 *m, uint64_t key, bool *ret_found)
{
    size_t i = home_of(m, key);

    while (m->used[i] && m->slots[i].key != key)
        i = (i + 1) & (m->cap - 1);
    *ret_found = m->used[i];
    return i;
}

static void grow(struct map64 *m)
{
    struct map64 bigger = {.cap = m->cap ? m->cap * 2 : MAP64_MIN, .len = m->len};
    bool found;

    bigger.slots = xreallocarray(NULL, bigger.cap, sizeof(*bigger.slots));
    bigger.used = xcalloc(bigger.cap, 1);
    for (size_t i = 0; i < m->cap; i++) {
        if (m->used[i]) {
            size_t at = locate(&bigger, m->slots[i].key, &found);

            bigger.slots[at] = m->slots[i];
            bigger.used[at] = 1;
        }
    }
    free(m->slots);
    free(m->used);
    *m = bigger;
}

uint64_t *map64_find(const struct map64 *m, uint64_t key)
{
    bool found;
    size_t i;

    if (m->len == 0)
        return NULL;
    i = locate(m, key, &found);
    return found ? &m->slots[i].value : NULL;
}

uint64_t *map64_put(struct map64 *m, uint64_t key, bool *ret_new)
{
    bool found;
    size_t i;

    if ((m->len + 1) * 4 > m->cap * 3)
        grow(m);
    i = locate(m, key, &found);
    if (!found) {
        m->slots[i] = (struct map64_slot){.key = key};
        m->used[i] = 1;
        m->len++;
    }
    if (ret_new)
        *ret_new = !found;
    return &m->slots[i].value;
}

/* Moves later entries of the probe run back over the hole, so that lookups need no tombstones. */
static void close_hole(struct map64 *m, size_t hole)
{
    size_t mask = m->cap - 1;

    for (size_t i = (hole + 1) & mask; m->used[i]; i = (i + 1) & mask) {
        size_t home = home_of(m, m->slots[i].key);

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->used[hole] = 0;
}

bool map64_remove(struct map64 *m, uint64_t key, uint64_t *ret_value)
{
    bool found;
    size_t i;

    if (m->len == 0)
        return false;
    i = locate(m, key, &found);
    if (!found)
        return false;
    if (ret_value)
        *ret_value = m->slots[i].value;
    close_hole(m, i);
    m->len--;
    return true;
}

bool map64_next(const struct map64 *m, size_t *at, uint64_t *ret_key, uint64_t *ret_value)
{
    while (*at < m->cap) {
        size_t i = (*at)++;

        if (m->used[i]) {
            *ret_key = m->slots[i].key;
            *ret_value = m->slots[i].value;
            return true;
        }
    }
    return false;
}
