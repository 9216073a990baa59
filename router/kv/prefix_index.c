/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree says who holds a block in its context and what it is mostly called; the alias table says
 * what else workers call theirs. A worker's hash means one block: the one of that name, if the
 * worker holds it by its name, or the one of its alias.
 */
#include "router/kv/prefix_inner.h"

#include <assert.h>
#include <errno.h>

enum {
    LOCKED_BLOCKS = 4096,   /* that an event takes before it lets other writers in */
    CLEAR_NODES = 64,       /* that clearing takes before it lets other writers in */
    EVICT_CHOICE = 16,      /* leaves of which the coldest goes */
    EVICT_SCAN = 4096,      /* nodes that are looked at for these */
    EVICT_PER_BLOCK = 256,  /* leaves that storing one block may cost */
    GENERATION_EVENTS = 16, /* stores that count as the same time */
    LIMIT_MIN = 8 << 20,
};

struct prefix_index *prefix_index_new(size_t limit)
{
    struct prefix_index *ix = xcalloc(1, sizeof(*ix));

    turn_lock_init(&ix->lock);
    prefix_tree_init(&ix->tree, MAX(limit, (size_t)LIMIT_MIN));
    return ix;
}

struct prefix_index *prefix_index_free(struct prefix_index *ix)
{
    if (!ix)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(ix->held); i++) {
        for (size_t k = 0; ix->held[i] && k < HELD_CHUNK; k++)
            node_list_done(&ix->held[i][k].nodes, &ix->tree.mem);
        free(ix->held[i]);
    }
    alias_table_done(&ix->aliases, &ix->tree.mem);
    prefix_tree_done(&ix->tree);
    turn_lock_done(&ix->lock);
    free(ix);
    return NULL;
}

struct held *held_if_any(const struct prefix_index *ix, uint32_t slot)
{
    struct held *chunk = slot < TREE_SLOTS_MAX
                             ? __atomic_load_n(&ix->held[slot / HELD_CHUNK], __ATOMIC_ACQUIRE)
                             : NULL;

    return chunk ? &chunk[slot % HELD_CHUNK] : NULL;
}

struct held *held_by(struct prefix_index *ix, uint32_t slot)
{
    assert(slot < TREE_SLOTS_MAX);
    if (!ix->held[slot / HELD_CHUNK])
        __atomic_store_n(&ix->held[slot / HELD_CHUNK], xcalloc(HELD_CHUNK, sizeof(struct held)),
                         __ATOMIC_RELEASE);
    return held_if_any(ix, slot);
}

void prefix_index_set_limit(struct prefix_index *ix, size_t limit)
{
    turn_lock_write(&ix->lock);
    ix->tree.mem.limit = MAX(limit, (size_t)LIMIT_MIN);
    turn_lock_end_write(&ix->lock);
}

static void entries_add(struct prefix_index *ix, struct held *h, size_t n)
{
    __atomic_store_n(&h->n_entries, h->n_entries + n, __ATOMIC_RELAXED);
    ix->counts.entries += n;
}

/* --- what a worker holds of a node -------------------------------------------------------------
 */

/* The cells that the worker holds; if there are some, *ret is its place for the node. */
static uint32_t held_cells(const struct prefix_index *ix, const struct held *h, uint32_t slot,
                           uint32_t node, struct node_place **ret)
{
    uint32_t place, mask = prefix_tree_mask(&ix->tree, node, slot, &place);

    if (mask)
        *ret = &h->nodes.places[place];
    return mask;
}

uint32_t held_named(const struct prefix_index *ix, const struct node_place *at, uint32_t mask)
{
    return at->alias ? alias_run(&ix->aliases, at->alias)->named : mask;
}

/* The worker holds @cells of the node no more. */
static void clear_cells(struct prefix_index *ix, struct held *h, uint32_t slot,
                        const struct node_place *at, uint32_t cells)
{
    uint32_t place = (uint32_t)(at - h->nodes.places), moved;

    if (prefix_tree_clear(&ix->tree, at->node, slot, cells) != 0)
        return;
    moved = node_list_remove(&h->nodes, &ix->tree.mem, place);
    if (moved)
        prefix_tree_move_place(&ix->tree, moved, slot, place);
}

