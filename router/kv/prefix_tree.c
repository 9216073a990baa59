/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/prefix_tree.h"

#include <assert.h>
#include <string.h>

enum { HEAP_LOG2_MIN = 3, SEGMENTS_MAX = (1 << 18) - 1, SEGMENTS_CAP_MIN = 16 };

/* --- segments ----------------------------------------------------------------------------------
 */

static bool segments_grow(struct prefix_tree *t)
{
    uint32_t cap = t->cap_segments ? t->cap_segments * 2 : SEGMENTS_CAP_MIN;
    struct tree_segment **segments = kv_resize(
        &t->mem, t->segments, t->cap_segments * sizeof(*segments), cap * sizeof(*segments));

    if (!segments)
        return false;
    t->segments = segments;
    t->cap_segments = cap;
    return true;
}

_Static_assert(sizeof(struct tree_segment) <= KV_PAGE, "fits a huge page");
_Static_assert(offsetof(struct tree_segment, nodes) == TREE_LINE &&
                   offsetof(struct tree_node, local) == TREE_LINE &&
                   sizeof(struct tree_node) % TREE_LINE == 0,
               "no part of a node shares a line with another");

/* Of the first one there is only the root. */
static size_t segment_size(uint32_t i)
{
    return i ? KV_PAGE : offsetof(struct tree_segment, nodes) + sizeof(struct tree_node);
}

static struct tree_segment *segment_new(struct prefix_tree *t)
{
    struct tree_segment *seg;
    uint32_t i = 0;

    while (i < t->n_segments && t->segments[i])
        i++;
    if (i == SEGMENTS_MAX || (i == t->cap_segments && !segments_grow(t)))
        return NULL;
    seg = i ? kv_alloc_page(&t->mem) : kv_alloc(&t->mem, segment_size(i));
    if (!seg)
        return NULL;
    t->n_segments = MAX(t->n_segments, i + 1);
    t->segments[i] = seg;
    seg->first = i * TREE_SEGMENT_NODES;
    seg->first_free = seg->n_touched = seg->n_live = 0;
    list_append(&t->open, &seg->open);
    return seg;
}

static void segment_free(struct prefix_tree *t, struct tree_segment *seg)
{
    list_remove(&seg->open);
    t->segments[seg->first / TREE_SEGMENT_NODES] = NULL;
    kv_free(&t->mem, seg, segment_size(seg->first));
}

/* False when there is no memory. */
static bool node_take_free(struct prefix_tree *t, uint32_t *ret)
{
    struct tree_segment *seg =
        list_empty(&t->open) ? segment_new(t) : LIST_ENTRY(t->open.next, struct tree_segment, open);
    uint32_t id;

    if (!seg)
        return false;
    id = seg->first_free;
    if (id)
        seg->first_free = tree_node(t, id)->next;
    else
        id = seg->first + seg->n_touched++;
    if (++seg->n_live == TREE_SEGMENT_NODES)
        list_remove(&seg->open);
    *ret = id;
    return true;
}

static void node_give_back(struct prefix_tree *t, uint32_t id)
{
    struct tree_segment *seg = t->segments[id / TREE_SEGMENT_NODES];
    struct tree_node *n = tree_node(t, id);

    n->len = 0;
    n->next = seg->first_free;
    seg->first_free = id;
    if (!list_linked(&seg->open))
        list_append(&t->open, &seg->open);
    if (--seg->n_live == 0)
        segment_free(t, seg);
}

/* 0 when there is no memory. */
static uint32_t node_new(struct prefix_tree *t, uint32_t up, uint64_t local)
{
    struct tree_node *n;
    uint32_t id;

    if (!node_take_free(t, &id))
        return 0;
    n = tree_node(t, id);
    /* The cells beyond `len` are never read. */
    memset(n, 0, offsetof(struct tree_node, local));
    n->up = up;
    n->len = 1;
    n->used = t->generation;
    n->local[0] = local;
    return id;
}

