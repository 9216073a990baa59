/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/engine_batch.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/msgpack.h"
#include "router/wire/members.h"

static const char TOO_MANY[] = "an event of too many blocks or tokens";

void engine_reader_done(struct engine_reader *r)
{
    free(r->hashes);
    free(r->tokens);
    engine_media_done(&r->media);
    *r = (struct engine_reader){0};
}

/* --- values --------------------------------------------------------------------------------------- */

/* Room for @n elements; every one has at least a byte, so that the message bounds what is taken. */
static bool room(struct msgpack_reader *m, void **array, size_t *cap, size_t n, size_t size,
                 size_t max)
{
    void *bigger;

    if (n > max || n > (size_t)(m->end - m->at)) {
        msgpack_fail(m, TOO_MANY);
        return false;
    }
    if (n <= *cap)
        return true;
    bigger = try_realloc(*array, n * size);
    if (!bigger) {
        msgpack_fail(m, TOO_MANY);
        return false;
    }
    *array = bigger;
    *cap = n;
    return true;
}

static bool hash_or_skip(struct msgpack_reader *m, uint64_t *ret)
{
    if (msgpack_peek(m) == MSGPACK_INT)
        return msgpack_read_hash(m, ret);
    (void)msgpack_skip(m);
    return false;
}

static void read_hashes(struct msgpack_reader *m, struct engine_reader *r, struct engine_event *ev)
{
    void *array = r->hashes;
    uint32_t n;

    if (!msgpack_read_array(m, &n) ||
        !room(m, &array, &r->cap_hashes, n, sizeof(*r->hashes), KV_EVENT_BLOCKS_MAX))
        return;
    r->hashes = array;
    for (uint32_t i = 0; i < n && !m->error; i++)
        if (!hash_or_skip(m, &r->hashes[i]))
            ev->raw_hashes = true;
    ev->hashes = r->hashes;
    ev->n_hashes = n;
}

static void read_tokens(struct msgpack_reader *m, struct engine_reader *r, struct engine_event *ev)
{
    void *array = r->tokens;
    uint32_t n;

    if (!msgpack_read_array(m, &n) ||
        !room(m, &array, &r->cap_tokens, n, sizeof(*r->tokens), ENGINE_TOKENS_MAX))
        return;
    r->tokens = array;
    for (uint32_t i = 0; i < n && !m->error; i++)
        u32_read(m, &r->tokens[i]);
    ev->tokens = r->tokens;
    ev->n_tokens = n;
}

static void read_parent(struct msgpack_reader *m, struct engine_event *ev)
{
    uint64_t hash;

    if (msgpack_read_nil(m))
        return;
    if (hash_or_skip(m, &hash))
        ev->parent_hash = OPT_U64(hash);
    else
        ev->raw_hashes = true;
}

/* Words of vLLM and SGLang (router.md §2.7); none = device. */
static enum kv_tier read_medium(struct msgpack_reader *m)
{
    static const struct {
        const char *word;
        enum kv_tier tier;
    } MEDIA[] = {
        {"GPU", KV_TIER_DEVICE},        {"DEVICE", KV_TIER_DEVICE},    {"CPU", KV_TIER_HOST},
        {"CPU_PINNED", KV_TIER_HOST},   {"CPU_TIER1", KV_TIER_HOST},   {"CPU_TIER2", KV_TIER_DISK},
        {"DISK", KV_TIER_DISK},         {"NVME", KV_TIER_DISK},        {"STORAGE", KV_TIER_DISK},
        {"EXTERNAL", KV_TIER_EXTERNAL}, {"NETWORK", KV_TIER_EXTERNAL}, {"REMOTE", KV_TIER_EXTERNAL},
        {"SHARED", KV_TIER_EXTERNAL},
    };
    struct str word;

    if (msgpack_read_nil(m))
        return KV_TIER_DEVICE;
    if (!msgpack_read_str(m, &word))
        return KV_TIER_UNKNOWN;
    for (size_t i = 0; i < ARRAY_LEN(MEDIA); i++)
        if (str_eq_nocase(word, str_from(MEDIA[i].word)))
            return MEDIA[i].tier;
    return KV_TIER_UNKNOWN;
}

static void opt_str_read(struct msgpack_reader *m, struct str *ret)
{
    if (!msgpack_read_nil(m))
        str_read(m, ret);
}

/*
 * Extra keys of a block: its adapter's name, those of images, the salt. None has a tag, but for salts
 * that ai-dynamo's worker gives vLLM: only a prompt's first block has one without, so that a text in
 * another is no salt. One in the first is an image's where names of that form are ai-dynamo's.
 */
static void read_keys(struct msgpack_reader *m, struct engine_media *media, size_t block,
                      struct engine_event *ev)
{
    static const char tag[] = "dynamo-cache-salt:";
    bool named = ev->lora_name.len == 0; /* else the first text is that */
    bool first = block == 0 && !ev->parent_hash.set;
    struct str text = STR_NULL;
    uint32_t n;

