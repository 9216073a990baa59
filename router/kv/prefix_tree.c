/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/prefix_tree.h"

#include <assert.h>
#include <string.h>

enum { INLINE_LOG2 = 2, SEGMENTS_MAX = 1 << 18 };

/* --- segments ----------------------------------------------------------------------------------
 */

static struct tree_segment *segment_new(struct prefix_tree *t)
{
    /* Not zeroed: pages that no node has used yet cost nothing. */
    struct tree_segment *seg = xmalloc(sizeof(*seg));
    uint32_t i = 0;

    while (i < t->n_segments && t->segments[i])
        i++;
    assert(i < SEGMENTS_MAX);
    if (i == t->cap_segments) {
        t->cap_segments = t->cap_segments ? t->cap_segments * 2 : 16;
        t->segments = xreallocarray(t->segments, t->cap_segments, sizeof(struct tree_segment *));
    }
    t->n_segments = MAX(t->n_segments, i + 1);
    t->segments[i] = seg;
    seg->first = i * TREE_SEGMENT_NODES;
    seg->first_free = seg->n_touched = seg->n_live = 0;
    list_append(&t->open, &seg->open);
    t->n_live_segments++;
    return seg;
}

static void segment_free(struct prefix_tree *t, struct tree_segment *seg)
{
    list_remove(&seg->open);
    t->segments[seg->first / TREE_SEGMENT_NODES] = NULL;
    t->n_live_segments--;
    free(seg);
}