/* Ends the worker's knowing of cells by their names. */
static void clear_named(struct prefix_index *ix, uint32_t slot, uint32_t node, uint32_t cells)
{
    struct held *h = held_by(ix, slot);
    struct node_place *at = NULL;
    uint32_t gone = held_cells(ix, h, slot, node, &at) & cells;

    if (at->alias) {
        alias_run(&ix->aliases, at->alias)->named &= (uint16_t)~cells;
        gone &= ~alias_table_cells(&ix->aliases, at->alias);
    }
    if (gone)
        clear_cells(ix, h, slot, at, gone);
}

static void clear_alias(struct prefix_index *ix, uint32_t slot, uint32_t reference)
{
    struct held *h = held_by(ix, slot);
    struct node_place *at = NULL;
    uint32_t node = alias_run(&ix->aliases, reference / ALIAS_CELLS)->node;
    uint32_t mask = held_cells(ix, h, slot, node, &at), named = held_named(ix, at, mask);
    uint32_t cell = 1u << reference % ALIAS_CELLS;

    alias_table_drop(&ix->aliases, &ix->tree.mem, &at->alias, reference);
    h->n_aliases--;
    if (!((named | alias_table_cells(&ix->aliases, at->alias)) & cell))
        clear_cells(ix, h, slot, at, cell);
}

/* The worker holds nothing of the node any more; returns how many entries that were. */
static size_t forget_node(struct prefix_index *ix, uint32_t slot, uint32_t node)
{
    struct held *h = held_by(ix, slot);
    struct node_place *at = NULL;
    uint32_t mask = held_cells(ix, h, slot, node, &at);
    size_t n = (size_t)__builtin_popcount(held_named(ix, at, mask));

    while (at->alias) {
        uint32_t cell = (uint32_t)__builtin_ctz(alias_run(&ix->aliases, at->alias)->cells);

        alias_table_drop(&ix->aliases, &ix->tree.mem, &at->alias, at->alias * ALIAS_CELLS + cell);
        h->n_aliases--;
        n++;
    }
    clear_cells(ix, h, slot, at, mask);
    entries_add(ix, h, -n);
    return n;
}

/* --- touch -------------------------------------------------------------------------------------
 */

static void touch_flush(struct touch *t)
{
    uint32_t cells = t->cells;

    t->cells = 0;
    if (!cells)
        return;
    if (t->clearing) {
        clear_named(t->ix, t->slot, t->node, cells);
    } else if (t->place == PLACE_NONE) {
        t->place = node_list_add(&t->held->nodes, (struct node_place){t->node, t->alias});
        prefix_tree_add_holder(&t->ix->tree, t->node, t->slot, cells, t->place);
    } else {
        prefix_tree_mark(&t->ix->tree, t->node, t->slot, cells);
        t->held->nodes.places[t->place].alias = t->alias;
    }
}

void touch_leave(struct touch *t)
{
    touch_flush(t);
    t->node = TREE_ROOT;
}

static void touch_enter(struct touch *t, uint32_t node)
{
    const struct tree_node *at;

    if (t->node == node)
        return;
    touch_flush(t);
    t->node = node;
    t->place = PLACE_NONE;
    at = tree_node(&t->ix->tree, node);
    if (t->clearing) { /* mostly goes on upwards */
        TREE_PREFETCH_NAMES(tree_node(&t->ix->tree, at->up / TREE_CELLS));
    } else if (at->next) { /* others have what follows, too */
        TREE_PREFETCH_LOCAL(tree_node_ahead(&t->ix->tree, node));
        TREE_PREFETCH_NAMES(tree_node_ahead(&t->ix->tree, node));
    }
    t->mask = prefix_tree_mask(&t->ix->tree, node, t->slot, &t->place);
    t->alias = t->mask ? t->held->nodes.places[t->place].alias : 0;
    t->named = t->alias ? alias_run(&t->ix->aliases, t->alias)->named : t->mask;
}

