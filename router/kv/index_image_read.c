/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/index_image.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "router/kv/index_image_inner.h"
#include "router/kv/prefix_inner.h"

enum { RECORDS_AT_ONCE = 256 };

/* --- opening ----------------------------------------------------------------------------------- */

static const uint64_t *record_hashes(const struct image_record *r)
{
    return (const uint64_t *)(const void *)(r + 1);
}

static const uint32_t *record_holders(const struct image_record *r)
{
    return (const uint32_t *)(const void *)(record_hashes(r) + 2 * r->len);
}

static const struct image_alias *record_aliases(const struct image_record *r)
{
    return (const struct image_alias *)(const void *)(record_hashes(r) + 2 * r->len +
                                                      (r->n_holders + 1) / 2);
}

static bool record_is_sound(const struct image_record *r, uint64_t words)
{
    if (words < sizeof(*r) / 8 || image_record_words(r) > words)
        return false;
    if (r->len < 1 || r->len > TREE_CELLS || r->named >= 1u << r->len || !r->id ||
        r->id > UINT32_MAX / TREE_CELLS || r->n_holders > TREE_SLOTS_MAX)
        return false;
    for (uint32_t i = 0; i < r->n_holders; i++)
        if (record_holders(r)[i] & 0xFFFF & ~(uint32_t)r->named)
            return false;
    for (uint32_t i = 0; i < r->n_aliases; i++)
        if (record_aliases(r)[i].slot >= TREE_SLOTS_MAX || record_aliases(r)[i].cell >= r->len)
            return false;
    return true;
}

static bool records_are_sound(const struct index_image *im)
{
    const uint64_t *at = im->records;
    size_t n = 0;

    for (; at < im->records_end; n++) {
        const struct image_record *r = (const struct image_record *)(const void *)at;

        if (!record_is_sound(r, (uint64_t)(im->records_end - at)))
            return false;
        at += image_record_words(r);
    }
    return n == im->n_records;
}

static bool workers_are_sound(const struct index_image *im)
{
    for (size_t i = 0; i < im->n_workers; i++)
        if (im->workers[i].slot >= TREE_SLOTS_MAX)
            return false;
    return true;
}

int index_image_open(struct index_image *ret, struct str bytes, struct err *e)
{
    struct image_head head;
    struct image_foot foot;
    size_t head_size, body;
    struct index_image im = {0};

    if ((uintptr_t)bytes.ptr % 8 || bytes.len % 8 || bytes.len < sizeof(head) + sizeof(foot))
        return err_set(e, -EBADMSG, "too short, or not aligned");
    memcpy(&head, bytes.ptr, sizeof(head));
    body = bytes.len - sizeof(foot);
    memcpy(&foot, bytes.ptr + body, sizeof(foot));
    if (head.magic != IMAGE_MAGIC || head.owner_len > INDEX_IMAGE_OWNER_MAX)
        return err_set(e, -EBADMSG, "not an index image of this version");
    head_size = sizeof(head) + ((size_t)head.owner_len + 7) / 8 * 8;
    if (foot.n_bytes != body || foot.n_workers > body / sizeof(*im.workers) ||
        head_size + foot.n_workers * sizeof(*im.workers) > body)
        return err_set(e, -EBADMSG, "cut short");
    if (index_image_checksum(0, bytes.ptr, bytes.len - sizeof(foot.checksum)) != foot.checksum)
        return err_set(e, -EBADMSG, "the checksum does not match");
    im.head = (struct index_image_head){
        head.generation, head.block_size, {bytes.ptr + sizeof(head), head.owner_len}};
    im.n_workers = foot.n_workers;
    im.n_records = foot.n_records;
    im.records = (const uint64_t *)(const void *)(bytes.ptr + head_size);
    im.workers =
        (const struct index_image_worker *)(const void *)(bytes.ptr + body -
                                                          foot.n_workers * sizeof(*im.workers));
    im.records_end = (const uint64_t *)(const void *)im.workers;
    if (!workers_are_sound(&im) || !records_are_sound(&im))
        return err_set(e, -EBADMSG, "a record is malformed");
    *ret = im;
    return 0;
}

/* --- restoring --------------------------------------------------------------------------------- */

/* A record on its way into the index. */
struct piece {
    const struct image_record *record;
    uint32_t below; /* piece that waits for this one, + 1 */
    enum { PIECE_NEW, PIECE_WAITS, PIECE_DONE, PIECE_BAD } state;
    uint32_t at[TREE_CELLS]; /* positions of its cells in the index */
};

struct restoring {
    struct prefix_index *ix;
    const uint32_t *slots;
    struct kv_mem mem; /* for what is needed on the way */
    struct map32 by_id;
    struct piece *pieces;
    uint32_t n;
    bool full;
};

static bool gather(struct restoring *rs, const struct index_image *im)
{
    const uint64_t *at = im->records;

    if (im->n_records >= UINT32_MAX)
        return false;
    rs->pieces = try_alloc(im->n_records * sizeof(*rs->pieces));
    for (; rs->pieces && at < im->records_end; rs->n++) {
        const struct image_record *r = (const struct image_record *)(const void *)at;

        rs->pieces[rs->n].record = r;
        rs->pieces[rs->n].state = PIECE_NEW;
        if (!map32_reserve(&rs->by_id, &rs->mem))
            return false;
        *map32_put(&rs->by_id, r->id) = rs->n + 1;
        at += image_record_words(r);
    }
    return rs->pieces;
}

/* Events may have changed the index since the piece was put there, and other pieces as well. */
static bool is_there(const struct prefix_index *ix, uint32_t position, uint64_t local)
{
    const struct tree_node *n = tree_node_if_live(&ix->tree, position / TREE_CELLS);
    uint32_t cell = position % TREE_CELLS;

    return position && n && cell < n->len && n->local[cell] == local;
}

