/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_client.h"

#include <errno.h>
#include <string.h>

#include "lib/kube/kube_url.h"
#include "lib/net/http_client.h"

enum { CALL_MS = 30000, ANSWER_MAX = 64 << 20 };

#define USER_AGENT "User-Agent: commutator/" COMMUTATOR_VERSION
#define TYPE_JSON "Content-Type: application/json"
#define TYPE_MERGE_PATCH "Content-Type: application/merge-patch+json"
#define TYPE_APPLY "Content-Type: application/apply-patch+yaml"

/* One request and its answer. */
struct exchange {
    const char *method;
    const char *content_type; /* NULL = no body */
    struct buf url, body, answer;
    const char *headers[5];
};

struct kube_client {
    const struct kube_config *config; /* borrowed: shared by all threads */
    struct http_sync *http;
    uint64_t deadline_ms;
    void (*observe)(void *arg, const char *method, int status); /* may be NULL */
    void *observe_arg;
    struct exchange one; /* of single calls; its buffers are kept from call to call */
    struct buf auth;
};

static void exchange_done(struct exchange *x)
{
    buf_done(&x->url);
    buf_done(&x->body);
    buf_done(&x->answer);
}

int kube_client_new(struct kube_client **ret, const struct kube_config *config, struct err *e)
{
    AUTO(kube_client_free) struct kube_client *c = xcalloc(1, sizeof(*c));
    struct http_client_conf conf = kube_config_http(config);
    int r;

    c->config = config;
    c->deadline_ms = CALL_MS;
    r = http_sync_new(&c->http, &conf, e);
    if (r < 0)
        return err_wrap(e, r, "kube");
    *ret = TAKE(c);
    return 0;
}

struct kube_client *kube_client_free(struct kube_client *c)
{
    if (!c)
        return NULL;
    http_sync_free(c->http);
    exchange_done(&c->one);
    buf_done(&c->auth);
    free(c);
    return NULL;
}

void kube_client_set_deadline(struct kube_client *c, uint64_t ms)
{
    c->deadline_ms = ms;
}

void kube_client_observe(struct kube_client *c,
                         void (*fn)(void *arg, const char *method, int status), void *arg)
{
    c->observe = fn;
    c->observe_arg = arg;
}

static int renew_auth(struct kube_client *c, struct err *e)
{
    buf_clear(&c->auth);
    return kube_config_auth_header(c->config, &c->auth, e);
}

/* After renew_auth(); the job borrows all that @x and @c hold. */
static struct http_sync_job job_of(struct kube_client *c, struct exchange *x)
{
    size_t n = 0;

    x->headers[n++] = USER_AGENT;
    x->headers[n++] = "Accept: application/json";
    if (c->auth.len)
        x->headers[n++] = buf_cstr(&c->auth);
    if (x->content_type)
        x->headers[n++] = x->content_type;
    x->headers[n] = NULL;
    buf_clear(&x->answer);
    return (struct http_sync_job){
        .spec = {.method = x->method,
                 .url = buf_cstr(&x->url),
                 .headers = x->headers,
                 .body = x->content_type ? buf_str(&x->body) : STR_NULL,
                 .total_ms = c->deadline_ms},
        .max_body = ANSWER_MAX,
        .body = &x->answer,
    };
}

static void start_url(struct kube_client *c, struct exchange *x)
{
    buf_clear(&x->url);
    buf_put_cstr(&x->url, kube_config_server(c->config));
}

static void put_body(struct exchange *x, const char *type, const struct json *body)
{
    x->content_type = type;
    buf_clear(&x->body);
    json_print(body, &x->body);
}

/* What the API server said, from its Status object; else the number. */
static void explain(const struct json *answer, int status, struct err *e)
{
    const char *message = json_get_cstr(answer, "message");

    (void)err_set(e, -EIO, "%s (HTTP %d)", message ? message : "no explanation", status);
}

static int outcome(int status, bool creating)
{
    switch (status) {
    case 404:
        return KUBE_NOT_FOUND;
    case 409:
        return creating ? KUBE_EXISTS : KUBE_CONFLICT;
    case 400:
    case 403:
    case 413:
    case 422:
        return KUBE_REFUSED;
    case 401:
        return -EACCES;
    case 429:
    case 503:
        return -EAGAIN;
    default:
        return -EIO;
    }
}

/* What came of an exchange. @ret may be NULL. The message is there for every outcome. */
static int conclude(struct kube_client *c, struct exchange *x, const struct http_sync_job *job,
                    struct json **ret, struct err *e)
{
    AUTO(json_free) struct json *answer = NULL;
    int r = job->r;

    if (c->observe)
        c->observe(c->observe_arg, x->method, r == 0 ? job->status : 0);
    if (r < 0)
        return err_set(e, r, "kube: %s: %s", x->method, job->err.text);
    if (job->status >= 200 && job->status < 300) {
        if (!ret)
            return 0;
        r = json_parse(ret, buf_str(&x->answer), e);
        return r < 0 ? err_wrap(e, r, "kube: %s: answer", x->method) : 0;
    }
    if (json_parse(&answer, buf_str(&x->answer), NULL) < 0)
        answer = NULL; /* a proxy's page, not the API server's */
    explain(answer, job->status, e);
    return outcome(job->status, strcmp(x->method, "POST") == 0);
}

