/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/shared_cache.h"

#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "lib/net/zmq_link.h"
#include "router/discovery/card.h"
#include "router/sched/policy.h"
#include "router/sched/route_conf.h"

/* Where users of the reference look for it. */
static const struct log_target LG = {"dynamo_llm::kv_router::shared_cache"};

/* What one worker says. */
struct facts {
    struct shared_layout layout; /* its prefix is owned */
    char *endpoint;              /* NULL = it names none */
};

struct shared_cache {
    struct loop *loop;
    char *model, *given; /* the latter an endpoint or NULL */
    uint32_t block_size;
    bool on;
    struct map64 workers;    /* worker id -> struct facts */
    struct zmq_context *zmq; /* since there was something to follow */
    struct shared_pages *pages;
    struct mooncake_source *source; /* NULL: nothing is followed */
    char *endpoint;                 /* of it */
    const char *told;               /* why nothing is followed */
    struct mooncake_source_stats events;
    uint64_t unreachable, errors_taken;
};

/* --- what workers say --------------------------------------------------------------------------- */

static void facts_free(struct facts *f)
{
    if (!f)
        return;
    free((char *)(uintptr_t)f->layout.prefix);
    free(f->endpoint);
    free(f);
}

static struct facts *facts_of(const struct card_hicache *h)
{
    struct facts *f = xcalloc(1, sizeof(*f));

    f->layout = (struct shared_layout){.page_size = h->page_size,
                                       .ranks = h->splits_heads ? MAX(h->tp_lcm_size, h->tp_size)
                                                                : h->tp_size,
                                       .stages = h->pp_size,
                                       .mla = h->is_mla,
                                       .eagle = h->is_eagle,
                                       .prefix = h->prefix ? xstrdup(h->prefix) : NULL};
    if (h->events_endpoint && *h->events_endpoint)
        f->endpoint = xstrdup(h->events_endpoint);
    return f;
}

/* What all agree on: a layout and an endpoint, both borrowed. Else *ret_why, NULL when nobody says
 * anything. */
static bool agree(const struct shared_cache *c, const struct shared_layout **ret_layout,
                  const char **ret_endpoint, const char **ret_why)
{
    const struct shared_layout *layout = NULL;
    const char *endpoint = c->given;
    uint64_t id, value;
    size_t at = 0;

    *ret_why = NULL;
    while (map64_next(&c->workers, &at, &id, &value)) {
        const struct facts *f = (const struct facts *)(uintptr_t)value;

        if (layout && !shared_layout_eq(layout, &f->layout))
            *ret_why = "workers differ in how they name what they store";
        layout = &f->layout;
        if (!endpoint)
            endpoint = f->endpoint;
        else if (!c->given && f->endpoint && strcmp(endpoint, f->endpoint) != 0)
            *ret_why = "workers differ in where its events are published";
    }
    if (!layout || *ret_why)
        return false;
    if (layout->page_size != c->block_size)
        *ret_why = "its pages are not as long as a block";
    else if (!endpoint)
        *ret_why = "no worker says where its events are published";
    *ret_layout = layout;
    *ret_endpoint = endpoint;
    return !*ret_why;
}

/* --- following it ------------------------------------------------------------------------------- */

static void unfollow(struct shared_cache *c)
{
    c->source = mooncake_source_free(c->source);
    free(c->endpoint);
    c->endpoint = NULL;
    shared_pages_clear(c->pages);
}

static void follow(struct shared_cache *c, const char *endpoint)
{
    struct err e;
    int r = 0;

    unfollow(c);
    c->endpoint = xstrdup(endpoint);
    if (!c->zmq)
        r = zmq_context_new(&c->zmq, c->loop, &e);
    if (r == 0)
        r = mooncake_source_start(&c->source, c->zmq, endpoint, c->pages, &c->events, &e);
    if (r == 0) {
        log_info(&LG, "Using HiCache shared KV cache", LOG_STR("model", c->model),
                 LOG_STR("endpoint", endpoint));
        return;
    }
    c->unreachable++;
    log_error(&LG, "Failed to connect to Mooncake KV events", LOG_STR("model", c->model),
              LOG_STR("endpoint", endpoint), LOG_STR("why", e.text));
}

