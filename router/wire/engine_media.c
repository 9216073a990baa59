/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/engine_media.h"

#include "router/wire/members.h"

enum { NAME_DIGITS = 64, HASH_DIGITS = 16 };

void engine_media_done(struct engine_media *l)
{
    free(l->ptr);
    *l = (struct engine_media){0};
}

bool engine_media_parse(struct str key, uint64_t *ret_mm_hash)
{
    uint64_t ignored;

    if (key.len != NAME_DIGITS)
        return false;
    for (size_t at = HASH_DIGITS; at < NAME_DIGITS; at += HASH_DIGITS)
        if (!str_parse_hex64(str_slice(key.ptr + at, HASH_DIGITS), &ignored))
            return false;
    return str_parse_hex64(str_head(key, HASH_DIGITS), ret_mm_hash);
}

static bool is_padded(struct str name)
{
    for (size_t i = HASH_DIGITS; i < name.len; i++)
        if (name.ptr[i] != '0')
            return false;
    return true;
}

void engine_media_push(struct msgpack_reader *m, struct engine_media *l, size_t block,
                       uint64_t mm_hash)
{
    if (l->n == ENGINE_MEDIA_MAX) {
        msgpack_fail(m, "an event of too many media");
        return;
    }
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 16;
        l->ptr = xreallocarray(l->ptr, l->cap, sizeof(*l->ptr));
    }
    l->ptr[l->n++] = (struct engine_medium){block, mm_hash};
}

void engine_media_take_key(struct msgpack_reader *m, struct engine_media *l, size_t block,
                           struct str key)
{
    uint64_t mm_hash;

    if (engine_media_parse(key, &mm_hash) && (!l->padded_only || is_padded(key)))
        engine_media_push(m, l, block, mm_hash);
}

void engine_media_read_pair(struct msgpack_reader *m, struct engine_media *l, size_t block)
{
    struct str name = STR_NULL;
    uint32_t n;

    if (!msgpack_read_array(m, &n))
        return;
    for (uint32_t i = 0; i < n && !m->error; i++)
        if (i == 0 && msgpack_peek(m) == MSGPACK_STR)
            str_read(m, &name);
        else
            (void)msgpack_skip(m);
    if (!m->error)
        engine_media_take_key(m, l, block, name);
}

static void read_object(struct msgpack_reader *m, struct engine_media *l, size_t block)
{
    struct members s;
    struct str name;
    uint64_t mm_hash;

    members_begin_map(m, &s);
    while (members_next(m, &s, &name)) {
        if (!str_is(name, "mm_hash"))
            (void)msgpack_skip(m);
        else if (msgpack_read_u64(m, &mm_hash))
            engine_media_push(m, l, block, mm_hash);
    }
}

void engine_media_read_info(struct msgpack_reader *m, struct engine_media *l, size_t block)
{
    struct members s;
    struct str name;
    uint32_t n;

    members_begin_map(m, &s);
    while (members_next(m, &s, &name)) {
        if (!str_is(name, "mm_objects"))
            (void)msgpack_skip(m);
        else if (msgpack_read_array(m, &n))
            for (uint32_t i = 0; i < n && !m->error; i++)
                read_object(m, l, block);
    }
}

void engine_media_put(struct buf *out, const struct engine_medium *media, size_t n)
{
    size_t n_blocks = n ? media[n - 1].block + 1 : 0, at = 0, end;

    msgpack_put_array(out, (uint32_t)n_blocks);
    for (size_t block = 0; block < n_blocks; block++) {
        for (end = at; end < n && media[end].block == block;)
            end++;
        if (end == at) {
            msgpack_put_nil(out);
            continue;
        }
        msgpack_put_map(out, 1);
        msgpack_put_cstr(out, "mm_objects");
        msgpack_put_array(out, (uint32_t)(end - at));
        for (; at < end; at++) {
            msgpack_put_map(out, 2);
            u64_member_put(out, "mm_hash", media[at].mm_hash);
            msgpack_put_cstr(out, "offsets");
            msgpack_put_array(out, 0);
        }
    }
}
