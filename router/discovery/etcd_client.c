/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/etcd_client.h"

#include <errno.h>

#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/net/file.h"
#include "lib/net/http_client.h"
#include "router/discovery/etcd_wire.h"

static const struct log_target LG = {"dynamo_runtime::transports::etcd"};

#define DEFAULT_ENDPOINT "http://localhost:2379"

enum {
    CONNECT_MS = 2000,
    CALL_MS = 4000, /* below half of a lease's ten seconds */
    LAST_CALL_MS = 1000,
    BODY_MAX = 64 << 20, /* a page of records */
    LINE_MAX_BYTES = 16 << 20,
    PEM_MAX = 1 << 20,
    ENDPOINTS_MAX = 32,
};

struct etcd_client {
    struct loop *loop;
    struct http_client *http;
    char *endpoints[ENDPOINTS_MAX]; /* without a slash at the end */
    size_t n_endpoints, at;
    char *user, *password;
    struct buf token;        /* empty = none yet */
    struct etcd_call *login; /* under way */
    bool open;               /* etcd says that it asks for no token */
    struct list calls;
    struct http_client_conf tls; /* for the last call; views into the texts below */
    char *ca_file;
    struct buf cert, key;
};

struct etcd_call {
    struct list link;
    struct etcd_client *client;
    struct http_call *http; /* NULL = waits for the token */
    char *path;
    struct buf body, in;
    size_t endpoint; /* that it was sent to */
    int status;      /* of the head */
    bool feeding;    /* in on_data(), which frees it then */
    bool over;       /* cancelled meanwhile */
    void (*line)(void *arg, struct str json);
    void (*done)(void *arg, int r, struct str body, const char *why);
    void *arg;
};

/* --- one call --------------------------------------------------------------------------------- */

static void call_free(struct etcd_call *call)
{
    list_remove(&call->link);
    buf_done(&call->body);
    buf_done(&call->in);
    free(call->path);
    free(call);
}

static void call_end(struct etcd_call *call, int r, struct str body, const char *why)
{
    if (r < 0 && call->client->at == call->endpoint)
        call->client->at = (call->endpoint + 1) % call->client->n_endpoints;
    if (call != call->client->login)
        list_remove(&call->link); /* `done` may free everything in the list */
    call->done(call->arg, r, body, why);
    call_free(call);
}

static void on_head(void *arg, int status)
{
    ((struct etcd_call *)arg)->status = status;
}

static void too_long(struct etcd_call *call)
{
    http_call_cancel(call->http);
    call_end(call, -EMSGSIZE, STR_NULL, "etcd's answer is too long");
}

static void on_data(void *arg, struct str bytes)
{
    struct etcd_call *call = arg;
    size_t max = call->line ? LINE_MAX_BYTES : BODY_MAX, n;

    if (call->in.len + bytes.len > max) {
        too_long(call);
        return;
    }
    buf_put_str(&call->in, bytes);
    if (!call->line || call->status != 200)
        return;
    call->feeding = true;
    while (!call->over && (n = str_index(buf_str(&call->in), '\n')) < call->in.len) {
        if (n)
            call->line(call->arg, str_head(buf_str(&call->in), n));
        buf_consume(&call->in, n + 1);
    }
    call->feeding = false;
    if (call->over)
        call_free(call);
}

void etcd_client_drop_token(struct etcd_client *c)
{
    buf_clear(&c->token);
    c->open = false;
}

static void on_http_done(void *arg, int status, int error, const char *why)
{
    struct etcd_call *call = arg;
    struct err e;
    int r;

    call->http = NULL;
    if (error < 0) {
        call_end(call, error, STR_NULL, why);
    } else if (status == 200 && call->line) {
        call_end(call, -EPIPE, STR_NULL, "etcd ended the stream");
    } else if (status == 200) {
        call_end(call, 0, buf_str(&call->in), "");
    } else {
        r = etcd_refusal_parse(buf_str(&call->in), &e);
        /*
         * A stream's refusal does not name its code where others do; no token, or one of before a
         * change of users, is an invalid argument.
         */
        if (status == 401 || (r == ETCD_INVALID_ARGUMENT && call->client->user))
            r = ETCD_UNAUTHENTICATED;
        if (r == ETCD_UNAUTHENTICATED)
            etcd_client_drop_token(call->client);
        call_end(call, r, STR_NULL, e.text);
    }
}

