/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/operator/flags.h"

static const char *const discovery_words[] = {"kubernetes", "etcd", NULL};
static const char *const override_words[] = {"Auto", "Never", NULL};

#define TEXT(name, member, fallback, text)                                                         \
    {                                                                                              \
        .flag = (name), .type = CONF_STR, .offset = offsetof(struct flags, member),                \
        .initial = (fallback), .help = (text)                                                      \
    }
#define DURATION(name, member, fallback, text)                                                     \
    {                                                                                              \
        .flag = (name), .type = CONF_DURATION, .offset = offsetof(struct flags, member),           \
        .initial = (fallback), .help = (text), .min = 1000, .max = 86400000                        \
    }
#define WORD(name, member, list, fallback, text)                                                   \
    {                                                                                              \
        .flag = (name), .type = CONF_ENUM, .offset = offsetof(struct flags, member),               \
        .words = (list), .initial = (fallback), .help = (text)                                     \
    }
#define IGNORED(i, name) TEXT(name, ignored[i], NULL, "accepted without effect")
#define IGNORED_SWITCH(i, name)                                                                    \
    {                                                                                              \
        .flag = (name), .type = CONF_BOOL, .offset = offsetof(struct flags, ignored_switches[i]),  \
        .help = "accepted without effect"                                                          \
    }

static const struct conf_field fields[] = {
    {.flag = "kubeconfig",
     .env = "KUBECONFIG",
     .type = CONF_STR,
     .offset = offsetof(struct flags, kubeconfig),
     .help = "kubeconfig file; else the pod's account"},
    TEXT("metrics-bind-address", metrics_address, ":8080", "address of /metrics; 0 = none"),
    TEXT("health-probe-bind-address", health_address, ":8081", "address of /healthz and /readyz"),
    {.flag = "leader-elect",
     .type = CONF_BOOL,
     .offset = offsetof(struct flags, elect),
     .help = "write only while holding the Lease"},
    TEXT("leader-election-id", lease_name, "dynamo.nvidia.com", "name of the Lease"),
    TEXT("leader-election-namespace", lease_ns, NULL, "its namespace; else our own"),
    TEXT("restrictedNamespace", restricted_ns, NULL, "look after this namespace only"),
    TEXT("natsAddr", nats, NULL, "given to components as NATS_SERVER"),
    TEXT("etcdAddr", etcd, NULL, "given to components as ETCD_ENDPOINTS"),
    TEXT("model-express-url", model_express, NULL, "given to components as MODEL_EXPRESS_URL"),
    TEXT("prometheus-endpoint", prometheus, NULL, "given to components as PROMETHEUS_ENDPOINT"),
    TEXT("ingress-controller-class-name", ingress_class, NULL, "Ingress class of frontends"),
    TEXT("ingress-controller-tls-secret-name", ingress_tls, NULL, "TLS Secret of Ingresses"),
    TEXT("ingress-host-suffix", ingress_suffix, NULL, "domain of Ingress hosts"),
    TEXT("planner-cluster-role-name", planner_role, NULL, "ClusterRole of planners"),
    TEXT("operator-version", version, "unknown", "told in the namespace marker"),
    WORD("discovery-backend", discovery, discovery_words, "kubernetes", "kubernetes or etcd"),
    DURATION("namespace-scope-lease-duration", scope_duration_ms, "30s", "of the namespace marker"),
    DURATION("namespace-scope-lease-renew-interval", scope_renew_ms, "10s", "of its renewal"),
    {.flag = "workers",
     .type = CONF_U64,
     .offset = offsetof(struct flags, workers),
     .initial = "2",
     .min = 1,
     .max = 16,
     .help = "reconcile threads per kind"},
    TEXT("frontend-image", frontend_image, NULL, "image of our frontend"),
    TEXT("frontend-image-pull-policy", frontend_pull_policy, NULL, "its pull policy"),
    WORD("frontend-override", frontend_override, override_words, "Auto",
         "Auto: our frontend serves graphs that run dynamo.frontend; Never"),
    IGNORED_SWITCH(0, "metrics-secure"),
    IGNORED_SWITCH(1, "enable-http2"),
    IGNORED_SWITCH(2, "enable-webhooks"),
    IGNORED_SWITCH(3, "virtual-service-supports-https"),
    IGNORED_SWITCH(4, "zap-devel"),
    IGNORED(0, "istio-virtual-service-gateway"),
    IGNORED(1, "grove-termination-delay"),
    IGNORED(2, "mpi-run-ssh-secret-name"),
    IGNORED(3, "mpi-run-ssh-secret-namespace"),
    IGNORED(4, "dgdr-profiling-cluster-role-name"),
    IGNORED(5, "epp-cluster-role-name"),
    IGNORED(6, "zap-log-level"),
    IGNORED(7, "zap-encoder"),
    IGNORED(8, "zap-stacktrace-level"),
    IGNORED(9, "zap-time-encoding"),
};

const struct conf_spec flags_spec = {
    .program = "dynamo-operator",
    .summary = "Turns DynamoGraphDeployments into Deployments, Services and what they need.",
    .fields = fields,
    .n_fields = ARRAY_LEN(fields),
    .go_style = true,
};

static bool is_given(const struct flags *f, const struct conf_field *field)
{
    const void *value = (const char *)f + field->offset;

    if (field->offset >= offsetof(struct flags, ignored_switches))
        return *(const bool *)value;
    return field->offset >= offsetof(struct flags, ignored) && *(char *const *)value;
}

void flags_each_ignored(const struct flags *f, void (*tell)(const char *flag))
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (is_given(f, &fields[i]))
            tell(fields[i].flag);
}

struct manager_conf flags_to_conf(const struct flags *f, const char *(*env)(const char *name))
{
    bool restricted = f->restricted_ns && *f->restricted_ns;

    return (struct manager_conf){
        .kube = {f->kubeconfig, env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT")},
        .plan = {.discovery_backend = discovery_words[f->discovery],
                 .nats_address = f->nats,
                 .etcd_address = f->etcd,
                 .model_express_url = f->model_express,
                 .prometheus_endpoint = f->prometheus,
                 .ingress_class = f->ingress_class,
                 .ingress_host_suffix = f->ingress_suffix,
                 .ingress_tls_secret = f->ingress_tls,
                 .frontend_image = f->frontend_image,
                 .frontend_pull_policy = f->frontend_pull_policy,
                 .frontend_override = (enum plan_override)f->frontend_override,
                 .planner_cluster_role = restricted ? NULL : f->planner_role},
        .restricted_ns = f->restricted_ns,
        .metrics_address = f->metrics_address,
        .health_address = f->health_address,
        .elect = f->elect,
        .lease_name = f->lease_name,
        .lease_ns = f->lease_ns,
        /* A restarted container of the same pod need not wait for its own Lease to expire. */
        .identity = env("POD_NAME"),
        .version = f->version,
        .scope_duration_ms = f->scope_duration_ms,
        .scope_renew_ms = f->scope_renew_ms,
        .n_workers = (unsigned)f->workers,
    };
}
