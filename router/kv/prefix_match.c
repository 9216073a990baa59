/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "router/kv/prefix_tree.h"

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

size_t prefix_tree_match(const struct prefix_tree *t, const uint64_t *local, size_t n,
                         uint32_t *ret_scores, size_t n_slots)
{
    struct walk w = {.scores = ret_scores, .n_slots = n_slots};
    uint32_t at = n ? prefix_tree_child(t, TREE_ROOT, local[0]) : TREE_ROOT;

    memset(ret_scores, 0, n_slots * sizeof(*ret_scores));
    while (at != TREE_ROOT) {
        uint32_t id = at / TREE_CELLS, matched;
        struct tree_node *node = tree_node(t, id);

        if (node->next)
            TREE_PREFETCH_LOCAL(tree_node_ahead(t, id));
        matched = cells_matched(node, local + w.depth, n - w.depth);
        if (!walk_node(&w, node, matched) || w.depth == n)
            break;
        at = prefix_tree_child(t, tree_position(id, matched - 1), local[w.depth]);
    }
    if (w.last)
        tree_node_use(w.last, t->generation);
    if (w.written != w.depth)
        write_depth(&w);
    return w.depth;
}
