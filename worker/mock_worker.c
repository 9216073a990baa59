/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mock_worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/arena.h"
#include "lib/base/json_pull.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "router/wire/event_bus.h"
#include "router/wire/plane_server.h"
#include "worker/bootstrap.h"
#include "worker/engine_publisher.h"
#include "router/sync/event_publisher.h"
#include "router/sync/event_ring.h"
#include "worker/worker_metrics.h"
#include "router/discovery/worker_records.h"

static const struct log_target LG = {"dynamo_mocker"};

enum {
    PASSES_PER_TURN = 8, /* then the loop has its turn */
};
#define QUERY_ENDPOINT "worker_kv_indexer_query"          /* of all ranks */
#define SOURCE_ENDPOINT "worker_kv_query_source_%" PRIx64 /* since 1.4: of one publisher */

struct rank {
    struct mock_worker *worker;
    struct engine *engine;
    struct event_ring *ring;
    struct engine_publisher *publisher; /* NULL: not on the wire of engines */
    struct event_publisher *told_by;    /* of this rank (1.x) or of the worker */
    char *query_endpoint;               /* likewise */
    uint32_t dp_rank;
    size_t told_active; /* blocks, in the last load message */
};

struct mock_job {
    struct list link;
    struct rank *rank;
    const struct mock_answer *answer;
    void *arg;
    struct arena *arena; /* of @asked */
    struct engine_request asked;
    struct bootstrap_fetch *fetch; /* while the prompt is on its way */
    struct engine_seq *seq;
    uint64_t start_ns;
};

struct mock_worker {
    struct mock_worker_conf conf;
    struct model_card *card;
    struct store *store;
    uint64_t id;
    struct rank *ranks;
    struct event_publisher **publishers;
    uint32_t n_publishers; /* one, or one of each rank: 1.x tells ranks apart by that */
    struct bootstrap_server *bootstrap;
    struct timer *timer; /* the next pass of any rank */
    struct list jobs;
    size_t n_jobs;
    uint32_t next_rank;
    bool registered;
    struct worker_records records;
    struct endpoint_metrics metrics;
    struct cache_metrics cache_metrics;
    struct buf item, usage;
};

/* --- events ----------------------------------------------------------------------------------- */

/* Routers of 1.x count from 1: 0 is "nothing yet". */
static uint64_t first_event(const struct mock_worker *w)
{
    return w->conf.to_endpoint ? 1 : 0;
}

static uint64_t publisher_id(const struct mock_worker *w, uint32_t i)
{
    return w->id + i;
}

static void on_cache_event(void *arg, const struct cache_event *ev)
{
    struct rank *rk = arg;
    struct kv_event out = {
        .worker_id = rk->worker->id,
        .event_id = first_event(rk->worker) + ev->id,
        .dp_rank = rk->dp_rank,
        .kind = ev->kind == CACHE_STORED ? KV_STORED : KV_REMOVED,
        .tier = KV_TIER_DEVICE,
        .parent_hash = {ev->has_parent, ev->parent},
        .n_blocks = ev->n_blocks,
        .removed = ev->removed,
        .n_removed = ev->n_removed,
    };
    AUTO(mem_free) struct kv_block *blocks = NULL;

    if (ev->n_blocks > 0) {
        blocks = xcalloc(ev->n_blocks, sizeof(*blocks));
        for (size_t i = 0; i < ev->n_blocks; i++)
            blocks[i] = (struct kv_block){ev->blocks[i].hash, ev->blocks[i].tokens_hash};
        out.blocks = blocks;
    }
    if (rk->ring)
        event_ring_push(rk->ring, &out);
    event_publisher_kv(rk->told_by, &out);
    if (rk->publisher)
        engine_publisher_send(rk->publisher, ev);
}

static void send_load(struct rank *rk, size_t active)
{
    struct active_load load = {.worker_id = rk->worker->id, .dp_rank = rk->dp_rank};

    if (rk->worker->conf.to_endpoint)
        load.kv_used_blocks = OPT_U64(active);
    else
        load.active_decode_blocks = OPT_U64(active);
    rk->told_active = active;
    event_publisher_load(rk->told_by, &load);
}