/* Sends c->one, whose URL stands; @body NULL = none. */
static int call(struct kube_client *c, const char *method, const char *type,
                const struct json *body, struct json **ret, struct err *e)
{
    struct exchange *x = &c->one;
    struct http_sync_job job;
    int r = renew_auth(c, e);

    if (r < 0)
        return err_wrap(e, r, "kube: %s", method);
    x->method = method;
    x->content_type = NULL;
    if (body)
        put_body(x, type, body);
    job = job_of(c, x);
    http_sync_run(c->http, &job, 1);
    return conclude(c, x, &job, ret, e);
}

static const char *object_ns(const struct json *object)
{
    return json_cstr(json_path(object, "metadata", "namespace", NULL));
}

static const char *object_name(const struct json *object)
{
    const char *name = json_cstr(json_path(object, "metadata", "name", NULL));

    return name ? name : "";
}

int kube_get(struct kube_client *c, const struct kube_kind *k, const char *ns, const char *name,
             struct json **ret, struct err *e)
{
    start_url(c, &c->one);
    kube_path(&c->one.url, k, ns, name, NULL);
    return call(c, "GET", NULL, NULL, ret, e);
}

static void creation_tell(struct kube_creation *at)
{
    if (at->done)
        at->done(at->arg, at);
}

/* One of several calls. */
struct creating {
    struct kube_client *client;
    struct kube_creation *at;
    struct exchange x;
};

static void created(void *arg, struct http_sync_job *job)
{
    struct creating *g = arg;

    g->at->r = conclude(g->client, &g->x, job, &g->at->stored, &g->at->err);
    exchange_done(&g->x);
    creation_tell(g->at);
}

static void create_together(struct kube_client *c, struct kube_creation *at, size_t n)
{
    AUTO(mem_free) struct creating *g = xcalloc(n, sizeof(*g));
    AUTO(mem_free) struct http_sync_job *jobs = xcalloc(n, sizeof(*jobs));

    for (size_t i = 0; i < n; i++) {
        struct exchange *x = &g[i].x;

        g[i].client = c;
        g[i].at = &at[i];
        x->method = "POST";
        start_url(c, x);
        kube_path(&x->url, at[i].kind, object_ns(at[i].object), NULL, NULL);
        put_body(x, TYPE_JSON, at[i].object);
        jobs[i] = job_of(c, x);
        jobs[i].done = created;
        jobs[i].arg = &g[i];
    }
    http_sync_run(c->http, jobs, n);
}

void kube_create_all(struct kube_client *c, struct kube_creation *at, size_t n)
{
    struct err e;
    int r = renew_auth(c, &e);

    if (r == 0)
        create_together(c, at, n);
    else
        for (size_t i = 0; i < n; i++) {
            at[i].r = err_set(&at[i].err, r, "kube: POST: %s", e.text);
            creation_tell(&at[i]);
        }
}

int kube_create(struct kube_client *c, const struct kube_kind *k, const struct json *object,
                struct json **ret, struct err *e)
{
    start_url(c, &c->one);
    kube_path(&c->one.url, k, object_ns(object), NULL, NULL);
    return call(c, "POST", TYPE_JSON, object, ret, e);
}

int kube_update(struct kube_client *c, const struct kube_kind *k, const struct json *object,
                struct json **ret, struct err *e)
{
    start_url(c, &c->one);
    kube_path(&c->one.url, k, object_ns(object), object_name(object), NULL);
    return call(c, "PUT", TYPE_JSON, object, ret, e);
}

int kube_apply(struct kube_client *c, const struct kube_kind *k, const struct json *object,
               const char *field_manager, struct json **ret, struct err *e)
{
    start_url(c, &c->one);
    kube_path(&c->one.url, k, object_ns(object), object_name(object), NULL);
    kube_url_param(&c->one.url, "force", "true");
    kube_url_param(&c->one.url, "fieldManager", field_manager);
    return call(c, "PATCH", TYPE_APPLY, object, ret, e);
}

int kube_patch(struct kube_client *c, const struct kube_kind *k, const char *ns, const char *name,
               const char *subresource, const struct json *patch, struct json **ret, struct err *e)
{
    start_url(c, &c->one);
    kube_path(&c->one.url, k, ns, name, subresource);
    return call(c, "PATCH", TYPE_MERGE_PATCH, patch, ret, e);
}

int kube_delete(struct kube_client *c, const struct kube_kind *k, const char *ns, const char *name,
                const char *uid, struct err *e)
{
    AUTO(json_free) struct json *options = json_new_object();

    start_url(c, &c->one);
    kube_path(&c->one.url, k, ns, name, NULL);
    (void)json_set_cstr(options, "propagationPolicy", "Background");
    if (uid)
        (void)json_set_cstr(json_need_object(options, "preconditions"), "uid", uid);
    return call(c, "DELETE", TYPE_JSON, options, NULL, e);
}