void prefix_tree_init(struct prefix_tree *t, size_t limit)
{
    *t = (struct prefix_tree){.mem.limit = SIZE_MAX};
    list_init(&t->open);
    (void)node_new(t, TREE_ROOT, 0); /* number 0, and it never goes */
    if (!t->n_segments)
        abort(); /* as xmalloc() does */
    list_remove(&t->segments[0]->open);
    t->mem.limit = limit;
}

static size_t holder_bytes(uint32_t cap_log2)
{
    return 2 * sizeof(uint32_t) << cap_log2;
}

static void segment_done(struct prefix_tree *t, struct tree_segment *seg)
{
    for (uint32_t k = 0; k < seg->n_touched; k++) {
        struct tree_node *n = &seg->nodes[k];

        if (n->len && n->cap_log2)
            kv_free(&t->mem, n->heap, holder_bytes(n->cap_log2));
    }
    kv_free(&t->mem, seg, segment_size(seg->first));
}

void prefix_tree_done(struct prefix_tree *t)
{
    for (uint32_t i = 0; i < t->n_segments; i++)
        if (t->segments[i])
            segment_done(t, t->segments[i]);
    kv_free(&t->mem, t->segments, t->cap_segments * sizeof(struct tree_segment *));
    edge_table_done(&t->edges, &t->mem);
    map32_done(&t->branch_count, &t->mem);
    name_table_done(&t->names, &t->mem);
    assert(t->mem.used == 0);
}

/* --- children ----------------------------------------------------------------------------------
 */

/* Keys of `branch_count` are positions + 1, as the root's is 0. */
static bool branch_reserve(struct prefix_tree *t)
{
    return edge_table_reserve(&t->edges, &t->mem) && map32_reserve(&t->branch_count, &t->mem);
}

static void branch_add(struct prefix_tree *t, uint32_t position, uint32_t child)
{
    edge_table_put(&t->edges, position, tree_node(t, child)->local[0], child);
    ++*map32_put(&t->branch_count, position + 1);
    tree_node(t, position / TREE_CELLS)->branches |= (uint16_t)(1u << position % TREE_CELLS);
}

static void branch_remove(struct prefix_tree *t, uint32_t position, uint64_t local)
{
    uint32_t *count = map32_find(&t->branch_count, position + 1);

    edge_table_remove(&t->edges, &t->mem, position, local);
    if (--*count > 0)
        return;
    map32_remove(&t->branch_count, &t->mem, position + 1);
    tree_node(t, position / TREE_CELLS)->branches &= (uint16_t) ~(1u << position % TREE_CELLS);
}

uint32_t prefix_tree_child(const struct prefix_tree *t, uint32_t position, uint64_t local)
{
    const struct tree_node *n = tree_node(t, position / TREE_CELLS);
    uint32_t cell = position % TREE_CELLS;

    if (cell + 1 < n->len && n->local[cell + 1] == local)
        return position + 1;
    if (cell == TREE_CELLS - 1 && n->next && tree_node(t, n->next)->local[0] == local)
        return tree_position(n->next, 0);
    if (n->branches & 1u << cell)
        return tree_position(edge_table_find(&t->edges, position, local), 0);
    return TREE_ROOT;
}

/* A node for the first block behind @position that no node holds; 0 when there is no memory. */
static uint32_t child_node_new(struct prefix_tree *t, uint32_t position, uint64_t local)
{
    struct tree_node *n = tree_node(t, position / TREE_CELLS);
    bool goes_on = position % TREE_CELLS == TREE_CELLS - 1 && !n->next;
    uint32_t id;

    if (!goes_on && !branch_reserve(t))
        return 0;
    id = node_new(t, position, local);
    if (!id)
        return 0;
    if (goes_on)
        n->next = id;
    else
        branch_add(t, position, id);
    return id;
}

