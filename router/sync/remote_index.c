/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/remote_index.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/metric.h"
#include "lib/base/strmap.h"
#include "router/wire/indexer_query.h"
#include "router/wire/plane_client.h"

static const struct log_target LG = {"dynamo_llm::kv_router::indexer"};

/* Who serves the index of a component: one per instance id. */
struct server {
    uint64_t instance_id;
    char *query, *record; /* addresses; NULL = it has no such endpoint */
    uint64_t paused_ms;   /* it failed and is left alone until then; 0 = it is well */
};

struct place {
    struct server *servers; /* ascending id */
    size_t n_servers, cap_servers, turn;
    char *ns, *component;
    bool lost; /* as told in the log */
    struct metric *query_failures, *write_failures;
};

/* A question or a placement on its way. */
struct remote_lookup {
    struct list link;
    struct remote_index *owner;
    struct place *place;
    uint64_t server; /* instance id of who is asked now */
    struct plane_stream *stream;
    struct timer *deadline;
    struct buf body;
    bool by_writes, answered;
    unsigned n_tried;
    uint64_t start_ns;
    struct prompt_matches *matches; /* NULL: a placement, which frees itself */
    loop_fn done;
    void *arg;
};

struct remote_index {
    struct remote_index_conf conf;
    struct strmap *places; /* "ns component" -> struct place; they stay, empty too */
    struct list calls;
    size_t n_lookups, n_writes;
    struct indexer_reader reader;
    struct metric_family *query_failures, *write_failures;
};

/* --- places ----------------------------------------------------------------------------------- */

static struct metric *failures_of(struct remote_index *r, struct metric_family *f,
                                  const struct place *p)
{
    AUTO(mem_free) char *router = xasprintf("%" PRIu64, r->conf.router_id);
    AUTO(mem_free) char *worker = xasprintf("%" PRIx64, r->conf.router_id);

    return metric_with(f, p->ns, p->component, router, worker);
}

static struct place *place_need(struct remote_index *r, const char *ns, const char *component)
{
    AUTO(mem_free) char *name = xasprintf("%s %s", ns, component);
    struct place *p = strmap_get(r->places, str_from(name));

    if (p)
        return p;
    p = xcalloc(1, sizeof(*p));
    p->ns = xstrdup(ns);
    p->component = xstrdup(component);
    p->query_failures = failures_of(r, r->query_failures, p);
    p->write_failures = failures_of(r, r->write_failures, p);
    (void)strmap_set(r->places, str_from(name), p);
    return p;
}

static void server_done(struct server *s)
{
    free(s->query);
    free(s->record);
}

static void place_free(void *value)
{
    struct place *p = value;

    for (size_t i = 0; i < p->n_servers; i++)
        server_done(&p->servers[i]);
    free(p->servers);
    free(p->ns);
    free(p->component);
    free(p);
}

static struct server *server_find(struct place *p, uint64_t instance_id)
{
    for (size_t i = 0; i < p->n_servers; i++)
        if (p->servers[i].instance_id == instance_id)
            return &p->servers[i];
    return NULL;
}

static struct server *server_need(struct place *p, uint64_t instance_id)
{
    struct server *found = server_find(p, instance_id);
    size_t at = 0;

    if (found)
        return found;
    if (p->n_servers == p->cap_servers) {
        p->cap_servers = MAX(p->cap_servers * 2, (size_t)4);
        p->servers = xreallocarray(p->servers, p->cap_servers, sizeof(*p->servers));
    }
    while (at < p->n_servers && p->servers[at].instance_id < instance_id)
        at++;
    memmove(&p->servers[at + 1], &p->servers[at], (p->n_servers - at) * sizeof(*p->servers));
    p->servers[at] = (struct server){.instance_id = instance_id};
    p->n_servers++;
    return &p->servers[at];
}

static char **address_in(struct server *s, const char *endpoint)
{
    return strcmp(endpoint, INDEXER_QUERY_ENDPOINT) == 0 ? &s->query : &s->record;
}

