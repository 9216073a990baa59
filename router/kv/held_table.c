/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/held_table.h"

#include <assert.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { CAP_MIN = 16, LARGE = 1 << 20 };

/*
 * Large tables come from the system itself: zeroed, given back at once, and on huge pages if it
 * likes, for access to them is random and would miss the TLB each time.
 */
static bool is_large(size_t n)
{
    return n * sizeof(struct held_entry) >= LARGE;
}

static struct held_entry *entries_new(size_t n)
{
    struct held_entry *entries;

    if (!is_large(n))
        return xcalloc(n, sizeof(*entries));
    entries = mmap(NULL, n * sizeof(*entries), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (entries == MAP_FAILED)
        abort(); /* as xcalloc() does */
    (void)madvise(entries, n * sizeof(*entries), MADV_HUGEPAGE);
    /* All at once: resize() would fault twice for each page, to look and then to write. */
    (void)madvise(entries, n * sizeof(*entries), MADV_POPULATE_WRITE);
    return entries;
}

static void entries_free(struct held_entry *entries, size_t n)
{
    if (is_large(n))
        (void)munmap(entries, n * sizeof(*entries));
    else
        free(entries);
}

void held_table_done(struct held_table *t)
{
    entries_free(t->entries, t->cap);
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
    other.entries = entries_new(cap);
    for (uint32_t i = 0; i < t->cap; i++) {
        uint32_t at;

        if (!t->entries[i].position)
            continue;
        at = held_table_home(&other, key_of(&t->entries[i]));
        while (other.entries[at].position) /* no key is there twice */
            at = at + 1 < other.cap ? at + 1 : 0;
        other.entries[at] = t->entries[i];
    }
    entries_free(t->entries, t->cap);
    *t = other;
}

uint32_t held_table_find(const struct held_table *t, uint64_t external)
{
    return t->len ? t->entries[locate(t, external)].position : 0;
}

uint32_t *held_table_put(struct held_table *t, uint64_t external)
{
    struct held_entry *en;

    if ((uint64_t)t->len * 4 >= (uint64_t)t->cap * 3)
        resize(t, t->cap ? (uint64_t)t->cap + t->cap / 2 : CAP_MIN);
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
        resize(t, (uint64_t)t->len * 2);
    return position;
}