uint32_t prefix_tree_need_child(struct prefix_tree *t, uint32_t position, uint64_t local)
{
    uint32_t at = prefix_tree_child(t, position, local), id;
    struct tree_node *n = tree_node(t, position / TREE_CELLS);

    if (at != TREE_ROOT)
        return at;
    if (position != TREE_ROOT && position % TREE_CELLS + 1 == n->len && n->len < TREE_CELLS) {
        n->local[n->len++] = local;
        t->n_cells++;
        return position + 1;
    }
    id = child_node_new(t, position, local);
    t->n_cells += id != 0;
    return tree_position(id, 0);
}

/* --- names -------------------------------------------------------------------------------------
 */

uint32_t prefix_tree_named(const struct prefix_tree *t, uint64_t external)
{
    struct name_probe p = name_table_probe(&t->names, name_mix(external));
    uint32_t position;

    while ((position = name_probe_next(&p)))
        if (tree_node(t, position / TREE_CELLS)->external[position % TREE_CELLS] == external)
            break;
    return position;
}

bool prefix_tree_name(struct prefix_tree *t, uint32_t position, uint64_t external)
{
    struct tree_node *n = tree_node(t, position / TREE_CELLS);

    if (!name_table_reserve(&t->names, &t->mem, 1))
        return false;
    name_table_put(&t->names, name_mix(external), position);
    n->external[position % TREE_CELLS] = external;
    n->named |= (uint16_t)(1u << position % TREE_CELLS);
    return true;
}

uint32_t prefix_tree_append(struct prefix_tree *t, uint32_t position,
                            const struct prefix_block *blocks, size_t n, size_t n_all)
{
    struct tree_node *node = tree_node(t, position / TREE_CELLS);
    uint32_t first = node->len, i = 0;

    n = MIN(n, (size_t)(TREE_CELLS - first));
    if (position % TREE_CELLS + 1 != first || node->branches >> (first - 1) ||
        !name_table_reserve(&t->names, &t->mem, n))
        return 0;
    for (; i < n && name_table_put_new(&t->names, name_mix(blocks[i].external), ++position); i++) {
        node->local[first + i] = blocks[i].local;
        node->external[first + i] = blocks[i].external;
        if (i + TREE_AHEAD < n_all)
            NAME_TABLE_PREFETCH(&t->names, name_mix(blocks[i + TREE_AHEAD].external));
        if (i + TREE_SOON < n_all)
            NAME_TABLE_PREFETCH_BEHIND(&t->names, name_mix(blocks[i + TREE_SOON].external));
    }
    node->named |= (uint16_t)((1u << (first + i)) - (1u << first));
    node->len = (uint8_t)(first + i);
    t->n_cells += i;
    return i;
}

/* The node ends before cell @len; what lies behind loses its names. */
static void cut(struct prefix_tree *t, uint32_t id, uint32_t len)
{
    struct tree_node *n = tree_node(t, id);
    uint32_t n_names = (uint32_t)__builtin_popcount((uint32_t)n->named >> len);

    for (uint32_t cell = len; cell < n->len; cell++)
        if (n->named & 1u << cell)
            NAME_TABLE_PREFETCH_BEHIND(&t->names, name_mix(n->external[cell]));
    for (uint32_t cell = len; cell < n->len; cell++)
        if (n->named & 1u << cell)
            name_table_remove(&t->names, name_mix(n->external[cell]), tree_position(id, cell));
    if (n_names)
        name_table_shrink(&t->names, &t->mem, n_names);
    n->named &= (uint16_t)((1u << len) - 1);
    t->n_cells -= n->len - len;
    n->len = (uint8_t)len;
}

/* --- holders -----------------------------------------------------------------------------------
 */

