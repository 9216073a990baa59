/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/pod.h"

#include <errno.h>
#include <string.h>

#include "operator/api/graph.h"
#include "operator/plan/framework.h"
#include "operator/plan/image.h"
#include "operator/plan/merge.h"
#include "operator/plan/names.h"
#include "operator/plan/object.h"
#include "operator/plan/pod_defaults.h"
#include "operator/plan/routing.h"

static bool is_true_text(const char *s)
{
    return s && strcmp(s, "true") == 0;
}

void component_init(struct component *c, const struct plan_config *config,
                    const struct plan_inputs *inputs, const struct json *dcd)
{
    const struct json *spec = json_get(dcd, "spec");
    const char *graph = object_label(dcd, GRAPH_LABEL_GRAPH);
    const char *service = json_get_cstr(spec, "serviceName");
    const char *ns = json_get_cstr(spec, "dynamoNamespace");

    *c = (struct component){
        .config = config,
        .inputs = inputs,
        .dcd = dcd,
        .spec = spec,
        .ns = object_namespace(dcd),
        .name = object_name(dcd),
        .graph = graph,
        .service = service && service[0] ? service : object_name(dcd),
        .model = service_model(spec),
        .kubernetes_discovery =
            plan_uses_kubernetes_discovery(config, json_get(spec, "annotations")),
        .is_ours = plan_is_our_frontend(config, spec),
        .is_live = graph && plan_is_live_frontend(config, spec),
    };
    c->dynamo_namespace =
        ns && ns[0] ? xstrdup(ns) : graph_dynamo_namespace(spec, c->ns, graph ? graph : c->name);
}

void component_done(struct component *c)
{
    free(c->dynamo_namespace);
    c->dynamo_namespace = NULL;
}

/* --- the main container ---------------------------------------------------------------------- */

/*
 * Ours first, then the user's in the user's order, so that $(NAME) finds what it names. Where the
 * user sets one of ours, ours goes.
 */
static struct json *build_env(const struct component *c)
{
    struct json *env = pod_default_env(c);
    AUTO(json_free) struct json *user = routing_user_env(c->spec);
    AUTO(json_free) struct json *moved = json_new_object();

    if (c->is_live) {
        AUTO(mem_free) char *map = graph_routing_name(c->graph, c->service);

        env_put_value(env, ROUTING_CONFIG_MAP_VARIABLE, map);
        routing_take(user, moved);
    }
    JSON_FOREACH (entry, user) {
        const char *name = json_get_cstr(entry, "name");

        if (name)
            env_remove(env, name);
    }
    env_put_all(env, user);
    return env;
}

static void add_env_sources(const struct component *c, struct json *container)
{
    const char *secret = json_get_cstr(c->spec, "envFromSecret");

    if (secret && secret[0]) {
        struct json *from = json_add(json_need_array(container, "envFrom"), json_new_object());

        json_set_cstr(json_need_object(from, "secretRef"), "name", secret);
    }
    if (c->is_live) { /* last, because a later source wins */
        AUTO(mem_free) char *map = graph_routing_name(c->graph, c->service);
        struct json *from = json_add(json_need_array(container, "envFrom"), json_new_object());

        json_set_cstr(json_need_object(from, "configMapRef"), "name", map);
    }
}

static void put_amounts(struct json *resources, const char *section, const struct json *item)
{
    static const char *const keys[] = {"cpu", "memory"};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *amount = json_get_cstr(item, keys[i]);

        if (amount && amount[0])
            json_set_cstr(json_need_object(resources, section), keys[i], amount);
    }
    JSON_FOREACH (custom, json_get(item, "custom"))
        json_set(json_need_object(resources, section), json_key(custom), json_dup(custom));
}

/* GPUs count by their limit only: Kubernetes makes it the request as well. */
static void put_resources(struct json *container, const struct json *wanted)
{
    struct json *resources = json_need_object(container, "resources");
    const struct json *limits = json_get(wanted, "limits");
    const char *gpu = json_get_cstr(limits, "gpu");
    const char *type = json_get_cstr(limits, "gpuType");

    put_amounts(resources, "requests", json_get(wanted, "requests"));
    put_amounts(resources, "limits", limits);
    if (gpu && gpu[0])
        json_set_cstr(json_need_object(resources, "limits"),
                      type && type[0] ? type : "nvidia.com/gpu", gpu);
    JSON_FOREACH (claim, json_get(wanted, "claims"))
        json_add(json_need_array(resources, "claims"), json_dup(claim));
}

static void replace_image(const struct component *c, struct json *container)
{
    if (!c->is_ours)
        return;
    json_set_cstr(container, "image", c->config->frontend_image);
    if (c->config->frontend_pull_policy && c->config->frontend_pull_policy[0])
        json_set_cstr(container, "imagePullPolicy", c->config->frontend_pull_policy);
}

