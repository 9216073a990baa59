/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/explain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/json_put.h"
#include "lib/base/strmap.h"
#include "lib/net/http_server.h"
#include "router/openai/api_error.h"
#include "router/frontend/client_ids.h"
#include "router/frontend/decision_log.h"
#include "router/frontend/frontend_conf.h"
#include "router/sched/decision_json.h"
#include "router/sched/decision_replay.h"
#include "router/sched/decision_ring.h"
#include "router/sched/route_spread.h"

enum {
    LIST_DEFAULT = 1000,
    LIST_MAX = 65536,
    LIST_BATCH = 16,  /* records printed in one turn of the loop, some 0.5 ms */
    ATTEMPTS_MAX = 16 /* decisions of one request that are shown */
};

/* A policy that is asked without effect. */
struct shadow {
    const struct policy *policy;
    struct metric *decisions, *agreements, *regret;
};

/* What is counted by model and worker type. */
struct scope {
    struct herd herd;
    struct metric *herd_index, *variation, *regret;
    const struct policy *policy; /* the one whose series `decisions` is */
    struct metric *decisions;
};

struct explain {
    struct loop *loop;
    struct decision_ring *ring;
    struct client_ids *names; /* of its requests */
    struct decision_log *file;
    struct shadow shadows[DECISION_SHADOWS_MAX];
    size_t n_shadows;
    struct strmap *scopes; /* "model type" -> struct scope */
    struct route_score *scratch;
    size_t cap_scratch;
    struct metric_family *shadow_decisions, *shadow_agreements, *shadow_regret;
    struct metric_family *policy_decisions, *herd_index, *variation, *regret;
    struct metric *file_dropped;
    uint64_t file_dropped_before;
};

/* --- metrics -----------------------------------------------------------------------------------
 */

static const char *const BY_POLICY[] = {"policy", NULL};
static const char *const BY_POOL[] = {"model", "worker_type", NULL};
static const char *const BY_BOTH[] = {"model", "worker_type", "policy", NULL};
static const char *const PLAIN[] = {NULL};

static struct metric_family *family(struct metric_registry *r, enum metric_type type,
                                    const char *name, const char *help, const char *const *labels)
{
    static const double ratios[] = {0,   .1, .2,  .3, .4, .5, .6, .8, 1,  1.25,
                                    1.5, 2,  2.5, 3,  4,  5,  6,  8,  12, 16};
    AUTO(mem_free) char *full = xasprintf("commutator_router_%s", name);
    struct metric_desc d = {.name = full, .help = help, .type = type};

    for (size_t i = 0; labels[i]; i++)
        d.labels[i] = labels[i];
    if (type == METRIC_HISTOGRAM) {
        d.buckets = ratios;
        d.n_buckets = ARRAY_LEN(ratios);
    }
    return metric_family(r, &d);
}

static void declare_metrics(struct explain *x, struct metric_registry *r)
{
    x->shadow_decisions = family(r, METRIC_COUNTER, "shadow_decisions_total",
                                 "Decisions that a shadow policy scored too", BY_POLICY);
    x->shadow_agreements =
        family(r, METRIC_COUNTER, "shadow_agreements_total",
               "Decisions in which it would have taken the same worker", BY_POLICY);
    x->shadow_regret =
        family(r, METRIC_COUNTER, "shadow_regret_total",
               "Its own scores of the workers chosen less those of its picks", BY_POLICY);
    x->policy_decisions =
        family(r, METRIC_COUNTER, "policy_decisions_total", "Decisions by policy", BY_BOTH);
    x->regret =
        family(r, METRIC_COUNTER, "regret_total",
               "Scores of the workers chosen less the lowest: what draws and pins cost", BY_POOL);
    x->herd_index =
        family(r, METRIC_HISTOGRAM, "herd_index",
               "Largest share of one worker in 100 ms over the expected share", BY_POOL);
    x->variation =
        family(r, METRIC_HISTOGRAM, "load_variation",
               "Standard deviation of requests in flight over their mean, at decisions", BY_POOL);
    x->file_dropped = metric_plain(family(r, METRIC_COUNTER, "decisions_dropped_total",
                                          "Decisions that the file did not take", PLAIN));
}