/* Called after every change. */
static void settle(struct shared_cache *c)
{
    const struct shared_layout *layout;
    const char *endpoint, *why = NULL;

    if (c->on && agree(c, &layout, &endpoint, &why)) {
        if (shared_pages_lay_out(c->pages, layout)) {
            c->told = NULL;
            if (!c->endpoint || strcmp(c->endpoint, endpoint) != 0)
                follow(c, endpoint);
            return;
        }
        why = "its pages have too many parts";
    }
    unfollow(c);
    if (why && why != c->told)
        log_warn(&LG, "the shared cache is not looked at", LOG_STR("model", c->model),
                 LOG_STR("why", why));
    c->told = why;
}

/* --- for its owner ------------------------------------------------------------------------------ */

struct shared_cache *shared_cache_new(struct loop *l, const char *model, uint32_t block_size,
                                      const char *endpoint)
{
    struct shared_cache *c = xcalloc(1, sizeof(*c));

    c->loop = l;
    c->model = xstrdup(model);
    c->given = endpoint && *endpoint ? xstrdup(endpoint) : NULL;
    c->block_size = block_size;
    c->pages = shared_pages_new();
    return c;
}

struct shared_cache *shared_cache_free(struct shared_cache *c)
{
    uint64_t id, value;
    size_t at = 0;

    if (!c)
        return NULL;
    unfollow(c);
    while (map64_next(&c->workers, &at, &id, &value))
        facts_free((struct facts *)(uintptr_t)value);
    map64_done(&c->workers);
    zmq_context_free(c->zmq);
    shared_pages_free(c->pages);
    free(c->model);
    free(c->given);
    free(c);
    return NULL;
}

void shared_cache_switch(struct shared_cache *c, bool on)
{
    c->on = on;
    settle(c);
}

static void drop(struct shared_cache *c, uint64_t id)
{
    uint64_t value;

    if (map64_remove(&c->workers, id, &value))
        facts_free((struct facts *)(uintptr_t)value);
}

void shared_cache_put_worker(struct shared_cache *c, uint64_t id, const struct card_hicache *h)
{
    drop(c, id);
    if (h->present && h->is_mooncake)
        map64_put_ptr(&c->workers, id, facts_of(h));
    settle(c);
}

void shared_cache_remove_worker(struct shared_cache *c, uint64_t id)
{
    drop(c, id);
    settle(c);
}

bool shared_cache_find(struct shared_cache *c, const uint32_t *tokens, size_t n_tokens,
                       struct shared_hits *ret)
{
    if (!c->source)
        return false;
    shared_pages_find(c->pages, tokens, n_tokens, ret);
    return true;
}

bool shared_cache_is_asked(const struct shared_cache *c, const struct route_conf *conf)
{
    return c && conf->shared_cache != SHARED_CACHE_NONE && conf->mode == ROUTE_KV &&
           !conf->load_aware && conf->overlap_credit > 0;
}

const struct shared_hits *shared_cache_ask(struct shared_cache *c, const struct route_conf *conf,
                                           const uint32_t *tokens, size_t n_tokens,
                                           struct shared_hits *ret)
{
    if (!tokens || !shared_cache_is_asked(c, conf))
        return NULL;
    return shared_cache_find(c, tokens, n_tokens, ret) ? ret : NULL;
}

/* Events are followed all the same: with the next flip what they tell may count, and what was stored before
 * nobody tells again. */
void shared_cache_warn(const struct route_conf *now, const struct route_conf *was)
{
    const char *why = policy_ignores_shared(now), *before = was ? policy_ignores_shared(was) : NULL;

    if (why && !(before && strcmp(why, before) == 0))
        log_warn(&LG,
                 "the shared cache is followed and counts for nothing: "
                 "only mode kv with policy dynamo-1.x counts it",
                 LOG_STR("ignored_by", why));
}

struct shared_cache_stats shared_cache_stats(const struct shared_cache *c)
{
    return (struct shared_cache_stats){.objects = shared_pages_objects(c->pages),
                                       .events = c->events,
                                       .unreachable = c->unreachable};
}

uint64_t shared_cache_take_errors(struct shared_cache *c)
{
    uint64_t all = c->events.bad + c->unreachable, fresh = all - c->errors_taken;

    c->errors_taken = all;
    return fresh;
}