    if (msgpack_read_nil(m) || !msgpack_read_array(m, &n))
        return;
    for (uint32_t i = 0; i < n && !m->error; i++) {
        if (msgpack_peek(m) == MSGPACK_ARRAY) {
            engine_media_read_pair(m, media, block);
            continue;
        }
        if (msgpack_peek(m) != MSGPACK_STR) {
            (void)msgpack_skip(m);
            continue;
        }
        str_read(m, &text);
        if (block == 0 && str_starts(text, STR(tag)))
            ev->salt = str_skip(text, sizeof(tag) - 1);
        else if (named && block == 0)
            ev->first_salt = text;
        if (!first || media->padded_only)
            engine_media_take_key(m, media, block, text);
        named = true;
    }
}

static void read_media_of_keys(struct msgpack_reader *m, struct engine_media *media, size_t block,
                               struct engine_event *ev)
{
    size_t n_infos = ev->media_of_keys ? 0 : media->n;

    read_keys(m, media, block, ev);
    if (n_infos)
        media->n = n_infos;
    else
        ev->media_of_keys = media->n > 0;
}

static void read_media_info(struct msgpack_reader *m, struct engine_media *media, size_t block,
                            struct engine_event *ev)
{
    if (ev->media_of_keys)
        media->n = 0;
    ev->media_of_keys = false;
    engine_media_read_info(m, media, block);
}

/*
 * One entry for each block, of keys (extra_keys) or of what the engine knows of its media
 * (block_mm_infos): 0.9.0 has the one where newer ones have the other. The latter goes before; where an
 * event has one of them twice, its last counts, so that media come in the order of their blocks.
 */
static void read_entries(struct msgpack_reader *m, struct engine_reader *r, struct engine_event *ev)
{
    struct engine_media *media = &r->media;
    bool twice = media->n > 0;
    enum msgpack_kind kind;
    uint32_t n;

    if (!msgpack_read_array(m, &n))
        return;
    for (uint32_t i = 0; i < n && !m->error; i++) {
        kind = msgpack_peek(m);
        if (twice && (kind == MSGPACK_MAP || (kind == MSGPACK_ARRAY && ev->media_of_keys))) {
            media->n = 0;
            twice = false;
        }
        if (kind == MSGPACK_MAP)
            read_media_info(m, media, i, ev);
        else if (kind == MSGPACK_ARRAY)
            read_media_of_keys(m, media, i, ev);
        else
            (void)msgpack_skip(m);
    }
}

/* @told: the event has block_mm_infos, and be it of nothing: then keys do not count. */
static void give_media(struct engine_media *media, bool told, struct engine_event *ev)
{
    uint64_t ignored;

    if (told && ev->media_of_keys) {
        media->n = 0;
        ev->media_of_keys = false;
    }
    ev->media = media->ptr;
    ev->n_media = media->n;
    if (ev->parent_hash.set && engine_media_parse(ev->first_salt, &ignored))
        ev->first_salt = STR_NULL; /* but an image's name: its parent may come behind the keys */
}

/* --- attention groups ----------------------------------------------------------------------------- */

struct group {
    struct opt_u64 index;
    struct str kind;
};

/*
 * Kinds that keep every token's KV. A removal may name its group alone: the kind is then that of
 * the blocks that the group has stored.
 */
static bool is_main(struct engine_reader *r, const struct group *g)
{
    uint64_t bit = g->index.set && g->index.v < 64 ? UINT64_C(1) << g->index.v : 0;
    bool main;

    if (g->kind.len == 0)
        return !(r->other_groups & bit) &&
               (!g->index.set || g->index.v == 0 || r->main_groups & bit);
    main = str_is(g->kind, "full_attention") || str_is(g->kind, "mla_attention") ||
           str_is(g->kind, "sink_full_attention");
    if (main) {
        r->main_groups |= bit;
        r->other_groups &= ~bit;
    } else {
        r->other_groups |= bit;
        r->main_groups &= ~bit;
    }
    return main;
}

/* In arrays of ai-dynamo, which have block_mm_infos before them, each stands one further behind. */
static bool read_group(struct msgpack_reader *m, struct str name, struct group *g)
{
    bool is_kind = str_is(name, "kv_cache_spec_kind");
    enum msgpack_kind kind = msgpack_peek(m);

    if (str_is(name, "group_idx") || (is_kind && kind == MSGPACK_INT))
        opt_read(m, &g->index);
    else if (is_kind || (str_is(name, "kv_cache_spec_sliding_window") && kind == MSGPACK_STR))
        opt_str_read(m, &g->kind);
    else
        return false;
    return true;
}

