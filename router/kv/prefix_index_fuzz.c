/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event streams against a plain map. Three bytes are an operation on one of four workers: which,
 * where, what. Blocks form a tree of 3^5 paths; a block's hash is its path's number, or one of two
 * others, so that workers agree, disagree and use hashes anew. Whatever comes, the index holds
 * exactly what the map holds, and every score is the map's.
 */
#include <string.h>

#include "lib/base/mem.h"
#include "router/kv/prefix_index.h"

enum { WORKERS = 4, DEPTH = 5, LETTERS = 3, CONTEXTS = 1 << (2 * DEPTH), HASHES = 3 * CONTEXTS };

struct map {
    uint16_t meaning[WORKERS][HASHES]; /* context, 0 = none */
    uint16_t count[WORKERS][CONTEXTS]; /* hashes that mean the context */
};

#define REQUIRE(x)                                                                                 \
    do {                                                                                           \
        if (!(x))                                                                                  \
            abort();                                                                               \
    } while (0)

static void forget(struct map *m, uint32_t w, uint64_t hash)
{
    if (m->meaning[w][hash])
        m->count[w][m->meaning[w][hash]]--;
    m->meaning[w][hash] = 0;
}

/* A path of letters 1..3 as base-4 digits. */
static uint32_t context_of(uint32_t seed, uint32_t depth, uint64_t *local)
{
    uint32_t c = 0;

    for (uint32_t i = 0; i < depth; i++, seed /= LETTERS) {
        local[i] = 1 + seed % LETTERS;
        c = c * 4 + (uint32_t)local[i];
    }
    return c;
}

static void store(struct prefix_index *ix, struct map *m, uint32_t w, uint32_t seed, uint32_t how)
{
    uint64_t local[DEPTH], parent_hash;
    uint32_t depth = 1 + how % DEPTH, context = context_of(seed, depth, local);
    uint32_t parent = context / 4, variant = how / DEPTH % 3, parent_variant = how / 15 % 3;
    struct prefix_block b = {context + variant * CONTEXTS, local[depth - 1]};
    bool known;
    int r;

    parent_hash = parent + parent_variant * CONTEXTS;
    if (how / 45 % 4 == 0)
        b.external = (b.external * 7 + 1) % HASHES; /* a hash that may mean another block */
    if (depth > 1 && m->meaning[w][parent_hash] && m->meaning[w][parent_hash] != parent)
        return; /* the block would hang elsewhere: a path that the map has not */
    known = depth == 1 || m->meaning[w][parent_hash] == parent;
    r = prefix_index_store(ix, w, depth == 1 ? NULL : &parent_hash, &b, 1);
    if (known && depth > 1 && parent_hash == b.external) {
        REQUIRE(r == PREFIX_INVALID);
        return;
    }
    REQUIRE(r == (known ? 0 : PREFIX_NO_PARENT));
    if (!known)
        return;
    forget(m, w, b.external);
    m->meaning[w][b.external] = (uint16_t)context;
    m->count[w][context]++;
}

static void drop(struct prefix_index *ix, struct map *m, uint32_t w, uint32_t seed, uint32_t how)
{
    uint64_t local[DEPTH];
    uint64_t hash = context_of(seed, 1 + how % DEPTH, local) + how / DEPTH % 3 * CONTEXTS;
    bool known = m->meaning[w][hash] != 0;

    REQUIRE(prefix_index_remove(ix, w, &hash, 1) == (known ? 0 : PREFIX_UNKNOWN));
    forget(m, w, hash);
}

static void clear(struct prefix_index *ix, struct map *m, uint32_t w)
{
    prefix_index_clear(ix, w);
    memset(m->meaning[w], 0, sizeof(m->meaning[w]));
    memset(m->count[w], 0, sizeof(m->count[w]));
}

static void look_up(struct prefix_index *ix, const struct map *m, uint32_t seed)
{
    uint64_t local[DEPTH];
    uint32_t scores[WORKERS], context = context_of(seed, DEPTH, local);

    (void)prefix_index_match(ix, local, DEPTH, scores, WORKERS);
    for (uint32_t w = 0; w < WORKERS; w++) {
        uint32_t want = 0;

        while (want < DEPTH && m->count[w][context >> 2 * (DEPTH - 1 - want)])
            want++;
        REQUIRE(scores[w] == want);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct map m;
    struct prefix_index *ix = prefix_index_new(0);

    memset(&m, 0, sizeof(m));
    for (size_t i = 0; i + 3 <= size; i += 3) {
        uint32_t w = data[i] % WORKERS, what = data[i] / WORKERS % 8;

        if (what < 5)
            store(ix, &m, w, data[i + 1], data[i + 2]);
        else if (what < 7)
            drop(ix, &m, w, data[i + 1], data[i + 2]);
        else if (data[i + 1] < 32)
            clear(ix, &m, w);
        look_up(ix, &m, data[i + 1]);
    }
    prefix_index_check(ix);
    for (uint32_t w = 0; w < WORKERS; w++)
        clear(ix, &m, w);
    REQUIRE(prefix_index_stats(ix).nodes == 0);
    prefix_index_free(ix);
    return 0;
}