static void tell_load(struct rank *rk)
{
    size_t active = engine_load(rk->engine).active_blocks;

    if (active != rk->told_active)
        send_load(rk, active);
}

/*
 * What was told while there was no connection is lost. The newest event once more shows routers by
 * its number that they missed some; who has it already ignores it.
 */
static void tell_again(struct rank *rk)
{
    const struct kv_event *newest = rk->ring ? event_ring_newest(rk->ring) : NULL;

    if (newest)
        event_publisher_kv(rk->told_by, newest);
    send_load(rk, engine_load(rk->engine).active_blocks);
}

/* --- passes ----------------------------------------------------------------------------------- */

static uint64_t next_deadline(const struct mock_worker *w)
{
    uint64_t at = ENGINE_NEVER;

    for (size_t i = 0; i < w->conf.dp_size; i++)
        at = MIN(at, engine_deadline(w->ranks[i].engine));
    return at;
}

/* The loop counts in milliseconds; engines make up for what a timer is late. */
static void arm(struct mock_worker *w)
{
    uint64_t at = next_deadline(w), now = clock_now_ns();

    if (at == ENGINE_NEVER)
        timer_stop(w->timer);
    else
        timer_start(w->timer, at > now ? (at - now + 999999) / 1000000 : 0);
}

static void on_timer(void *arg)
{
    struct mock_worker *w = arg;

    for (size_t i = 0; i < w->conf.dp_size; i++) {
        struct engine *en = w->ranks[i].engine;

        for (int n = 0; n < PASSES_PER_TURN && engine_deadline(en) <= clock_now_ns(); n++)
            engine_step(en, clock_now_ns());
        tell_load(&w->ranks[i]);
    }
    arm(w);
}

/* --- jobs ------------------------------------------------------------------------------------- */

static void job_end(struct mock_job *j)
{
    struct mock_worker *w = j->rank->worker;

    call_over(&w->metrics.calls, clock_now_ns() - j->start_ns);
    list_remove(&j->link);
    w->n_jobs--;
    bootstrap_fetch_cancel(j->fetch);
    arena_free(j->arena);
    free(j);
    if (w->conf.ended)
        w->conf.ended(w->conf.arg);
}

struct mock_job *mock_job_cancel(struct mock_job *j)
{
    struct rank *rk;

    if (!j)
        return NULL;
    rk = j->rank;
    metric_add(rk->worker->metrics.calls.cancelled, 1);
    j->seq = engine_cancel(rk->engine, j->seq);
    job_end(j);
    tell_load(rk); /* the pass that it was in may have long to go */
    return NULL;
}

/* What the prefill worker had cached, when it said so; else what was cached here. */
static struct str prompt_details(const struct mock_job *j, const struct engine_item *item,
                                 struct buf *b)
{
    struct str details = json_pull_member(j->asked.prefill_result_json, "prompt_tokens_details");

    if (details.len && details.ptr[0] == '{')
        return details;
    buf_printf(b, "{\"audio_tokens\":null,\"cached_tokens\":%zu}", item->n_cached);
    return buf_str(b);
}

static struct str usage_of(struct mock_worker *w, const struct mock_job *j,
                           const struct engine_item *item)
{
    AUTO(buf_done) struct buf local = BUF_NULL;
    struct str details = prompt_details(j, item, &local);

    buf_clear(&w->usage);
    buf_printf(&w->usage,
               "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
               "\"prompt_tokens_details\":%.*s}",
               item->n_prompt, item->n_output, item->n_prompt + item->n_output, STR_ARG(details));
    return buf_str(&w->usage);
}