/* --- events --------------------------------------------------------------------------------------- */

/* Of arrays, newer ones of ai-dynamo have block_mm_infos where vLLM has its group, a number. */
static bool is_entries(struct str name)
{
    return str_is(name, "extra_keys") || str_is(name, "block_mm_infos") ||
           str_is(name, "group_idx");
}

static void read_stored(struct msgpack_reader *m, struct engine_reader *r, struct engine_event *ev)
{
    struct group g = {{false, 0}, STR_NULL};
    bool told = false;
    struct members s;
    struct str name;

    if (!MEMBERS(m, &s, "type", "block_hashes", "parent_block_hash", "token_ids", "block_size",
                 "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
                 "kv_cache_spec_sliding_window"))
        return;
    r->media.n = 0;
    while (members_next(m, &s, &name)) {
        if (str_is(name, "block_hashes"))
            read_hashes(m, r, ev);
        else if (str_is(name, "parent_block_hash"))
            read_parent(m, ev);
        else if (str_is(name, "token_ids"))
            read_tokens(m, r, ev);
        else if (str_is(name, "block_size"))
            u64_read(m, &ev->block_size);
        else if (str_is(name, "medium"))
            ev->tier = read_medium(m);
        else if (str_is(name, "lora_name"))
            opt_str_read(m, &ev->lora_name);
        else if (str_is(name, "cache_salt"))
            opt_str_read(m, &ev->salt);
        else if (is_entries(name) && msgpack_peek(m) == MSGPACK_ARRAY) {
            told |= !str_is(name, "extra_keys");
            read_entries(m, r, ev);
        } else if (!read_group(m, name, &g))
            (void)msgpack_skip(m);
    }
    give_media(&r->media, told, ev);
    ev->kind = KV_STORED;
    ev->main_attention = is_main(r, &g);
}

static void read_removed(struct msgpack_reader *m, struct engine_reader *r, struct engine_event *ev)
{
    struct group g = {{false, 0}, STR_NULL};
    struct members s;
    struct str name;

    if (!MEMBERS(m, &s, "type", "block_hashes", "medium", "group_idx", "kv_cache_spec_kind"))
        return;
    while (members_next(m, &s, &name)) {
        if (str_is(name, "block_hashes"))
            read_hashes(m, r, ev);
        else if (str_is(name, "medium"))
            ev->tier = read_medium(m);
        else if (!read_group(m, name, &g))
            (void)msgpack_skip(m);
    }
    ev->kind = KV_REMOVED;
    ev->main_attention = is_main(r, &g);
}

/* Without moving @m. */
static struct str type_of(const struct msgpack_reader *m)
{
    struct msgpack_reader ahead = *m;
    struct str name, type = STR_NULL;
    struct members s;

    if (!MEMBERS(&ahead, &s, "type"))
        return STR_NULL;
    while (type.len == 0 && members_next(&ahead, &s, &name)) {
        if (str_is(name, "type"))
            str_read(&ahead, &type);
        else
            (void)msgpack_skip(&ahead);
    }
    return type;
}

static void read_event(struct msgpack_reader *m, struct engine_reader *r, struct engine_batch *b,
                       engine_event_fn fn, void *arg)
{
    struct engine_event ev = {.tier = KV_TIER_DEVICE, .main_attention = true};
    struct str type = type_of(m);

    if (str_is(type, "BlockStored")) {
        read_stored(m, r, &ev);
    } else if (str_is(type, "BlockRemoved")) {
        read_removed(m, r, &ev);
    } else if (str_is(type, "AllBlocksCleared")) {
        ev.kind = KV_CLEARED;
        (void)msgpack_skip(m);
    } else {
        b->n_unknown++;
        (void)msgpack_skip(m);
        return;
    }
    if (ev.raw_hashes) {
        ev.hashes = NULL;
        ev.n_hashes = 0;
        ev.parent_hash = (struct opt_u64){false, 0};
    }
    if (!m->error)
        fn(arg, b, &ev);
}

/* The rank stands behind the events: they are gone over twice. */
static struct msgpack_reader read_head(struct msgpack_reader *m, struct engine_batch *b)
{
    struct msgpack_reader events = {.at = NULL};
    struct members s;
    struct str name;

    if (!MEMBERS(m, &s, "ts", "events", "data_parallel_rank"))
        return events;
    while (members_next(m, &s, &name)) {
        if (str_is(name, "events")) {
            events = *m;
            (void)msgpack_skip(m);
        } else if (str_is(name, "data_parallel_rank")) {
            opt_read(m, &b->dp_rank);
        } else if (str_is(name, "ts") && msgpack_peek(m) == MSGPACK_FLOAT) {
            (void)!msgpack_read_f64(m, &b->ts);
        } else {
            (void)msgpack_skip(m);
        }
    }
    return events;
}