bool touch_enter_to_mark(struct touch *t, uint32_t node)
{
    if (t->node == node)
        return true;
    touch_enter(t, node);
    if (t->mask || (prefix_tree_reserve_holder(&t->ix->tree, node) &&
                    node_list_reserve(&t->held->nodes, &t->ix->tree.mem)))
        return true;
    t->node = TREE_ROOT;
    return false;
}

/* --- finding blocks by hashes ------------------------------------------------------------------
 */

static bool is_named(const struct tree_node *n, uint32_t cell, uint64_t external)
{
    return n && cell < n->len && n->named & 1u << cell && n->external[cell] == external;
}

/* Engines mostly go on where they were: whether the hash names a neighbour of the last block. */
static uint32_t named_nearby(const struct touch *t, uint64_t external)
{
    const struct prefix_tree *tree = &t->ix->tree;
    uint32_t at = t->held->cursor, cell = at % TREE_CELLS;
    uint32_t before = at - 1, after = at + 1;
    const struct tree_node *n = tree_node_if_live(tree, at / TREE_CELLS), *other = n;

    if (!n || at == TREE_ROOT)
        return 0;
    if (cell == 0) {
        before = n->up;
        other = before ? tree_node_if_live(tree, before / TREE_CELLS) : NULL;
    }
    if (is_named(other, before % TREE_CELLS, external))
        return before;
    if (is_named(n, cell, external))
        return at;
    if (cell == TREE_CELLS - 1) {
        after = tree_position(n->next, 0);
        n = n->next ? tree_node(tree, n->next) : NULL;
    }
    return is_named(n, after % TREE_CELLS, external) ? after : 0;
}

/* The block that the worker knows by this name, in the node that is entered then; or 0. */
static uint32_t find_named(struct touch *t, uint64_t external)
{
    uint32_t at = named_nearby(t, external);

    if (!at)
        at = prefix_tree_named(&t->ix->tree, external);
    if (!at)
        return 0;
    if (t->node != at / TREE_CELLS) {
        touch_leave(t); /* which may free even the node that we want */
        if (!tree_node_if_live(&t->ix->tree, at / TREE_CELLS))
            return 0;
        touch_enter(t, at / TREE_CELLS);
    }
    return t->named & 1u << at % TREE_CELLS ? at : 0;
}

static uint32_t find_alias(const struct touch *t, uint64_t external)
{
    return t->held->n_aliases ? alias_table_find(&t->ix->aliases, t->slot, external) : 0;
}

/* --- eviction ----------------------------------------------------------------------------------
 */

/* The next node in the order of numbers, TREE_ROOT behind the last. */
static uint32_t node_behind(const struct prefix_tree *t, uint32_t id)
{
    for (id++; id / TREE_SEGMENT_NODES < t->n_segments; id++) {
        const struct tree_segment *seg = t->segments[id / TREE_SEGMENT_NODES];

        if (!seg || id % TREE_SEGMENT_NODES >= seg->n_touched)
            id += TREE_SEGMENT_NODES - 1 - id % TREE_SEGMENT_NODES;
        else if (seg->nodes[id % TREE_SEGMENT_NODES].len)
            return id;
    }
    return TREE_ROOT;
}

/* The coldest of some leaves, TREE_ROOT when there is none but @except. */
static uint32_t cold_leaf(struct prefix_index *ix, uint32_t except)
{
    uint32_t coldest = TREE_ROOT, age = 0;

    for (int seen = 0, scanned = 0; seen < EVICT_CHOICE && scanned < EVICT_SCAN; scanned++) {
        const struct tree_node *n;

        ix->hand = node_behind(&ix->tree, ix->hand);
        n = tree_node(&ix->tree, ix->hand);
        if (ix->hand == TREE_ROOT || ix->hand == except || n->next || n->branches)
            continue;
        seen++;
        if (coldest == TREE_ROOT || ix->tree.generation - n->used > age) {
            coldest = ix->hand;
            age = ix->tree.generation - n->used;
        }
    }
    return coldest;
}

