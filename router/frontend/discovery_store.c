/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/discovery_store.h"

#include <errno.h>

#include "lib/kube/kube_config.h"
#include "router/discovery/store.h"
#include "router/frontend/frontend_conf.h"

static int open_kube(struct store **ret, struct kube_config **ret_kube,
                     const struct frontend_conf *c, const struct store_ways *ways, struct err *e)
{
    const struct kube_config_env where = {ways->env("KUBECONFIG"),
                                          ways->env("KUBERNETES_SERVICE_HOST"),
                                          ways->env("KUBERNETES_SERVICE_PORT")};
    bool has_pod = c->pod_name && c->pod_uid, publishes = ways->publishes && has_pod;
    struct store_kube_conf conf = {.ns = c->pod_namespace,
                                   .pod_name = publishes ? c->pod_name : NULL,
                                   .pod_uid = publishes ? c->pod_uid : NULL,
                                   .own_pod = c->pod_name,
                                   .mismatch_ms = c->discovery_mismatch_ms};
    int r;

    if (ways->needs_pod && !has_pod)
        return err_set(e, -EINVAL, "Kubernetes discovery needs POD_NAME and POD_UID");
    r = kube_config_load(ret_kube, &where, e);
    conf.config = *ret_kube;
    return r < 0 ? r : store_kube_new(ret, ways->loop, &conf, e);
}

int store_open(struct store **ret, struct kube_config **ret_kube, struct store_hub **ret_hub,
               const struct frontend_conf *c, const struct store_ways *ways, struct err *e)
{
    switch (frontend_conf_discovery(c)) {
    case DISCOVERY_KUBERNETES:
        return open_kube(ret, ret_kube, c, ways, e);
    case DISCOVERY_FILE:
        return store_file_new(ret, ways->loop, c->file_kv, e);
    case DISCOVERY_ETCD:
        return store_etcd_new(ret, ways->loop, &c->etcd, e);
    case DISCOVERY_MEM:
        break;
    }
    if (!ways->alone)
        return err_set(e, -EINVAL,
                       "discovery: mem shows nobody the workers of another process; use "
                       "kubernetes, etcd or file, or name engines by --engine-url");
    *ret_hub = store_hub_new();
    *ret = store_mem_new(*ret_hub, ways->loop);
    return 0;
}