static struct json *main_container(const struct component *c)
{
    static const char *const probes[] = {"livenessProbe", "readinessProbe"};
    const struct json *user = json_path(c->spec, "extraPodSpec", "mainContainer", NULL);
    struct json *container = pod_default_container(c->spec);

    json_set_cstr(container, "name", "main");
    merge_container(container, user);
    json_set(container, "env", build_env(c));
    for (size_t i = 0; i < ARRAY_LEN(probes); i++) {
        const struct json *probe = json_get(c->spec, probes[i]);

        if (json_is_object(probe))
            json_set(container, probes[i], json_dup(probe));
    }
    put_resources(container, json_get(c->spec, "resources"));
    add_env_sources(c, container);
    replace_image(c, container);
    return container;
}

/* --- volumes --------------------------------------------------------------------------------- */

static void mount(struct json *container, const char *volume, const char *path)
{
    struct json *m = json_add(json_need_array(container, "volumeMounts"), json_new_object());

    json_set_cstr(m, "name", volume);
    json_set_cstr(m, "mountPath", path);
}

static int mount_claim(const struct json *entry, const char *framework, struct json *container,
                       struct json *volumes, struct err *e)
{
    const char *name = json_get_cstr(entry, "name");
    const char *path = json_get_cstr(entry, "mountPoint");
    bool cache = false, given = path && path[0];
    bool vllm = framework && strcmp(framework, "vllm") == 0;

    (void)json_get_bool(entry, "useAsCompilationCache", &cache);
    if (!given && !(cache && vllm))
        return err_set(e, -EINVAL,
                       "volumeMount with useAsCompilationCache=true requires an explicit "
                       "mountPoint for backend framework %s (no default available)",
                       framework ? framework : "noop");
    if (!name)
        return err_set(e, -EINVAL, "volumeMount without a name");
    if (!env_find(volumes, name)) {
        struct json *volume = json_add(volumes, json_new_object());

        json_set_cstr(volume, "name", name);
        json_set_cstr(json_need_object(volume, "persistentVolumeClaim"), "claimName", name);
    }
    mount(container, name, given ? path : "/root/.cache/vllm");
    if (cache && vllm && given && !env_find(json_get(container, "env"), "VLLM_CACHE_ROOT"))
        env_put_value(json_get(container, "env"), "VLLM_CACHE_ROOT", path);
    return 0;
}

static void mount_shared_memory(const struct component *c, struct json *container,
                                struct json *volumes)
{
    const struct json *shm = json_get(c->spec, "sharedMemory");
    const struct json *size = json_get(shm, "size");
    struct json *volume, *dir;
    bool disabled = false;

    if (json_get_bool(shm, "disabled", &disabled) && disabled)
        return;
    volume = json_add(volumes, json_new_object());
    json_set_cstr(volume, "name", "shared-memory");
    dir = json_need_object(volume, "emptyDir");
    json_set_cstr(dir, "medium", "Memory");
    json_set(dir, "sizeLimit", size ? json_dup(size) : json_new_cstr("8Gi"));
    mount(container, "shared-memory", "/dev/shm");
}

static int add_volumes(const struct component *c, struct json *container, struct json *volumes,
                       struct err *e)
{
    const char *framework = NULL;
    int r = framework_of(&framework, c->spec, container, e);

    if (r < 0)
        return r;
    JSON_FOREACH (entry, json_get(c->spec, "volumeMounts")) {
        r = mount_claim(entry, framework, container, volumes, e);
        if (r < 0)
            return r;
    }
    mount_shared_memory(c, container, volumes);
    return 0;
}

/* --- the pod --------------------------------------------------------------------------------- */

static const char *account_of(const struct component *c, const struct json *user,
                              const char *discovery_account)
{
    const char *own = json_get_cstr(user, "serviceAccountName");

    if (strcmp(service_type(c->spec), "planner") == 0)
        return PLANNER_ACCOUNT;
    if (own && own[0])
        return own;
    if (c->kubernetes_discovery && c->graph)
        return discovery_account;
    return c->inputs->component_account ? c->inputs->component_account : "default";
}

static void put_account(const struct component *c, struct json *pod, const struct json *user)
{
    AUTO(mem_free)
    char *discovery = xasprintf("%s" DISCOVERY_ACCOUNT_SUFFIX, c->graph ? c->graph : "");

    json_set_cstr(pod, "serviceAccountName", account_of(c, user, discovery));
}

