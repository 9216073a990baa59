/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes lie in one array and are named by position; 0 is the root. One open-addressed table holds
 * all edges of the tree: it stores node numbers, and parent and local hash of the node are the key.
 * A node's holders are (slot, references) pairs, two of them inside the node. References are
 * counted because an engine may know one block by several hashes.
 */
#include "router/kv/prefix_index.h"

#include <assert.h>
#include <string.h>

#include "lib/base/map64.h"

enum { ROOT = 0, NO_NODE = UINT32_MAX, EDGES_MIN = 1024, INLINE_HOLDERS = 2 };

struct holder {
    uint32_t slot, refs;
};

struct node {
    uint64_t local;
    uint32_t parent; /* of a free node: the next free one */
    uint32_t n_children;
    uint32_t n_holders, cap_holders;
    union {
        struct holder here[INLINE_HOLDERS];
        struct holder *heap; /* when cap_holders > INLINE_HOLDERS */
    };
};

struct prefix_index {
    struct node *nodes;
    uint32_t n_nodes, cap_nodes, first_free;
    size_t n_live;
    uint32_t *edges; /* node numbers; ROOT marks a free slot, as the root is nobody's child */
    size_t cap_edges;
    struct map64 *held; /* by slot: external hash -> node */
    size_t n_slots;
    size_t max_entries, n_entries, holder_bytes;
    struct prefix_stats counts;
};

struct prefix_index *prefix_index_new(size_t max_entries)
{
    struct prefix_index *ix = xcalloc(1, sizeof(*ix));

    ix->max_entries = max_entries;
    ix->cap_nodes = 256;
    ix->nodes = xcalloc(ix->cap_nodes, sizeof(*ix->nodes));
    ix->n_nodes = 1;
    ix->first_free = NO_NODE;
    ix->cap_edges = EDGES_MIN;
    ix->edges = xcalloc(ix->cap_edges, sizeof(*ix->edges));
    return ix;
}

struct prefix_index *prefix_index_free(struct prefix_index *ix)
{
    if (!ix)
        return NULL;
    for (uint32_t i = 0; i < ix->n_nodes; i++)
        if (ix->nodes[i].cap_holders > INLINE_HOLDERS)
            free(ix->nodes[i].heap);
    for (size_t i = 0; i < ix->n_slots; i++)
        map64_done(&ix->held[i]);
    free(ix->held);
    free(ix->edges);
    free(ix->nodes);
    free(ix);
    return NULL;
}

/* --- edges -------------------------------------------------------------------------------------
 */

static size_t edge_home(const struct prefix_index *ix, uint32_t parent, uint64_t local)
{
    uint64_t h = (local ^ (uint64_t)parent << 32 ^ parent) * UINT64_C(0x9E3779B97F4A7C15);

    return (size_t)(h ^ h >> 32) & (ix->cap_edges - 1);
}

/* Position of the edge, or of the free slot where it would be. */
static size_t edge_find(const struct prefix_index *ix, uint32_t parent, uint64_t local)
{
    size_t i = edge_home(ix, parent, local);

    while (ix->edges[i] != ROOT) {
        const struct node *n = &ix->nodes[ix->edges[i]];

        if (n->local == local && n->parent == parent)
            break;
        i = (i + 1) & (ix->cap_edges - 1);
    }
    return i;
}

static void edges_grow(struct prefix_index *ix)
{
    uint32_t *before = ix->edges;
    size_t n_before = ix->cap_edges;

    ix->cap_edges *= 2;
    ix->edges = xcalloc(ix->cap_edges, sizeof(*ix->edges));
    for (size_t i = 0; i < n_before; i++) {
        if (before[i] != ROOT) {
            const struct node *n = &ix->nodes[before[i]];

            ix->edges[edge_find(ix, n->parent, n->local)] = before[i];
        }
    }
    free(before);
}

static void edge_remove(struct prefix_index *ix, uint32_t parent, uint64_t local)
{
    size_t mask = ix->cap_edges - 1, hole = edge_find(ix, parent, local);

    assert(ix->edges[hole] != ROOT);
    for (size_t i = (hole + 1) & mask; ix->edges[i] != ROOT; i = (i + 1) & mask) {
        const struct node *n = &ix->nodes[ix->edges[i]];
        size_t home = edge_home(ix, n->parent, n->local);

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            ix->edges[hole] = ix->edges[i];
            hole = i;
        }
    }
    ix->edges[hole] = ROOT;
}

/* --- nodes -------------------------------------------------------------------------------------
 */