static void call_send(struct etcd_call *call)
{
    struct etcd_client *c = call->client;
    AUTO(mem_free) char *url = xasprintf("%s%s", c->endpoints[c->at], call->path);
    AUTO(mem_free)
    char *token = xasprintf("Authorization: %.*s", STR_ARG(buf_str(&c->token)));
    const char *const headers[] = {"Content-Type: application/json", c->token.len ? token : NULL,
                                   NULL};
    const struct http_call_spec spec = {.method = "POST",
                                        .url = url,
                                        .headers = headers,
                                        .body = buf_str(&call->body),
                                        .connect_ms = CONNECT_MS,
                                        .total_ms = call->line ? 0 : CALL_MS,
                                        .head = on_head,
                                        .data = on_data,
                                        .done = on_http_done,
                                        .arg = call};

    call->endpoint = c->at;
    call->http = http_client_start(c->http, &spec);
}

static struct etcd_call *call_new(struct etcd_client *c, const struct etcd_call_spec *spec)
{
    struct etcd_call *call = xcalloc(1, sizeof(*call));

    call->client = c;
    call->path = xstrdup(spec->path);
    buf_put_str(&call->body, spec->body);
    call->line = spec->line;
    call->done = spec->done;
    call->arg = spec->arg;
    list_append(&c->calls, &call->link);
    return call;
}

/* --- the token -------------------------------------------------------------------------------- */

static struct etcd_call *waiting_first(struct etcd_client *c)
{
    LIST_FOREACH (call, &c->calls, struct etcd_call, link)
        if (!call->http && call != c->login && !call->over)
            return call;
    return NULL;
}

/* Calls that wait: sent, or ended with what the login ended with. `done` may end others. */
static void waiting_go(struct etcd_client *c, int r, const char *why)
{
    struct etcd_call *call;

    while ((call = waiting_first(c))) {
        if (r == 0) {
            call_send(call);
            continue;
        }
        list_remove(&call->link);
        call->done(call->arg, r, STR_NULL, why);
        call_free(call);
    }
}

static void on_login(void *arg, int r, struct str body, const char *why)
{
    struct etcd_client *c = arg;
    struct err e = {{0}};

    if (r == 0)
        r = etcd_login_parse(body, &c->token, &e);
    else
        (void)err_set(&e, -EACCES, "log in as %.60s: %s", c->user, why);
    if (r == ETCD_FAILED_PRECONDITION) {
        c->open = true;
        log_warn(&LG, "etcd asks for no user, going on without", LOG_STR("user", c->user));
        r = 0;
    }
    waiting_go(c, r, e.text);
    c->login = NULL; /* freed by the caller */
}

static void login_start(struct etcd_client *c)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    const struct etcd_call_spec spec = {
        .path = "/v3/auth/authenticate", .done = on_login, .arg = c};

    if (c->login)
        return;
    etcd_put_login(&body, c->user, c->password);
    c->login = call_new(c, &spec);
    buf_put_str(&c->login->body, buf_str(&body));
    call_send(c->login);
}

struct etcd_call *etcd_call_start(struct etcd_client *c, const struct etcd_call_spec *spec)
{
    struct etcd_call *call = call_new(c, spec);

    if (c->user && !c->token.len && !c->open)
        login_start(c);
    else
        call_send(call);
    return call;
}

struct etcd_call *etcd_call_cancel(struct etcd_call *call)
{
    if (!call)
        return NULL;
    if (call->http)
        http_call_cancel(call->http);
    call->http = NULL;
    call->over = true;
    if (!call->feeding)
        call_free(call);
    return NULL;
}

/* --- life ------------------------------------------------------------------------------------- */

static bool is_set(const char *text)
{
    return text && *text;
}