static void drop_scope(void *scope)
{
    herd_done(&((struct scope *)scope)->herd);
    free(scope);
}

static struct scope *scope_of(struct explain *x, const struct decision_record *rec)
{
    char key[DECISION_MODEL_SIZE + DECISION_TYPE_SIZE + 1];
    int n = snprintf(key, sizeof(key), "%s %s", rec->model, rec->worker_type);
    struct scope *scope = strmap_get(x->scopes, str_slice(key, (size_t)n));

    if (scope)
        return scope;
    scope = xcalloc(1, sizeof(*scope));
    scope->herd_index = metric_with(x->herd_index, rec->model, rec->worker_type);
    scope->variation = metric_with(x->variation, rec->model, rec->worker_type);
    scope->regret = metric_with(x->regret, rec->model, rec->worker_type);
    (void)strmap_set(x->scopes, str_slice(key, (size_t)n), scope);
    return scope;
}

static double lowest_score(const struct route_decision *d)
{
    double lowest = d->scores[0].logit;

    for (size_t i = 1; i < d->n_candidates; i++)
        lowest = fmin(lowest, d->scores[i].logit);
    return lowest;
}

static void measure(struct explain *x, const struct decision_record *rec,
                    const struct route_decision *d)
{
    struct scope *scope = scope_of(x, rec);
    double herd =
        herd_count(&scope->herd, rec->time_ms, d->candidates[d->chosen].slot, d->n_candidates);

    if (scope->policy != d->policy) {
        scope->policy = d->policy;
        scope->decisions =
            metric_with(x->policy_decisions, rec->model, rec->worker_type, d->policy->name);
    }
    metric_add(scope->decisions, 1);
    if (!isnan(herd))
        metric_observe(scope->herd_index, herd);
    metric_observe(scope->variation, load_variation(d->candidates, d->n_candidates));
    metric_add(scope->regret, d->scores[d->chosen].logit - lowest_score(d));
}

/* --- shadows -----------------------------------------------------------------------------------
 */

void explain_shadow(struct explain *x, uint64_t shadows)
{
    x->n_shadows = 0;
    for (size_t i = 0; ROUTE_SHADOW_WORDS[i] && x->n_shadows < ARRAY_LEN(x->shadows); i++) {
        const char *name = ROUTE_SHADOW_WORDS[i];

        if (shadows >> i & 1)
            x->shadows[x->n_shadows++] =
                (struct shadow){.policy = policy_find(str_from(name)),
                                .decisions = metric_with(x->shadow_decisions, name),
                                .agreements = metric_with(x->shadow_agreements, name),
                                .regret = metric_with(x->shadow_regret, name)};
    }
}

static void ask_shadows(struct explain *x, struct decision_record *rec,
                        const struct route_decision *d)
{
    if (x->n_shadows && d->n_candidates > x->cap_scratch) {
        x->cap_scratch = d->n_candidates * 2;
        x->scratch = xreallocarray(x->scratch, x->cap_scratch, sizeof(*x->scratch));
    }
    for (size_t i = 0; i < x->n_shadows; i++) {
        const struct shadow *s = &x->shadows[i];
        const struct decision_shadow *made = decision_shadow(rec, d, s->policy, x->scratch);

        if (!made)
            continue;
        metric_add(s->decisions, 1);
        if (worker_rank_eq(made->pick, d->candidates[d->chosen].worker))
            metric_add(s->agreements, 1);
        /* Below 0 where its own pick is a draw. */
        metric_add(s->regret, fmax(0, made->chosen_logit - made->pick_logit));
    }
}

/* --- remembering -------------------------------------------------------------------------------
 */

/* Each record is written once: when it has ended, or is about to be overwritten. */
static void write_record(struct explain *x, uint64_t seq)
{
    AUTO(buf_done) struct buf line = BUF_NULL;
    uint64_t dropped;

    if (!x->file)
        return;
    decision_record_put_json(&line, decision_ring_at(x->ring, seq));
    decision_log_put(x->file, buf_str(&line));
    dropped = decision_log_dropped(x->file);
    metric_add(x->file_dropped, (double)(dropped - x->file_dropped_before));
    x->file_dropped_before = dropped;
}