static void put_hash(struct restoring *rs, struct touch *t, const struct piece *p, uint32_t cell,
                     uint64_t external)
{
    int r = -ENOMEM;

    if (!is_there(rs->ix, p->at[cell], record_hashes(p->record)[cell]))
        return;
    if (touch_enter_to_mark(t, p->at[cell] / TREE_CELLS))
        r = touch_note(t, external, p->at[cell]);
    rs->full |= r == -ENOMEM;
}

static void put_hashes(struct restoring *rs, const struct piece *p)
{
    const struct image_record *r = p->record;

    for (uint32_t cell = 0; cell < r->len; cell++)
        NAME_TABLE_PREFETCH(&rs->ix->tree.names, name_mix(record_hashes(r)[r->len + cell]));
    for (uint32_t i = 0; i < r->n_holders; i++) {
        uint32_t word = record_holders(r)[i], slot = rs->slots[word >> 16];
        struct touch t = {.ix = rs->ix, .slot = slot};

        if (slot == WORKER_SLOT_NONE)
            continue;
        t.held = held_by(rs->ix, slot);
        for (uint32_t cell = 0; cell < r->len; cell++)
            if (word & 1u << cell)
                put_hash(rs, &t, p, cell, record_hashes(r)[r->len + cell]);
        touch_leave(&t);
    }
    for (uint32_t i = 0; i < r->n_aliases; i++) {
        const struct image_alias *a = &record_aliases(r)[i];
        struct touch t = {.ix = rs->ix, .slot = rs->slots[a->slot]};

        if (t.slot == WORKER_SLOT_NONE)
            continue;
        t.held = held_by(rs->ix, t.slot);
        put_hash(rs, &t, p, a->cell, a->external);
        touch_leave(&t);
    }
}

/* The piece's blocks below @at. */
static void put_piece(struct restoring *rs, struct piece *p, uint32_t at)
{
    struct prefix_tree *t = &rs->ix->tree;

    p->state = PIECE_DONE;
    memset(p->at, 0, sizeof(p->at));
    for (uint32_t cell = 0; cell < p->record->len && !rs->full; cell++) {
        at = prefix_tree_need_child(t, at, record_hashes(p->record)[cell]);
        rs->full |= !at;
        p->at[cell] = at;
    }
    if (!rs->full)
        put_hashes(rs, p);
}

/* The position that the piece hangs from; false when that is not there. */
static bool parent_is_there(const struct restoring *rs, const struct piece *p, uint32_t *ret)
{
    uint32_t up = p->record->up, cell = up % TREE_CELLS;
    const uint32_t *number = map32_find(&rs->by_id, up / TREE_CELLS);
    const struct piece *parent;

    *ret = TREE_ROOT;
    if (up == 0)
        return true;
    parent = number ? &rs->pieces[*number - 1] : NULL;
    if (!parent || parent->state != PIECE_DONE || cell >= parent->record->len)
        return false;
    *ret = parent->at[cell];
    return is_there(rs->ix, *ret, record_hashes(parent->record)[cell]);
}

/* The piece and whatever it hangs from, top down, without recursion. */
static void put_branch(struct restoring *rs, uint32_t i)
{
    uint32_t below = 0;

    while (rs->pieces[i].state == PIECE_NEW) {
        const uint32_t *up = map32_find(&rs->by_id, rs->pieces[i].record->up / TREE_CELLS);

        rs->pieces[i].state = PIECE_WAITS;
        rs->pieces[i].below = below;
        below = i + 1;
        if (rs->pieces[i].record->up == 0 || !up)
            break;
        i = *up - 1; /* ends the loop if it waits itself: a circle */
    }
    for (; below; below = rs->pieces[below - 1].below) {
        struct piece *p = &rs->pieces[below - 1];
        uint32_t at;

        if (parent_is_there(rs, p, &at))
            put_piece(rs, p, at);
        else
            p->state = PIECE_BAD;
    }
}

/* What was put on the way to blocks that nobody holds after all goes again. */
static void sweep(struct restoring *rs, const struct piece *p)
{
    for (uint32_t cell = 0; p->state == PIECE_DONE && cell < TREE_CELLS; cell++)
        if (p->at[cell] && tree_node_if_live(&rs->ix->tree, p->at[cell] / TREE_CELLS))
            prefix_tree_trim(&rs->ix->tree, p->at[cell] / TREE_CELLS);
}

static void for_some(struct restoring *rs, void (*fn)(struct restoring *rs, uint32_t i))
{
    for (uint32_t i = 0; i < rs->n;) {
        turn_lock_write(&rs->ix->lock);
        for (uint32_t end = MIN(rs->n, i + RECORDS_AT_ONCE); i < end; i++) {
            turn_lock_give_way(&rs->ix->lock);
            fn(rs, i);
        }
        turn_lock_end_write(&rs->ix->lock);
    }
}

static void sweep_one(struct restoring *rs, uint32_t i)
{
    sweep(rs, &rs->pieces[i]);
}

int index_image_restore(const struct index_image *im, struct prefix_index *ix,
                        const uint32_t *slots)
{
    struct restoring rs = {.ix = ix, .slots = slots, .mem.limit = SIZE_MAX};

    if (im->n_records == 0)
        return 0;
    rs.full = !gather(&rs, im);
    if (!rs.full) {
        for_some(&rs, put_branch);
        for_some(&rs, sweep_one);
    }
    map32_done(&rs.by_id, &rs.mem);
    free(rs.pieces);
    return rs.full ? -ENOMEM : 0;
}
