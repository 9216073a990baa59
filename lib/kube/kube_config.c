/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_config.h"

#include <errno.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/json_tree.h"
#include "lib/net/file.h"
#include "lib/base/yaml.h"

#define SERVICE_ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

enum { FILE_MAX = 4 << 20 };

struct kube_config {
    char *server;
    char *namespace;
    char *token;              /* fixed, or NULL */
    char *token_file;         /* read at each call, or NULL */
    struct buf ca, cert, key; /* PEM */
    bool insecure;
};

/* A path in a kubeconfig is relative to the file that names it. */
static char *resolve(const char *kubeconfig, const char *path)
{
    const char *slash = strrchr(kubeconfig, '/');

    if (path[0] == '/' || !slash)
        return xstrdup(path);
    return xasprintf("%.*s/%s", (int)(slash - kubeconfig), kubeconfig, path);
}

/* PEM bytes from "<key>-data" (base64) or from the file that "<key>" names; neither is no error. */
static int load_pem(struct buf *out, const char *kubeconfig, const struct json *from,
                    const char *key, struct err *e)
{
    AUTO(buf_done) struct buf data_key = BUF_NULL;
    AUTO(mem_free) char *path = NULL;
    const char *text;

    buf_printf(&data_key, "%s-data", key);
    text = json_get_cstr(from, buf_cstr(&data_key));
    if (text && *text)
        return base64_decode(out, str_from(text))
                   ? 0
                   : err_set(e, -EINVAL, "%s is not base64", buf_cstr(&data_key));
    text = json_get_cstr(from, key);
    if (!text || !*text)
        return 0;
    path = resolve(kubeconfig, text);
    return file_read(path, FILE_MAX, out, e);
}

/* The member @member of the element called @name in the named list @list. */
static const struct json *find_named(const struct json *root, const char *list, const char *name,
                                     const char *member)
{
    const char *got;

    JSON_FOREACH (item, json_get(root, list)) {
        got = json_get_cstr(item, "name");
        if (name && got && strcmp(got, name) == 0)
            return json_get(item, member);
    }
    return NULL;
}

static int take_user(struct kube_config *c, const char *path, const struct json *user,
                     struct err *e)
{
    const char *token = json_get_cstr(user, "token");
    const char *token_file = json_get_cstr(user, "tokenFile");
    int r;

    if (json_get(user, "exec") || json_get(user, "auth-provider"))
        return err_set(e, -ENOTSUP, "exec and auth-provider users are not supported");
    if (token_file && *token_file)
        c->token_file = resolve(path, token_file);
    else if (token && *token)
        c->token = xstrdup(token);
    r = load_pem(&c->cert, path, user, "client-certificate", e);
    if (r < 0)
        return r;
    return load_pem(&c->key, path, user, "client-key", e);
}

static int take_context(struct kube_config *c, const char *path, const struct json *root,
                        struct err *e)
{
    const char *name = json_get_cstr(root, "current-context");
    const struct json *context = find_named(root, "contexts", name, "context");
    const struct json *cluster =
        find_named(root, "clusters", json_get_cstr(context, "cluster"), "cluster");
    const char *ns = json_get_cstr(context, "namespace");
    const char *server = json_get_cstr(cluster, "server");
    int r;

    if (!server)
        return err_set(e, -EINVAL, "context '%s' names no cluster with a server", name ? name : "");
    /* kube_path() begins with a slash. */
    c->server =
        str_dup(str_head(str_from(server), strlen(server) - str_ends(str_from(server), STR("/"))));
    if (ns && *ns)
        c->namespace = xstrdup(ns);
    (void)json_get_bool(cluster, "insecure-skip-tls-verify", &c->insecure);
    r = load_pem(&c->ca, path, cluster, "certificate-authority", e);
    if (r < 0)
        return r;
    return take_user(c, path, find_named(root, "users", json_get_cstr(context, "user"), "user"), e);
}

static int load_file(struct kube_config *c, const char *path, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    AUTO(json_free) struct json *documents = NULL;
    int r;

    r = file_read(path, FILE_MAX, &text, e);
    if (r == 0)
        r = yaml_parse(&documents, buf_str(&text), e);
    if (r == 0)
        r = take_context(c, path, json_at(documents, 0), e);
    return r < 0 ? err_wrap(e, r, "kubeconfig '%s'", path) : 0;
}

static int load_in_cluster(struct kube_config *c, const struct kube_config_env *env, struct err *e)
{
    AUTO(buf_done) struct buf ns = BUF_NULL;
    bool v6 = strchr(env->service_host, ':') != NULL;
    int r;

    c->server = xasprintf(v6 ? "https://[%s]:%s" : "https://%s:%s", env->service_host,
                          env->service_port ? env->service_port : "443");
    c->token_file = xstrdup(SERVICE_ACCOUNT_DIR "/token");
    r = file_read(SERVICE_ACCOUNT_DIR "/ca.crt", FILE_MAX, &c->ca, e);
    if (r < 0)
        return err_wrap(e, r, "kube: service account");
    if (file_read(SERVICE_ACCOUNT_DIR "/namespace", FILE_MAX, &ns, NULL) == 0)
        c->namespace = str_dup(str_trim(buf_str(&ns)));
    return 0;
}

int kube_config_load(struct kube_config **ret, const struct kube_config_env *env, struct err *e)
{
    AUTO(kube_config_free) struct kube_config *c = xcalloc(1, sizeof(*c));
    int r;

    if (env->kubeconfig && *env->kubeconfig)
        r = load_file(c, env->kubeconfig, e);
    else if (env->service_host && *env->service_host)
        r = load_in_cluster(c, env, e);
    else
        r = err_set(e, -ENOENT, "kube: neither KUBECONFIG nor KUBERNETES_SERVICE_HOST is set");
    if (r < 0)
        return r;
    *ret = TAKE(c);
    return 0;
}

struct kube_config *kube_config_free(struct kube_config *c)
{
    if (!c)
        return NULL;
    free(c->server);
    free(c->namespace);
    free(c->token);
    free(c->token_file);
    buf_done(&c->ca);
    buf_done(&c->cert);
    buf_done(&c->key);
    free(c);
    return NULL;
}

const char *kube_config_server(const struct kube_config *c)
{
    return c->server;
}

const char *kube_config_namespace(const struct kube_config *c)
{
    return c->namespace ? c->namespace : "default";
}

struct http_client_conf kube_config_http(const struct kube_config *c)
{
    return (struct http_client_conf){
        .ca_pem = buf_str(&c->ca),
        .cert_pem = buf_str(&c->cert),
        .key_pem = buf_str(&c->key),
        .insecure = c->insecure,
    };
}

/*
 * The mounted token is read each time: a kubelet replaces it every hour, and 1 KiB from the page
 * cache costs less than a lock and a look at the clock would be worth.
 */
int kube_config_auth_header(const struct kube_config *c, struct buf *out, struct err *e)
{
    AUTO(buf_done) struct buf token = BUF_NULL;
    struct str text = str_from(c->token);
    int r;

    if (c->token_file) {
        r = file_read(c->token_file, FILE_MAX, &token, e);
        if (r < 0)
            return err_wrap(e, r, "kube: service account token");
        text = str_trim(buf_str(&token));
    }
    if (text.len)
        buf_printf(out, "Authorization: Bearer %.*s", STR_ARG(text));
    return 0;
}
