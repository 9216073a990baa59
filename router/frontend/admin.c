/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/admin.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "lib/net/http_server.h"
#include "lib/net/nats_link.h"
#include "router/frontend/engines.h"
#include "router/openai/api_error.h"
#include "router/sched/signals.h"
#include "router/sync/kv_events.h"

static void respond_json(struct http_exchange *x, int status, const struct buf *body)
{
    http_respond(x, status, "application/json", buf_str(body));
}

/* --- /v1/models -------------------------------------------------------------------------------
 */

/* Of the sets of a model the first one that is served; NULL = none. */
static const struct model *first_ready(const struct model *m)
{
    while (m && !model_is_served(m))
        m = m->next_set;
    return m;
}

/* Clients of Anthropic's API list models, too, and say which version of it they know. */
static bool is_anthropic(const struct http_exchange *x, const struct admin *a)
{
    return a->serving->anthropic && http1_header_get(http_request(x), "anthropic-version").len > 0;
}

static void put_anthropic_model(struct json_put *j, const struct model *m)
{
    time_t now = (time_t)(clock_wall_ms() / 1000);
    struct tm utc;
    char when[sizeof("2026-01-01T00:00:00Z")];

    (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_put_object(j);
    json_put_key(j, "id");
    json_put_cstr(j, m->name);
    json_put_key(j, "display_name");
    json_put_cstr(j, m->name);
    json_put_key(j, "type");
    json_put_cstr(j, "model");
    json_put_key(j, "created_at");
    json_put_cstr(j, when);
    if (m->card->context_length) {
        json_put_key(j, "max_input_tokens");
        json_put_u64(j, m->card->context_length);
    }
    json_put_object_end(j);
}

static void put_model(struct json_put *j, const struct model *m)
{
    json_put_object(j);
    json_put_key(j, "id");
    json_put_cstr(j, m->name);
    json_put_key(j, "object");
    json_put_cstr(j, "model");
    json_put_key(j, "created");
    json_put_u64(j, clock_wall_ms() / 1000);
    json_put_key(j, "owned_by");
    json_put_cstr(j, "nvidia");
    if (m->card->context_length) {
        json_put_key(j, "context_window");
        json_put_u64(j, m->card->context_length);
    }
    json_put_object_end(j);
}

static const struct model *next_model(const struct admin *a, size_t *at)
{
    struct str name;
    void *model;

    while (strmap_next(a->serving->by_name, at, &name, &model))
        if (first_ready(model))
            return first_ready(model);
    return NULL;
}

static void anthropic_models(struct http_exchange *x, const struct admin *a)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);
    const struct model *m, *first = NULL, *last = NULL;
    size_t at = 0;

    json_put_object(&j);
    json_put_key(&j, "data");
    json_put_array(&j);
    while ((m = next_model(a, &at))) {
        first = first ? first : m;
        last = m;
        put_anthropic_model(&j, m);
    }
    json_put_array_end(&j);
    json_put_key(&j, "has_more");
    json_put_bool(&j, false);
    json_put_key(&j, "first_id");
    json_put_cstr(&j, first ? first->name : NULL);
    json_put_key(&j, "last_id");
    json_put_cstr(&j, last ? last->name : NULL);
    json_put_object_end(&j);
    respond_json(x, 200, &body);
}

void admin_models(struct http_exchange *x, const struct admin *a)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);
    const struct model *m;
    size_t at = 0;

    if (is_anthropic(x, a)) {
        anthropic_models(x, a);
        return;
    }

    json_put_object(&j);
    json_put_key(&j, "object");
    json_put_cstr(&j, "list");
    json_put_key(&j, "data");
    json_put_array(&j);
    while ((m = next_model(a, &at)))
        put_model(&j, m);
    json_put_array_end(&j);
    json_put_object_end(&j);
    respond_json(x, 200, &body);
}

/* Names hold slashes, which clients send as they are or escaped. */
void admin_model(struct http_exchange *x, const struct admin *a)
{
    AUTO(buf_done) struct buf body = BUF_NULL, query = BUF_NULL, name = BUF_NULL;
    struct str raw = str_skip(http_request(x)->path, strlen(a->models_path) + 1);
    const struct model *m = first_ready(serving_find_model(a->serving, raw));
    struct json_put j = json_put_on(&body);
    struct api_error e;

    buf_put_cstr(&query, "name=");
    buf_put_str(&query, raw);
    if (!m && http_query_get(buf_str(&query), "name", &name))
        m = first_ready(serving_find_model(a->serving, buf_str(&name)));
    if (!m) {
        (void)api_fail(&e, 404, "model", "Model not found");
        api_error_respond(x, &e);
        return;
    }
    if (is_anthropic(x, a))
        put_anthropic_model(&j, m);
    else
        put_model(&j, m);
    respond_json(x, 200, &body);
}

/* --- /health and /live -------------------------------------------------------------------------
 */

static void put_endpoint(struct json_put *j, const char *ns, const char *component,
                         const char *endpoint)
{
    AUTO(mem_free) char *url = xasprintf("dyn://%s.%s.%s", ns, component, endpoint);

    json_put_cstr(j, url);
}