static void write_unfinished(struct explain *x, uint64_t seq)
{
    const struct decision_outcome *outcome = decision_ring_outcome(x->ring, seq);

    if (outcome && outcome->ended == DECISION_RUNNING)
        write_record(x, seq);
}

struct explain_conf explain_conf_of(const struct frontend_conf *c, struct loop *l,
                                    struct metric_registry *metrics)
{
    return (struct explain_conf){.loop = l,
                                 .records = c->decision_records,
                                 .file = c->record_file,
                                 .file_bytes = c->record_mb << 20,
                                 .shadows = c->route.shadows,
                                 .metrics = metrics};
}

int explain_new(struct explain **ret, const struct explain_conf *conf, struct err *e)
{
    AUTO(explain_free) struct explain *x = xcalloc(1, sizeof(*x));
    int r = 0;

    x->loop = conf->loop;
    x->ring = decision_ring_new(conf->records);
    x->names = client_ids_new(conf->records);
    x->scopes = strmap_new();
    declare_metrics(x, conf->metrics);
    explain_shadow(x, conf->shadows);
    if (conf->file)
        r = decision_log_open(&x->file, conf->loop, conf->file, conf->file_bytes, e);
    if (r < 0)
        return r;
    *ret = TAKE(x);
    return 0;
}

struct explain *explain_free(struct explain *x)
{
    if (!x)
        return NULL;
    if (x->file)
        for (uint64_t seq = decision_ring_first(x->ring); seq < decision_ring_next(x->ring); seq++)
            write_unfinished(x, seq);
    decision_log_free(x->file);
    decision_ring_free(x->ring);
    client_ids_free(x->names);
    (void)strmap_free_with(x->scopes, drop_scope);
    free(x->scratch);
    free(x);
    return NULL;
}

uint64_t explain_decided(struct explain *x, const struct route_request *q,
                         const struct route_decision *d, int result,
                         const struct decision_context *context)
{
    struct decision_record *rec = decision_ring_add(x->ring);
    uint64_t seq = rec->seq;

    if (x->file && decision_ring_is_full(x->ring))
        write_unfinished(x, decision_ring_first(x->ring));
    decision_record_fill(rec, q, d, result, context);
    if (result == 0) {
        ask_shadows(x, rec, d);
        measure(x, rec, d);
    }
    decision_ring_added(x->ring);
    if (rec->outcome.ended != DECISION_RUNNING)
        write_record(x, seq);
    return seq;
}

void explain_ended(struct explain *x, uint64_t seq, const struct decision_outcome *outcome)
{
    struct decision_outcome *kept = decision_ring_outcome(x->ring, seq);

    if (!kept || kept->ended != DECISION_RUNNING)
        return;
    *kept = *outcome;
    write_record(x, seq);
}

/* --- GET /explain/{request id} -----------------------------------------------------------------
 */

/* Ids are found as they stand in answers too: "chatcmpl-<id>". */
static struct str request_id_of(struct str path)
{
    static const struct str prefixes[] = {STR("chatcmpl-"), STR("cmpl-")};
    struct str id = str_skip(path, strlen("/explain/"));

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (str_starts(id, prefixes[i]))
            return str_skip(id, prefixes[i].len);
    return id;
}

/* @newest has the numbers of the decisions, the last one first. */
static void put_decisions_text(struct explain *x, struct buf *out, const uint64_t *newest, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        decision_record_put_text(out, decision_ring_at(x->ring, newest[i]));
        if (i > 0)
            buf_put_char(out, '\n');
    }
}

static void put_decisions_json(struct explain *x, struct buf *out, struct str id,
                               const uint64_t *newest, size_t n)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "request_id");
    json_put_str(&j, id);
    json_put_key(&j, "decisions");
    json_put_array(&j);
    for (size_t i = n; i-- > 0;) {
        AUTO(buf_done) struct buf one = BUF_NULL;

        decision_record_put_json(&one, decision_ring_at(x->ring, newest[i]));
        json_put_raw(&j, buf_str(&one));
    }
    json_put_array_end(&j);
    json_put_object_end(&j);
    buf_put_char(out, '\n');
}

void explain_named(struct explain *x, struct str client_id, struct str id)
{
    client_ids_add(x->names, client_id, id);
}