static void on_item(void *arg, const struct engine_item *item)
{
    struct mock_worker *w = ((struct rank *)arg)->worker;
    struct mock_job *j = item->owner;
    struct engine_output out = {.token_ids = &item->token, .n_token_ids = item->has_token};

    if (w->card->is_prefill)
        out.disaggregated_params_json = STR("\"dummy\""); /* as the reference's mocker says */
    if (item->has_token)
        j->answer->item(j->arg, w, &out);
    if (item->finish == ENGINE_RUNS)
        return;
    /* The end has an item of its own, as there. */
    out.n_token_ids = 0;
    out.finish = item->finish == ENGINE_EOS ? FINISH_EOS : FINISH_LENGTH;
    out.completion_usage_json = usage_of(w, j, item);
    j->answer->item(j->arg, w, &out);
    if (w->bootstrap && j->asked.has_bootstrap)
        bootstrap_server_ready(w->bootstrap, j->asked.bootstrap.room);
    j->answer->finished(j->arg);
    job_end(j);
}

static int choose_rank(struct mock_worker *w, const struct engine_request *rq, struct rank **ret,
                       struct err *e)
{
    uint64_t i = w->next_rank;

    if (rq->has_routing && rq->routing.dp_rank.set)
        i = rq->routing.dp_rank.v;
    else
        w->next_rank = (w->next_rank + 1) % w->conf.dp_size;
    if (i >= w->conf.dp_size)
        return err_set(e, -EINVAL, "dp_rank %" PRIu64 " is not below data_parallel_size %" PRIu32,
                       i, w->conf.dp_size);
    *ret = &w->ranks[i];
    return 0;
}

/* As a real engine does it: what is not asked for is bounded by the context. */
static int output_limit(const struct mock_worker *w, const struct engine_request *rq, uint32_t *ret,
                        struct err *e)
{
    uint64_t context = w->card->context_length, left;

    if (context == 0)
        context = (uint64_t)w->conf.engine.n_blocks * w->conf.engine.block_size;
    if (rq->n_token_ids >= context)
        return err_set(e, -E2BIG, "prompt of %zu tokens leaves no room in a context of %" PRIu64,
                       rq->n_token_ids, context);
    left = context - rq->n_token_ids;
    if (w->card->is_prefill)
        left = 1;
    else if (rq->stop.max_tokens.set)
        left = MIN(left, MAX(rq->stop.max_tokens.v, 1u));
    *ret = (uint32_t)MIN(left, UINT32_MAX);
    return 0;
}

static bool is_prefilled(const struct mock_worker *w, const struct engine_request *rq)
{
    return w->card->is_decode && (rq->has_bootstrap || rq->prefill_result_json.len);
}

static int submit(struct mock_worker *w, struct mock_job *j, struct err *e)
{
    const struct engine_request *rq = &j->asked;
    struct engine_job job = {
        .tokens = rq->token_ids,
        .n_tokens = rq->n_token_ids,
        .min_tokens = (uint32_t)MIN(rq->stop.min_tokens.v, UINT32_MAX),
        .ignore_eos = rq->stop.ignore_eos.v,
        .has_eos = rq->n_eos_token_ids > 0,
        .eos_id = rq->n_eos_token_ids > 0 ? rq->eos_token_ids[0] : 0,
        .prefilled = is_prefilled(w, rq),
        .owner = j,
    };
    int r = output_limit(w, rq, &job.max_tokens, e);

    return r < 0 ? r : engine_submit(j->rank->engine, &job, &j->seq, e);
}

static void on_fetched(void *arg, int error)
{
    struct mock_job *j = arg;
    struct mock_worker *w = j->rank->worker;
    struct err e;

    j->fetch = NULL;
    if (error < 0)
        (void)err_set(&e, error, "no KV blocks for room %" PRIu64 ": %s", j->asked.bootstrap.room,
                      strerror(-error));
    else if (submit(w, j, &e) == 0) {
        arm(w);
        return;
    }
    metric_add(w->metrics.errors[WORKER_ERROR_GENERATE], 1);
    j->answer->failed(j->arg, e.text);
    job_end(j);
}

