/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/admin.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "lib/net/http_server.h"
#include "lib/net/nats_link.h"
#include "router/frontend/api_error.h"

enum { LOADS_MAX = 4096 };

static void respond_json(struct http_exchange *x, int status, const struct buf *body)
{
    http_respond(x, status, "application/json", buf_str(body));
}

void admin_models(struct http_exchange *x, const struct admin *a)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);
    struct str name;
    void *model;
    size_t at = 0;

    json_put_object(&j);
    json_put_key(&j, "object");
    json_put_cstr(&j, "list");
    json_put_key(&j, "data");
    json_put_array(&j);
    while (strmap_next(a->serving->models, &at, &name, &model)) {
        if (((struct model *)model)->state != MODEL_READY)
            continue;
        json_put_object(&j);
        json_put_key(&j, "id");
        json_put_str(&j, name);
        json_put_key(&j, "object");
        json_put_cstr(&j, "model");
        json_put_key(&j, "created");
        json_put_u64(&j, clock_wall_ms() / 1000);
        json_put_key(&j, "owned_by");
        json_put_cstr(&j, "nvidia");
        json_put_object_end(&j);
    }
    json_put_array_end(&j);
    json_put_object_end(&j);
    respond_json(x, 200, &body);
}

/* --- /health and /live -------------------------------------------------------------------------
 */

static void put_instances(struct json_put *j, const struct model_table *t)
{
    json_put_key(j, "endpoints");
    json_put_array(j);
    for (size_t i = 0; i < t->n_models; i++) {
        const struct served_model *m = &t->models[i];
        AUTO(mem_free) char *url = xasprintf("dyn://%s.%s.%s", m->ns, m->component, m->endpoint);

        json_put_cstr(j, url);
    }
    json_put_array_end(j);
    json_put_key(j, "instances");
    json_put_array(j);
    for (size_t i = 0; i < t->n_models; i++) {
        const struct served_model *m = &t->models[i];

        for (size_t k = 0; k < m->n_workers; k++) {
            json_put_object(j);
            json_put_key(j, "component");
            json_put_cstr(j, m->component);
            json_put_key(j, "endpoint");
            json_put_cstr(j, m->endpoint);
            json_put_key(j, "namespace");
            json_put_cstr(j, m->ns);
            json_put_key(j, "instance_id");
            json_put_u64(j, m->workers[k].id);
            json_put_key(j, "transport");
            json_put_object(j);
            json_put_key(j, "tcp");
            json_put_cstr(j, m->workers[k].address);
            json_put_object_end(j);
            json_put_object_end(j);
        }
    }
    json_put_array_end(j);
}

/* What a user should know although requests are served. */
static void put_notes(struct json_put *j, const struct admin *a)
{
    struct str name;
    void *value;
    size_t at = 0;

    json_put_key(j, "notes");
    json_put_array(j);
    if (a->nats && !nats_link_stats(a->nats).up)
        json_put_cstr(j, "KV events: NATS is not reachable; routing goes on with what is known");
    if (!instances_store_up(a->instances))
        json_put_cstr(j,
                      "discovery: the store is not reachable; serving the workers that were known");
    while (strmap_next(a->serving->models, &at, &name, &value)) {
        const struct model *m = value;

        if (m->state == MODEL_FAILED) {
            AUTO(mem_free) char *note = xasprintf("model %s: %s", m->name, m->why.text);

            json_put_cstr(j, note);
        }
    }
    json_put_array_end(j);
}

void admin_health(struct http_exchange *x, const struct admin *a)
{
    AUTO(model_table_unref) struct model_table *t = instances_table(a->instances);
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);

    json_put_object(&j);
    json_put_key(&j, "status");
    json_put_cstr(&j, "healthy");
    put_instances(&j, t);
    put_notes(&j, a);
    json_put_object_end(&j);
    respond_json(x, 200, &body);
}

void admin_live(struct http_exchange *x, const struct admin *a)
{
    if (a->serving->stopping)
        http_respond(
            x, 503, "application/json",
            STR("{\"status\":\"shutting_down\",\"message\":\"Service is shutting down\"}"));
    else
        http_respond(x, 200, "application/json",
                     STR("{\"status\":\"live\",\"message\":\"Service is live\"}"));
}