/* Makes room at the cost of a leaf other than @except; false when there is none. */
static bool evict(struct prefix_index *ix, uint32_t except)
{
    uint32_t leaf = cold_leaf(ix, except);

    if (leaf == TREE_ROOT)
        return false;
    /* The node goes with its last holder, and may not be looked at then. */
    for (uint32_t n = tree_node(&ix->tree, leaf)->n_holders; n > 0; n--) {
        uint32_t slot = tree_holders(tree_node(&ix->tree, leaf))[0] >> 16;

        held_by(ix, slot)->evicted = true;
        ix->counts.evicted += forget_node(ix, slot, leaf);
    }
    return true;
}

/* --- storing -----------------------------------------------------------------------------------
 */

/* Notes that the worker knows the cell by its name. */
static void note_named(struct touch *t, uint64_t external, uint32_t cell)
{
    uint32_t old = find_alias(t, external);

    if (t->named & cell)
        return;
    t->cells |= cell;
    t->mask |= cell;
    t->named |= cell;
    if (t->alias)
        alias_run(&t->ix->aliases, t->alias)->named |= (uint16_t)cell;
    if (old) {
        touch_leave(t); /* what is marked is safe from what the clearing frees */
        clear_alias(t->ix, t->slot, old);
    } else {
        entries_add(t->ix, t->held, 1);
    }
    t->ix->counts.stored++;
}

/* Whether another block has the name, and the worker knows it by that. */
static bool knows_named(const struct touch *t, uint32_t position)
{
    struct node_place *at = NULL;
    uint32_t mask = held_cells(t->ix, t->held, t->slot, position / TREE_CELLS, &at);

    return mask && held_named(t->ix, at, mask) & 1u << position % TREE_CELLS;
}

/* Notes that the worker calls the block at @position what nobody else does; an older meaning of
 * that hash ends. */
static int note_alias(struct touch *t, uint64_t external, uint32_t position)
{
    uint32_t old = find_alias(t, external), cell = position % TREE_CELLS, named;
    struct alias_run of = {.slot = t->slot, .node = t->node, .named = (uint16_t)t->named};
    int r;

    if (old && alias_run(&t->ix->aliases, old / ALIAS_CELLS)->node == t->node &&
        old % ALIAS_CELLS == cell)
        return 0;
    touch_flush(t);
    named = prefix_tree_named(&t->ix->tree, external);
    r = alias_table_put(&t->ix->aliases, &t->ix->tree.mem, &t->alias, &of, cell, external);
    if (r != 0)
        return r;
    t->held->n_aliases++;
    t->cells |= 1u << cell;
    touch_leave(t);
    if (old)
        clear_alias(t->ix, t->slot, old);
    else if (named && knows_named(t, named))
        clear_named(t->ix, t->slot, named / TREE_CELLS, 1u << named % TREE_CELLS);
    else
        entries_add(t->ix, t->held, 1);
    t->ix->counts.stored++;
    return 0;
}

int touch_note(struct touch *t, uint64_t external, uint32_t position)
{
    struct prefix_tree *tree = &t->ix->tree;
    const struct tree_node *n = tree_node(tree, t->node);
    uint32_t cell = 1u << position % TREE_CELLS;

    if (n->named & cell ? n->external[position % TREE_CELLS] != external
                        : prefix_tree_named(tree, external) != 0)
        return note_alias(t, external, position);
    if (!(n->named & cell) && !prefix_tree_name(tree, position, external))
        return -ENOMEM;
    note_named(t, external, cell);
    return 0;
}

/* One block below *at, which then is the block. */
static int store_block(struct touch *t, uint32_t *at, const struct prefix_block *b)
{
    struct prefix_tree *tree = &t->ix->tree;
    uint32_t child = prefix_tree_need_child(tree, *at, b->local), node = child / TREE_CELLS;
    int r = -ENOMEM;

    if (!child)
        return -ENOMEM;
    if (touch_enter_to_mark(t, node))
        r = touch_note(t, b->external, child);
    if (r != 0) {
        touch_leave(t);
        prefix_tree_trim(tree, node); /* nobody holds the block, if it is new */
        return r;
    }
    tree_node_use(tree_node(tree, node), tree->generation);
    *at = child;
    return 0;
}

