/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker holds, as events that would build it again, and what it calls single blocks. Its
 * nodes come in no order; each one's way up is gone first, on a stack, so that a block never comes
 * before the one that it follows.
 */
#include "router/kv/prefix_inner.h"

struct step {
    uint32_t node;
    struct node_place at;
    uint32_t mask;
};

struct walk {
    const struct prefix_index *ix;
    uint32_t slot;
    uint8_t *done; /* by node: 1 + blocks given out; 0 = not looked at */
    struct step *stack;
    size_t n, cap;
    prefix_block_fn fn;
    void *arg;
};

/* What the worker calls a block that it holds. */
static uint64_t name_of(const struct walk *w, const struct step *s, uint32_t cell)
{
    uint32_t bit = UINT32_C(1) << cell;

    if (held_named(w->ix, &s->at, s->mask) & bit)
        return tree_node(&w->ix->tree, s->node)->external[cell];
    for (uint32_t id = s->at.alias; id; id = alias_run(&w->ix->aliases, id)->next)
        if (alias_run(&w->ix->aliases, id)->cells & bit)
            return alias_run(&w->ix->aliases, id)->external[cell];
    return 0;
}

static struct step step_of(const struct walk *w, uint32_t node)
{
    struct step s = {.node = node};
    uint32_t place;

    s.mask = prefix_tree_mask(&w->ix->tree, node, w->slot, &place);
    if (s.mask)
        s.at = held_if_any(w->ix, w->slot)->nodes.places[place];
    return s;
}

/* The blocks from the node's first on, if what it follows was given out. */
static void give(struct walk *w, const struct step *s)
{
    const struct tree_node *n = tree_node(&w->ix->tree, s->node);
    uint32_t lead = 0, above = n->up / TREE_CELLS, cell = n->up % TREE_CELLS;
    bool first = n->up == TREE_ROOT;
    struct prefix_block blocks[TREE_CELLS];
    uint64_t parent = 0;

    if (first || w->done[above] > 1 + cell)
        for (; lead < n->len && s->mask >> lead & 1; lead++)
            blocks[lead] = (struct prefix_block){name_of(w, s, lead), n->local[lead]};
    w->done[s->node] = (uint8_t)(1 + lead);
    if (lead == 0)
        return;
    if (!first) {
        struct step up = step_of(w, above);

        parent = name_of(w, &up, cell);
    }
    w->fn(w->arg, first ? NULL : &parent, blocks, lead);
}

static void push(struct walk *w, const struct step *s)
{
    if (w->n == w->cap) {
        w->cap = MAX(w->cap * 2, (size_t)64);
        w->stack = xreallocarray(w->stack, w->cap, sizeof(*w->stack));
    }
    w->stack[w->n++] = *s;
}

static void give_way_to(struct walk *w, uint32_t node)
{
    while (!w->done[node]) {
        struct step s = step_of(w, node);
        uint32_t up = tree_node(&w->ix->tree, node)->up;

        push(w, &s);
        if (up == TREE_ROOT)
            break;
        node = up / TREE_CELLS;
    }
    while (w->n > 0)
        give(w, &w->stack[--w->n]);
}

void prefix_index_each(struct prefix_index *ix, uint32_t slot, prefix_block_fn fn, void *arg)
{
    struct walk w = {.ix = ix, .slot = slot, .fn = fn, .arg = arg};
    const struct held *h;

    turn_lock_read(&ix->lock);
    h = held_if_any(ix, slot);
    if (h && h->nodes.len) {
        w.done = xcalloc(ix->tree.n_segments, TREE_SEGMENT_NODES);
        for (uint32_t i = 0; i < h->nodes.len; i++)
            give_way_to(&w, h->nodes.places[i].node);
    }
    turn_lock_end_read(&ix->lock);
    free(w.done);
    free(w.stack);
}

/* --- ends of prompts --------------------------------------------------------------------------- */

/* A node on the way down a prompt, and how many blocks come before it. */
struct stretch {
    uint32_t node, above;
};

/* The nodes that spell the prompt, as far as there are some; behind them how far that is. */
static size_t way_down(const struct prefix_tree *t, const uint64_t *local, size_t n,
                       struct stretch *ret)
{
    uint32_t at = n ? prefix_tree_child(t, TREE_ROOT, local[0]) : TREE_ROOT, depth = 0;
    size_t len = 0;

    while (at != TREE_ROOT) {
        const struct tree_node *node = tree_node(t, at / TREE_CELLS);
        uint32_t cell = 0;

        ret[len++] = (struct stretch){at / TREE_CELLS, depth};
        while (cell < node->len && depth < n && node->local[cell] == local[depth])
            cell++, depth++;
        if (depth == n)
            break;
        at = prefix_tree_child(t, tree_position(ret[len - 1].node, cell - 1), local[depth]);
    }
    ret[len] = (struct stretch){TREE_ROOT, depth};
    return len;
}

static void find_end(const struct walk *w, const struct stretch *way, size_t len,
                     struct prefix_end *end)
{
    struct step s;
    uint32_t cell;

    if (end->depth == 0 || end->depth > way[len].above)
        return;
    while (way[len - 1].above >= end->depth)
        len--;
    s = step_of(w, way[len - 1].node);
    cell = end->depth - 1 - way[len - 1].above;
    end->known = s.mask >> cell & 1;
    if (end->known)
        end->external = name_of(w, &s, cell);
}

void prefix_index_ends(struct prefix_index *ix, const uint64_t *local, size_t n,
                       struct prefix_end *ends, size_t n_ends)
{
    AUTO(mem_free) struct stretch *way = xcalloc(n + 1, sizeof(*way));
    size_t len;

    turn_lock_read(&ix->lock);
    len = way_down(&ix->tree, local, n, way);
    for (size_t i = 0; i < n_ends; i++) {
        const struct walk w = {.ix = ix, .slot = ends[i].slot};

        ends[i].known = false;
        find_end(&w, way, len, &ends[i]);
    }
    turn_lock_end_read(&ix->lock);
}
