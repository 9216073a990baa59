/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kubeconfig in a temporary file that points at a plain HTTP server of the test's own.
 */
#pragma once

#include "lib/base/test.h"
#include "lib/kube/kube_config.h"

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
