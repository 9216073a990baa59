/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "router/wire/fields.h"
#include "router/wire/kv_event_inner.h"

/* Engines publish hashes as signed numbers now and then: taken bit for bit. */
static void hash_pull(struct json_pull *p, uint64_t *ret)
{
    int64_t v;

    if (json_pull_peek(p) == JSON_KIND_NUMBER && *p->at == '-') {
        if (json_pull_i64(p, &v))
            *ret = (uint64_t)v;
    } else if (!json_pull_u64(p, ret)) {
        return;
    }
}

static void block_pull(struct json_pull *p, struct kv_block *ret)
{
    struct str key;
    int seen = 0;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "block_hash")) {
            hash_pull(p, &ret->block_hash);
            seen |= 1;
        } else if (str_is(key, "tokens_hash")) {
            hash_pull(p, &ret->tokens_hash);
            seen |= 2;
        } else {
            skip_pull(p);
        }
    }
    if (seen != 3)
        json_pull_fail(p, "a block lacks its hashes");
}

static void stored_pull(struct kv_event_reader *r, struct json_pull *p, struct kv_event *ev)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "parent_hash")) {
            if (json_pull_null(p))
                continue;
            ev->parent_hash.set = true;
            hash_pull(p, &ev->parent_hash.v);
        } else if (str_is(key, "blocks") && json_pull_array(p)) {
            while (json_pull_element(p)) {
                struct kv_block block = {0};

                block_pull(p, &block);
                if (json_pull_ok(p) && !kv_event_add_block(r, ev, block))
                    json_pull_fail(p, KV_EVENT_TOO_MANY);
            }
        } else if (!str_is(key, "blocks")) {
            skip_pull(p);
        }
    }
}

static void removed_pull(struct kv_event_reader *r, struct json_pull *p, struct kv_event *ev)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (!str_is(key, "block_hashes")) {
            skip_pull(p);
            continue;
        }
        if (!json_pull_array(p))
            return;
        while (json_pull_element(p)) {
            uint64_t hash = 0;

            hash_pull(p, &hash);
            if (json_pull_ok(p) && !kv_event_add_removed(r, ev, hash))
                json_pull_fail(p, KV_EVENT_TOO_MANY);
        }
    }
}

static void data_pull(struct kv_event_reader *r, struct json_pull *p, struct kv_event *ev)
{
    struct str key, word;
    unsigned variants = 0;

    if (json_pull_peek(p) == JSON_KIND_STRING) {
        if (json_pull_raw_string(p, &word) && !str_is(word, "cleared"))
            json_pull_fail(p, "unknown event data");
        ev->kind = KV_CLEARED;
        return;
    }
    if (!json_pull_object(p))
        return;
    for (; json_pull_key(p, &key); variants++) {
        if (variants) {
            json_pull_fail(p, "event data is no variant");
        } else if (str_is(key, "stored")) {
            ev->kind = KV_STORED;
            stored_pull(r, p, ev);
        } else if (str_is(key, "removed")) {
            ev->kind = KV_REMOVED;
            removed_pull(r, p, ev);
        } else if (str_is(key, "cleared")) {
            ev->kind = KV_CLEARED;
            skip_pull(p);
        } else {
            json_pull_fail(p, "unknown event data");
        }
    }
    if (!variants)
        json_pull_fail(p, "event data is no variant");
}

static unsigned event_pull(struct kv_event_reader *r, struct json_pull *p, struct kv_event *ev)
{
    unsigned seen = 0;
    uint64_t rank = 0;
    struct str key;

    if (!json_pull_object(p))
        return 0;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "event_id")) {
            seen |= json_pull_u64(p, &ev->event_id) ? SAW_ID : 0;
        } else if (str_is(key, "data")) {
            data_pull(r, p, ev);
            seen |= SAW_DATA;
        } else if (str_is(key, "dp_rank")) {
            if (!json_pull_null(p) && json_pull_u64(p, &rank) && rank > UINT32_MAX)
                json_pull_fail(p, "dp_rank out of range");
        } else {
            skip_pull(p);
        }
    }
    ev->dp_rank = (uint32_t)rank;
    return seen;
}

struct json_events {
    struct kv_event_reader *r;
    struct json_pull p;
    kv_event_fn fn;
    void *arg;
    size_t n;
};

static void json_list_pull(struct json_events *je);

static unsigned domain_pull(struct json_pull *p)
{
    struct str word;

    return !json_pull_null(p) && json_pull_raw_string(p, &word) && !str_is(word, "worker")
               ? SAW_ELSEWHERE
               : 0;
}

static void tier_pull(struct json_pull *p, struct kv_event *ev)
{
    struct str word;

    if (!json_pull_null(p) && json_pull_raw_string(p, &word))
        ev->tier = kv_tier_of(word);
}

/* @top: also an answer of the recovery endpoint, {"Events": […]} or {"TreeDump": …}. */
static void json_router_event_pull(struct json_events *je, bool top)
{
    struct json_pull *p = &je->p;
    struct kv_event ev = {0};
    bool is_list = false;
    unsigned seen = 0;
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "worker_id")) {
            seen |= json_pull_u64(p, &ev.worker_id) ? SAW_WORKER : 0;
        } else if (str_is(key, "event")) {
            seen |= event_pull(je->r, p, &ev);
        } else if (str_is(key, "storage_tier")) {
            tier_pull(p, &ev);
        } else if (str_is(key, "residency_domain")) {
            seen |= domain_pull(p);
        } else if (top && (str_is(key, "Events") || str_is(key, "TreeDump"))) {
            is_list = true;
            json_list_pull(je);
        } else {
            skip_pull(p);
        }
    }
    if (json_pull_ok(p) && !is_list) {
        const char *why = kv_event_report(je->r, &ev, seen, je->fn, je->arg);

        if (why)
            json_pull_fail(p, why);
    }
}

static void json_list_pull(struct json_events *je)
{
    struct str key;

    /* 1.x wraps the dump once more: {"TreeDump":{"events":[…],…}}. */
    if (json_pull_peek(&je->p) == JSON_KIND_OBJECT) {
        if (!json_pull_object(&je->p))
            return;
        while (json_pull_key(&je->p, &key)) {
            if (str_is(key, "events") && json_pull_peek(&je->p) == JSON_KIND_ARRAY)
                json_list_pull(je);
            else
                skip_pull(&je->p);
        }
        return;
    }
    if (!json_pull_array(&je->p))
        return;
    while (json_pull_element(&je->p)) {
        if (++je->n > KV_EVENT_BATCH_MAX)
            json_pull_fail(&je->p, "too many events in one message");
        else
            json_router_event_pull(je, false);
    }
}

int kv_events_parse(struct kv_event_reader *r, struct str json, kv_event_fn fn, void *arg,
                    struct err *e)
{
    struct json_events je = {.r = r, .fn = fn, .arg = arg};

    if (json.len > KV_EVENT_BYTES_MAX)
        return err_set(e, -EMSGSIZE, "kv event of %zu bytes", json.len);
    json_pull_init(&je.p, json);
    if (json_pull_peek(&je.p) == JSON_KIND_ARRAY)
        json_list_pull(&je);
    else
        json_router_event_pull(&je, true);
    return json_pull_end(&je.p, e);
}
