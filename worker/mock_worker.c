/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mock_worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/arena.h"
#include "lib/base/json_put.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "router/wire/engine_output.h"
#include "router/wire/engine_request.h"
#include "router/wire/plane_server.h"
#include "worker/event_publisher.h"
#include "worker/event_ring.h"
#include "worker/worker_metrics.h"

static const struct log_target LG = {"dynamo_mocker"};

enum {
    PASSES_PER_TURN = 8, /* then the loop has its turn */
    RECORDS_MAX = 5,
};
#define QUERY_ENDPOINT "worker_kv_indexer_query"

struct rank {
    struct mock_worker *worker;
    struct engine *engine;
    struct event_ring *ring;
    uint32_t dp_rank;
    size_t told_active; /* blocks, in the last load message */
};

struct job {
    struct list link;
    struct rank *rank;
    struct plane_request *request;
    struct engine_seq *seq;
    uint64_t start_ns;
};

struct mock_worker {
    struct mock_worker_conf conf;
    struct model_card *card;
    struct store *store;
    uint64_t id;
    struct rank *ranks;
    struct event_publisher *publisher;
    struct timer *timer; /* the next pass of any rank */
    struct list jobs;
    size_t n_jobs;
    uint32_t next_rank;
    bool registered;
    struct record records[RECORDS_MAX];
    size_t n_records;
    struct buf text[RECORDS_MAX]; /* what the records point to */
    struct endpoint_metrics metrics;
    struct cache_metrics cache_metrics;
    struct buf item, usage;
};

/* --- events ----------------------------------------------------------------------------------- */