/* --- /metrics ----------------------------------------------------------------------------------
 */

static struct metric_family *gauge(struct metric_registry *r, const char *name, const char *help,
                                   const char *const labels[3])
{
    struct metric_desc d = {.name = name, .help = help, .type = METRIC_GAUGE};

    for (size_t i = 0; i < 3 && labels[i]; i++)
        d.labels[i] = labels[i];
    return metric_family(r, &d);
}

/* Models and workers come and go: what is not sampled again below is gone from the answer too. */
static void forget_samples(struct metric_registry *r)
{
    static const char *const names[] = {
        "commutator_router_index_blocks",
        "commutator_router_index_bytes",
        "commutator_router_index_orphans",
        "commutator_router_workers",
        "dynamo_frontend_worker_active_decode_blocks",
        "dynamo_frontend_worker_active_prefill_tokens",
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        metric_forget(r, names[i]);
}

static void sample_index(struct metric_registry *r, const struct model *m)
{
    static const char *const by_model[3] = {"model", NULL, NULL};
    struct prefix_stats s = scheduler_index_stats(m->scheduler);

    metric_set(metric_with(gauge(r, "commutator_router_index_blocks",
                                 "Blocks of workers in the index", by_model),
                           m->name),
               (double)s.entries);
    metric_set(
        metric_with(gauge(r, "commutator_router_index_bytes", "Memory of the index", by_model),
                    m->name),
        (double)s.bytes);
    metric_set(metric_with(gauge(r, "commutator_router_index_orphans",
                                 "Stored events whose parent block was unknown", by_model),
                           m->name),
               (double)s.orphans);
    metric_set(
        metric_with(gauge(r, "commutator_router_workers", "Workers to choose from", by_model),
                    m->name),
        (double)scheduler_workers(m->scheduler));
}

static void sample_loads(struct metric_registry *r, const struct model *m)
{
    static const char *const by_worker[3] = {"worker_id", "dp_rank", "worker_type"};
    static struct worker_load loads[LOADS_MAX];
    size_t n = MIN(scheduler_loads(m->scheduler, loads, LOADS_MAX), (size_t)LOADS_MAX);

    for (size_t i = 0; i < n; i++) {
        char id[24], rank[12];

        (void)snprintf(id, sizeof(id), "%" PRIu64, loads[i].worker.worker_id);
        (void)snprintf(rank, sizeof(rank), "%" PRIu32, loads[i].worker.dp_rank);
        metric_set(metric_with(gauge(r, "dynamo_frontend_worker_active_decode_blocks",
                                     "Blocks of running requests", by_worker),
                               id, rank, "decode"),
                   (double)loads[i].active_decode_blocks);
        metric_set(metric_with(gauge(r, "dynamo_frontend_worker_active_prefill_tokens",
                                     "Prompt tokens to be computed", by_worker),
                               id, rank, "decode"),
                   (double)loads[i].active_prefill_tokens);
    }
}

static void sample_links(struct metric_registry *r, const struct admin *a)
{
    static const char *const none[3] = {NULL, NULL, NULL};
    struct plane_stats p = plane_client_stats(a->serving->plane);

    if (a->nats) {
        struct nats_link_stats n = nats_link_stats(a->nats);

        metric_set(metric_plain(gauge(r, "commutator_nats_up", "Whether NATS is connected", none)),
                   n.up);
        metric_set(metric_plain(gauge(r, "commutator_nats_dropped",
                                      "Messages dropped because a queue was full", none)),
                   (double)n.dropped_in);
    }
    metric_set(metric_plain(gauge(r, "commutator_plane_streams", "Response streams open", none)),
               (double)p.streams);
    metric_set(
        metric_plain(gauge(r, "commutator_plane_connections", "Connections to workers", none)),
        (double)p.connections);
    metric_set(metric_plain(gauge(r, "commutator_discovery_up", "Whether discovery works", none)),
               instances_store_up(a->instances));
}

void admin_metrics(struct http_exchange *x, const struct admin *a)
{
    struct metric_registry *r = a->serving->metrics.registry;
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct str name;
    void *model;
    size_t at = 0;

    forget_samples(r);
    while (strmap_next(a->serving->models, &at, &name, &model)) {
        sample_index(r, model);
        sample_loads(r, model);
    }
    sample_links(r, a);
    metric_print(r, &body);
    http_respond(x, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&body));
}

