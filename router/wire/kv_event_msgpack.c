/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/msgpack.h"
#include "router/wire/kv_event_inner.h"
#include "router/wire/members.h"

static void block_read(struct msgpack_reader *m, struct kv_block *ret)
{
    struct members s;
    struct str name;
    int seen = 0;

    if (!MEMBERS(m, &s, "block_hash", "tokens_hash", "mm_extra_info"))
        return;
    while (members_next(m, &s, &name)) {
        if (str_is(name, "block_hash")) {
            hash_read(m, &ret->block_hash);
            seen |= 1;
        } else if (str_is(name, "tokens_hash")) {
            hash_read(m, &ret->tokens_hash);
            seen |= 2;
        } else {
            (void)msgpack_skip(m);
        }
    }
    if (seen != 3)
        msgpack_fail(m, "a block lacks its hashes");
}

static void blocks_read(struct kv_event_reader *r, struct msgpack_reader *m, struct kv_event *ev)
{
    uint32_t n;

    if (!msgpack_read_array(m, &n))
        return;
    while (n-- && !m->error) {
        struct kv_block block = {0};

        block_read(m, &block);
        if (!m->error && !kv_event_add_block(r, ev, block))
            msgpack_fail(m, KV_EVENT_TOO_MANY);
    }
}

static void stored_read(struct kv_event_reader *r, struct msgpack_reader *m, struct kv_event *ev)
{
    static const char *const names[] = {"parent_hash", "start_position", "blocks"};
    static const char *const short_names[] = {"parent_hash", "blocks"}; /* 0.9 */
    struct members s;
    struct str name;

    if (!members_begin(m, &s, names, ARRAY_LEN(names)))
        return;
    if (s.n == ARRAY_LEN(short_names)) {
        s.names = short_names;
        s.n_names = ARRAY_LEN(short_names);
    }
    while (members_next(m, &s, &name)) {
        if (str_is(name, "parent_hash")) {
            if (!msgpack_read_nil(m))
                ev->parent_hash.set = msgpack_read_hash(m, &ev->parent_hash.v);
        } else if (str_is(name, "blocks")) {
            blocks_read(r, m, ev);
        } else {
            (void)msgpack_skip(m);
        }
    }
}

static void removed_read(struct kv_event_reader *r, struct msgpack_reader *m, struct kv_event *ev)
{
    struct members s;
    struct str name;
    uint64_t hash;
    uint32_t n;

    if (!MEMBERS(m, &s, "block_hashes"))
        return;
    while (members_next(m, &s, &name)) {
        if (!str_is(name, "block_hashes")) {
            (void)msgpack_skip(m);
            continue;
        }
        if (!msgpack_read_array(m, &n))
            return;
        while (n-- && msgpack_read_hash(m, &hash))
            if (!kv_event_add_removed(r, ev, hash))
                msgpack_fail(m, KV_EVENT_TOO_MANY);
    }
}

/* "cleared", or a map of one: {"stored": …} */
static void data_read(struct kv_event_reader *r, struct msgpack_reader *m, struct kv_event *ev)
{
    struct str tag = STR_NULL;
    uint32_t n = 0;
    bool unit = msgpack_peek(m) == MSGPACK_STR;

    if (!unit && !msgpack_read_map(m, &n))
        return;
    if (!unit && n != 1) {
        msgpack_fail(m, "event data is no variant");
        return;
    }
    if (!msgpack_read_str(m, &tag))
        return;
    if (str_is(tag, "cleared")) {
        ev->kind = KV_CLEARED;
        if (!unit)
            (void)msgpack_skip(m);
    } else if (str_is(tag, "stored") && !unit) {
        ev->kind = KV_STORED;
        stored_read(r, m, ev);
    } else if (str_is(tag, "removed") && !unit) {
        ev->kind = KV_REMOVED;
        removed_read(r, m, ev);
    } else {
        msgpack_fail(m, "unknown event data");
    }
}

