/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree says who holds a block in its context, the held tables say what each worker calls it.
 * A worker may know one block by several hashes: all but one of them are counted in `more`, and the
 * block stays until the last one is removed.
 */
#include "router/kv/prefix_index.h"

#include <assert.h>
#include <string.h>

#include "router/kv/held_table.h"
#include "router/kv/prefix_tree.h"

enum { AHEAD = 16 }; /* blocks between asking memory for a table entry and using it */

struct prefix_index {
    struct prefix_tree tree;
    struct held_table *held; /* by slot */
    size_t n_slots;
    struct map64 more; /* slot and position -> further hashes that the slot knows the block by */
    size_t max_entries, n_entries;
    struct prefix_stats counts;
};

/*
 * Changes of one worker's cells in one node, gathered while an event stays in that node: it then
 * searches the holders once for up to 16 blocks.
 */
struct touch {
    uint32_t slot, node;
    uint32_t had;   /* cells that the slot held when the event came to this node */
    uint32_t cells; /* to mark or to clear */
};

struct prefix_index *prefix_index_new(size_t max_entries)
{
    struct prefix_index *ix = xcalloc(1, sizeof(*ix));

    ix->max_entries = max_entries;
    prefix_tree_init(&ix->tree);
    return ix;
}

struct prefix_index *prefix_index_free(struct prefix_index *ix)
{
    if (!ix)
        return NULL;
    for (size_t i = 0; i < ix->n_slots; i++)
        held_table_done(&ix->held[i]);
    free(ix->held);
    map64_done(&ix->more);
    prefix_tree_done(&ix->tree);
    free(ix);
    return NULL;
}

static struct held_table *held_by(struct prefix_index *ix, uint32_t slot)
{
    assert(slot < TREE_SLOTS_MAX);
    if (slot >= ix->n_slots) {
        size_t n = MAX((size_t)slot + 1, ix->n_slots * 2);

        ix->held = xreallocarray(ix->held, n, sizeof(*ix->held));
        memset(ix->held + ix->n_slots, 0, (n - ix->n_slots) * sizeof(*ix->held));
        ix->n_slots = n;
    }
    return &ix->held[slot];
}

/* --- blocks with several hashes ----------------------------------------------------------------
 */

static uint64_t more_key(uint32_t slot, uint32_t position)
{
    return (uint64_t)slot << 32 | position;
}

/* Whether the slot knows the block by another hash still; that one is counted off. */
static bool more_take(struct prefix_index *ix, uint32_t slot, uint32_t position)
{
    uint64_t *count = ix->more.len ? map64_find(&ix->more, more_key(slot, position)) : NULL;

    if (!count)
        return false;
    if (--*count == 0)
        (void)map64_remove(&ix->more, more_key(slot, position), NULL);
    if (ix->more.len == 0)
        map64_done(&ix->more);
    return true;
}

/* --- events ------------------------------------------------------------------------------------
 */

static void flush_marks(struct prefix_index *ix, struct touch *t)
{
    if (t->cells)
        prefix_tree_mark(&ix->tree, t->node, t->slot, t->cells);
    t->node = TREE_ROOT;
    t->cells = 0;
}

static void flush_clears(struct prefix_index *ix, struct touch *t)
{
    if (t->cells)
        prefix_tree_clear(&ix->tree, t->node, t->slot, t->cells);
    t->node = TREE_ROOT;
    t->cells = 0;
}

static void mark(struct prefix_index *ix, struct touch *t, uint32_t position)
{
    uint32_t cell = 1u << position % TREE_CELLS;

    if (t->node != position / TREE_CELLS) {
        flush_marks(ix, t);
        t->node = position / TREE_CELLS;
        t->had = prefix_tree_mask(&ix->tree, t->node, t->slot);
    }
    if ((t->had | t->cells) & cell)
        ++*map64_put(&ix->more, more_key(t->slot, position), NULL);
    else
        t->cells |= cell;
}

static void clear(struct prefix_index *ix, struct touch *t, uint32_t position)
{
    if (more_take(ix, t->slot, position))
        return;
    if (t->node != position / TREE_CELLS) {
        flush_clears(ix, t);
        t->node = position / TREE_CELLS;
    }
    t->cells |= 1u << position % TREE_CELLS;
}

/* Notes that the worker calls the block at @position @external; an older meaning of that hash ends.
 */
