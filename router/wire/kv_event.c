/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/kv_event.h"

#include <errno.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "lib/base/msgpack.h"
#include "router/wire/kv_event_inner.h"
#include "router/wire/members.h"

void kv_event_reader_done(struct kv_event_reader *r)
{
    free(r->blocks);
    free(r->removed);
    *r = (struct kv_event_reader){0};
}

/* --- shared by both readers ------------------------------------------------------------------- */

const char KV_EVENT_TOO_MANY[] = "too many blocks in one event";

/* Room for element @n of an array of the reader. */
static bool reserve(void **array, size_t *cap, size_t n, size_t size)
{
    size_t want = MAX(2 * n, (size_t)64);
    void *grown;

    if (n < *cap)
        return true;
    if (n >= KV_EVENT_BLOCKS_MAX)
        return false;
    grown = try_realloc(*array, want * size);
    if (!grown)
        return false;
    *array = grown;
    *cap = want;
    return true;
}

bool kv_event_add_block(struct kv_event_reader *r, struct kv_event *ev, struct kv_block block)
{
    void *array = r->blocks;

    if (!reserve(&array, &r->cap_blocks, ev->n_blocks, sizeof(*r->blocks)))
        return false;
    r->blocks = array;
    r->blocks[ev->n_blocks++] = block;
    return true;
}

bool kv_event_add_removed(struct kv_event_reader *r, struct kv_event *ev, uint64_t hash)
{
    void *array = r->removed;

    if (!reserve(&array, &r->cap_removed, ev->n_removed, sizeof(*r->removed)))
        return false;
    r->removed = array;
    r->removed[ev->n_removed++] = hash;
    return true;
}

static const char
    *const tiers[] =
        {
            [KV_TIER_DEVICE] = "device",   [KV_TIER_HOST] = "host_pinned",
            [KV_TIER_DISK] = "disk",       [KV_TIER_EXTERNAL] = "external",
            [KV_TIER_UNKNOWN] = "unknown", /* what is read so stays so when it is passed on */
};

const char *kv_tier_word(enum kv_tier tier)
{
    return tiers[tier];
}

enum kv_tier kv_tier_of(struct str word)
{
    for (unsigned t = 0; t < ARRAY_LEN(tiers); t++)
        if (str_is(word, tiers[t]))
            return (enum kv_tier)t;
    return KV_TIER_UNKNOWN;
}

const char *kv_event_report(struct kv_event_reader *r, struct kv_event *ev, unsigned seen,
                            kv_event_fn fn, void *arg)
{
    if (!(seen & SAW_WORKER))
        return "an event lacks worker_id";
    if (!(seen & SAW_ID))
        return "an event lacks event_id";
    if (!(seen & SAW_DATA))
        return "an event lacks data";
    if (seen & SAW_ELSEWHERE)
        ev->tier = KV_TIER_UNKNOWN;
    ev->blocks = r->blocks;
    ev->removed = r->removed;
    fn(arg, ev);
    return NULL;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void stored_put(struct buf *out, const struct kv_event *ev)
{
    msgpack_put_map(out, 1);
    msgpack_put_cstr(out, "stored");
    msgpack_put_map(out, 2);
    msgpack_put_cstr(out, "parent_hash");
    if (ev->parent_hash.set)
        msgpack_put_u64(out, ev->parent_hash.v);
    else
        msgpack_put_nil(out);
    msgpack_put_cstr(out, "blocks");
    msgpack_put_array(out, (uint32_t)ev->n_blocks);
    for (size_t i = 0; i < ev->n_blocks; i++) {
        msgpack_put_map(out, 3);
        u64_member_put(out, "block_hash", ev->blocks[i].block_hash);
        u64_member_put(out, "tokens_hash", ev->blocks[i].tokens_hash);
        msgpack_put_cstr(out, "mm_extra_info");
        msgpack_put_nil(out);
    }
}

static void removed_put(struct buf *out, const struct kv_event *ev)
{
    msgpack_put_map(out, 1);
    msgpack_put_cstr(out, "removed");
    msgpack_put_map(out, 1);
    msgpack_put_cstr(out, "block_hashes");
    msgpack_put_array(out, (uint32_t)ev->n_removed);
    for (size_t i = 0; i < ev->n_removed; i++)
        msgpack_put_u64(out, ev->removed[i]);
}

void kv_event_put(struct buf *out, const struct kv_event *ev)
{
    msgpack_put_map(out, ev->tier == KV_TIER_DEVICE ? 2 : 3);
    u64_member_put(out, "worker_id", ev->worker_id);
    if (ev->tier != KV_TIER_DEVICE) {
        msgpack_put_cstr(out, "storage_tier");
        msgpack_put_cstr(out, tiers[ev->tier]);
    }
    msgpack_put_cstr(out, "event");
    msgpack_put_map(out, 3);
    u64_member_put(out, "event_id", ev->event_id);
    msgpack_put_cstr(out, "data");
    if (ev->kind == KV_STORED)
        stored_put(out, ev);
    else if (ev->kind == KV_REMOVED)
        removed_put(out, ev);
    else
        msgpack_put_cstr(out, "cleared");
    u64_member_put(out, "dp_rank", ev->dp_rank);
}

static void stored_put_json(struct json_put *j, const struct kv_event *ev)
{
    json_put_key(j, "stored");
    json_put_object(j);
    json_put_key(j, "parent_hash");
    if (ev->parent_hash.set)
        json_put_u64(j, ev->parent_hash.v);
    else
        json_put_null(j);
    json_put_key(j, "blocks");
    json_put_array(j);
    for (size_t i = 0; i < ev->n_blocks; i++) {
        json_put_object(j);
        json_put_key(j, "block_hash");
        json_put_u64(j, ev->blocks[i].block_hash);
        json_put_key(j, "tokens_hash");
        json_put_u64(j, ev->blocks[i].tokens_hash);
        json_put_key(j, "mm_extra_info");
        json_put_null(j);
        json_put_object_end(j);
    }
    json_put_array_end(j);
    json_put_object_end(j);
}

static void removed_put_json(struct json_put *j, const struct kv_event *ev)
{
    json_put_key(j, "removed");
    json_put_object(j);
    json_put_key(j, "block_hashes");
    json_put_array(j);
    for (size_t i = 0; i < ev->n_removed; i++)
        json_put_u64(j, ev->removed[i]);
    json_put_array_end(j);
    json_put_object_end(j);
}

void kv_event_put_json(struct buf *out, const struct kv_event *ev)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "worker_id");
    json_put_u64(&j, ev->worker_id);
    if (ev->tier != KV_TIER_DEVICE) {
        json_put_key(&j, "storage_tier");
        json_put_cstr(&j, tiers[ev->tier]);
    }
    json_put_key(&j, "event");
    json_put_object(&j);
    json_put_key(&j, "event_id");
    json_put_u64(&j, ev->event_id);
    json_put_key(&j, "data");
    if (ev->kind == KV_CLEARED) {
        json_put_cstr(&j, "cleared");
    } else {
        json_put_object(&j);
        if (ev->kind == KV_STORED)
            stored_put_json(&j, ev);
        else
            removed_put_json(&j, ev);
        json_put_object_end(&j);
    }
    json_put_key(&j, "dp_rank");
    json_put_u64(&j, ev->dp_rank);
    json_put_object_end(&j);
    json_put_object_end(&j);
}
