/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/index_server.h"

#include <string.h>

#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "router/sched/matches.h"
#include "router/sched/scheduler.h"
#include "router/wire/indexer_query.h"
#include "router/wire/plane_server.h"

static const struct log_target LG = {"dynamo_llm::kv_router::indexer"};

enum kind { QUERY, RECORD, KINDS };
static const char *const ENDPOINTS[KINDS] = {INDEXER_QUERY_ENDPOINT, INDEXER_RECORD_ENDPOINT};
static const char *const KIND_WORDS[KINDS] = {"query", "record"};

struct served {
    struct list link;
    char *model;
    struct scheduler *scheduler;
};

struct component {
    struct list link;
    struct index_server *owner;
    char *ns, *name;
    struct list models;
    bool open[KINDS];
};

struct index_server {
    struct index_server_conf conf;
    struct list components;
    struct indexer_reader reader;
    struct prompt_matches found; /* scratch of one answer, as the two below */
    struct indexer_hit *hits;
    size_t cap_hits;
    struct metric *answered[KINDS], *refused[KINDS];
};

/* --- answers ---------------------------------------------------------------------------------- */

static struct scheduler *find(const struct component *c, struct str model)
{
    LIST_FOREACH (m, &c->models, struct served, link)
        if (str_is(model, m->model))
            return m->scheduler;
    return NULL;
}

static void answer(struct component *c, struct plane_request *rq, enum kind kind,
                   const struct indexer_answer *a)
{
    struct index_server *s = c->owner;
    AUTO(buf_done) struct buf out = BUF_NULL;

    metric_add(a->kind == INDEXER_ANSWER_ERROR ? s->refused[kind] : s->answered[kind], 1);
    indexer_answer_put(&out, a);
    plane_request_start(rq);
    plane_request_item_raw(rq, buf_str(&out));
    plane_request_finish(rq);
}

static void answer_error(struct component *c, struct plane_request *rq, enum kind kind,
                         struct str why)
{
    log_debug(&LG, "question to the index refused", LOG_STR("kind", KIND_WORDS[kind]),
              LOG_VIEW("why", why));
    answer(c, rq, kind, &(struct indexer_answer){.kind = INDEXER_ANSWER_ERROR, .error = why});
}

static void answer_stranger(struct component *c, struct plane_request *rq, enum kind kind,
                            struct str model)
{
    AUTO(mem_free)
    char *why = xasprintf("served indexer model %.*s is not registered",
                          (int)MIN(model.len, (size_t)200), model.ptr);

    answer_error(c, rq, kind, str_from(why));
}

static enum kv_tier tier_of(enum match_tier tier)
{
    return tier == MATCH_DEVICE ? KV_TIER_DEVICE : tier == MATCH_HOST ? KV_TIER_HOST : KV_TIER_DISK;
}

static void answer_found(struct component *c, struct plane_request *rq)
{
    struct index_server *s = c->owner;
    size_t n = MIN(s->found.n, (size_t)INDEXER_HITS_MAX);

    if (n > s->cap_hits) {
        s->cap_hits = n;
        s->hits = xreallocarray(s->hits, n, sizeof(*s->hits));
    }
    for (size_t i = 0; i < n; i++) {
        const struct prompt_match *row = &s->found.rows[i];

        s->hits[i] = (struct indexer_hit){row->worker.worker_id, row->worker.dp_rank,
                                          tier_of(row->tier), row->blocks};
    }
    answer(c, rq, QUERY,
           &(struct indexer_answer){.kind = INDEXER_ANSWER_HITS, .hits = s->hits, .n_hits = n});
}

static void serve_query(void *arg, struct plane_request *rq)
{
    struct component *c = arg;
    struct index_server *s = c->owner;
    struct scheduler *scheduler;
    struct indexer_query q;
    struct err e;

    if (indexer_query_parse(&s->reader, plane_request_body(rq), &q, &e) < 0) {
        answer_error(c, rq, QUERY, str_from(e.text));
        return;
    }
    scheduler = find(c, q.model);
    if (!scheduler) {
        answer_stranger(c, rq, QUERY, q.model);
        return;
    }
    scheduler_find_matches(scheduler, q.local, q.n_blocks, !q.device_only, clock_now_ns(),
                           &s->found);
    answer_found(c, rq);
}