/*
 * The usual case in short: the worker goes on in the node where it is, with blocks that are there
 * under these names or that nobody had. Returns how many.
 */
static uint32_t store_run(struct touch *t, uint32_t at, const struct prefix_block *blocks, size_t n,
                          size_t n_all)
{
    struct prefix_tree *tree = &t->ix->tree;
    uint32_t cell = at % TREE_CELLS + 1, i = 0, cells;
    const struct tree_node *node;
    size_t n_new;

    if (t->node == TREE_ROOT || t->node != at / TREE_CELLS || t->held->n_aliases)
        return 0;
    node = tree_node(tree, t->node);
    while (i < n && is_named(node, cell + i, blocks[i].external) &&
           node->local[cell + i] == blocks[i].local)
        i++;
    if (i < n && cell + i == node->len && node->len < TREE_CELLS)
        i += prefix_tree_append(tree, at + i, blocks + i, n - i, n_all - i);
    cells = ((1u << i) - 1) << cell & ~t->named;
    n_new = (size_t)__builtin_popcount(cells);
    t->cells |= cells;
    t->mask |= cells;
    t->named |= cells;
    entries_add(t->ix, t->held, n_new);
    t->ix->counts.stored += n_new;
    return i;
}

/* store_block(), with the room that it may take. 0 or PREFIX_FULL. */
static int store_or_evict(struct touch *t, uint32_t *at, const struct prefix_block *b)
{
    int r = store_block(t, at, b);

    for (int i = 0; r == -ENOMEM && i < EVICT_PER_BLOCK; i++) {
        touch_leave(t);
        if (!evict(t->ix, *at / TREE_CELLS))
            break;
        r = store_block(t, at, b);
    }
    t->ix->counts.refused += r != 0;
    return r ? PREFIX_FULL : 0;
}

/* @n_all: how many blocks there are, of which @n are for now. */
static int store(struct touch *t, const uint64_t *parent, const struct prefix_block *blocks,
                 size_t n, size_t n_all)
{
    uint32_t at = parent ? find_named(t, *parent) : TREE_ROOT;
    uint32_t alias = parent && !at ? find_alias(t, *parent) : 0;
    const struct name_table *names = &t->ix->tree.names;
    size_t n_names = names->len, asked = 0;
    int outcome = 0;

    if (alias)
        at = tree_position(alias_run(&t->ix->aliases, alias / ALIAS_CELLS)->node,
                           alias % ALIAS_CELLS);
    if (parent && !at) {
        t->ix->counts.orphans += !t->held->evicted;
        t->ix->counts.refused += t->held->evicted;
        return t->held->evicted ? PREFIX_FULL : PREFIX_NO_PARENT;
    }
    touch_leave(t);
    for (size_t i = 0, some; i < n && outcome == 0; i += some) {
        const uint64_t *before = i > 0 ? &blocks[i - 1].external : parent;

        turn_lock_give_way(&t->ix->lock);
        some = store_run(t, at, blocks + i, n - i, n_all - i);
        at += (uint32_t)some;
        if (some == 0) {
            some = 1;
            outcome = before && *before == blocks[i].external ? PREFIX_INVALID
                                                              : store_or_evict(t, &at, &blocks[i]);
        }
        if (names->len == n_names)
            continue;
        /* A block was new to all: so will be the next ones, and need places for their names. */
        if (some > 1 && asked >= i + TREE_AHEAD)
            asked = i + some + TREE_AHEAD; /* by store_run() */
        for (asked = MAX(asked, i + some); asked < MIN(n_all, i + some + TREE_AHEAD); asked++)
            NAME_TABLE_PREFETCH(names, name_mix(blocks[asked].external));
        n_names = names->len;
    }
    t->ix->counts.refused += outcome == PREFIX_INVALID;
    touch_leave(t);
    t->held->cursor = at;
    return outcome;
}