static uint32_t node_take_free(struct prefix_tree *t)
{
    struct tree_segment *seg =
        list_empty(&t->open) ? segment_new(t) : LIST_ENTRY(t->open.next, struct tree_segment, open);
    uint32_t id = seg->first_free;

    if (id)
        seg->first_free = tree_node(t, id)->next;
    else
        id = seg->first + seg->n_touched++;
    if (++seg->n_live == TREE_SEGMENT_NODES)
        list_remove(&seg->open);
    return id;
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

static uint32_t node_new(struct prefix_tree *t, uint32_t up, uint64_t local)
{
    uint32_t id = node_take_free(t);
    struct tree_node *n = tree_node(t, id);

    /* The cells beyond `len` are never read. */
    memset(n, 0, offsetof(struct tree_node, local));
    n->up = up;
    n->len = 1;
    n->cap_log2 = INLINE_LOG2;
    n->local[0] = local;
    return id;
}

void prefix_tree_init(struct prefix_tree *t)
{
    *t = (struct prefix_tree){0};
    list_init(&t->open);
    (void)node_new(t, TREE_ROOT, 0); /* number 0, and it never goes */
}

void prefix_tree_done(struct prefix_tree *t)
{
    for (uint32_t i = 0; i < t->n_segments; i++) {
        struct tree_segment *seg = t->segments[i];

        for (uint32_t k = 0; seg && k < seg->n_touched; k++)
            if (seg->nodes[k].len && seg->nodes[k].cap_log2 > INLINE_LOG2)
                free(seg->nodes[k].heap);
        free(seg);
    }
    free(t->segments);
    edge_table_done(&t->edges);
    map64_done(&t->branch_count);
}

/* --- children ----------------------------------------------------------------------------------
 */

static void branch_add(struct prefix_tree *t, uint32_t position, uint32_t child)
{
    edge_table_put(&t->edges, position, tree_node(t, child)->local[0], child);
    ++*map64_put(&t->branch_count, position, NULL);
    tree_node(t, position / TREE_CELLS)->branches |= (uint16_t)(1u << position % TREE_CELLS);
}

static void branch_remove(struct prefix_tree *t, uint32_t position, uint64_t local)
{
    uint64_t *count = map64_find(&t->branch_count, position);

    edge_table_remove(&t->edges, position, local);
    if (--*count > 0)
        return;
    (void)map64_remove(&t->branch_count, position, NULL);
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

uint32_t prefix_tree_need_child(struct prefix_tree *t, uint32_t position, uint64_t local)
{
    uint32_t at = prefix_tree_child(t, position, local), cell = position % TREE_CELLS, id;
    struct tree_node *n = tree_node(t, position / TREE_CELLS);

    if (at != TREE_ROOT)
        return at;
    t->n_cells++;
    if (position != TREE_ROOT && cell + 1 == n->len && n->len < TREE_CELLS) {
        n->local[n->len++] = local;
        return position + 1;
    }
    id = node_new(t, position, local);
    if (cell == TREE_CELLS - 1 && !n->next)
        n->next = id;
    else
        branch_add(t, position, id);
    return tree_position(id, 0);
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

static void holders_resize(struct prefix_tree *t, struct tree_node *n, uint8_t cap_log2)
{
    uint32_t *before = tree_holders(n), *after, here[TREE_INLINE_HOLDERS];

    after =
        cap_log2 > INLINE_LOG2 ? xreallocarray(NULL, (size_t)1 << cap_log2, sizeof(*after)) : here;
    memcpy(after, before, n->n_holders * sizeof(*after));
    if (n->cap_log2 > INLINE_LOG2) {
        t->holder_bytes -= sizeof(*after) << n->cap_log2;
        free(before);
    }
    n->cap_log2 = cap_log2;
    if (cap_log2 > INLINE_LOG2) {
        t->holder_bytes += sizeof(*after) << cap_log2;
        n->heap = after;
    } else {
        memcpy(n->here, here, sizeof(here));
    }
}

uint32_t prefix_tree_mask(const struct prefix_tree *t, uint32_t node, uint32_t slot)
{
    struct tree_node *n = tree_node(t, node);
    uint32_t i = holder_index(n, slot);

    return i < n->n_holders && tree_holders(n)[i] >> 16 == slot ? tree_holders(n)[i] & 0xFFFF : 0;
}

void prefix_tree_mark(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells)
{
    struct tree_node *n = tree_node(t, node);
    uint32_t i = holder_index(n, slot), *h = tree_holders(n);

    assert(slot < TREE_SLOTS_MAX && cells < 1u << n->len);
    if (i < n->n_holders && h[i] >> 16 == slot) {
        h[i] |= cells;
        return;
    }
    if (n->n_holders == 1u << n->cap_log2) {
        holders_resize(t, n, n->cap_log2 + 1);
        h = tree_holders(n);
    }
    memmove(h + i + 1, h + i, (n->n_holders - i) * sizeof(*h));
    h[i] = slot << 16 | cells;
    n->n_holders++;
}

static void holder_remove(struct prefix_tree *t, struct tree_node *n, uint32_t i)
{
    uint32_t *h = tree_holders(n);

    n->n_holders--;
    memmove(h + i, h + i + 1, (n->n_holders - i) * sizeof(*h));
    if (n->cap_log2 > INLINE_LOG2 && n->n_holders <= 1u << n->cap_log2 >> 2)
        holders_resize(t, n, n->cap_log2 - 1);
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

/* Drops cells at the end that nothing needs, and upwards whatever only led to them. */
static void trim(struct prefix_tree *t, uint32_t id)
{
    while (id != TREE_ROOT) {
        struct tree_node *n = tree_node(t, id);
        uint32_t len = length_needed(n), up = n->up;

        t->n_cells -= n->len - len;
        n->len = (uint8_t)len;
        if (len > 0)
            return;
        if (tree_node(t, up / TREE_CELLS)->next == id)
            tree_node(t, up / TREE_CELLS)->next = 0;
        else
            branch_remove(t, up, n->local[0]);
        node_give_back(t, id); /* without holders it has none on the heap */
        id = up / TREE_CELLS;
    }
}

void prefix_tree_clear(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells)
{
    struct tree_node *n = tree_node(t, node);
    uint32_t i = holder_index(n, slot), *h = tree_holders(n);

    assert(i < n->n_holders && h[i] >> 16 == slot && (h[i] & cells) == cells);
    h[i] &= ~cells;
    if ((h[i] & 0xFFFF) == 0)
        holder_remove(t, n, i);
    if (cells & 1u << (n->len - 1))
        trim(t, node);
}

/* --- figures and invariants --------------------------------------------------------------------
 */

size_t prefix_tree_bytes(const struct prefix_tree *t)
{
    return t->n_live_segments * sizeof(struct tree_segment) +
           t->cap_segments * sizeof(struct tree_segment *) + t->holder_bytes +
           edge_table_bytes(&t->edges) + map64_bytes(&t->branch_count);
}

static size_t node_check(const struct prefix_tree *t, uint32_t id)
{
    struct tree_node *n = tree_node(t, id);
    const uint32_t *h = tree_holders(n);
    size_t pairs = 0;

    assert(n->len <= TREE_CELLS && n->branches < 1u << n->len);
    assert(!n->next || (n->len == TREE_CELLS && tree_node(t, n->next)->up / TREE_CELLS == id));
    for (uint32_t cell = 0; cell < n->len; cell++) {
        const uint64_t *count = map64_find(&t->branch_count, tree_position(id, cell));

        assert((count != NULL) == (n->branches >> cell & 1));
        assert(!count || *count > 0);
    }
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
    size_t pairs = 0, cells = 0, n_live = 0, branches = 0, at = 0;
    uint64_t position, count;

    for (uint32_t i = 0; i < t->n_segments; i++) {
        const struct tree_segment *seg = t->segments[i];

        for (uint32_t k = n_live = 0; seg && k < seg->n_touched; k++) {
            if (seg->nodes[k].len == 0)
                continue;
            n_live++;
            cells += seg->nodes[k].len;
            pairs += node_check(t, seg->first + k);
        }
        assert(!seg || (seg->n_live == n_live && n_live > 0));
        assert(!seg || list_linked(&seg->open) == (n_live < TREE_SEGMENT_NODES));
    }
    while (map64_next(&t->branch_count, &at, &position, &count))
        branches += count;
    assert(branches == t->edges.len);
    assert(cells == t->n_cells + 1);
    return pairs;
}
