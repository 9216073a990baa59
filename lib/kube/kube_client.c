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

struct kube_client {
    const struct kube_config *config; /* borrowed: shared by all threads */
    struct http_sync *http;
    uint64_t deadline_ms;
    void (*observe)(void *arg, const char *method, int status); /* may be NULL */
    void *observe_arg;
    struct buf url, auth, body, answer; /* kept from call to call */
};

struct call {
    const char *method;
    const char *content_type; /* NULL = no body */
    struct str body;
};

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
    buf_done(&c->url);
    buf_done(&c->auth);
    buf_done(&c->body);
    buf_done(&c->answer);
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

/* Sends one request to c->url; 0 with c->answer and *ret_status, or -errno. */
static int send_call(struct kube_client *c, const struct call *call, int *ret_status, struct err *e)
{
    const char *headers[5] = {USER_AGENT, "Accept: application/json"};
    struct http_call_spec spec = {.headers = headers, .total_ms = c->deadline_ms};
    size_t n = 2;
    int r;

    buf_clear(&c->auth);
    buf_clear(&c->answer);
    r = kube_config_auth_header(c->config, &c->auth, e);
    if (r < 0)
        return r;
    if (c->auth.len)
        headers[n++] = buf_cstr(&c->auth);
    if (call->content_type)
        headers[n++] = call->content_type;
    spec.method = call->method;
    spec.url = buf_cstr(&c->url);
    spec.body = call->body;
    r = http_sync_call(c->http, &spec, ANSWER_MAX, ret_status, &c->answer, e);
    if (c->observe)
        c->observe(c->observe_arg, call->method, r == 0 ? *ret_status : 0);
    return r;
}

static void start_url(struct kube_client *c)
{
    buf_clear(&c->url);
    buf_put_cstr(&c->url, kube_config_server(c->config));
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

/* A call whose answer is an object. @ret may be NULL. The message is there for every outcome. */
static int call_json(struct kube_client *c, const struct call *call, struct json **ret,
                     struct err *e)
{
    AUTO(json_free) struct json *answer = NULL;
    int status, r;

    r = send_call(c, call, &status, e);
    if (r < 0)
        return err_wrap(e, r, "kube: %s", call->method);
    if (status >= 200 && status < 300) {
        if (!ret)
            return 0;
        r = json_parse(ret, buf_str(&c->answer), e);
        return r < 0 ? err_wrap(e, r, "kube: %s: answer", call->method) : 0;
    }
    if (json_parse(&answer, buf_str(&c->answer), NULL) < 0)
        answer = NULL; /* a proxy's page, not the API server's */
    explain(answer, status, e);
    return outcome(status, strcmp(call->method, "POST") == 0);
}

/* As call_json(), with a tree as body. */
static int send_json(struct kube_client *c, const char *method, const char *type,
                     const struct json *body, struct json **ret, struct err *e)
{
    struct call call = {.method = method, .content_type = type};

    buf_clear(&c->body);
    json_print(body, &c->body);
    call.body = buf_str(&c->body);
    return call_json(c, &call, ret, e);
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
    start_url(c);
    kube_path(&c->url, k, ns, name, NULL);
    return call_json(c, &(struct call){.method = "GET"}, ret, e);
}

int kube_list(struct kube_client *c, const struct kube_kind *k, const char *ns,
              const char *selector, struct json **ret, struct err *e)
{
    start_url(c);
    kube_path(&c->url, k, ns, NULL, NULL);
    kube_url_param(&c->url, "labelSelector", selector);
    return call_json(c, &(struct call){.method = "GET"}, ret, e);
}

int kube_create(struct kube_client *c, const struct kube_kind *k, const struct json *object,
                struct json **ret, struct err *e)
{
    start_url(c);
    kube_path(&c->url, k, object_ns(object), NULL, NULL);
    return send_json(c, "POST", TYPE_JSON, object, ret, e);
}

int kube_update(struct kube_client *c, const struct kube_kind *k, const struct json *object,
                struct json **ret, struct err *e)
{
    start_url(c);
    kube_path(&c->url, k, object_ns(object), object_name(object), NULL);
    return send_json(c, "PUT", TYPE_JSON, object, ret, e);
}

int kube_apply(struct kube_client *c, const struct kube_kind *k, const struct json *object,
               const char *field_manager, struct json **ret, struct err *e)
{
    start_url(c);
    kube_path(&c->url, k, object_ns(object), object_name(object), NULL);
    kube_url_param(&c->url, "force", "true");
    kube_url_param(&c->url, "fieldManager", field_manager);
    return send_json(c, "PATCH", TYPE_APPLY, object, ret, e);
}

int kube_patch(struct kube_client *c, const struct kube_kind *k, const char *ns, const char *name,
               const char *subresource, const struct json *patch, struct json **ret, struct err *e)
{
    start_url(c);
    kube_path(&c->url, k, ns, name, subresource);
    return send_json(c, "PATCH", TYPE_MERGE_PATCH, patch, ret, e);
}

int kube_delete(struct kube_client *c, const struct kube_kind *k, const char *ns, const char *name,
                const char *uid, struct err *e)
{
    AUTO(json_free) struct json *options = json_new_object();

    start_url(c);
    kube_path(&c->url, k, ns, name, NULL);
    (void)json_set_cstr(options, "propagationPolicy", "Background");
    if (uid)
        (void)json_set_cstr(json_need_object(options, "preconditions"), "uid", uid);
    return send_json(c, "DELETE", TYPE_JSON, options, NULL, e);
}

int kube_has_group(struct kube_client *c, const char *group, struct err *e)
{
    int r;

    start_url(c);
    buf_put_cstr(&c->url, "/apis");
    kube_url_segment(&c->url, group);
    r = call_json(c, &(struct call){.method = "GET"}, NULL, e);
    if (r == KUBE_NOT_FOUND)
        return 0;
    if (r == 0)
        return 1;
    return r < 0 ? r : -EACCES;
}