/* To the engine, at once or when its prompt is there. */
static int begin(struct mock_worker *w, struct mock_job *j, struct err *e)
{
    const struct engine_bootstrap *at = &j->asked.bootstrap;
    AUTO(mem_free) char *host = NULL;
    int r = choose_rank(w, &j->asked, &j->rank, e);

    if (r < 0)
        return r;
    if (!w->card->is_decode || !j->asked.has_bootstrap)
        return submit(w, j, e);
    host = str_dup(at->host);
    r = bootstrap_fetch_start(&j->fetch, w->conf.loop, host, at->port, at->room, on_fetched, j, e);
    return r < 0 ? err_wrap(e, r, "bootstrap") : 0;
}

int mock_worker_submit(struct mock_worker *w, struct arena *take_arena,
                       const struct engine_request *rq, const struct mock_answer *answer, void *arg,
                       struct mock_job **ret, struct err *e)
{
    struct mock_job *j = xcalloc(1, sizeof(*j));
    int r;

    *j = (struct mock_job){.answer = answer,
                           .arg = arg,
                           .arena = take_arena,
                           .asked = *rq,
                           .start_ns = clock_now_ns()};
    r = begin(w, j, e);
    if (r < 0) {
        metric_add(w->metrics.errors[WORKER_ERROR_GENERATE], 1);
        arena_free(take_arena);
        free(j);
        return r;
    }
    list_append(&w->jobs, &j->link);
    w->n_jobs++;
    metric_add(w->metrics.calls.inflight, 1);
    arm(w);
    *ret = j;
    return 0;
}

/* --- the request plane ------------------------------------------------------------------------ */

/* A request that came by the plane, while its job runs. */
struct plane_job {
    struct plane_request *request;
    struct mock_job *job;
};

static void plane_item(void *arg, struct mock_worker *w, const struct engine_output *o)
{
    const struct plane_job *pj = arg;

    buf_clear(&w->item);
    engine_output_put(&w->item, o);
    call_answered(&w->metrics.calls, w->item.len);
    plane_request_item(pj->request, buf_str(&w->item));
}

static void plane_finished(void *arg)
{
    struct plane_job *pj = arg;

    plane_request_finish(pj->request);
    free(pj);
}

static void plane_failed(void *arg, const char *why)
{
    struct plane_job *pj = arg;

    plane_request_error(pj->request, str_from(why));
    plane_finished(pj);
}

static void plane_broken(void *arg)
{
    struct plane_job *pj = arg;

    plane_request_abort(pj->request);
    free(pj);
}

static void on_cancelled(void *arg)
{
    struct plane_job *pj = arg;

    pj->job = mock_job_cancel(pj->job);
    plane_broken(pj);
}

static void on_generate(void *arg, struct plane_request *request)
{
    static const struct plane_request_handlers handlers = {.cancelled = on_cancelled};
    static const struct mock_answer answer = {.item = plane_item,
                                              .finished = plane_finished,
                                              .failed = plane_failed,
                                              .broken = plane_broken};
    struct mock_worker *w = arg;
    struct arena *a = arena_new();
    struct str body = plane_request_body(request);
    struct engine_request rq;
    struct plane_job *pj;
    struct err e;

    metric_add(w->metrics.calls.requests, 1);
    metric_add(w->metrics.calls.request_bytes, (double)body.len);
    if (engine_request_parse(a, body, &rq, &e) < 0) {
        arena_free(a);
        metric_add(w->metrics.errors[WORKER_ERROR_DESERIALIZATION], 1);
        plane_request_refuse(request, str_from(e.text));
        return;
    }
    pj = xcalloc(1, sizeof(*pj));
    pj->request = request;
    if (mock_worker_submit(w, a, &rq, &answer, pj, &pj->job, &e) < 0) {
        free(pj);
        plane_request_refuse(request, str_from(e.text));
        return;
    }
    plane_request_set_handlers(request, &handlers, pj);
    plane_request_start(request);
}

/* --- recovery queries ------------------------------------------------------------------------- */

struct dump {
    struct buf *out;
    uint64_t worker_id, next_id;
    uint32_t dp_rank;
};