static void put_instance(struct json_put *j, const char *const names[3], uint64_t id,
                         const char *transport, const char *address)
{
    json_put_object(j);
    json_put_key(j, "component");
    json_put_cstr(j, names[1]);
    json_put_key(j, "endpoint");
    json_put_cstr(j, names[2]);
    json_put_key(j, "namespace");
    json_put_cstr(j, names[0]);
    json_put_key(j, "instance_id");
    json_put_u64(j, id);
    json_put_key(j, "transport");
    json_put_object(j);
    json_put_key(j, transport);
    json_put_cstr(j, address);
    json_put_object_end(j);
    json_put_object_end(j);
}

/* Plain OpenAI servers stand in no record of discovery, but in the pools of their models. */
static void put_engines(struct json_put *j, const struct pool *p)
{
    const char *const names[] = {p->ns, p->component, p->endpoint};
    uint64_t id, value;

    for (size_t at = 0; map64_next(&p->workers, &at, &id, &value);)
        put_instance(j, names, id, "openai", ((struct pool_worker *)(uintptr_t)value)->address);
}

static void put_instances(struct json_put *j, const struct model_table *t, const struct serving *s)
{
    struct str name;
    void *value;

    json_put_key(j, "endpoints");
    json_put_array(j);
    for (size_t i = 0; i < t->n_models; i++)
        put_endpoint(j, t->models[i].ns, t->models[i].component, t->models[i].endpoint);
    for (size_t at = 0; strmap_next(s->models, &at, &name, &value);) {
        const struct pool *p = ((struct model *)value)->pool;

        if (p->is_stock)
            put_endpoint(j, p->ns, p->component, p->endpoint);
    }
    json_put_array_end(j);
    json_put_key(j, "instances");
    json_put_array(j);
    for (size_t i = 0; i < t->n_models; i++) {
        const struct served_model *m = &t->models[i];
        const char *const names[] = {m->ns, m->component, m->endpoint};

        for (size_t k = 0; k < m->n_workers; k++)
            put_instance(j, names, m->workers[k].id, "tcp", m->workers[k].address);
    }
    for (size_t at = 0; strmap_next(s->models, &at, &name, &value);)
        if (((struct model *)value)->is_stock)
            put_engines(j, ((struct model *)value)->pool);
    json_put_array_end(j);
}

struct signal_notes {
    struct json_put *json;
    uint64_t now_ms;
};

static void put_signal_note(void *arg, struct worker_rank w, const struct signal_health *h,
                            enum signal_verdict verdict)
{
    const struct signal_notes *notes = arg;
    AUTO(buf_done) struct buf why = BUF_NULL;

    (void)verdict;
    signal_health_reason(h, w, notes->now_ms, &why);
    if (why.len)
        json_put_str(notes->json, buf_str(&why));
}

static void put_signal_notes(struct json_put *j, const struct admin *a)
{
    struct signal_notes notes = {j, loop_now_ms(a->serving->loop)};
    struct str name;
    void *value;

    for (size_t at = 0; strmap_next(a->serving->models, &at, &name, &value);)
        scheduler_each_signal(((struct model *)value)->pool->scheduler, put_signal_note, &notes);
    for (size_t at = 0; strmap_next(a->serving->prefills, &at, &name, &value);)
        scheduler_each_signal(((struct pool *)value)->scheduler, put_signal_note, &notes);
}

static void put_note(void *arg, const char *text)
{
    json_put_cstr(arg, text);
}

/* What a user should know although requests are served. */
static void put_notes(struct json_put *j, const struct admin *a)
{
    const struct nats_link *nats = kv_events_nats(a->events);
    struct str name;
    void *value;
    size_t at = 0;

    json_put_key(j, "notes");
    json_put_array(j);
    if (nats && !nats_link_stats(nats).up)
        json_put_cstr(j, "KV events: NATS is not reachable; routing goes on with what is known");
    instances_notes(a->instances, put_note, j);
    while (strmap_next(a->serving->models, &at, &name, &value)) {
        const struct model *m = value;

        if (m->why.text[0]) {
            AUTO(mem_free) char *note = xasprintf("model %s: %s", m->name, m->why.text);

            json_put_cstr(j, note);
        }
    }
    put_signal_notes(j, a);
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
    put_instances(&j, t, a->serving);
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

void admin_measure(struct admin *a)
{
    samples_take(&a->samples, a);
    if (a->engines)
        engines_measure(a->engines);
}

void admin_metrics(struct http_exchange *x, struct admin *a)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    admin_measure(a);
    metric_print(a->serving->metrics.registry, &body);
    http_respond(x, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&body));
}

/* --- /busy_threshold ---------------------------------------------------------------------------
 */

static void put_threshold(struct json_put *j, const struct model *m)
{
    const struct route_conf *c = scheduler_conf(m->pool->scheduler);

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
    while (strmap_next(a->serving->by_name, &at, &name, &value)) {
        const struct route_conf *c = scheduler_conf(((struct model *)value)->pool->scheduler);

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
    for (struct model *set = m; set; set = set->next_set) {
        if (!isnan(change.decode))
            set->busy_decode_blocks = change.decode;
        if (!isnan(change.prefill))
            set->busy_prefill_tokens = change.prefill;
        model_configure(set);
    }
    put_threshold(&j, m);
    respond_json(x, 200, &body);
}