int engine_batch_decode(struct engine_reader *r, struct str payload, engine_event_fn fn, void *arg,
                        struct engine_batch *ret, struct err *e)
{
    struct engine_batch b = {.ts = 0};
    struct msgpack_reader m, events;
    uint32_t n = 0;
    int code;

    if (payload.len > KV_EVENT_BYTES_MAX)
        return err_set(e, -EMSGSIZE, "engine batch of %zu bytes", payload.len);
    msgpack_reader_init(&m, payload);
    events = read_head(&m, &b);
    code = msgpack_end(&m, e);
    if (code < 0)
        return err_wrap(e, code, "engine batch");
    if (!events.at)
        return err_set(e, -EBADMSG, "engine batch without events");
    if (msgpack_read_array(&events, &n))
        for (uint32_t i = 0; i < n && !events.error; i++)
            read_event(&events, r, &b, fn, arg);
    if (events.error)
        return err_set(e, events.error == TOO_MANY ? -EMSGSIZE : -EBADMSG, "engine batch: %s",
                       events.error);
    if (ret)
        *ret = b;
    return 0;
}

/* --- writing -------------------------------------------------------------------------------------- */

void engine_batch_begin_put(struct buf *out, double ts, uint32_t n_events)
{
    msgpack_put_array(out, 3);
    msgpack_put_f64(out, ts);
    msgpack_put_array(out, n_events);
}

static void hashes_put(struct buf *out, const struct engine_event *ev)
{
    msgpack_put_array(out, (uint32_t)ev->n_hashes);
    for (size_t i = 0; i < ev->n_hashes; i++)
        msgpack_put_u64(out, ev->hashes[i]);
}

static void medium_put(struct buf *out, enum kv_tier tier)
{
    static const char *const words[] = {"GPU", "CPU", "DISK", "EXTERNAL", "UNKNOWN"};

    msgpack_put_cstr(out, words[tier]);
}

/* Its type and its blocks: what every event of blocks begins with. */
static void blocks_put(struct buf *out, uint32_t n_members, const char *type,
                       const struct engine_event *ev)
{
    msgpack_put_map(out, n_members);
    msgpack_put_cstr(out, "type");
    msgpack_put_cstr(out, type);
    msgpack_put_cstr(out, "block_hashes");
    hashes_put(out, ev);
}

static void tier_put(struct buf *out, const struct engine_event *ev)
{
    msgpack_put_cstr(out, "medium");
    medium_put(out, ev->tier);
    msgpack_put_cstr(out, "group_idx");
    msgpack_put_u64(out, 0);
}

static void stored_put(struct buf *out, const struct engine_event *ev)
{
    blocks_put(out, 12, "BlockStored", ev);
    msgpack_put_cstr(out, "parent_block_hash");
    if (ev->parent_hash.set)
        msgpack_put_u64(out, ev->parent_hash.v);
    else
        msgpack_put_nil(out);
    msgpack_put_cstr(out, "token_ids");
    msgpack_put_array(out, (uint32_t)ev->n_tokens);
    for (size_t i = 0; i < ev->n_tokens; i++)
        msgpack_put_u64(out, ev->tokens[i]);
    msgpack_put_cstr(out, "block_size");
    msgpack_put_u64(out, ev->block_size);
    msgpack_put_cstr(out, "lora_id");
    msgpack_put_nil(out);
    msgpack_put_cstr(out, "lora_name");
    if (ev->lora_name.len)
        msgpack_put_str(out, ev->lora_name);
    else
        msgpack_put_nil(out);
    msgpack_put_cstr(out, "extra_keys");
    msgpack_put_array(out, (uint32_t)ev->n_hashes);
    for (size_t i = 0; i < ev->n_hashes; i++)
        if (i == 0 && ev->first_salt.len) {
            msgpack_put_array(out, 1);
            msgpack_put_str(out, ev->first_salt);
        } else {
            msgpack_put_nil(out);
        }
    msgpack_put_cstr(out, "block_mm_infos");
    engine_media_put(out, ev->media, ev->n_media);
    msgpack_put_cstr(out, "kv_cache_spec_kind");
    msgpack_put_cstr(out, "full_attention");
    tier_put(out, ev);
}

void engine_event_put(struct buf *out, const struct engine_event *ev)
{
    switch (ev->kind) {
    case KV_STORED:
        stored_put(out, ev);
        break;
    case KV_REMOVED:
        blocks_put(out, 4, "BlockRemoved", ev);
        tier_put(out, ev);
        break;
    case KV_CLEARED:
        msgpack_put_map(out, 1);
        msgpack_put_cstr(out, "type");
        msgpack_put_cstr(out, "AllBlocksCleared");
        break;
    }
}

void engine_batch_end_put(struct buf *out, uint32_t dp_rank)
{
    msgpack_put_u64(out, dp_rank);
}