int prefix_index_store(struct prefix_index *ix, uint32_t slot, const uint64_t *parent,
                       const struct prefix_block *blocks, size_t n)
{
    int outcome = 0;

    for (size_t done = 0, some; outcome == 0 && done < n; done += some) {
        struct touch t = {.ix = ix, .slot = slot};

        some = MIN(n - done, (size_t)LOCKED_BLOCKS);
        turn_lock_write(&ix->lock);
        t.held = held_by(ix, slot);
        ix->counts.events += done == 0;
        ix->tree.generation = (uint32_t)(ix->counts.events / GENERATION_EVENTS);
        outcome =
            store(&t, done ? &blocks[done - 1].external : parent, blocks + done, some, n - done);
        turn_lock_end_write(&ix->lock);
    }
    return outcome;
}

/* --- removing ----------------------------------------------------------------------------------
 */

static bool remove_block(struct touch *t, uint64_t external)
{
    uint32_t at = find_named(t, external), alias;

    if (at) {
        t->cells |= 1u << at % TREE_CELLS;
        t->named &= ~(1u << at % TREE_CELLS);
        t->held->cursor = at;
        return true;
    }
    alias = find_alias(t, external);
    if (!alias)
        return false;
    touch_leave(t);
    clear_alias(t->ix, t->slot, alias);
    return true;
}

/* The usual case in short: upwards in the node where the worker is. Returns how many. */
static uint32_t remove_run(struct touch *t, const uint64_t *external, size_t n)
{
    const struct tree_node *node = tree_node(&t->ix->tree, t->node);
    uint32_t cell = t->held->cursor % TREE_CELLS, i = 0, cells;

    if (t->node == TREE_ROOT || t->node != t->held->cursor / TREE_CELLS)
        return 0;
    while (i < n && i < cell && t->named & 1u << (cell - i - 1) &&
           node->external[cell - i - 1] == external[i])
        i++;
    cells = ((1u << i) - 1) << (cell - i);
    t->cells |= cells;
    t->named &= ~cells;
    t->held->cursor -= i;
    return i;
}

/* How many of @n were held. */
static size_t remove_some(struct prefix_index *ix, uint32_t slot, const uint64_t *external,
                          size_t n)
{
    struct touch t = {.ix = ix, .held = held_by(ix, slot), .slot = slot, .clearing = true};
    const struct name_table *names = &ix->tree.names;
    size_t n_known = 0, n_names = names->len, asked = 0;

    for (size_t i = 0, some; i < n; i += some) {
        turn_lock_give_way(&ix->lock);
        some = remove_run(&t, external + i, n - i);
        n_known += some;
        if (some == 0) {
            some = 1;
            n_known += remove_block(&t, external[i]);
        }
        if (names->len == n_names)
            continue;
        /* Nobody else had a block: so it will be with the next ones, which lose their names. */
        for (asked = MAX(asked, i + some); asked < MIN(n, i + some + TREE_AHEAD); asked++)
            NAME_TABLE_PREFETCH(names, name_mix(external[asked]));
        n_names = names->len;
    }
    touch_leave(&t);
    entries_add(ix, t.held, -n_known);
    ix->counts.removed += n_known;
    ix->counts.unknown_removes += n - n_known;
    return n_known;
}

int prefix_index_remove(struct prefix_index *ix, uint32_t slot, const uint64_t *external, size_t n)
{
    size_t n_known = 0;

    for (size_t done = 0, some; done < n; done += some) {
        some = MIN(n - done, (size_t)LOCKED_BLOCKS);
        turn_lock_write(&ix->lock);
        n_known += remove_some(ix, slot, external + done, some);
        turn_lock_end_write(&ix->lock);
    }
    return n_known < n ? PREFIX_UNKNOWN : 0;
}

/* Some nodes of what the worker holds; false when nothing is left. */
static bool clear_some(struct prefix_index *ix, uint32_t slot)
{
    struct held *h = held_by(ix, slot);

    for (int i = 0; i < CLEAR_NODES && h->nodes.len; i++) {
        turn_lock_give_way(&ix->lock);
        (void)forget_node(ix, slot, h->nodes.places[h->nodes.len - 1].node);
    }
    h->evicted = h->evicted && h->nodes.len;
    return h->nodes.len;
}

