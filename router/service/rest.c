/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/rest.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/base/log.h"
#include "lib/base/metric.h"
#include "lib/net/http_server.h"
#include "router/frontend/explain.h"
#include "router/service/access_log.h"

enum {
    CONNECTIONS_MAX = 4096,
    IDLE_MS = 60000,
    NAME_MAX_BYTES = 1024,
    BUCKETS = 20,
    DRAIN_MS = 5000
};

struct rest {
    struct rest_conf conf;
    struct http_server *http;
    struct metric_family *requests, *errors, *duration;
    struct timer *deadline;
    loop_fn stopped;
    void *stopped_arg;
};

/* --- routing ---------------------------------------------------------------------------------- */

/* Whether @path fits the template; then *ret_name is the segment that {} stands for. */
static bool fits(struct str path, const char *template, struct str *ret_name)
{
    struct str t = str_from(template), segment = STR_NULL;
    size_t at = str_index(t, '{');

    if (at == t.len)
        return str_eq(path, t);
    if (!str_starts(path, str_head(t, at)))
        return false;
    path = str_skip(path, at);
    t = str_skip(t, at + 2);
    segment = str_head(path, str_index(path, '/'));
    if (segment.len == 0 || segment.len > NAME_MAX_BYTES || !str_eq(str_skip(path, segment.len), t))
        return false;
    *ret_name = segment;
    return true;
}

static struct str decode_name(struct arena *a, struct str raw)
{
    AUTO(buf_done) struct buf query = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;

    buf_put_cstr(&query, "n=");
    buf_put_str(&query, raw);
    if (!http_query_get(buf_str(&query), "n", &out))
        return raw;
    return (struct str){arena_strdup(a, buf_str(&out)), out.len};
}

/* *ret_known: another method would have found a route. */
static const struct rest_route *find_route(const struct rest *r, const struct http1_request *rq,
                                           struct str *ret_name, const char **ret_known)
{
    *ret_known = NULL;
    for (size_t i = 0; i < r->conf.n_routes; i++) {
        const struct rest_route *route = &r->conf.routes[i];

        if (!fits(rq->path, route->path, ret_name))
            continue;
        *ret_known = route->path;
        if (str_is(rq->method, route->method))
            return route;
    }
    return NULL;
}

/* Anything but the paths and methods of the table would let clients make series. */
static void count(struct rest *r, const char *path, const char *method, int status,
                  uint64_t start_ns)
{
    metric_add(metric_with(r->requests, path, method), 1);
    metric_observe(metric_with(r->duration, path), (double)(clock_now_ns() - start_ns) / 1e9);
    if (status >= 400)
        metric_add(metric_with(r->errors, path, status >= 500 ? "5xx" : "4xx"), 1);
}

/* A request from its arrival to its answer; in its own arena. */
struct call {
    struct rest_call c;
    struct rest *rest;
    struct http_exchange *x;
    const struct rest_route *route; /* NULL: nobody answers that */
    const char *known;              /* path of the table, where it is one */
    uint64_t start_ns;
    loop_fn gone;
    void *gone_arg;
};

static struct call *call_of(struct rest_call *c)
{
    return CONTAINER_OF(c, struct call, c);
}

static void note_access(const struct call *k, int status)
{
    const struct rest *r = k->rest;
    const struct http1_request *rq = http_request(k->x);
    const struct access_entry entry = {.trace_id = http1_header_get(rq, r->conf.trace_header),
                                       .method = rq->method,
                                       .path = rq->path,
                                       .model = k->c.model,
                                       .status = status,
                                       .wall_ms = clock_wall_ms(),
                                       .duration_ns = clock_now_ns() - k->start_ns};

    if (!str_is(rq->path, "/metrics"))
        access_log_write(r->conf.access, &entry);
}

static void call_free(struct call *k)
{
    buf_done(&k->c.out);
    arena_free(k->c.arena);
}

void rest_answer(struct rest_call *c, int status)
{
    struct call *k = call_of(c);

    if (k->rest->conf.access && k->known)
        note_access(k, status);
    http_respond(k->x, status, c->content_type, buf_str(&c->out));
    count(k->rest, k->known ? k->known : "other", k->route ? k->route->method : "other", status,
          k->start_ns);
    call_free(k);
}

static void on_gone(void *arg)
{
    struct call *k = arg;

    k->gone(k->gone_arg);
    call_free(k);
}

void rest_defer(struct rest_call *c, loop_fn gone, void *arg)
{
    struct call *k = call_of(c);

    k->gone = gone;
    k->gone_arg = arg;
    http_on_gone(k->x, on_gone, k);
}

static void dispatch(struct http_exchange *x, void *arg)
{
    const struct http1_request *rq = http_request(x);
    struct arena *arena = arena_new();
    struct call *k = arena_alloc(arena, sizeof(*k));
    struct rest_call *c = &k->c;
    int status;

    *k = (struct call){.rest = arg, .x = x, .start_ns = clock_now_ns()};
    c->query = rq->query;
    c->body = rq->body;
    c->is_json = body_is_json(http1_header_get(rq, "content-type"));
    c->content_type = "application/json";
    c->arena = arena;
    c->json = json_put_on(&c->out);
    k->route = find_route(k->rest, rq, &c->name, &k->known);
    if (k->route) {
        if (c->name.ptr)
            c->name = decode_name(arena, c->name);
        status = k->route->handle(k->rest->conf.service, c);
    } else {
        status = k->known ? rest_error(c, 405, "method not allowed")
                          : rest_error(c, 404, "route not found");
    }
    if (status != REST_LATER)
        rest_answer(c, status);
}

