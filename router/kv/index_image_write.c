/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/index_image.h"

#include <assert.h>
#include <string.h>

#include "router/kv/index_image_inner.h"
#include "router/kv/prefix_inner.h"

enum { NODES_AT_ONCE = 512 };

uint64_t index_image_checksum(uint64_t before, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint64_t sum = before;

    for (; n >= 8; n -= 8, at += 8) {
        uint64_t word;

        memcpy(&word, at, sizeof(word));
        sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        sum ^= sum >> 29;
    }
    return sum;
}

/* Accounts for what came into the buffer behind @from. */
static void sealed(struct index_image_writer *w, const struct buf *out, size_t from)
{
    assert((out->len - from) % 8 == 0);
    w->checksum = index_image_checksum(w->checksum, buf_data(out) + from, out->len - from);
    w->n_bytes += out->len - from;
}

static void pad(struct buf *out, size_t from)
{
    buf_put(out, "\0\0\0\0\0\0\0", (8 - (out->len - from) % 8) % 8);
}

void index_image_begin(struct index_image_writer *w, const struct index_image_head *head,
                       struct buf *out)
{
    struct image_head h = {IMAGE_MAGIC, head->generation, head->block_size,
                           (uint32_t)head->owner.len};
    size_t from = out->len;

    assert(head->owner.len <= INDEX_IMAGE_OWNER_MAX);
    *w = (struct index_image_writer){.at = TREE_SEGMENT_NODES};
    buf_put(out, &h, sizeof(h));
    buf_put_str(out, head->owner);
    pad(out, from);
    sealed(w, out, from);
}

/* The worker's aliases in the node; returns how many. */
static uint32_t put_aliases(const struct prefix_index *ix, uint32_t slot, uint32_t chain,
                            struct buf *out)
{
    uint32_t n = 0;

    for (uint32_t id = chain; id; id = alias_run(&ix->aliases, id)->next) {
        const struct alias_run *r = alias_run(&ix->aliases, id);

        for (uint32_t cell = 0; cell < ALIAS_CELLS; cell++) {
            struct image_alias a = {r->external[cell], slot, cell};

            if (r->cells & 1u << cell) {
                buf_put(out, &a, sizeof(a));
                n++;
            }
        }
    }
    return n;
}

static void put_node(const struct prefix_index *ix, uint32_t id, struct buf *out)
{
    struct tree_node *n = tree_node(&ix->tree, id);
    struct image_record r = {.id = id, .up = n->up, .len = n->len, .named = n->named};
    size_t from = out->len;

    buf_put(out, &r, sizeof(r));
    buf_put(out, n->local, n->len * sizeof(*n->local));
    for (uint32_t cell = 0; cell < n->len; cell++) {
        uint64_t name = n->named & 1u << cell ? n->external[cell] : 0;

        buf_put(out, &name, sizeof(name));
    }
    for (uint32_t i = 0; i < n->n_holders; i++) {
        uint32_t slot = tree_holders(n)[i] >> 16, mask = tree_holders(n)[i] & 0xFFFF;
        const struct node_place *at = &held_if_any(ix, slot)->nodes.places[tree_places(n)[i]];
        uint32_t word = slot << 16 | held_named(ix, at, mask);

        if (word & 0xFFFF) {
            buf_put(out, &word, sizeof(word));
            r.n_holders++;
        }
    }
    pad(out, from);
    for (uint32_t i = 0; i < n->n_holders; i++) {
        uint32_t slot = tree_holders(n)[i] >> 16;

        r.n_aliases += put_aliases(
            ix, slot, held_if_any(ix, slot)->nodes.places[tree_places(n)[i]].alias, out);
    }
    memcpy(buf_data(out) + from, &r, sizeof(r));
}

bool index_image_nodes(struct index_image_writer *w, struct prefix_index *ix, struct buf *out)
{
    size_t from = out->len;
    bool more;

    turn_lock_read(&ix->lock);
    for (int i = 0; i < NODES_AT_ONCE && w->at / TREE_SEGMENT_NODES < ix->tree.n_segments; i++) {
        if (tree_node_if_live(&ix->tree, w->at)) {
            put_node(ix, w->at, out);
            w->n_records++;
        }
        w->at++;
    }
    more = w->at / TREE_SEGMENT_NODES < ix->tree.n_segments;
    turn_lock_end_read(&ix->lock);
    sealed(w, out, from);
    return more;
}

void index_image_end(struct index_image_writer *w, const struct index_image_worker *workers,
                     size_t n, struct buf *out)
{
    struct image_foot foot = {.n_records = w->n_records, .n_workers = n};
    size_t from = out->len;

    buf_put(out, workers, n * sizeof(*workers));
    sealed(w, out, from);
    from = out->len;
    foot.n_bytes = w->n_bytes;
    buf_put(out, &foot, offsetof(struct image_foot, checksum));
    sealed(w, out, from);
    buf_put(out, &w->checksum, sizeof(w->checksum));
}