static unsigned event_read(struct kv_event_reader *r, struct msgpack_reader *m, struct kv_event *ev)
{
    unsigned seen = 0;
    struct members s;
    struct str name;

    if (!MEMBERS(m, &s, "event_id", "data", "dp_rank"))
        return 0;
    while (members_next(m, &s, &name)) {
        if (str_is(name, "event_id")) {
            u64_read(m, &ev->event_id);
            seen |= SAW_ID;
        } else if (str_is(name, "data")) {
            data_read(r, m, ev);
            seen |= SAW_DATA;
        } else if (str_is(name, "dp_rank")) {
            u32_read(m, &ev->dp_rank);
        } else {
            (void)msgpack_skip(m);
        }
    }
    return seen;
}

static unsigned router_event_map(struct kv_event_reader *r, struct msgpack_reader *m,
                                 struct members *s, struct kv_event *ev)
{
    unsigned seen = 0;
    struct str name, word;

    while (members_next(m, s, &name)) {
        if (str_is(name, "worker_id")) {
            u64_read(m, &ev->worker_id);
            seen |= SAW_WORKER;
        } else if (str_is(name, "event")) {
            seen |= event_read(r, m, ev);
        } else if (str_is(name, "storage_tier") && !msgpack_read_nil(m)) {
            if (msgpack_read_str(m, &word))
                ev->tier = kv_tier_of(word);
        } else if (str_is(name, "residency_domain") && !msgpack_read_nil(m)) {
            if (msgpack_read_str(m, &word) && !str_is(word, "worker"))
                seen |= SAW_ELSEWHERE;
        } else if (!str_is(name, "storage_tier") && !str_is(name, "residency_domain")) {
            (void)msgpack_skip(m);
        }
    }
    return seen;
}

/* [worker_id, event], or with the words of 1.x between: told apart by kind, as their number varies.
 */
static unsigned router_event_array(struct kv_event_reader *r, struct msgpack_reader *m, uint32_t n,
                                   struct kv_event *ev)
{
    unsigned seen = 0;
    bool has_tier = false;
    struct str tier;

    for (uint32_t i = 0; i < n && !m->error; i++) {
        enum msgpack_kind kind = msgpack_peek(m);

        if (i == 0) {
            u64_read(m, &ev->worker_id);
            seen |= SAW_WORKER;
        } else if (kind == MSGPACK_STR && !has_tier) {
            has_tier = msgpack_read_str(m, &tier);
            ev->tier = has_tier ? kv_tier_of(tier) : KV_TIER_DEVICE;
        } else if ((kind == MSGPACK_ARRAY || kind == MSGPACK_MAP) && !(seen & SAW_ID)) {
            seen |= event_read(r, m, ev);
        } else {
            (void)msgpack_skip(m);
        }
    }
    return seen;
}

/* The first element of an array that has been entered tells whether it is an event or a list. */
static void router_event_read(struct kv_event_reader *r, struct msgpack_reader *m, bool entered,
                              uint32_t n, kv_event_fn fn, void *arg)
{
    struct kv_event ev = {0};
    struct members s;
    unsigned seen;

    if (!entered && !members_begin(m, &s, NULL, 0))
        return;
    if (entered || !s.is_map)
        seen = router_event_array(r, m, entered ? n : s.n, &ev);
    else
        seen = router_event_map(r, m, &s, &ev);
    if (!m->error) {
        const char *why = kv_event_report(r, &ev, seen, fn, arg);

        if (why)
            msgpack_fail(m, why);
    }
}

int kv_events_decode(struct kv_event_reader *r, struct str payload, kv_event_fn fn, void *arg,
                     struct err *e)
{
    struct msgpack_reader m;
    uint32_t n;

    if (payload.len > KV_EVENT_BYTES_MAX)
        return err_set(e, -EMSGSIZE, "kv event of %zu bytes", payload.len);
    msgpack_reader_init(&m, payload);
    if (msgpack_peek(&m) != MSGPACK_ARRAY) {
        router_event_read(r, &m, false, 0, fn, arg);
    } else if (msgpack_read_array(&m, &n)) {
        if (n && msgpack_peek(&m) == MSGPACK_INT)
            router_event_read(r, &m, true, n, fn, arg);
        else if (n > KV_EVENT_BATCH_MAX)
            msgpack_fail(&m, "too many events in one message");
        else
            while (n-- && !m.error)
                router_event_read(r, &m, false, 0, fn, arg);
    }
    return msgpack_end(&m, e);
}