static void on_error(struct http_exchange *x, int status, const char *why, void *arg)
{
    struct rest_call c = {.name = STR_NULL};

    (void)arg;
    (void)rest_error(&c, status, "%s", why);
    http_respond(x, status, "application/json", buf_str(&c.out));
    buf_done(&c.out);
}

/* --- life ------------------------------------------------------------------------------------- */

static struct metric_family *family(struct rest *r, const char *name, const char *help,
                                    enum metric_type type, const char *label)
{
    AUTO(mem_free) char *full = xasprintf("%s_%s", r->conf.prefix, name);
    double buckets[BUCKETS];
    struct metric_desc d = {
        .name = full, .help = help, .type = type, .labels = {"endpoint", label}};

    for (size_t i = 0; type == METRIC_HISTOGRAM && i < BUCKETS; i++)
        buckets[i] = i ? buckets[i - 1] * 2 : 0.0001;
    if (type == METRIC_HISTOGRAM) {
        d.buckets = buckets;
        d.n_buckets = BUCKETS;
    }
    return metric_family(r->conf.metrics, &d);
}

/* All is answered, or the time is over. */
static void on_drained(void *arg)
{
    struct rest *r = arg;
    loop_fn stopped = TAKE(r->stopped);

    if (stopped)
        stopped(r->stopped_arg);
}

static void on_explain(struct http_exchange *x, void *arg)
{
    explain_answer(((struct rest *)arg)->conf.explain, x);
}

static void on_decisions(struct http_exchange *x, void *arg)
{
    explain_list(((struct rest *)arg)->conf.explain, x);
}

int rest_start(struct rest **ret, struct loop *l, const struct rest_conf *conf, struct err *e)
{
    /* The last one is for all; the others are left out where nobody explains. */
    static const struct http_route all[] = {{"GET", "/explain/*", on_explain, 0},
                                            {"GET", "/decisions", on_decisions, 0},
                                            {NULL, "/*", dispatch, 0}};
    size_t skipped = conf->explain ? 0 : ARRAY_LEN(all) - 1;
    AUTO(rest_free) struct rest *r = xcalloc(1, sizeof(*r));
    struct http_server_conf http = {.host = conf->host,
                                    .port = conf->port,
                                    .connections_max = CONNECTIONS_MAX,
                                    .body_bytes = REST_BODY_BYTES_MAX,
                                    .idle_ms = IDLE_MS,
                                    .routes = all + skipped,
                                    .n_routes = ARRAY_LEN(all) - skipped,
                                    .arg = r,
                                    .metrics = conf->metrics,
                                    .on_error = on_error};
    int result;

    r->conf = *conf;
    r->deadline = timer_new(l, on_drained, r);
    r->requests = family(r, "requests_total", "Total HTTP requests", METRIC_COUNTER, "method");
    r->errors =
        family(r, "errors_total", "HTTP error responses (4xx/5xx)", METRIC_COUNTER, "status_class");
    r->duration =
        family(r, "request_duration_seconds", "HTTP request latency", METRIC_HISTOGRAM, NULL);
    result = http_server_start(&r->http, l, &http, e);
    if (result < 0)
        return result;
    log_info(conf->log, "serving", LOG_STR("host", conf->host),
             LOG_U64("port", http_server_port(r->http)));
    *ret = TAKE(r);
    return 0;
}

struct rest *rest_free(struct rest *r)
{
    if (!r)
        return NULL;
    http_server_free(r->http);
    timer_free(r->deadline);
    free(r);
    return NULL;
}

void rest_stop(struct rest *r, loop_fn stopped, void *arg)
{
    if (r->stopped)
        return;
    r->stopped = stopped;
    r->stopped_arg = arg;
    timer_start(r->deadline, DRAIN_MS);
    http_server_stop(r->http, on_drained, r);
}

/* --- for handlers ----------------------------------------------------------------------------- */

int rest_error(struct rest_call *c, int status, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    buf_clear(&c->out);
    c->json = json_put_on(&c->out);
    c->content_type = "application/json";
    json_put_object(&c->json);
    json_put_member_cstr(&c->json, "error", text);
    json_put_object_end(&c->json);
    return status;
}

int rest_ok(struct rest_call *c, int status)
{
    buf_put_cstr(&c->out, "{\"status\":\"ok\"}");
    return status;
}

int rest_expect_json(struct rest_call *c)
{
    return c->is_json
               ? 0
               : rest_error(c, 415, "Expected request with `Content-Type: application/json`");
}

int rest_body(struct rest_call *c, const struct body_field *table, size_t n, void *into)
{
    struct err e;
    int r = rest_expect_json(c);

    if (r)
        return r;
    r = body_parse(c->arena, c->body, table, n, into, &e);
    if (r == 0)
        return 0;
    return rest_error(c, r == BODY_NOT_JSON ? 400 : 422, "%s: %s",
                      r == BODY_NOT_JSON ? "the body is no JSON" : "the body is not as expected",
                      e.text);
}

struct str rest_header(struct rest_call *c, const char *name)
{
    return http1_header_get(http_request(call_of(c)->x), name);
}

struct str rest_query(struct rest_call *c, const char *key)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (!http_query_get(c->query, key, &out))
        return STR_NULL;
    return (struct str){arena_strdup(c->arena, buf_str(&out)), out.len};
}

void rest_put_key_u64(struct json_put *j, uint64_t key)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, key);
    json_put_key(j, text);
}

int rest_metrics(struct rest_call *c, struct metric_registry *metrics)
{
    c->content_type = "text/plain; version=0.0.4";
    metric_print(metrics, &c->out);
    return 200;
}