static void put_pull_secrets(const struct component *c, struct json *pod, const char *image)
{
    const struct json *annotations = json_get(c->spec, "annotations");
    AUTO(json_free) struct json *secrets = json_new_array();

    JSON_FOREACH (secret, json_get(pod, "imagePullSecrets"))
        json_add(secrets, json_dup(secret));
    if (image && !is_true_text(json_get_cstr(annotations, ANNOTATION_NO_PULL_SECRETS)))
        image_add_pull_secrets(secrets, c->inputs->pull_secrets, image);
    if (json_len(secrets) > 0)
        json_set(pod, "imagePullSecrets", TAKE(secrets));
}

/* A container to attach to, which sees the processes of the others. */
static void add_debugger(struct json *pod, struct json *containers)
{
    json_set_bool(pod, "shareProcessNamespace", true);
    json_add(containers,
             json_constant("{\"name\":\"debugger\",\"image\":\"python:3.12-slim\","
                           "\"command\":[\"sleep\",\"infinity\"],"
                           "\"resources\":{\"requests\":{\"cpu\":\"100m\",\"memory\":\"100Mi\"},"
                           "\"limits\":{\"cpu\":\"1\",\"memory\":\"1000Mi\"}},"
                           "\"securityContext\":{\"capabilities\":{\"add\":[\"SYS_PTRACE\"]}},"
                           "\"stdin\":true,\"tty\":true}"));
}

static int pod_spec(struct json **ret, const struct component *c, struct err *e)
{
    const struct json *user = json_get(c->spec, "extraPodSpec");
    AUTO(json_free) struct json *main = main_container(c);
    AUTO(json_free)
    struct json *pod =
        json_constant("{\"restartPolicy\":\"Always\",\"terminationGracePeriodSeconds\":60}");
    struct json *containers;
    int r;

    merge_over(pod, user);
    json_del(pod, "mainContainer");
    r = add_volumes(c, main, json_need_array(pod, "volumes"), e);
    if (r < 0)
        return r;
    if (json_len(json_get(pod, "volumes")) == 0)
        json_del(pod, "volumes");
    if (!json_is_object(json_get(user, "securityContext")))
        json_set_i64(json_need_object(pod, "securityContext"), "fsGroup", 1000);
    put_account(c, pod, user);
    put_pull_secrets(c, pod, json_get_cstr(main, "image"));

    containers = json_need_array(pod, "containers");
    json_add(containers, TAKE(main));
    if (is_true_text(json_get_cstr(json_get(c->spec, "annotations"), ANNOTATION_DEBUG)))
        add_debugger(pod, containers);
    *ret = TAKE(pod);
    return 0;
}

static void put_labels(const struct component *c, struct json *template)
{
    const char *type = service_type(c->spec);
    const char *sub_type = json_get_cstr(c->spec, "subComponentType");
    const char *metrics =
        json_get_cstr(json_get(c->spec, "annotations"), ANNOTATION_ENABLE_METRICS);
    char hash[GRAPH_MODEL_HASH_SIZE];

    object_add_labels(template, json_get(c->spec, "labels"));
    object_put_label(template, GRAPH_LABEL_COMPONENT, c->service);
    object_put_label(template, GRAPH_LABEL_NAMESPACE, c->dynamo_namespace);
    object_put_label(template, GRAPH_LABEL_GRAPH, c->graph);
    object_put_label(template, GRAPH_LABEL_SELECTOR, c->name);
    object_put_label(template, GRAPH_LABEL_TYPE, type[0] ? type : NULL);
    object_put_label(template, GRAPH_LABEL_SUB_TYPE, sub_type && sub_type[0] ? sub_type : NULL);
    if (!metrics || strcmp(metrics, "false") != 0)
        object_put_label(template, GRAPH_LABEL_METRICS, "true");
    if (c->model) {
        graph_model_hash(c->model, hash);
        object_put_label(template, GRAPH_LABEL_MODEL_HASH, hash);
    }
    object_add_labels(template, json_path(c->spec, "extraPodMetadata", "labels", NULL));
}

static void put_annotations(const struct component *c, struct json *template)
{
    const char *image =
        json_get_cstr(json_path(c->spec, "extraPodSpec", "mainContainer", NULL), "image");

    object_add_annotations(template, json_path(c->spec, "extraPodMetadata", "annotations", NULL));
    object_put_annotation(template, ANNOTATION_RESTART,
                          json_get_cstr(json_get(c->spec, "annotations"), ANNOTATION_RESTART));
    if (c->is_ours && image && strcmp(image, c->config->frontend_image) != 0)
        object_put_annotation(template, PLAN_ORIGINAL_IMAGE, image);
}

int pod_template(struct json **ret, const struct component *c, struct err *e)
{
    AUTO(json_free) struct json *template = json_new_object();
    struct json *spec = NULL;
    int r = pod_spec(&spec, c, e);

    if (r < 0)
        return r;
    put_labels(c, template);
    put_annotations(c, template);
    json_set(template, "spec", spec);
    *ret = TAKE(template);
    return 0;
}