void remote_index_put(struct remote_index *r, const struct remote_endpoint *ep)
{
    struct place *p = place_need(r, ep->ns, ep->component);
    struct server *s = server_need(p, ep->instance_id);
    char **address = address_in(s, ep->endpoint);

    free(*address);
    *address = xstrdup(ep->address);
    s->paused_ms = 0;
    log_info(&LG, "remote KV indexer found", LOG_STR("component", p->component),
             LOG_STR("endpoint", ep->endpoint), LOG_STR("address", ep->address));
}

void remote_index_gone(struct remote_index *r, const struct remote_endpoint *ep)
{
    struct place *p = place_need(r, ep->ns, ep->component);
    struct server *s = server_find(p, ep->instance_id);
    char **address = s ? address_in(s, ep->endpoint) : NULL;

    if (!s || !*address || strcmp(*address, ep->address) != 0)
        return;
    plane_client_forget(r->conf.plane, str_from(*address));
    free(*address);
    *address = NULL;
    if (s->query || s->record)
        return;
    server_done(s);
    p->n_servers--;
    memmove(s, s + 1, (size_t)(p->servers + p->n_servers - s) * sizeof(*s));
    log_info(&LG, "remote KV indexer gone", LOG_STR("component", p->component),
             LOG_U64("instance_id", ep->instance_id));
}

/* --- who is asked ----------------------------------------------------------------------------- */

static const char *address_for(const struct remote_lookup *l, const struct server *s)
{
    return l->matches ? s->query : s->record;
}

/* Where it failed, one goes ahead and tries. */
static bool is_askable(const struct remote_lookup *l, struct server *s)
{
    uint64_t now = loop_now_ms(l->owner->conf.loop);

    if (!address_for(l, s) || (l->by_writes && !(s->query && s->record)))
        return false;
    if (!s->paused_ms)
        return true;
    if (s->paused_ms > now)
        return false;
    s->paused_ms = now + l->owner->conf.deadline_ms + REMOTE_PAUSE_MS;
    return true;
}

static struct server *choose(struct remote_lookup *l)
{
    struct place *p = l->place;

    for (size_t i = 0; i < p->n_servers; i++) {
        size_t at = l->by_writes ? i : (p->turn + i) % p->n_servers;

        if (!is_askable(l, &p->servers[at]))
            continue;
        p->turn = at + 1;
        return &p->servers[at];
    }
    return NULL;
}

/* --- how it went ------------------------------------------------------------------------------ */

static void lookup_unlink(struct remote_lookup *l)
{
    l->stream = plane_stream_cancel(l->stream);
    l->deadline = timer_free(l->deadline);
    if (l->matches)
        l->owner->n_lookups--;
    else
        l->owner->n_writes--;
    list_remove(&l->link);
    buf_done(&l->body);
    free(l);
}

struct remote_lookup *remote_lookup_free(struct remote_lookup *l)
{
    if (l)
        lookup_unlink(l);
    return NULL;
}

static void note_failure(struct remote_lookup *l, struct str why)
{
    struct place *p = l->place;

    metric_add(l->matches ? p->query_failures : p->write_failures, 1);
    if (p->lost) {
        log_debug(&LG, "remote KV indexer does not answer", LOG_STR("component", p->component),
                  LOG_VIEW("why", str_head(why, MIN(why.len, (size_t)200))));
        return;
    }
    p->lost = true;
    log_warn(&LG, "remote KV indexer does not answer: routing by what is placed here",
             LOG_STR("component", p->component), LOG_U64("instance_id", l->server),
             LOG_U64("pause_ms", REMOTE_PAUSE_MS),
             LOG_VIEW("why", str_head(why, MIN(why.len, (size_t)200))));
}

static void set_pause(struct remote_lookup *l, uint64_t until_ms)
{
    struct server *s = server_find(l->place, l->server);

    if (s)
        s->paused_ms = until_ms;
}