static void dump_block(void *arg, const struct cache_block *block, const uint64_t *parent)
{
    struct dump *d = arg;
    const struct kv_block b = {block->hash, block->tokens_hash};
    const struct kv_event ev = {.worker_id = d->worker_id,
                                .event_id = d->next_id,
                                .dp_rank = d->dp_rank,
                                .kind = KV_STORED,
                                .parent_hash = {parent != NULL, parent ? *parent : 0},
                                .blocks = &b,
                                .n_blocks = 1};

    if (d->next_id++ > 0)
        buf_put_char(d->out, ',');
    kv_event_put_json(d->out, &ev);
}

static void put_dump(const struct mock_worker *w, const struct kv_query *q, struct buf *out)
{
    struct dump d = {.out = out, .worker_id = w->id};
    bool newer = w->conf.to_endpoint;

    kv_events_begin_put("TreeDump", out, newer);
    for (d.dp_rank = 0; d.dp_rank < w->conf.dp_size; d.dp_rank++)
        if (!q->dp_rank.set || q->dp_rank.v == d.dp_rank)
            engine_each_block(w->ranks[d.dp_rank].engine, dump_block, &d);
    kv_events_end_put(w->ranks[q->dp_rank.v].ring, out, newer);
}

/* Ids count per rank, so a range means something only for one; 0.9.0 does not say which. */
static void on_query(void *arg, struct plane_request *request)
{
    struct mock_worker *w = arg;
    AUTO(buf_done) struct buf out = BUF_NULL;
    uint64_t rank;
    struct kv_query q;
    struct err e;

    if (kv_query_parse(plane_request_body(request), &q, &e) < 0) {
        plane_request_refuse(request, str_from(e.text));
        return;
    }
    rank = q.dp_rank.set ? q.dp_rank.v : 0;
    if (q.worker_id != w->id || rank >= w->conf.dp_size || (w->conf.to_endpoint && !q.dp_rank.set))
        buf_put_cstr(&out, "{\"Error\":\"no such worker or rank here\"}");
    else if ((w->conf.dp_size > 1 && !q.dp_rank.set) ||
             event_ring_answer(w->ranks[rank].ring, &q, w->conf.to_endpoint, &out) ==
                 EVENT_RING_DUMP)
        put_dump(w, &q, &out);
    plane_request_start(request);
    plane_request_item_raw(request, buf_str(&out));
    plane_request_finish(request);
}

/* --- records ---------------------------------------------------------------------------------- */

static void describe(struct mock_worker *w)
{
    struct event_channel_info ch;
    struct worker_records *r = &w->records;

    r->plane = w->conf.plane;
    r->ns = w->conf.ns;
    r->component = w->conf.component;
    r->endpoint = w->conf.endpoint;
    r->worker_id = w->id;
    worker_records_add_endpoint(r, w->conf.endpoint);
    for (uint32_t i = 0; i < w->n_publishers; i++) {
        if (w->conf.local_indexer)
            worker_records_add_endpoint(r, w->ranks[i].query_endpoint);
        if (w->conf.local_indexer && w->conf.to_endpoint)
            worker_records_add_source(r, i, publisher_id(w, i));
        for (size_t k = 0; event_publisher_channel(w->publishers[i], k, &ch); k++)
            worker_records_add_channel(r, &ch);
    }
    worker_records_add_card(r, w->card);
}

static void serve(struct mock_worker *w, const char *endpoint, plane_serve_fn fn)
{
    const struct plane_endpoint ep = {w->conf.ns, w->conf.component, endpoint, w->id, false};

    if (fn)
        plane_server_register(w->conf.plane, &ep, fn, w);
    else
        plane_server_unregister(w->conf.plane, &ep);
}

static void serve_all(struct mock_worker *w, bool on)
{
    serve(w, w->conf.endpoint, on ? on_generate : NULL);
    for (uint32_t i = 0; w->conf.local_indexer && i < w->n_publishers; i++)
        serve(w, w->ranks[i].query_endpoint, on ? on_query : NULL);
}

