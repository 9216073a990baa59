/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain HTTP server of the test's own, and a kubeconfig in a temporary file that points at it.
 */
#pragma once

#include "lib/base/test.h"
#include "lib/kube/kube_config.h"
#include "lib/net/http_server.h"

/* Borrows @routes and @arg. */
static inline __attribute__((unused)) struct http_server *
kube_test_server(struct loop *l, const struct http_route *routes, size_t n, void *arg)
{
    const struct http_server_conf conf = {.host = "127.0.0.1",
                                          .connections_max = 8,
                                          .head_bytes = 65536,
                                          .body_bytes = 65536,
                                          .idle_ms = 60000,
                                          .routes = routes,
                                          .n_routes = n,
                                          .arg = arg};
    struct http_server *server = NULL;
    struct err e;

    EXPECT_OK(http_server_start(&server, l, &conf, &e), &e);
    return server;
}

static inline __attribute__((unused)) struct kube_config *kube_test_config_text(const char *text)
{
    char path[] = "/tmp/kube_test.XXXXXX";
    struct kube_config_env env = {.kubeconfig = path};
    struct kube_config *config = NULL;
    int fd = mkstemp(path);
    struct err e;
    int r;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    r = kube_config_load(&config, &env, &e);
    (void)unlink(path);
    EXPECT_OK(r, &e);
    return config;
}

static inline __attribute__((unused)) struct kube_config *kube_test_config(unsigned port)
{
    AUTO(mem_free)
    char *text =
        xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: here\n"
                  "contexts: [{name: here, context: {cluster: c, user: u, namespace: ns}}]\n"
                  "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:%u/'}}]\n"
                  "users: [{name: u, user: {token: sesame}}]\n",
                  port);

    return kube_test_config_text(text);
}