static void pause_server(struct remote_lookup *l)
{
    set_pause(l, loop_now_ms(l->owner->conf.loop) + REMOTE_PAUSE_MS);
}

static void note_success(struct remote_lookup *l)
{
    set_pause(l, 0);
    if (l->place->lost)
        log_info(&LG, "remote KV indexer answers again", LOG_STR("component", l->place->component),
                 LOG_U64("instance_id", l->server));
    l->place->lost = false;
}

/* A placement has nobody who frees it: it goes when its stream has ended. */
static void settle(struct remote_lookup *l, bool told)
{
    l->answered = true;
    if (!l->matches) {
        if (!l->stream)
            lookup_unlink(l);
        return;
    }
    timer_stop(l->deadline);
    l->matches->told = told;
    l->matches->took_ns = clock_now_ns() - l->start_ns;
    l->done(l->arg);
}

static bool send(struct remote_lookup *l);

/* Another instance may know, while there is time; the deadline goes on. */
static void failed(struct remote_lookup *l, bool is_servers, struct str why)
{
    l->stream = plane_stream_cancel(l->stream);
    if (is_servers)
        pause_server(l);
    if (l->n_tried <= l->place->n_servers && is_servers && send(l))
        return;
    note_failure(l, why);
    settle(l, false);
}

static enum match_tier tier_of(enum kv_tier tier)
{
    return tier == KV_TIER_DEVICE ? MATCH_DEVICE : tier == KV_TIER_HOST ? MATCH_HOST : MATCH_DISK;
}

static void take_hits(struct remote_lookup *l, const struct indexer_answer *a)
{
    for (size_t i = 0; i < a->n_hits; i++)
        prompt_matches_add(l->matches,
                           &(struct prompt_match){{a->hits[i].worker_id, a->hits[i].dp_rank},
                                                  tier_of(a->hits[i].tier),
                                                  a->hits[i].blocks});
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct remote_lookup *l = arg;
    struct indexer_answer a;
    struct err e;

    if (l->answered)
        return;
    if (item->is_error || !item->raw.len) {
        failed(l, true, item->error);
    } else if (indexer_answer_parse(&l->owner->reader, item->raw, &a, &e) < 0) {
        failed(l, true, str_from(e.text));
    } else if (a.kind == INDEXER_ANSWER_ERROR) {
        set_pause(l, 0); /* it lives, and so would others say */
        failed(l, false, a.error);
    } else if ((a.kind == INDEXER_ANSWER_HITS) != (l->matches != NULL)) {
        failed(l, true, STR("an answer to another question"));
    } else {
        note_success(l);
        if (l->matches)
            take_hits(l, &a);
        settle(l, true);
    }
}

/* The stream has ended; true when the answer had come before. */
static bool has_ended(struct remote_lookup *l)
{
    bool answered = l->answered;

    l->stream = NULL;
    if (answered && !l->matches)
        lookup_unlink(l);
    return answered;
}

static void on_finished(void *arg)
{
    if (!has_ended(arg))
        failed(arg, true, STR("the stream ended without an answer"));
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    if (!has_ended(arg))
        failed(arg, kind != PLANE_OVERLOADED && kind != PLANE_TOO_LARGE, str_from(text));
}

static void on_deadline(void *arg)
{
    struct remote_lookup *l = arg;

    l->stream = plane_stream_cancel(l->stream);
    if (has_ended(l))
        return;
    pause_server(l);
    note_failure(l, STR("no answer in time"));
    settle(l, false);
}

/* --- asking ----------------------------------------------------------------------------------- */

static const struct plane_handlers HANDLERS = {
    .item = on_item, .finished = on_finished, .failed = on_failed};