/* Index of the slot's entry, or where it belongs. */
static uint32_t holder_index(struct tree_node *n, uint32_t slot)
{
    const uint32_t *h = tree_holders(n);
    uint32_t low = 0, high = n->n_holders;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (h[middle] >> 16 < slot)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t holders_cap(const struct tree_node *n)
{
    return n->cap_log2 ? 1u << n->cap_log2 : TREE_INLINE_HOLDERS;
}

/* To the heap with room for 2^cap_log2, or into the node when that is 0. */
static bool holders_resize(struct prefix_tree *t, struct tree_node *n, uint8_t cap_log2)
{
    struct tree_node to = {.cap_log2 = cap_log2};

    if (cap_log2)
        to.heap = kv_alloc(&t->mem, holder_bytes(cap_log2));
    if (cap_log2 && !to.heap)
        return false;
    memcpy(tree_holders(&to), tree_holders(n), n->n_holders * sizeof(uint32_t));
    memcpy(tree_places(&to), tree_places(n), n->n_holders * sizeof(uint32_t));
    if (n->cap_log2)
        kv_free(&t->mem, n->heap, holder_bytes(n->cap_log2));
    memcpy(n->here, to.here, sizeof(n->here)); /* with it the pointer */
    n->cap_log2 = cap_log2;
    return true;
}

bool prefix_tree_reserve_holder(struct prefix_tree *t, uint32_t node)
{
    struct tree_node *n = tree_node(t, node);

    return n->n_holders < holders_cap(n) ||
           holders_resize(t, n, n->cap_log2 ? n->cap_log2 + 1 : HEAP_LOG2_MIN);
}

uint32_t prefix_tree_mask(const struct prefix_tree *t, uint32_t node, uint32_t slot,
                          uint32_t *ret_place)
{
    struct tree_node *n = tree_node(t, node);
    uint32_t i = holder_index(n, slot);

    if (i == n->n_holders || tree_holders(n)[i] >> 16 != slot)
        return 0;
    *ret_place = tree_places(n)[i];
    return tree_holders(n)[i] & 0xFFFF;
}

void prefix_tree_add_holder(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells,
                            uint32_t place)
{
    struct tree_node *n = tree_node(t, node);
    uint32_t i = holder_index(n, slot), *h = tree_holders(n), *p = tree_places(n);

    assert(slot < TREE_SLOTS_MAX && cells && cells < 1u << n->len);
    assert(n->n_holders < holders_cap(n));
    memmove(h + i + 1, h + i, (n->n_holders - i) * sizeof(*h));
    memmove(p + i + 1, p + i, (n->n_holders - i) * sizeof(*p));
    h[i] = slot << 16 | cells;
    p[i] = place;
    n->n_holders++;
}

void prefix_tree_mark(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells)
{
    struct tree_node *n = tree_node(t, node);
    uint32_t *h = tree_holders(n) + holder_index(n, slot);

    assert(*h >> 16 == slot && cells < 1u << n->len);
    *h |= cells;
}

void prefix_tree_move_place(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t place)
{
    struct tree_node *n = tree_node(t, node);

    tree_places(n)[holder_index(n, slot)] = place;
}

static void holder_remove(struct prefix_tree *t, struct tree_node *n, uint32_t i)
{
    uint32_t *h = tree_holders(n), *p = tree_places(n);

    n->n_holders--;
    memmove(h + i, h + i + 1, (n->n_holders - i) * sizeof(*h));
    memmove(p + i, p + i + 1, (n->n_holders - i) * sizeof(*p));
    if (n->cap_log2 && n->n_holders <= 1u << n->cap_log2 >> 2)
        (void)holders_resize(t, n, n->cap_log2 > HEAP_LOG2_MIN ? n->cap_log2 - 1 : 0);
}

/* Cells up to the last one that is held or has something below it. */
static uint32_t length_needed(struct tree_node *n)
{
    const uint32_t *h = tree_holders(n);
    uint32_t used = n->branches, top = 1u << (n->len - 1);

    if (n->next)
        return TREE_CELLS;
    for (uint32_t i = 0; i < n->n_holders && !(used & top); i++)
        used |= h[i] & 0xFFFF;
    return used ? 32 - (uint32_t)__builtin_clz(used) : 0;
}

/* What a node that goes was used for was the use of the one above it, too. */
static void pass_on_use(const struct prefix_tree *t, const struct tree_node *n)
{
    struct tree_node *above = tree_node(t, n->up / TREE_CELLS);

    if (t->generation - n->used < t->generation - above->used)
        tree_node_use(above, n->used);
}

void prefix_tree_trim(struct prefix_tree *t, uint32_t id)
{
    while (id != TREE_ROOT) {
        struct tree_node *n = tree_node(t, id);
        uint32_t up = n->up;

        cut(t, id, length_needed(n));
        if (n->len > 0)
            return;
        pass_on_use(t, n);
        if (tree_node(t, up / TREE_CELLS)->next == id)
            tree_node(t, up / TREE_CELLS)->next = 0;
        else
            branch_remove(t, up, n->local[0]);
        node_give_back(t, id); /* without holders it has none on the heap */
        id = up / TREE_CELLS;
    }
}

uint32_t prefix_tree_clear(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells)
{
    struct tree_node *n = tree_node(t, node);
    uint32_t i = holder_index(n, slot), *h = tree_holders(n), left;

    assert(i < n->n_holders && h[i] >> 16 == slot && (h[i] & cells) == cells);
    h[i] &= ~cells;
    left = h[i] & 0xFFFF;
    if (left == 0)
        holder_remove(t, n, i);
    if (cells & 1u << (n->len - 1))
        prefix_tree_trim(t, node);
    return left;
}

/* --- invariants --------------------------------------------------------------------------------
 */

static size_t node_check(const struct prefix_tree *t, uint32_t id)
{
    struct tree_node *n = tree_node(t, id);
    const uint32_t *h = tree_holders(n);
    size_t pairs = 0;

    assert(n->len <= TREE_CELLS && n->branches < 1u << n->len);
    assert(!n->next || (n->len == TREE_CELLS && tree_node(t, n->next)->up / TREE_CELLS == id));
    for (uint32_t cell = 0; cell < n->len; cell++) {
        const uint32_t *count = map32_find(&t->branch_count, tree_position(id, cell) + 1);
        bool named = n->named >> cell & 1;

        assert((count != NULL) == (n->branches >> cell & 1));
        assert(!count || *count > 0);
        assert(!named || prefix_tree_named(t, n->external[cell]) == tree_position(id, cell));
    }
    assert(n->named < 1u << n->len);
    assert(n->n_holders <= holders_cap(n));
    for (uint32_t i = 0; i < n->n_holders; i++) {
        assert(i == 0 || h[i - 1] >> 16 < h[i] >> 16);
        assert((h[i] & 0xFFFF) != 0 && (h[i] & 0xFFFF) < 1u << n->len);
        pairs += (size_t)__builtin_popcount(h[i] & 0xFFFF);
    }
    if (id != TREE_ROOT) {
        assert(length_needed(n) == n->len);
        assert(prefix_tree_child(t, n->up, n->local[0]) == tree_position(id, 0));
    }
    return pairs;
}

size_t prefix_tree_check(const struct prefix_tree *t)
{
    size_t pairs = 0, cells = 0, n_live = 0, branches = 0, names = 0;

    for (uint32_t i = 0; i < t->n_segments; i++) {
        const struct tree_segment *seg = t->segments[i];

        for (uint32_t k = n_live = 0; seg && k < seg->n_touched; k++) {
            if (seg->nodes[k].len == 0)
                continue;
            n_live++;
            cells += seg->nodes[k].len;
            pairs += node_check(t, seg->first + k);
            names += (size_t)__builtin_popcount(seg->nodes[k].named);
        }
        assert(!seg || (seg->n_live == n_live && n_live > 0));
        assert(!seg || list_linked(&seg->open) == (i > 0 && n_live < TREE_SEGMENT_NODES));
    }
    for (uint32_t i = 0; i < t->branch_count.cap; i++)
        branches += t->branch_count.entries[i].key ? t->branch_count.entries[i].value : 0;
    assert(names == t->names.len);
    assert(branches == t->edges.len);
    assert(cells == t->n_cells + 1);
    return pairs;
}