static uint32_t node_take_free(struct prefix_index *ix)
{
    uint32_t id = ix->first_free;

    if (id != NO_NODE) {
        ix->first_free = ix->nodes[id].parent;
        return id;
    }
    if (ix->n_nodes == ix->cap_nodes) {
        ix->cap_nodes *= 2;
        ix->nodes = xreallocarray(ix->nodes, ix->cap_nodes, sizeof(*ix->nodes));
    }
    return ix->n_nodes++;
}

static uint32_t node_need_child(struct prefix_index *ix, uint32_t parent, uint64_t local)
{
    size_t at = edge_find(ix, parent, local);
    uint32_t id = ix->edges[at];

    if (id != ROOT)
        return id;
    if ((ix->n_live + 1) * 4 > ix->cap_edges * 3) {
        edges_grow(ix);
        at = edge_find(ix, parent, local);
    }
    id = node_take_free(ix);
    ix->nodes[id] = (struct node){.local = local, .parent = parent, .cap_holders = INLINE_HOLDERS};
    ix->edges[at] = id;
    ix->nodes[parent].n_children++;
    ix->n_live++;
    return id;
}

/* Frees the node and then upwards whatever only led to it. */
static void node_prune(struct prefix_index *ix, uint32_t id)
{
    while (id != ROOT && ix->nodes[id].n_holders == 0 && ix->nodes[id].n_children == 0) {
        struct node *n = &ix->nodes[id];
        uint32_t parent = n->parent;

        edge_remove(ix, parent, n->local);
        if (n->cap_holders > INLINE_HOLDERS) {
            ix->holder_bytes -= n->cap_holders * sizeof(struct holder);
            free(n->heap);
        }
        *n = (struct node){.parent = ix->first_free};
        ix->first_free = id;
        ix->n_live--;
        ix->nodes[parent].n_children--;
        id = parent;
    }
}

static struct holder *holders_of(struct node *n)
{
    return n->cap_holders > INLINE_HOLDERS ? n->heap : n->here;
}

static const struct holder *holders_of_const(const struct node *n)
{
    return n->cap_holders > INLINE_HOLDERS ? n->heap : n->here;
}

static void holders_grow(struct prefix_index *ix, struct node *n)
{
    uint32_t cap = n->cap_holders * 2;
    struct holder *bigger = xreallocarray(NULL, cap, sizeof(*bigger));

    memcpy(bigger, holders_of(n), n->n_holders * sizeof(*bigger));
    if (n->cap_holders > INLINE_HOLDERS) {
        ix->holder_bytes -= n->cap_holders * sizeof(*bigger);
        free(n->heap);
    }
    n->heap = bigger;
    n->cap_holders = cap;
    ix->holder_bytes += cap * sizeof(*bigger);
}

static void holder_add(struct prefix_index *ix, uint32_t id, uint32_t slot)
{
    struct node *n = &ix->nodes[id];
    struct holder *h = holders_of(n);

    for (uint32_t i = 0; i < n->n_holders; i++) {
        if (h[i].slot == slot) {
            h[i].refs++;
            return;
        }
    }
    if (n->n_holders == n->cap_holders) {
        holders_grow(ix, n);
        h = holders_of(n);
    }
    h[n->n_holders++] = (struct holder){slot, 1};
}

static void holder_drop(struct prefix_index *ix, uint32_t id, uint32_t slot)
{
    struct node *n = &ix->nodes[id];
    struct holder *h = holders_of(n);
    uint32_t i = 0;

    while (i < n->n_holders && h[i].slot != slot)
        i++;
    assert(i < n->n_holders);
    if (--h[i].refs == 0)
        h[i] = h[--n->n_holders];
    node_prune(ix, id);
}

/* --- events ------------------------------------------------------------------------------------
 */

static struct map64 *held_by(struct prefix_index *ix, uint32_t slot)
{
    if (slot >= ix->n_slots) {
        size_t n = MAX((size_t)slot + 1, ix->n_slots * 2);

        ix->held = xreallocarray(ix->held, n, sizeof(*ix->held));
        memset(ix->held + ix->n_slots, 0, (n - ix->n_slots) * sizeof(*ix->held));
        ix->n_slots = n;
    }
    return &ix->held[slot];
}

/* Notes that the worker calls node @id by @external; an older meaning of that hash ends. */
static void remember(struct prefix_index *ix, uint32_t slot, uint64_t external, uint32_t id)
{
    bool is_new;
    uint64_t *at = map64_put(&ix->held[slot], external, &is_new);
    uint32_t before = (uint32_t)*at;

    if (!is_new && before == id)
        return;
    *at = id;
    holder_add(ix, id, slot);
    if (is_new)
        ix->n_entries++;
    else
        holder_drop(ix, before, slot);
    ix->counts.stored++;
}