/* False: there is nobody. */
static bool send(struct remote_lookup *l)
{
    struct server *s = choose(l);
    char id[UUID_TEXT_SIZE];
    struct plane_call call = {.body = buf_str(&l->body)};

    if (!s)
        return false;
    random_uuid(id);
    call.id = str_from(id);
    call.address = str_from(address_for(l, s));
    l->server = s->instance_id;
    l->n_tried++;
    l->stream = plane_client_send(l->owner->conf.plane, &call, &HANDLERS, l);
    return true;
}

static struct remote_lookup *call_new(struct remote_index *r, const struct remote_prompt *p,
                                      struct prompt_matches *matches)
{
    struct remote_lookup *l = xcalloc(1, sizeof(*l));

    l->owner = r;
    l->place = place_need(r, p->ns, p->component);
    l->by_writes = p->by_writes;
    l->matches = matches;
    l->start_ns = clock_now_ns();
    l->deadline = timer_new(r->conf.loop, on_deadline, l);
    list_append(&r->calls, &l->link);
    if (matches)
        r->n_lookups++;
    else
        r->n_writes++;
    return l;
}

/* NULL when it has failed already. */
static struct remote_lookup *call_start(struct remote_lookup *l, bool is_too_many)
{
    if (!is_too_many && send(l)) {
        timer_start(l->deadline, l->owner->conf.deadline_ms);
        return l;
    }
    note_failure(l, is_too_many ? STR("too many questions are on their way")
                                : STR("no instance that serves it is there, or well"));
    lookup_unlink(l);
    return NULL;
}

struct remote_lookup *remote_lookup_start(struct remote_index *r, const struct remote_prompt *p,
                                          struct prompt_matches *ret_matches, loop_fn done,
                                          void *arg)
{
    const struct indexer_query q = {.model = p->model, .local = p->local, .n_blocks = p->n_blocks};
    struct remote_lookup *l = call_new(r, p, ret_matches);

    ret_matches->n = 0;
    ret_matches->told = false;
    ret_matches->took_ns = 0;
    l->done = done;
    l->arg = arg;
    indexer_query_put(&l->body, &q);
    return call_start(l, r->n_lookups > REMOTE_LOOKUPS_MAX);
}

void remote_index_write(struct remote_index *r, const struct remote_prompt *p, struct worker_rank w)
{
    const struct indexer_decision d = {.model = p->model,
                                       .worker_id = w.worker_id,
                                       .dp_rank = w.dp_rank,
                                       .local = p->local,
                                       .sequence = p->sequence,
                                       .n_blocks = p->n_blocks};
    struct remote_lookup *l = call_new(r, p, NULL);

    indexer_decision_put(&l->body, &d);
    (void)call_start(l, r->n_writes > REMOTE_WRITES_MAX);
}

/* --- life ------------------------------------------------------------------------------------- */

static struct metric_family *failures(struct metric_registry *r, const char *what, const char *help)
{
    AUTO(mem_free)
    char *name = xasprintf("dynamo_component_router_remote_indexer_%s_failures_total", what);

    return metric_family(
        r, &(struct metric_desc){name,
                                 help,
                                 METRIC_COUNTER,
                                 {"dynamo_namespace", "dynamo_component", "router_id", "worker_id"},
                                 NULL,
                                 0});
}

struct remote_index *remote_index_new(const struct remote_index_conf *conf)
{
    struct remote_index *r = xcalloc(1, sizeof(*r));

    r->conf = *conf;
    r->places = strmap_new();
    list_init(&r->calls);
    r->query_failures =
        failures(conf->metrics, "query", "Questions to a remote indexer without an answer");
    r->write_failures =
        failures(conf->metrics, "write", "Placements that a remote indexer did not take");
    return r;
}

struct remote_index *remote_index_free(struct remote_index *r)
{
    if (!r)
        return NULL;
    LIST_FOREACH (l, &r->calls, struct remote_lookup, link)
        lookup_unlink(l);
    strmap_free_with(r->places, place_free);
    indexer_reader_done(&r->reader);
    free(r);
    return NULL;
}