void prefix_index_clear(struct prefix_index *ix, uint32_t slot)
{
    bool left = held_if_any(ix, slot) != NULL;

    while (left) {
        turn_lock_write(&ix->lock);
        left = clear_some(ix, slot);
        turn_lock_end_write(&ix->lock);
    }
}

/* --- lookup and figures ------------------------------------------------------------------------
 */

size_t prefix_index_match(struct prefix_index *ix, const uint64_t *local, size_t n,
                          uint32_t *ret_scores, size_t n_slots)
{
    size_t longest;

    turn_lock_read(&ix->lock);
    longest = prefix_tree_match(&ix->tree, local, n, ret_scores, n_slots);
    turn_lock_end_read(&ix->lock);
    return longest;
}

size_t prefix_index_held(const struct prefix_index *ix, uint32_t slot)
{
    const struct held *h = held_if_any(ix, slot);

    return h ? __atomic_load_n(&h->n_entries, __ATOMIC_RELAXED) : 0;
}

static struct prefix_stats stats(const struct prefix_index *ix)
{
    struct prefix_stats s = ix->counts;

    s.nodes = ix->tree.n_cells;
    s.bytes = ix->tree.mem.used;
    s.limit = ix->tree.mem.limit;
    return s;
}

struct prefix_stats prefix_index_stats(struct prefix_index *ix)
{
    struct prefix_stats s;

    turn_lock_read(&ix->lock);
    s = stats(ix);
    turn_lock_end_read(&ix->lock);
    return s;
}

size_t prefix_index_bytes_of(struct prefix_index *ix, uint32_t slot)
{
    const struct held *h = held_if_any(ix, slot);
    size_t bytes = 0, own = 0;

    if (!h)
        return 0;
    turn_lock_read(&ix->lock);
    for (size_t i = 0; i < TREE_SLOTS_MAX; i++)
        own += ix->held[i / HELD_CHUNK] ? node_list_bytes(&held_if_any(ix, (uint32_t)i)->nodes) : 0;
    if (ix->counts.entries)
        bytes = (size_t)((double)(ix->tree.mem.used - own) * (double)h->n_entries /
                         (double)ix->counts.entries);
    bytes += node_list_bytes(&h->nodes);
    turn_lock_end_read(&ix->lock);
    return bytes;
}

/* Asserts what one worker holds; returns how many cells that are. */
static size_t held_check(const struct prefix_index *ix, uint32_t slot, const struct held *h)
{
    size_t cells = 0, entries = 0, aliases = 0;

    for (uint32_t i = 0; i < h->nodes.len; i++) {
        uint32_t node = h->nodes.places[i].node, run = h->nodes.places[i].alias, place = 0;
        uint32_t mask = prefix_tree_mask(&ix->tree, node, slot, &place);
        uint32_t named = held_named(ix, &h->nodes.places[i], mask);

        assert(place == i);
        assert(mask && (run ? named | alias_table_cells(&ix->aliases, run) : named) == mask);
        assert((named & ~(uint32_t)tree_node(&ix->tree, node)->named) == 0);
        cells += (size_t)__builtin_popcount(mask);
        entries += (size_t)__builtin_popcount(named);
        for (; run; run = alias_run(&ix->aliases, run)->next)
            aliases += (size_t)__builtin_popcount(alias_run(&ix->aliases, run)->cells);
    }
    assert(aliases == h->n_aliases && entries + aliases == h->n_entries);
    return cells;
}

void prefix_index_check(struct prefix_index *ix)
{
    size_t pairs, entries = 0, aliases = 0;

    turn_lock_write(&ix->lock);
    pairs = prefix_tree_check(&ix->tree);
    alias_table_check(&ix->aliases);
    for (uint32_t slot = 0; slot < TREE_SLOTS_MAX; slot++) {
        const struct held *h = held_if_any(ix, slot);

        if (!h)
            continue;
        pairs -= held_check(ix, slot, h);
        entries += h->n_entries;
        aliases += h->n_aliases;
    }
    assert(pairs == 0 && entries == ix->counts.entries && aliases == ix->aliases.names.len);
    turn_lock_end_write(&ix->lock);
}