static void remember(struct prefix_index *ix, struct touch *t, uint64_t external, uint32_t position)
{
    uint32_t *at = held_table_put(&ix->held[t->slot], external), before = *at;

    if (before == position)
        return;
    *at = position;
    mark(ix, t, position);
    if (before) {
        struct touch old = {.slot = t->slot};

        flush_marks(ix, t); /* what is marked is safe from what the clearing frees */
        clear(ix, &old, before);
        flush_clears(ix, &old);
    } else {
        ix->n_entries++;
    }
    ix->counts.stored++;
}

static int refuse(struct prefix_index *ix, int outcome)
{
    ix->counts.refused++;
    return outcome;
}

int prefix_index_store(struct prefix_index *ix, uint32_t slot, const uint64_t *parent,
                       const struct prefix_block *blocks, size_t n)
{
    struct held_table *held = held_by(ix, slot);
    struct touch t = {.slot = slot};
    uint32_t at = parent ? held_table_find(held, *parent) : TREE_ROOT;
    int outcome = 0;

    if (parent && !at) {
        ix->counts.orphans++;
        return PREFIX_NO_PARENT;
    }
    for (size_t i = 0; i < n && outcome == 0; i++) {
        const uint64_t *before = i > 0 ? &blocks[i - 1].external : parent;

        if (held->cap && i + AHEAD < n)
            HELD_TABLE_PREFETCH(held, blocks[i + AHEAD].external);
        if (before && *before == blocks[i].external) {
            outcome = refuse(ix, PREFIX_INVALID);
        } else if (ix->n_entries >= ix->max_entries && !held_table_find(held, blocks[i].external)) {
            outcome = refuse(ix, PREFIX_FULL);
        } else {
            at = prefix_tree_need_child(&ix->tree, at, blocks[i].local);
            remember(ix, &t, blocks[i].external, at);
        }
    }
    flush_marks(ix, &t);
    return outcome;
}

int prefix_index_remove(struct prefix_index *ix, uint32_t slot, const uint64_t *external, size_t n)
{
    struct held_table *held = held_by(ix, slot);
    struct touch t = {.slot = slot};
    size_t n_unknown = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t position;

        if (held->cap && i + AHEAD < n)
            HELD_TABLE_PREFETCH(held, external[i + AHEAD]);
        position = held_table_remove(held, external[i]);
        if (position)
            clear(ix, &t, position);
        else
            n_unknown++;
    }
    flush_clears(ix, &t);
    ix->n_entries -= n - n_unknown;
    ix->counts.removed += n - n_unknown;
    ix->counts.unknown_removes += n_unknown;
    return n_unknown ? PREFIX_UNKNOWN : 0;
}

void prefix_index_clear(struct prefix_index *ix, uint32_t slot)
{
    struct held_table *held = held_by(ix, slot);
    struct touch t = {.slot = slot};

    for (uint32_t i = 0; i < held->cap; i++) {
        uint32_t ahead = i + AHEAD < held->cap ? held->entries[i + AHEAD].position : 0;

        if (ahead)
            __builtin_prefetch(tree_node(&ix->tree, ahead / TREE_CELLS));
        if (held->entries[i].position)
            clear(ix, &t, held->entries[i].position);
    }
    flush_clears(ix, &t);
    ix->n_entries -= held->len;
    held_table_done(held);
}

size_t prefix_index_held(const struct prefix_index *ix, uint32_t slot)
{
    return slot < ix->n_slots ? ix->held[slot].len : 0;
}

/* --- lookup ------------------------------------------------------------------------------------
 */

/* A lookup on its way down. Whoever has held everything so far scores `written`, nobody else does,
 * and would score `depth` if it were written: nodes whose holders are the same as above need not
 * touch the scores. */
struct walk {
    uint32_t *scores;
    size_t n_slots;
    uint32_t depth, written;
    struct tree_node *last; /* the node above, NULL at first, */
    uint32_t last_matched;  /* and how many of its cells matched */
};

static uint32_t cells_matched(const struct tree_node *n, const uint64_t *local, size_t left)
{
    uint32_t most = (uint32_t)MIN((size_t)n->len, left), i = 0;

    if (memcmp(n->local, local, most * sizeof(*local)) == 0)
        return most;
    while (n->local[i] == local[i])
        i++;
    return i;
}