static void on_published(void *arg, int r, const char *why)
{
    struct mock_worker *w = arg;

    if (r < 0)
        log_warn(&LG, "discovery record not written, trying again", LOG_U64("worker_id", w->id),
                 LOG_STR("why", why));
}

int mock_worker_register(struct mock_worker *w, struct err *e)
{
    int r = worker_records_publish(&w->records, w->store, e);

    w->registered = true;
    if (r < 0)
        return r;
    log_info(&LG, "worker registered", LOG_U64("worker_id", w->id),
             LOG_VIEW("address", worker_records_address(&w->records)));
    return 0;
}

void mock_worker_unregister(struct mock_worker *w)
{
    if (w->records.n > 0)
        serve_all(w, false);
    if (!w->registered)
        return;
    w->registered = false;
    worker_records_withdraw(&w->records, w->store);
}

/* --- life ------------------------------------------------------------------------------------- */

static int open_publisher(struct rank *rk, struct err *e)
{
    const struct mock_worker_conf *c = &rk->worker->conf;
    struct engine_publisher_conf conf = {.zmq = c->zmq,
                                         .port = (uint16_t)(c->engine_port + rk->dp_rank),
                                         .block_size = c->engine.block_size,
                                         .dp_rank = rk->dp_rank};

    if (!c->engine_port)
        return 0;
    if (c->engine_replay_port)
        conf.replay_port = (uint16_t)(c->engine_replay_port + rk->dp_rank);
    return engine_publisher_new(&rk->publisher, &conf, e);
}

static int add_publisher(struct mock_worker *w, uint32_t i, struct err *e)
{
    const struct mock_worker_conf *c = &w->conf;
    const struct event_publisher_conf conf = {
        .bus = c->bus,
        .ns = c->ns,
        .component = c->component,
        .endpoint = c->to_endpoint ? c->endpoint : NULL,
        .worker_id = publisher_id(w, i),
        .kv = !w->card->is_decode,
        .loop = c->loop,
        .stream_nats = c->stream_nats,
        .stream_max_age_s = c->stream_max_age_s,
    };

    return event_publisher_new(&w->publishers[i], &conf, e);
}

static int add_rank(struct mock_worker *w, uint32_t i, struct err *e)
{
    struct rank *rk = &w->ranks[i];
    const struct engine_sink sink = {
        .item = on_item, .event = w->card->is_decode ? NULL : on_cache_event, .arg = rk};
    int r;

    rk->worker = w;
    rk->dp_rank = i;
    rk->told_by = w->publishers[i % w->n_publishers];
    rk->query_endpoint = w->conf.to_endpoint ? xasprintf(SOURCE_ENDPOINT, publisher_id(w, i))
                                             : xstrdup(QUERY_ENDPOINT);
    if (w->conf.local_indexer)
        rk->ring = event_ring_new();
    r = open_publisher(rk, e);
    return r < 0 ? r : engine_new(&rk->engine, &w->conf.engine, w->conf.seed + i, &sink, e);
}

int mock_worker_new(struct mock_worker **ret, const struct mock_worker_conf *conf, struct err *e)
{
    AUTO(mock_worker_free) struct mock_worker *w = xcalloc(1, sizeof(*w));
    char id[24];
    int r = 0;

    w->conf = *conf;
    w->store = conf->take_store;
    w->bootstrap = conf->take_bootstrap;
    w->store->published = on_published;
    w->store->published_arg = w;
    w->id = w->store->instance_id;
    w->card = model_card_ref(conf->card);
    list_init(&w->jobs);
    w->timer = timer_new(conf->loop, on_timer, w);
    w->n_publishers = conf->to_endpoint ? conf->dp_size : 1;
    w->publishers = xcalloc(w->n_publishers, sizeof(struct event_publisher *));
    w->ranks = xcalloc(conf->dp_size, sizeof(*w->ranks));
    for (uint32_t i = 0; i < w->n_publishers && r == 0; i++)
        r = add_publisher(w, i, e);
    for (uint32_t i = 0; i < conf->dp_size && r == 0; i++)
        r = add_rank(w, i, e);
    if (r < 0)
        return r;
    (void)snprintf(id, sizeof(id), "%" PRIu64, w->id);
    w->metrics = endpoint_metrics_of(conf->metrics, conf->ns, conf->component, conf->endpoint,
                                     w->card->display_name);
    w->cache_metrics =
        cache_metrics_of(conf->metrics, conf->ns, conf->component, w->card->display_name, id);
    if (conf->plane) {
        describe(w);
        serve_all(w, true);
    }
    *ret = TAKE(w);
    return 0;
}