int prefix_index_store(struct prefix_index *ix, uint32_t slot, const uint64_t *parent,
                       const struct prefix_block *blocks, size_t n)
{
    struct map64 *held = held_by(ix, slot);
    uint32_t at = ROOT;

    if (parent) {
        const uint64_t *known = map64_find(held, *parent);

        if (!known) {
            ix->counts.orphans++;
            return PREFIX_NO_PARENT;
        }
        at = (uint32_t)*known;
    }
    for (size_t i = 0; i < n; i++) {
        if ((i > 0 && blocks[i].external == blocks[i - 1].external) ||
            (i == 0 && parent && blocks[0].external == *parent)) {
            ix->counts.refused++;
            return PREFIX_INVALID;
        }
        if (ix->n_entries >= ix->max_entries && !map64_find(held, blocks[i].external)) {
            ix->counts.refused++;
            return PREFIX_FULL;
        }
        at = node_need_child(ix, at, blocks[i].local);
        remember(ix, slot, blocks[i].external, at);
    }
    return 0;
}

int prefix_index_remove(struct prefix_index *ix, uint32_t slot, const uint64_t *external, size_t n)
{
    struct map64 *held = held_by(ix, slot);
    int outcome = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t id;

        if (map64_remove(held, external[i], &id)) {
            holder_drop(ix, (uint32_t)id, slot);
            ix->n_entries--;
            ix->counts.removed++;
        } else {
            ix->counts.unknown_removes++;
            outcome = PREFIX_UNKNOWN;
        }
    }
    return outcome;
}

void prefix_index_clear(struct prefix_index *ix, uint32_t slot)
{
    struct map64 *held = held_by(ix, slot);
    uint64_t external, id;
    size_t at = 0;

    while (map64_next(held, &at, &external, &id))
        holder_drop(ix, (uint32_t)id, slot);
    ix->n_entries -= held->len;
    map64_done(held);
}

size_t prefix_index_held(const struct prefix_index *ix, uint32_t slot)
{
    return slot < ix->n_slots ? ix->held[slot].len : 0;
}

/* --- lookup ------------------------------------------------------------------------------------
 */

size_t prefix_index_match(const struct prefix_index *ix, const uint64_t *local, size_t n,
                          uint32_t *ret_scores, size_t n_slots)
{
    uint32_t at = ROOT;
    uint32_t depth = 0;

    memset(ret_scores, 0, n_slots * sizeof(*ret_scores));
    while (depth < n) {
        const struct holder *h;
        bool anyone = false;

        at = ix->edges[edge_find(ix, at, local[depth])];
        if (at == ROOT)
            break;
        h = holders_of_const(&ix->nodes[at]);
        for (uint32_t i = 0; i < ix->nodes[at].n_holders; i++) {
            /* Only who holds all blocks before this one may count it. */
            if (h[i].slot < n_slots && ret_scores[h[i].slot] == depth) {
                ret_scores[h[i].slot] = depth + 1;
                anyone = true;
            }
        }
        if (!anyone)
            break;
        depth++;
    }
    return depth;
}

struct prefix_stats prefix_index_stats(const struct prefix_index *ix)
{
    struct prefix_stats s = ix->counts;

    s.nodes = ix->n_live;
    s.entries = ix->n_entries;
    s.bytes = sizeof(*ix) + ix->cap_nodes * sizeof(*ix->nodes) +
              ix->cap_edges * sizeof(*ix->edges) + ix->n_slots * sizeof(*ix->held) +
              ix->holder_bytes;
    for (size_t i = 0; i < ix->n_slots; i++)
        s.bytes += map64_bytes(&ix->held[i]);
    return s;
}

void prefix_index_check(const struct prefix_index *ix)
{
    size_t edges = 0, entries = 0, refs = 0, children = 0;

    for (size_t i = 0; i < ix->cap_edges; i++) {
        if (ix->edges[i] != ROOT) {
            const struct node *n = &ix->nodes[ix->edges[i]];

            assert(edge_find(ix, n->parent, n->local) == i);
            assert(n->n_holders > 0 || n->n_children > 0);
            for (uint32_t k = 0; k < n->n_holders; k++)
                refs += holders_of_const(n)[k].refs;
            children += n->n_children;
            edges++;
        }
    }
    assert(edges == ix->n_live);
    assert(children + ix->nodes[ROOT].n_children == edges);
    for (size_t i = 0; i < ix->n_slots; i++)
        entries += ix->held[i].len;
    assert(entries == ix->n_entries);
    assert(refs == entries);
    (void)edges, (void)entries, (void)refs, (void)children;
}