static bool holders_are_same(struct tree_node *a, struct tree_node *b)
{
    return a->n_holders == b->n_holders &&
           memcmp(tree_holders(a), tree_holders(b), a->n_holders * sizeof(uint32_t)) == 0;
}

static void write_depth(struct walk *w)
{
    const uint32_t *h = w->last ? tree_holders(w->last) : NULL;

    for (uint32_t i = 0; h && i < w->last->n_holders; i++)
        if (h[i] >> 16 < w->n_slots && w->scores[h[i] >> 16] == w->written)
            w->scores[h[i] >> 16] = w->depth;
    w->written = w->depth;
}

/* Scores who still holds everything; returns the highest score, depth + @matched if one goes on. */
static uint32_t score_holders(struct walk *w, struct tree_node *n, uint32_t matched)
{
    const uint32_t *h = tree_holders(n);
    uint32_t longest = 0;

    for (uint32_t i = 0; i < n->n_holders && h[i] >> 16 < w->n_slots; i++) {
        uint32_t *score = &w->scores[h[i] >> 16];
        uint32_t leading = (uint32_t)__builtin_ctz(~(h[i] & 0xFFFF));

        if (*score != w->depth)
            continue;
        *score += MIN(leading, matched);
        longest = MAX(longest, *score);
    }
    return MAX(longest, w->depth);
}

/* One node further; false when nobody goes on. */
static bool walk_node(struct walk *w, struct tree_node *n, uint32_t matched)
{
    bool same = w->last && matched <= w->last_matched && holders_are_same(n, w->last);
    uint32_t longest = w->depth + matched;

    if (!same) {
        if (w->written != w->depth)
            write_depth(w);
        longest = score_holders(w, n, matched);
        w->written = w->depth + matched;
    }
    w->last = n;
    w->last_matched = matched;
    if (longest < w->depth + matched) {
        w->depth = w->written = longest;
        return false;
    }
    w->depth = longest;
    return true;
}

size_t prefix_index_match(const struct prefix_index *ix, const uint64_t *local, size_t n,
                          uint32_t *ret_scores, size_t n_slots)
{
    struct walk w = {.scores = ret_scores, .n_slots = n_slots};
    uint32_t at = n ? prefix_tree_child(&ix->tree, TREE_ROOT, local[0]) : TREE_ROOT;

    memset(ret_scores, 0, n_slots * sizeof(*ret_scores));
    while (at != TREE_ROOT) {
        uint32_t id = at / TREE_CELLS, matched;
        struct tree_node *node = tree_node(&ix->tree, id);

        if (node->next)
            __builtin_prefetch(tree_node(&ix->tree, node->next));
        matched = cells_matched(node, local + w.depth, n - w.depth);
        if (!walk_node(&w, node, matched) || w.depth == n)
            break;
        at = prefix_tree_child(&ix->tree, tree_position(id, matched - 1), local[w.depth]);
    }
    if (w.written != w.depth)
        write_depth(&w);
    return w.depth;
}

/* --- figures and invariants --------------------------------------------------------------------
 */

struct prefix_stats prefix_index_stats(const struct prefix_index *ix)
{
    struct prefix_stats s = ix->counts;

    s.nodes = ix->tree.n_cells;
    s.entries = ix->n_entries;
    s.bytes = sizeof(*ix) + prefix_tree_bytes(&ix->tree) + map64_bytes(&ix->more) +
              ix->n_slots * sizeof(*ix->held);
    for (size_t i = 0; i < ix->n_slots; i++)
        s.bytes += held_table_bytes(&ix->held[i]);
    return s;
}

void prefix_index_check(const struct prefix_index *ix)
{
    size_t pairs = prefix_tree_check(&ix->tree), entries = 0, at = 0;
    uint64_t key, count;

    while (map64_next(&ix->more, &at, &key, &count))
        pairs += count;
    for (uint32_t slot = 0; slot < ix->n_slots; slot++) {
        const struct held_table *held = &ix->held[slot];
        size_t n = 0;

        for (uint32_t i = 0; i < held->cap; i++) {
            uint32_t position = held->entries[i].position;

            n += position != 0;
            assert(!position || prefix_tree_mask(&ix->tree, position / TREE_CELLS, slot) &
                                    1u << position % TREE_CELLS);
        }
        assert(n == held->len);
        entries += n;
    }
    assert(entries == ix->n_entries);
    assert(pairs == entries);
}