/* Numbers of the decisions of a request, the newest first. */
static size_t find_decisions(struct explain *x, struct str id, uint64_t newest[ATTEMPTS_MAX])
{
    const struct decision_record *rec;
    uint64_t before = UINT64_MAX;
    size_t n = 0;

    for (; n < ATTEMPTS_MAX && (rec = decision_ring_find(x->ring, id, before)); n++)
        before = newest[n] = rec->seq;
    return n;
}

void explain_answer(struct explain *x, struct http_exchange *exchange)
{
    const struct http1_request *request = http_request(exchange);
    uint64_t newest[ATTEMPTS_MAX];
    struct str id = request_id_of(request->path);
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct api_error e;
    size_t n = find_decisions(x, id, newest);

    if (n == 0) {
        id = client_ids_find(x->names, id);
        n = id.len ? find_decisions(x, id, newest) : 0; /* a choice may have no id at all */
    }
    if (n == 0) {
        (void)api_fail(
            &e, 404, NULL, "No decision is known for this request id: the last %llu are remembered",
            (unsigned long long)(decision_ring_next(x->ring) - decision_ring_first(x->ring)));
        api_error_respond(exchange, &e);
    } else if (str_starts(http1_header_get(request, "accept"), STR("text/plain"))) {
        put_decisions_text(x, &body, newest, n);
        http_respond(exchange, 200, "text/plain; charset=utf-8", buf_str(&body));
    } else {
        put_decisions_json(x, &body, id, newest, n);
        http_respond(exchange, 200, "application/json", buf_str(&body));
    }
}

/* --- GET /decisions ----------------------------------------------------------------------------
 */

/* A list that is being sent: as fast as its client takes it, a batch at a time. */
struct listing {
    struct explain *x;
    struct http_exchange *exchange;
    uint64_t next, end, left;
};

static void put_overwritten(struct listing *l, struct buf *out)
{
    uint64_t first = decision_ring_first(l->x->ring);

    if (l->next >= first)
        return;
    buf_printf(out, "{\"overwritten\":%llu}\n", (unsigned long long)(first - l->next));
    l->next = first;
}

static void send_batch(void *arg)
{
    struct listing *l = arg;
    AUTO(buf_done) struct buf out = BUF_NULL;

    put_overwritten(l, &out);
    for (size_t i = 0; i < LIST_BATCH && l->left && l->next < l->end; i++, l->left--) {
        decision_record_put_json(&out, decision_ring_at(l->x->ring, l->next++));
        buf_put_char(&out, '\n');
    }
    http_stream_write(l->exchange, buf_str(&out));
    if (l->left && l->next < l->end)
        return;
    http_stream_end(l->exchange);
    free(l);
}

/* False, and answered, when the number is none. */
static bool query_number(struct http_exchange *exchange, const char *key, uint64_t max,
                         uint64_t *ret)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct api_error e;
    uint64_t value;

    if (!http_query_get(http_request(exchange)->query, key, &text))
        return true;
    if (str_parse_u64(buf_str(&text), &value) && value <= max) {
        *ret = value;
        return true;
    }
    (void)api_fail(&e, 400, key, "%s must be a whole number up to %llu", key,
                   (unsigned long long)max);
    api_error_respond(exchange, &e);
    return false;
}

void explain_list(struct explain *x, struct http_exchange *exchange)
{
    uint64_t since = 0, limit = LIST_DEFAULT, next = decision_ring_next(x->ring);
    struct listing *l;

    if (!query_number(exchange, "since", UINT64_MAX - 1, &since) ||
        !query_number(exchange, "limit", LIST_MAX, &limit))
        return;
    l = xcalloc(1, sizeof(*l));
    *l = (struct listing){x, exchange, since + 1, next, limit};
    if (str_is(http_request(exchange)->method, "HEAD"))
        l->left = 0; /* nothing would be drained that calls for the next batch */
    http_on_gone(exchange, free, l);
    http_on_drained(exchange, send_batch, l);
    http_stream_begin(exchange, 200, "application/x-ndjson");
    if (since >= next) { /* numbers of a process before this one */
        http_stream_write(exchange, STR("{\"restarted\":true}\n"));
        l->next = 1;
    }
    send_batch(l);
}