static void on_cache_event(void *arg, const struct cache_event *ev)
{
    struct rank *rk = arg;
    struct kv_event out = {
        .worker_id = rk->worker->id,
        .event_id = ev->id,
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
    event_publisher_kv(rk->worker->publisher, &out);
}

static void tell_load(struct rank *rk)
{
    size_t active = engine_load(rk->engine).active_blocks;
    const struct active_load load = {.worker_id = rk->worker->id,
                                     .dp_rank = rk->dp_rank,
                                     .active_decode_blocks = OPT_U64(active)};

    if (active == rk->told_active)
        return;
    rk->told_active = active;
    event_publisher_load(rk->worker->publisher, &load);
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

static void job_end(struct job *j)
{
    struct mock_worker *w = j->rank->worker;

    metric_observe(w->metrics.duration, (double)(clock_now_ns() - j->start_ns) / 1e9);
    metric_add(w->metrics.inflight, -1);
    list_remove(&j->link);
    w->n_jobs--;
    free(j);
    if (w->conf.ended)
        w->conf.ended(w->conf.arg);
}

static void on_cancelled(void *arg)
{
    struct job *j = arg;

    j->seq = engine_cancel(j->rank->engine, j->seq);
    plane_request_abort(j->request);
    job_end(j);
}

static struct str usage_of(struct mock_worker *w, const struct engine_item *item)
{
    buf_clear(&w->usage);
    buf_printf(&w->usage,
               "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
               "\"prompt_tokens_details\":{\"audio_tokens\":null,\"cached_tokens\":%zu}}",
               item->n_prompt, item->n_output, item->n_prompt + item->n_output, item->n_cached);
    return buf_str(&w->usage);
}

static void on_item(void *arg, const struct engine_item *item)
{
    struct mock_worker *w = ((struct rank *)arg)->worker;
    struct job *j = item->owner;
    struct engine_output out = {.token_ids = &item->token, .n_token_ids = item->has_token};

    if (item->finish != ENGINE_RUNS) {
        out.finish = item->finish == ENGINE_EOS ? FINISH_EOS : FINISH_LENGTH;
        out.completion_usage_json = usage_of(w, item);
    }
    buf_clear(&w->item);
    engine_output_put(&w->item, &out);
    metric_add(w->metrics.response_bytes, (double)w->item.len);
    plane_request_item(j->request, buf_str(&w->item));
    if (item->finish == ENGINE_RUNS)
        return;
    plane_request_finish(j->request);
    job_end(j);
}

static void refuse(struct mock_worker *w, struct plane_request *rq, enum worker_error kind,
                   const struct err *e)
{
    metric_add(w->metrics.errors[kind], 1);
    plane_request_refuse(rq, str_from(e->text));
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
    if (rq->stop.max_tokens.set)
        left = MIN(left, MAX(rq->stop.max_tokens.v, 1u));
    *ret = (uint32_t)MIN(left, UINT32_MAX);
    return 0;
}

static int submit(struct mock_worker *w, const struct engine_request *rq, struct job *j,
                  struct err *e)
{
    struct engine_job job = {
        .tokens = rq->token_ids,
        .n_tokens = rq->n_token_ids,
        .min_tokens = (uint32_t)MIN(rq->stop.min_tokens.v, UINT32_MAX),
        .ignore_eos = rq->stop.ignore_eos.v,
        .has_eos = rq->n_eos_token_ids > 0,
        .eos_id = rq->n_eos_token_ids > 0 ? rq->eos_token_ids[0] : 0,
        .owner = j,
    };
    int r = choose_rank(w, rq, &j->rank, e);

    if (r == 0)
        r = output_limit(w, rq, &job.max_tokens, e);
    return r < 0 ? r : engine_submit(j->rank->engine, &job, &j->seq, e);
}

static void on_generate(void *arg, struct plane_request *request)
{
    static const struct plane_request_handlers handlers = {.cancelled = on_cancelled};
    struct mock_worker *w = arg;
    AUTO(arena_free) struct arena *a = arena_new();
    struct str body = plane_request_body(request);
    struct engine_request rq;
    struct job *j;
    struct err e;

    metric_add(w->metrics.requests, 1);
    metric_add(w->metrics.request_bytes, (double)body.len);
    if (engine_request_parse(a, body, &rq, &e) < 0) {
        refuse(w, request, WORKER_ERROR_DESERIALIZATION, &e);
        return;
    }
    j = xcalloc(1, sizeof(*j));
    j->request = request;
    j->start_ns = clock_now_ns();
    if (submit(w, &rq, j, &e) < 0) {
        free(j);
        refuse(w, request, WORKER_ERROR_GENERATE, &e);
        return;
    }
    list_append(&w->jobs, &j->link);
    w->n_jobs++;
    metric_add(w->metrics.inflight, 1);
    plane_request_set_handlers(request, &handlers, j);
    plane_request_start(request);
    arm(w);
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

    buf_put_cstr(out, "{\"TreeDump\":[");
    for (d.dp_rank = 0; d.dp_rank < w->conf.dp_size; d.dp_rank++)
        if (!q->dp_rank.set || q->dp_rank.v == d.dp_rank)
            engine_each_block(w->ranks[d.dp_rank].engine, dump_block, &d);
    buf_put_cstr(out, "]}");
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
    if (q.worker_id != w->id || rank >= w->conf.dp_size)
        buf_put_cstr(&out, "{\"Error\":\"no such worker or rank here\"}");
    else if ((w->conf.dp_size > 1 && !q.dp_rank.set) ||
             event_ring_answer(w->ranks[rank].ring, &q, &out) == EVENT_RING_DUMP)
        put_dump(w, &q, &out);
    plane_request_start(request);
    plane_request_item_raw(request, buf_str(&out));
    plane_request_finish(request);
}

/* --- records ---------------------------------------------------------------------------------- */

static struct buf *add_record(struct mock_worker *w, enum record_kind kind)
{
    w->records[w->n_records] = (struct record){.kind = kind,
                                               .ns = str_from(w->conf.ns),
                                               .component = str_from(w->conf.component),
                                               .instance_id = w->id};
    return &w->text[w->n_records++];
}

static void add_endpoint(struct mock_worker *w, const char *endpoint)
{
    struct buf *text = add_record(w, RECORD_ENDPOINT);
    struct record *rec = &w->records[w->n_records - 1];

    buf_printf(text, "%s/%" PRIx64 "/%s", plane_server_address(w->conf.plane), w->id, endpoint);
    rec->endpoint = str_from(endpoint);
    rec->transport = TRANSPORT_TCP;
    rec->address = buf_str(text);
}

static void add_channel(struct mock_worker *w, const char *component, const char *topic)
{
    struct buf *text = add_record(w, RECORD_EVENT_CHANNEL);
    struct record *rec = &w->records[w->n_records - 1];

    event_subject_put(text, w->conf.ns, component, NULL, NULL);
    rec->component = str_from(component);
    rec->topic = str_from(topic);
    rec->transport = TRANSPORT_NATS;
    rec->address = buf_str(text);
}

static void add_card(struct mock_worker *w)
{
    struct buf *text = add_record(w, RECORD_MODEL);
    struct record *rec = &w->records[w->n_records - 1];

    model_card_put(text, w->card);
    rec->endpoint = str_from(w->conf.endpoint);
    rec->card_json = buf_str(text);
}

static void describe(struct mock_worker *w)
{
    add_endpoint(w, w->conf.endpoint);
    if (w->conf.local_indexer)
        add_endpoint(w, QUERY_ENDPOINT);
    if (w->conf.nats) {
        add_channel(w, w->conf.component, TOPIC_KV_EVENTS);
        add_channel(w, NULL, TOPIC_KV_METRICS);
    }
    add_card(w);
}

static void serve(struct mock_worker *w, const char *endpoint, plane_serve_fn fn)
{
    AUTO(mem_free) char *path = xasprintf("%" PRIx64 "/%s", w->id, endpoint);

    if (fn)
        plane_server_register(w->conf.plane, path, fn, w);
    else
        plane_server_unregister(w->conf.plane, path);
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
    serve(w, w->conf.endpoint, on_generate);
    if (w->conf.local_indexer)
        serve(w, QUERY_ENDPOINT, on_query);
    w->registered = true;
    for (size_t i = 0; i < w->n_records; i++) {
        int r = store_publish(w->store, &w->records[i], e);

        if (r < 0)
            return err_wrap(e, r, "worker %" PRIx64 ": publish", w->id);
    }
    log_info(&LG, "worker registered", LOG_U64("worker_id", w->id),
             LOG_VIEW("address", w->records[0].address));
    return 0;
}

void mock_worker_unregister(struct mock_worker *w)
{
    if (!w->registered)
        return;
    w->registered = false;
    serve(w, w->conf.endpoint, NULL);
    serve(w, QUERY_ENDPOINT, NULL);
    for (size_t i = 0; i < w->n_records; i++)
        store_withdraw(w->store, &w->records[i]);
}

/* --- life ------------------------------------------------------------------------------------- */

static int add_rank(struct mock_worker *w, uint32_t i, struct err *e)
{
    struct rank *rk = &w->ranks[i];
    const struct engine_sink sink = {.item = on_item, .event = on_cache_event, .arg = rk};

    rk->worker = w;
    rk->dp_rank = i;
    if (w->conf.local_indexer)
        rk->ring = event_ring_new();
    return engine_new(&rk->engine, &w->conf.engine, w->conf.seed + i, &sink, e);
}

int mock_worker_new(struct mock_worker **ret, const struct mock_worker_conf *conf, struct err *e)
{
    AUTO(mock_worker_free) struct mock_worker *w = xcalloc(1, sizeof(*w));
    char id[24];

    w->conf = *conf;
    w->store = conf->take_store;
    w->store->published = on_published;
    w->store->published_arg = w;
    w->id = w->store->instance_id;
    w->card = model_card_ref(conf->card);
    list_init(&w->jobs);
    w->timer = timer_new(conf->loop, on_timer, w);
    w->publisher = event_publisher_new(conf->nats, conf->ns, conf->component, w->id);
    w->ranks = xcalloc(conf->dp_size, sizeof(*w->ranks));
    for (uint32_t i = 0; i < conf->dp_size; i++) {
        int r = add_rank(w, i, e);

        if (r < 0)
            return r;
    }
    (void)snprintf(id, sizeof(id), "%" PRIu64, w->id);
    w->metrics = endpoint_metrics_of(conf->metrics, conf->ns, conf->component, conf->endpoint,
                                     w->card->display_name);
    w->cache_metrics =
        cache_metrics_of(conf->metrics, conf->ns, conf->component, w->card->display_name, id);
    describe(w);
    *ret = TAKE(w);
    return 0;
}

struct mock_worker *mock_worker_free(struct mock_worker *w)
{
    if (!w)
        return NULL;
    mock_worker_unregister(w);
    LIST_FOREACH (j, &w->jobs, struct job, link) {
        plane_request_abort(j->request);
        job_end(j);
    }
    for (size_t i = 0; w->ranks && i < w->conf.dp_size; i++) {
        engine_free(w->ranks[i].engine);
        event_ring_free(w->ranks[i].ring);
    }
    free(w->ranks);
    timer_free(w->timer);
    event_publisher_free(w->publisher);
    store_free(w->store);
    model_card_unref(w->card);
    for (size_t i = 0; i < RECORDS_MAX; i++)
        buf_done(&w->text[i]);
    buf_done(&w->item);
    buf_done(&w->usage);
    free(w);
    return NULL;
}

bool mock_worker_is_registered(const struct mock_worker *w)
{
    return w->registered;
}

size_t mock_worker_running(const struct mock_worker *w)
{
    return w->n_jobs;
}

uint64_t mock_worker_id(const struct mock_worker *w)
{
    return w->id;
}

void mock_worker_measure(struct mock_worker *w)
{
    const struct cache_metrics *m = &w->cache_metrics;
    struct engine_load sum = {.active_blocks = 0};

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
    metric_set(m->events, (double)event_publisher_sent(w->publisher));
    metric_set(m->events_dropped, (double)event_publisher_dropped(w->publisher));
}

void mock_worker_put_records(struct mock_worker *w, enum record_kind kind, struct json_put *j)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    for (size_t i = 0; w->registered && i < w->n_records; i++) {
        if (w->records[i].kind != kind)
            continue;
        buf_clear(&text);
        record_key_put(&text, &w->records[i]);
        json_put_key_str(j, buf_str(&text));
        buf_clear(&text);
        record_put(&text, &w->records[i], false);
        json_put_raw(j, buf_str(&text));
    }
}
