/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/media_list.h"

#include "lib/base/arena.h"
#include "lib/base/json_pull.h"

/* Not used, but to be said. */
static bool pull_offsets(struct json_pull *p)
{
    if (!json_pull_array(p))
        return false;
    while (json_pull_element(p)) {
        uint64_t place;
        size_t n = 0;

        if (!json_pull_array(p))
            return false;
        for (; json_pull_element(p); n++)
            if (!json_pull_u64(p, &place))
                json_pull_fail(p, "an offset is of numbers");
        if (n != 2)
            json_pull_fail(p, "an offset is a pair");
    }
    return true;
}

static void pull_medium(struct json_pull *p, uint64_t *ret_hash)
{
    bool has_hash = false, has_offsets = false;
    struct str key;

    if (!json_pull_object(p)) {
        json_pull_fail(p, "a medium is an object");
        return;
    }
    while (json_pull_key(p, &key)) {
        if (str_is(key, "mm_hash"))
            has_hash = json_pull_u64(p, ret_hash);
        else if (str_is(key, "offsets"))
            has_offsets = pull_offsets(p);
        else
            (void)json_pull_skip(p, NULL);
    }
    if (!has_hash || !has_offsets)
        json_pull_fail(p, "a medium has mm_hash and offsets");
}

static void pull_block(struct json_pull *p, size_t block, struct media_list *list)
{
    bool has_objects = false;
    struct str key;

    if (json_pull_null(p) || !json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (!str_is(key, "mm_objects")) {
            (void)json_pull_skip(p, NULL);
            continue;
        }
        has_objects = json_pull_array(p);
        while (has_objects && json_pull_element(p)) {
            struct block_media *m = &list->ptr[list->len++];

            *m = (struct block_media){.block = block};
            pull_medium(p, &m->mm_hash);
        }
    }
    if (!has_objects)
        json_pull_fail(p, "a block's media are mm_objects");
}

/* A medium takes two bytes at least, comma included, which bounds their number before any is stored. */
void media_list_pull(struct arena *a, struct json_pull *p, struct media_list *ret)
{
    struct media_list list = {.len = 0};
    struct json_pull ahead = *p;
    struct str text;
    size_t block = 0;

    if (!json_pull_skip(&ahead, &text) || !json_pull_array(p)) {
        json_pull_fail(p, "an array of media was expected");
        return;
    }
    list.ptr = arena_alloc(a, (text.len / 2 + 1) * sizeof(*list.ptr));
    for (; json_pull_element(p); block++)
        pull_block(p, block, &list);
    block_media_sort(list.ptr, list.len);
    *ret = list;
}
