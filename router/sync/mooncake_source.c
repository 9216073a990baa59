/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/mooncake_source.h"

#include <errno.h>

#include "lib/base/log.h"
#include "lib/net/zmq_link.h"
#include "router/wire/mooncake_event.h"

/* Where users of the reference look for it. */
static const struct log_target LG = {"dynamo_llm::kv_router::shared_cache"};

enum { PARTS = 3, SEQUENCE_BYTES = 8 };

struct mooncake_source {
    struct zmq_link *sub;
    struct shared_pages *pages;
    struct mooncake_source_stats *stats;
    bool has_last, was_away;
    uint64_t last; /* sequence number */
};

static void on_event(void *arg, const struct mooncake_event *ev)
{
    struct mooncake_source *s = arg;

    if (ev->tenant.len && !str_is(ev->tenant, "default"))
        return;
    if (ev->change == MOONCAKE_CLEARED)
        shared_pages_clear(s->pages);
    else if (!ev->object.ptr)
        return;
    else if (ev->change == MOONCAKE_REMOVED)
        shared_pages_remove(s->pages, ev->object);
    else if (!shared_pages_put(s->pages, ev->object) && s->stats->refused++ == 0)
        log_warn(&LG, "no room for more objects of the shared cache; new ones are not known",
                 LOG_U64("objects", shared_pages_objects(s->pages)));
}

/* False for a batch that came already. */
static bool take_sequence(struct mooncake_source *s, uint64_t sequence)
{
    bool again = s->has_last && sequence == s->last && !s->was_away;

    if (!again && s->has_last && sequence != s->last + 1) {
        s->stats->gaps++;
        shared_pages_clear(s->pages);
        log_warn(&LG, "Mooncake KV event sequence gap; cleared shared-cache state",
                 LOG_U64("previous", s->last), LOG_U64("sequence", sequence));
    }
    s->has_last = true;
    s->was_away = false;
    s->last = sequence;
    return !again;
}

/* A batch counts as a whole or not at all: the number of the next one shows then that it is missing. */
static void on_message(void *arg, const struct str *frames, size_t n)
{
    struct mooncake_source *s = arg;
    struct err e;
    int r;

    if (n != PARTS || frames[1].len != SEQUENCE_BYTES) {
        r = err_set(&e, -EBADMSG, "it has %zu parts, or no number", n);
    } else {
        r = mooncake_batch_decode(frames[2], NULL, NULL, &e);
        if (r == 0 && take_sequence(s, load_u64be(frames[1].ptr)))
            r = mooncake_batch_decode(frames[2], on_event, s, &e);
    }
    if (r == 0) {
        s->stats->batches++;
        return;
    }
    s->stats->bad++;
    log_warn(&LG, "Dropping invalid Mooncake KV event frame", LOG_STR("error", e.text));
}

static void on_connected(void *arg, struct str endpoint)
{
    struct mooncake_source *s = arg;

    s->was_away = s->has_last;
    log_info(&LG, "Connected to Mooncake KV events", LOG_VIEW("endpoint", endpoint));
}

int mooncake_source_start(struct mooncake_source **ret, struct zmq_context *zmq,
                          const char *endpoint, struct shared_pages *pages,
                          struct mooncake_source_stats *stats, struct err *e)
{
    AUTO(mooncake_source_free) struct mooncake_source *s = xcalloc(1, sizeof(*s));
    const struct zmq_link_conf conf = {
        .kind = ZMQ_KIND_SUB, .received = on_message, .connected = on_connected, .arg = s};
    int r;

    s->pages = pages;
    s->stats = stats;
    r = zmq_link_new(&s->sub, zmq, &conf, e);
    if (r == 0)
        r = zmq_link_subscribe(s->sub, STR(""), e);
    if (r == 0)
        r = zmq_link_connect(s->sub, endpoint, e);
    if (r < 0)
        return err_wrap(e, r, "Mooncake KV events of %s", endpoint);
    *ret = TAKE(s);
    return 0;
}

struct mooncake_source *mooncake_source_free(struct mooncake_source *s)
{
    if (!s)
        return NULL;
    zmq_link_free(s->sub);
    free(s);
    return NULL;
}
