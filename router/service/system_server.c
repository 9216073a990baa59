/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/system_server.h"

#include <string.h>

#include "lib/base/json_put.h"
#include "lib/base/metric.h"
#include "lib/net/http_server.h"
#include "router/frontend/explain.h"
#include "router/service/system_options.h"

enum { CONNECTIONS_MAX = 64, HEAD_MAX = 16384, BODY_MAX = 4096, IDLE_MS = 30000 };

struct system_server {
    struct http_server *http;
    struct system_server_conf conf;
    uint64_t start_ns;
    bool starting; /* and healthy by decree */
    char *health_path, *live_path;
    struct metric *uptime;
};

static const char *word_of(bool ready)
{
    return ready ? "ready" : "notready";
}

static void answer_health(struct http_exchange *x, const struct system_server *s, bool ready,
                          bool healthy, int status)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);
    uint64_t up = clock_now_ns() - s->start_ns;

    json_put_object(&j);
    json_put_member_cstr(&j, "status", word_of(healthy));
    json_put_key(&j, "uptime");
    json_put_object(&j);
    json_put_member_u64(&j, "secs", up / 1000000000);
    json_put_member_u64(&j, "nanos", up % 1000000000);
    json_put_object_end(&j);
    json_put_key(&j, "endpoints");
    json_put_object(&j);
    json_put_key(&j, s->conf.endpoint);
    json_put_cstr(&j, word_of(ready));
    json_put_object_end(&j);
    json_put_object_end(&j);
    http_respond(x, status, "application/json", buf_str(&body));
}

static bool is_ready(struct system_server *s)
{
    bool ready = s->conf.ready(s->conf.arg);

    s->starting = s->starting && !ready;
    return ready;
}

static void on_health(struct http_exchange *x, void *arg)
{
    struct system_server *s = arg;
    bool ready = is_ready(s), healthy = ready || s->starting;

    answer_health(x, s, ready, healthy, healthy ? 200 : 503);
}

/* A worker that loads its model, or drains, is alive: a probe must not kill it. */
static void on_live(struct http_exchange *x, void *arg)
{
    struct system_server *s = arg;

    bool ready = is_ready(s);

    answer_health(x, s, ready, ready || s->starting, 200);
}

static void on_metrics(struct http_exchange *x, void *arg)
{
    struct system_server *s = arg;
    AUTO(buf_done) struct buf body = BUF_NULL;

    s->conf.measure(s->conf.arg);
    metric_set(s->uptime, (double)(clock_now_ns() - s->start_ns) / 1e9);
    metric_print(s->conf.metrics, &body);
    http_respond(x, 200, "text/plain; version=0.0.4", buf_str(&body));
}

static void on_metadata(struct http_exchange *x, void *arg)
{
    struct system_server *s = arg;
    AUTO(buf_done) struct buf body = BUF_NULL;

    if (!s->conf.put_metadata) {
        http_respond(x, 404, "text/plain", STR("Discovery metadata not available"));
        return;
    }
    s->conf.put_metadata(s->conf.arg, &body);
    http_respond(x, 200, "application/json", buf_str(&body));
}

static void on_file(struct http_exchange *x, void *arg)
{
    struct system_server *s = arg;
    struct str path = str_skip(http_request(x)->path, strlen("/v1/metadata/")), bytes;

    if (s->conf.file && s->conf.file(s->conf.arg, path, &bytes))
        http_respond(x, 200, "application/octet-stream", bytes);
    else
        http_respond(x, 404, "text/plain", STR("Route not found"));
}

static void on_explain(struct http_exchange *x, void *arg)
{
    struct system_server *s = arg;

    if (s->conf.explain)
        explain_answer(s->conf.explain, x);
    else
        http_respond(x, 404, "text/plain", STR("Route not found"));
}

static void on_decisions(struct http_exchange *x, void *arg)
{
    struct system_server *s = arg;

    if (s->conf.explain)
        explain_list(s->conf.explain, x);
    else
        http_respond(x, 404, "text/plain", STR("Route not found"));
}

static void on_error(struct http_exchange *x, int status, const char *why, void *arg)
{
    (void)arg;
    http_respond(x, status, "text/plain", status == 404 ? STR("Route not found") : str_from(why));
}

static int serve(struct system_server *s, struct loop *l, struct http_server_conf *http,
                 struct err *e)
{
    const struct http_route routes[] = {
        {"GET", s->health_path, on_health, 0}, {"GET", s->live_path, on_live, 0},
        {"GET", "/metrics", on_metrics, 0},    {"GET", "/metadata", on_metadata, 0},
        {"GET", "/explain/*", on_explain, 0},  {"GET", "/decisions", on_decisions, 0},
        {"GET", "/v1/metadata/*", on_file, 0},
    };

    http->routes = routes;
    http->n_routes = ARRAY_LEN(routes);
    return http_server_start(&s->http, l, http, e);
}

int system_server_start(struct system_server **ret, struct loop *l,
                        const struct system_server_conf *conf, struct err *e)
{
    static const struct metric_desc uptime = {
        .name = "dynamo_component_uptime_seconds",
        .help = "Since the start of the process",
        .type = METRIC_GAUGE,
        .labels = {"dynamo_namespace", "dynamo_component"},
    };
    const struct system_options *o = conf->options;
    AUTO(system_server_free) struct system_server *s = NULL;
    struct http_server_conf http = {
        .host = o->host,
        .port = (uint16_t)MAX(o->port, 0),
        .connections_max = CONNECTIONS_MAX,
        .head_bytes = HEAD_MAX,
        .body_bytes = BODY_MAX,
        .idle_ms = IDLE_MS,
        .metrics = conf->metrics,
        .on_error = on_error,
    };
    int r;

    if (o->port < 0)
        return 0;
    s = xcalloc(1, sizeof(*s));
    s->conf = *conf;
    s->conf.options = NULL; /* was the caller's */
    s->starting = o->starting == SYSTEM_STARTS_READY;
    s->health_path = xstrdup(o->health_path);
    s->live_path = xstrdup(o->live_path);
    s->start_ns = clock_now_ns();
    s->uptime = metric_with(metric_family(conf->metrics, &uptime), conf->ns, conf->component);
    http.arg = s;
    r = serve(s, l, &http, e);
    if (r < 0)
        return err_wrap(e, r, "system server");
    *ret = TAKE(s);
    return 0;
}

struct system_server *system_server_free(struct system_server *s)
{
    if (!s)
        return NULL;
    http_server_free(s->http);
    free(s->health_path);
    free(s->live_path);
    free(s);
    return NULL;
}

uint16_t system_server_port(const struct system_server *s)
{
    return s ? http_server_port(s->http) : 0;
}

void system_server_end_start(struct system_server *s)
{
    if (s)
        s->starting = false;
}