struct mock_worker *mock_worker_free(struct mock_worker *w)
{
    if (!w)
        return NULL;
    mock_worker_unregister(w);
    LIST_FOREACH (j, &w->jobs, struct mock_job, link) {
        j->answer->broken(j->arg);
        job_end(j);
    }
    for (size_t i = 0; w->ranks && i < w->conf.dp_size; i++) {
        engine_free(w->ranks[i].engine);
        event_ring_free(w->ranks[i].ring);
        engine_publisher_free(w->ranks[i].publisher);
        free(w->ranks[i].query_endpoint);
    }
    free(w->ranks);
    bootstrap_server_free(w->bootstrap);
    timer_free(w->timer);
    for (uint32_t i = 0; w->publishers && i < w->n_publishers; i++)
        event_publisher_free(w->publishers[i]);
    free(w->publishers);
    store_free(w->store);
    model_card_unref(w->card);
    worker_records_done(&w->records);
    buf_done(&w->item);
    buf_done(&w->usage);
    free(w);
    return NULL;
}

void mock_worker_link_up(struct mock_worker *w)
{
    for (uint32_t i = 0; i < w->n_publishers; i++)
        event_publisher_link_up(w->publishers[i]);
    for (size_t i = 0; i < w->conf.dp_size; i++)
        tell_again(&w->ranks[i]);
}

bool mock_worker_is_registered(const struct mock_worker *w)
{
    return w->registered;
}

size_t mock_worker_running(const struct mock_worker *w)
{
    return w->n_jobs;
}

struct engine_load mock_worker_load(const struct mock_worker *w, uint32_t rank)
{
    return engine_load(w->ranks[rank].engine);
}

uint64_t mock_worker_id(const struct mock_worker *w)
{
    return w->id;
}

void mock_worker_measure(struct mock_worker *w)
{
    const struct cache_metrics *m = &w->cache_metrics;
    struct engine_load sum = {.active_blocks = 0};
    uint64_t sent = 0, dropped = 0;

    for (size_t i = 0; i < w->conf.dp_size; i++) {
        struct engine_load one = engine_load(w->ranks[i].engine);

        sum.active_blocks += one.active_blocks;
        sum.total_blocks += one.total_blocks;
        sum.n_running += one.n_running;
        sum.n_waiting += one.n_waiting;
        sum.prompt_tokens += one.prompt_tokens;
        sum.cached_tokens += one.cached_tokens;
        sum.preemptions += one.preemptions;
    }
    metric_set(m->active_blocks, (double)sum.active_blocks);
    metric_set(m->total_blocks, (double)sum.total_blocks);
    metric_set(m->usage, (double)sum.active_blocks / (double)sum.total_blocks);
    metric_set(m->hit_rate,
               sum.prompt_tokens ? (double)sum.cached_tokens / (double)sum.prompt_tokens : 0);
    metric_set(m->waiting, (double)sum.n_waiting);
    metric_set(m->running, (double)sum.n_running);
    metric_set(m->preemptions, (double)sum.preemptions);
    for (uint32_t i = 0; i < w->n_publishers; i++) {
        sent += event_publisher_sent(w->publishers[i]);
        dropped += event_publisher_dropped(w->publishers[i]);
    }
    metric_set(m->events, (double)sent);
    metric_set(m->events_dropped, (double)dropped);
}

void mock_worker_put_records(struct mock_worker *w, enum record_kind kind, struct json_put *j)
{
    if (w->registered)
        worker_records_put(&w->records, kind, j);
}