static int endpoints_read(struct etcd_client *c, const char *list, struct err *e)
{
    struct str rest = str_from(is_set(list) ? list : DEFAULT_ENDPOINT), one;

    for (bool more = true; more;) {
        more = str_cut(&rest, ',', &one);
        one = str_trim(one);
        while (str_ends(one, STR("/")))
            one.len--;
        if (!one.len)
            continue;
        if (c->n_endpoints == ENDPOINTS_MAX)
            return err_set(e, -EINVAL, "ETCD_ENDPOINTS: more than %d", ENDPOINTS_MAX);
        c->endpoints[c->n_endpoints++] =
            xasprintf("%s%.*s", str_has(one, STR("://")) ? "" : "http://", STR_ARG(one));
    }
    return c->n_endpoints ? 0 : err_set(e, -EINVAL, "ETCD_ENDPOINTS names none");
}

static int tls_read(struct etcd_client *c, const struct etcd_conf *conf, struct err *e)
{
    int r = 0;

    if (is_set(conf->cert_file) != is_set(conf->key_file))
        return err_set(e, -EINVAL,
                       "ETCD_AUTH_CLIENT_CERT and ETCD_AUTH_CLIENT_KEY belong together");
    if (is_set(conf->cert_file))
        r = file_read(conf->cert_file, PEM_MAX, &c->cert, e);
    if (r == 0 && is_set(conf->key_file))
        r = file_read(conf->key_file, PEM_MAX, &c->key, e);
    if (is_set(conf->ca_file))
        c->ca_file = xstrdup(conf->ca_file);
    c->tls = (struct http_client_conf){
        .ca_file = c->ca_file, .cert_pem = buf_str(&c->cert), .key_pem = buf_str(&c->key)};
    return r;
}

int etcd_client_new(struct etcd_client **ret, struct loop *l, const struct etcd_conf *conf,
                    struct err *e)
{
    AUTO(etcd_client_free) struct etcd_client *c = xcalloc(1, sizeof(*c));
    int r;

    c->loop = l;
    list_init(&c->calls);
    if (is_set(conf->user)) {
        c->user = xstrdup(conf->user);
        c->password = xstrdup(conf->password ? conf->password : "");
    }
    r = endpoints_read(c, conf->endpoints, e);
    if (r == 0)
        r = tls_read(c, conf, e);
    if (r == 0)
        r = http_client_new(&c->http, l, &c->tls, e);
    if (r < 0)
        return err_wrap(e, r, "etcd");
    *ret = TAKE(c);
    return 0;
}

struct etcd_client *etcd_client_free(struct etcd_client *c)
{
    if (!c)
        return NULL;
    LIST_FOREACH (call, &c->calls, struct etcd_call, link)
        (void)etcd_call_cancel(call);
    c->http = http_client_free(c->http);
    for (size_t i = 0; i < c->n_endpoints; i++)
        free(c->endpoints[i]);
    free(c->user);
    free(c->password);
    free(c->ca_file);
    buf_done(&c->token);
    buf_done(&c->cert);
    buf_done(&c->key);
    free(c);
    return NULL;
}

const char *etcd_client_endpoint(const struct etcd_client *c)
{
    return c->endpoints[c->at];
}

void etcd_client_last_call(struct etcd_client *c, const char *path, struct str body)
{
    AUTO(http_sync_free) struct http_sync *http = NULL;
    AUTO(mem_free) char *url = xasprintf("%s%s", c->endpoints[c->at], path);
    AUTO(mem_free)
    char *token = xasprintf("Authorization: %.*s", STR_ARG(buf_str(&c->token)));
    const char *const headers[] = {"Content-Type: application/json", c->token.len ? token : NULL,
                                   NULL};
    const struct http_call_spec spec = {.method = "POST",
                                        .url = url,
                                        .headers = headers,
                                        .body = body,
                                        .connect_ms = LAST_CALL_MS,
                                        .total_ms = LAST_CALL_MS};
    AUTO(buf_done) struct buf answer = BUF_NULL;
    struct err e;
    int status, r = http_sync_new(&http, &c->tls, &e);

    if (r == 0)
        r = http_sync_call(http, &spec, PEM_MAX, &status, &answer, &e);
    if (r < 0)
        log_debug(&LG, "last call to etcd failed, ignoring", LOG_STR("why", e.text));
}
