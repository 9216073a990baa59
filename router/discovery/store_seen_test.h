/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store told its watcher, for tests of stores. &store_seen_watcher with a struct store_seen,
 * on the thread of the store's loop.
 */
#pragma once

#include <stdlib.h>

#include "lib/base/strmap.h"
#include "lib/base/test.h"
#include "router/discovery/store.h"

struct store_seen {
    struct strmap *records; /* key → JSON, as they are now */
    size_t puts, gones, silent, synced, ups, downs;
    enum store_end how; /* of the last end; `silent` counts STORE_END_SILENT */
    bool up, up_at_end; /* up_at_end: when the last end came */
};

static inline void store_seen_init(struct store_seen *s)
{
    *s = (struct store_seen){.records = strmap_new(), .up = true};
}

static inline void store_seen_done(struct store_seen *s)
{
    (void)strmap_free_with(s->records, free);
}

static inline void store_seen_put(void *arg, struct str key, struct str json)
{
    struct store_seen *s = arg;

    s->puts++;
    free(strmap_set(s->records, key, str_dup(json)));
}

static inline void store_seen_gone(void *arg, struct str key, enum store_end how)
{
    struct store_seen *s = arg;

    s->gones++;
    s->silent += how == STORE_END_SILENT;
    s->how = how;
    s->up_at_end = s->up;
    free(strmap_remove(s->records, key));
}

static inline void store_seen_synced(void *arg)
{
    ((struct store_seen *)arg)->synced++;
}

static inline void store_seen_state(void *arg, bool up, const char *why)
{
    struct store_seen *s = arg;

    assert_true(why && *why);
    assert_true(s->up != up);
    s->up = up;
    *(up ? &s->ups : &s->downs) += 1;
}

static const struct store_watcher store_seen_watcher = {store_seen_put, store_seen_gone,
                                                        store_seen_synced, store_seen_state};

/* A record to publish; @address outlives it. */
static inline struct record store_test_endpoint(uint64_t id, const char *address)
{
    return (struct record){
        .kind = RECORD_ENDPOINT,
        .ns = STR("dynamo"),
        .component = STR("backend"),
        .endpoint = STR("generate"),
        .instance_id = id,
        .transport = TRANSPORT_TCP,
        .address = str_from(address),
    };
}