/* --- /busy_threshold ---------------------------------------------------------------------------
 */

static void put_threshold(struct json_put *j, const struct model *m)
{
    const struct route_conf *c = scheduler_conf(m->scheduler);

    json_put_object(j);
    json_put_key(j, "model");
    json_put_cstr(j, m->name);
    json_put_key(j, "active_decode_blocks_threshold");
    json_put_f64(j, c->busy_decode_blocks); /* NAN is null: not set */
    json_put_key(j, "active_prefill_tokens_threshold");
    json_put_f64(j, c->busy_prefill_tokens);
    json_put_object_end(j);
}

void admin_busy_threshold_get(struct http_exchange *x, const struct admin *a)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);
    struct str name;
    void *value;
    size_t at = 0;

    json_put_object(&j);
    json_put_key(&j, "thresholds");
    json_put_array(&j);
    while (strmap_next(a->serving->models, &at, &name, &value)) {
        const struct route_conf *c = scheduler_conf(((struct model *)value)->scheduler);

        if (!isnan(c->busy_decode_blocks) || !isnan(c->busy_prefill_tokens))
            put_threshold(&j, value);
    }
    json_put_array_end(&j);
    json_put_object_end(&j);
    respond_json(x, 200, &body);
}

struct threshold_change {
    struct str model;
    double decode, prefill; /* NAN = not given */
};

static bool parse_threshold(struct str body, struct buf *scratch, struct threshold_change *ret,
                            struct api_error *e)
{
    struct json_pull p;
    struct str key;
    struct err why;
    uint64_t tokens;

    *ret = (struct threshold_change){STR_NULL, NAN, NAN};
    json_pull_init(&p, body);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            bool ok = true;

            if (str_is(key, "model"))
                ok = json_pull_string(&p, scratch, &ret->model);
            else if (json_pull_null(&p))
                continue;
            else if (str_is(key, "active_decode_blocks_threshold"))
                ok = json_pull_f64(&p, &ret->decode);
            else if (str_is(key, "active_prefill_tokens_threshold"))
                ok = json_pull_u64(&p, &tokens) ? (ret->prefill = (double)tokens, true) : false;
            else
                json_pull_skip(&p, NULL);
            if (!ok)
                break;
        }
    }
    if (json_pull_end(&p, &why) < 0)
        return api_fail(e, 422, NULL, "%s", why.text);
    if (ret->model.len == 0)
        return api_fail(e, 422, "model", "missing field `model`");
    if (!isnan(ret->decode) && !(ret->decode >= 0 && ret->decode <= 1))
        return api_fail(e, 400, "active_decode_blocks_threshold",
                        "active_decode_blocks_threshold must be between 0.0 and 1.0");
    return true;
}

void admin_busy_threshold_post(struct http_exchange *x, const struct admin *a)
{
    AUTO(buf_done) struct buf body = BUF_NULL, scratch = BUF_NULL;
    struct json_put j = json_put_on(&body);
    struct threshold_change change;
    struct model *m = NULL;
    struct api_error e;

    if (parse_threshold(http_request(x)->body, &scratch, &change, &e)) {
        m = serving_find_model(a->serving, change.model);
        if (!m)
            (void)api_fail(&e, 404, "model", "Model '%.*s' not found", STR_ARG(change.model));
    }
    if (!m) {
        api_error_respond(x, &e);
        return;
    }
    if (!isnan(change.decode))
        m->busy_decode_blocks = change.decode;
    if (!isnan(change.prefill))
        m->busy_prefill_tokens = change.prefill;
    model_configure(m);
    put_threshold(&j, m);
    respond_json(x, 200, &body);
}
