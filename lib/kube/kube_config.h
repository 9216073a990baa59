/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How to reach the API server: in-cluster service account, or a kubeconfig file.
 *
 * Immutable after loading and shared by clients of all threads. The in-cluster token is read again
 * when its file changes (kube_config_token), because kubelets rotate it.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/http_client.h"

struct kube_config;

/*
 * @path NULL: $KUBECONFIG as passed in @env_kubeconfig, else in-cluster (KUBERNETES_SERVICE_HOST as
 * @env_host, @env_port and the mounted service account), else ~/.kube/config is NOT tried.
 */
struct kube_config_env {
    const char *kubeconfig;   /* $KUBECONFIG or NULL */
    const char *service_host; /* $KUBERNETES_SERVICE_HOST */
    const char *service_port; /* $KUBERNETES_SERVICE_PORT */
};
MUST_CHECK int kube_config_load(struct kube_config **ret, const struct kube_config_env *env,
                                struct err *e);
struct kube_config *kube_config_free(struct kube_config *c);
DEFINE_CLEANUP(struct kube_config *, kube_config_free)
const char *kube_config_server(const struct kube_config *c); /* "https://10.96.0.1:443" */
/* Namespace of the service account or of the context; "default" when unknown. */
const char *kube_config_namespace(const struct kube_config *c);
struct http_client_conf kube_config_http(const struct kube_config *c);
/* "Authorization: Bearer …" appended to @out, or nothing (client certificates). Thread safe. */
MUST_CHECK int kube_config_auth_header(const struct kube_config *c, struct buf *out, struct err *e);