static void serve_record(void *arg, struct plane_request *rq)
{
    struct component *c = arg;
    struct index_server *s = c->owner;
    struct scheduler *scheduler;
    struct indexer_decision d;
    struct err e;

    if (indexer_decision_parse(&s->reader, plane_request_body(rq), &d, &e) < 0)
        answer_error(c, rq, RECORD, str_from(e.text));
    else if (!(scheduler = find(c, d.model)))
        answer_stranger(c, rq, RECORD, d.model);
    else if (!scheduler_note_routed(scheduler, (struct worker_rank){d.worker_id, d.dp_rank},
                                    d.local, d.sequence, d.n_blocks, clock_now_ns()))
        answer_error(c, rq, RECORD, STR("the worker is not known, or the index goes by KV events"));
    else
        answer(c, rq, RECORD, &(struct indexer_answer){.kind = INDEXER_ANSWER_RECORDED});
}

/* --- endpoints -------------------------------------------------------------------------------- */

static bool is_wanted(const struct component *c, enum kind kind)
{
    if (kind == QUERY)
        return !list_empty(&c->models);
    LIST_FOREACH (m, &c->models, struct served, link)
        if (!scheduler_conf(m->scheduler)->use_kv_events)
            return true;
    return false;
}

static void set_open(struct component *c, enum kind kind, bool open)
{
    static const plane_serve_fn serve[KINDS] = {serve_query, serve_record};
    struct index_server *s = c->owner;
    const struct plane_endpoint ep = {c->ns, c->name, ENDPOINTS[kind], s->conf.instance_id, true};

    if (c->open[kind] == open)
        return;
    c->open[kind] = open;
    if (open)
        plane_server_register(s->conf.server, &ep, serve[kind], c);
    else
        plane_server_unregister(s->conf.server, &ep);
    log_info(&LG, open ? "serving the KV index" : "the KV index is served no more",
             LOG_STR("component", c->name), LOG_STR("endpoint", ENDPOINTS[kind]));
    s->conf.announce(s->conf.arg, &ep, open);
}

static void refresh(struct component *c)
{
    for (enum kind kind = 0; kind < KINDS; kind++)
        set_open(c, kind, is_wanted(c, kind));
}

static void component_free(struct component *c)
{
    list_remove(&c->link);
    free(c->ns);
    free(c->name);
    free(c);
}

static struct component *component_need(struct index_server *s, const char *ns, const char *name)
{
    struct component *c;

    LIST_FOREACH (old, &s->components, struct component, link)
        if (strcmp(old->ns, ns) == 0 && strcmp(old->name, name) == 0)
            return old;
    c = xcalloc(1, sizeof(*c));
    c->owner = s;
    c->ns = xstrdup(ns);
    c->name = xstrdup(name);
    list_init(&c->models);
    list_append(&s->components, &c->link);
    return c;
}

/* --- models ----------------------------------------------------------------------------------- */

bool index_server_add(struct index_server *s, const char *ns, const char *component,
                      const char *model, struct scheduler *scheduler)
{
    struct component *c = component_need(s, ns, component);
    struct served *m;

    if (find(c, str_from(model)))
        return false;
    m = xcalloc(1, sizeof(*m));
    m->model = xstrdup(model);
    m->scheduler = scheduler;
    list_append(&c->models, &m->link);
    refresh(c);
    return true;
}

static void served_free(struct served *m)
{
    list_remove(&m->link);
    free(m->model);
    free(m);
}

/* Of all when @scheduler is NULL. */
static void remove_from(struct component *c, const struct scheduler *scheduler)
{
    LIST_FOREACH (m, &c->models, struct served, link)
        if (!scheduler || m->scheduler == scheduler)
            served_free(m);
    refresh(c);
    if (list_empty(&c->models))
        component_free(c);
}

void index_server_remove(struct index_server *s, const struct scheduler *scheduler)
{
    LIST_FOREACH (c, &s->components, struct component, link)
        remove_from(c, scheduler);
}

void index_server_refresh(struct index_server *s)
{
    LIST_FOREACH (c, &s->components, struct component, link)
        refresh(c);
}

/* --- life ------------------------------------------------------------------------------------- */

struct index_server *index_server_new(const struct index_server_conf *conf)
{
    const struct metric_desc d = {.name = "commutator_router_index_requests_total",
                                  .help = "What other routers asked this one's index, and wrote",
                                  .type = METRIC_COUNTER,
                                  .labels = {"kind", "outcome"}};
    struct index_server *s = xcalloc(1, sizeof(*s));
    struct metric_family *f = metric_family(conf->metrics, &d);

    s->conf = *conf;
    list_init(&s->components);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        s->answered[kind] = metric_with(f, KIND_WORDS[kind], "answered");
        s->refused[kind] = metric_with(f, KIND_WORDS[kind], "refused");
    }
    return s;
}

struct index_server *index_server_free(struct index_server *s)
{
    if (!s)
        return NULL;
    LIST_FOREACH (c, &s->components, struct component, link)
        remove_from(c, NULL);
    indexer_reader_done(&s->reader);
    prompt_matches_done(&s->found);
    free(s->hits);
    free(s);
    return NULL;
}
