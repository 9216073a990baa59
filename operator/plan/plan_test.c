/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/plan.h"

#include "lib/base/test.h"
#include "operator/api/graph.h"
#include "operator/plan/framework.h"
#include "operator/plan/image.h"
#include "operator/plan/merge.h"

static const struct plan_config plain = {.nats_address = "nats://n:4222"};
static const struct plan_config with_image = {.nats_address = "nats://n:4222",
                                              .frontend_image = "our/image:1",
                                              .frontend_pull_policy = "Never"};
static const struct plan_inputs nothing;

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

/* A graph "g" in namespace "ns" with one service. */
static struct json *graph_of(const char *service_name, const char *service)
{
    AUTO(mem_free)
    char *text = xasprintf("{\"metadata\":{\"name\":\"g\",\"namespace\":\"ns\",\"uid\":\"u1\","
                           "\"generation\":7},"
                           "\"spec\":{\"services\":{\"%s\":%s}}}",
                           service_name, service);

    return parse(text);
}

static void expect_json(const struct json *v, const char *want)
{
    AUTO(json_free) struct json *expected = parse(want);

    if (!json_equal(v, expected)) {
        AUTO(mem_free) char *text = v ? json_to_cstr(v) : xstrdup("(absent)");

        fail_msg("want %s\n got %s", want, text);
    }
}

/* The object of @kind that the one component of a graph with this service leads to. */
static struct json *child_of(const struct plan_config *config, const struct plan_inputs *inputs,
                             const char *name, const char *service, const struct kube_kind *kind)
{
    AUTO(json_free) struct json *dgd = graph_of(name, service);
    AUTO(object_set_free) struct object_set *set = graph_plan(config, inputs, dgd);
    AUTO(object_set_free) struct object_set *children = NULL;
    AUTO(mem_free) char *child = graph_child_name("g", name);
    const struct planned *dcd = object_set_find(set, &KIND_DCD, child);
    const struct planned *found = object_set_find(set, kind, child);

    if (found)
        return json_dup(found->object);
    assert_non_null(dcd);
    children = component_plan(config, inputs, dcd->object);
    found = object_set_find(children, kind, child);
    return found ? json_dup(found->object) : NULL;
}

/* Its pod; the main container is the last. */
static struct json *pod_of(const struct plan_config *config, const char *service)
{
    AUTO(json_free) struct json *d = child_of(config, &nothing, "Svc", service, &KIND_DEPLOYMENT);

    return json_dup(json_path(d, "spec", "template", "spec", NULL));
}

static struct json *last_container(const struct json *pod)
{
    const struct json *list = json_get(pod, "containers");

    return json_at(list, json_len(list) - 1);
}

/* An engine without the Dynamo runtime: its own port and probes, and a Service that says so. */
static void a_stock_engine(void **state)
{
    static const char service[] =
        "{\"componentType\":\"worker\",\"extraPodSpec\":{\"mainContainer\":{\"command\":[\"vllm\","
        "\"serve\",\"m\",\"--port\",\"8001\",\"--block-size\",\"32\"]}}}";
    AUTO(json_free)
    struct json *svc = child_of(&plain, &nothing, "Svc", service, &KIND_SERVICE);
    AUTO(json_free) struct json *pod = pod_of(&plain, service);
    const struct json *labels = json_path(svc, "metadata", "labels", NULL);
    const struct json *main = last_container(pod);

    (void)state;
    expect_json(json_path(svc, "spec", "ports", NULL),
                "[{\"name\":\"http\",\"port\":8001,\"protocol\":\"TCP\",\"targetPort\":\"http\"}]");
    assert_string_equal(json_get_cstr(labels, "commutator.dev/engine"), "vllm");
    assert_string_equal(json_get_cstr(labels, "commutator.dev/engine-block-size"), "32");
    assert_null(json_get(labels, "commutator.dev/engine-kv-events-port"));
    assert_null(json_get(labels, GRAPH_LABEL_DISCOVERABLE));
    expect_json(json_get(main, "ports"),
                "[{\"name\":\"http\",\"containerPort\":8001,\"protocol\":\"TCP\"}]");
    expect_json(json_path(main, "readinessProbe", "httpGet", NULL),
                "{\"path\":\"/health\",\"port\":\"http\"}");
}

struct field_case {
    const char *service;
    const char *field; /* of the main container */
    const char *want;
};

static void expect_field(const struct field_case *c)
{
    AUTO(json_free) struct json *pod = pod_of(&plain, c->service);
    const struct json *field = json_get(last_container(pod), c->field);

    if (strcmp(c->want, "null") == 0)
        assert_null(field);
    else
        expect_json(field, c->want);
}

static void user_settings_go_over_defaults(void **state)
{
    static const struct field_case cases[] = {
        {"{}", "command", "[\"/bin/sh\",\"-c\"]"},
        {"{\"componentType\":\"frontend\"}", "args", "[\"-m\",\"dynamo.frontend\"]"},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{\"args\":[]}}}",
         "args", "[\"-m\",\"dynamo.frontend\"]"},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{"
         "\"command\":[\"x\"]}}}",
         "args", "[\"-m\",\"dynamo.frontend\"]"},
        {"{\"extraPodSpec\":{\"mainContainer\":{\"name\":\"renamed\"}}}", "name", "\"renamed\""},
        {"{\"extraPodSpec\":{\"mainContainer\":{\"name\":\"\"}}}", "name", "\"main\""},
        /* Fields of a probe merge, a handler of another kind replaces. */
        {"{\"componentType\":\"worker\",\"extraPodSpec\":{\"mainContainer\":{\"livenessProbe\":"
         "{\"periodSeconds\":9}}}}",
         "livenessProbe",
         "{\"httpGet\":{\"path\":\"/live\",\"port\":\"system\"},\"periodSeconds\":9,"
         "\"timeoutSeconds\":4,\"failureThreshold\":1}"},
        {"{\"componentType\":\"worker\",\"extraPodSpec\":{\"mainContainer\":{\"livenessProbe\":"
         "{\"exec\":{\"command\":[\"x\"]}}}}}",
         "livenessProbe",
         "{\"exec\":{\"command\":[\"x\"]},\"periodSeconds\":5,\"timeoutSeconds\":4,"
         "\"failureThreshold\":1}"},
        {"{\"componentType\":\"worker\",\"extraPodSpec\":{\"mainContainer\":{\"startupProbe\":"
         "{\"tcpSocket\":{\"port\":1}}}}}",
         "startupProbe", "{\"tcpSocket\":{\"port\":1}}"},
        {"{\"componentType\":\"worker\",\"livenessProbe\":{\"tcpSocket\":{\"port\":1}}}",
         "livenessProbe", "{\"tcpSocket\":{\"port\":1}}"},
        /* GPUs count by their limit. */
        {"{\"resources\":{\"requests\":{\"gpu\":\"2\",\"cpu\":\"1\"}}}", "resources",
         "{\"requests\":{\"cpu\":\"1\"}}"},
        {"{\"resources\":{\"limits\":{\"gpu\":\"2\",\"gpuType\":\"x/y\","
         "\"custom\":{\"a/b\":\"1\"}},"
         "\"claims\":[{\"name\":\"c\"}]}}",
         "resources", "{\"limits\":{\"a/b\":\"1\",\"x/y\":\"2\"},\"claims\":[{\"name\":\"c\"}]}"},
        {"{\"sharedMemory\":{\"disabled\":true}}", "volumeMounts", "null"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_field(&cases[i]);
}

#define TLS_ENV(what, path) "{\"name\":\"DYN_TLS_" what "_PATH\",\"value\":\"" path "\"}"
#define LIVENESS_TIMES                                                                             \
    "\"initialDelaySeconds\":15,\"periodSeconds\":10,\"timeoutSeconds\":1,\"failureThreshold\":3"

/* The kubelet asks a frontend as it can be asked; a GET of the user's stays as it is. */
static void probes_of_a_frontend_over_https(void **state)
{
    static const struct field_case cases[] = {
        {"{\"componentType\":\"frontend\",\"envs\":[" TLS_ENV("CERT", "/c") "]}", "livenessProbe",
         "{\"httpGet\":{\"path\":\"/live\",\"port\":\"http\",\"scheme\":\"HTTPS\"}," LIVENESS_TIMES
         "}"},
        {"{\"componentType\":\"frontend\",\"envs\":[" TLS_ENV("CERT", "") "]}", "livenessProbe",
         "{\"httpGet\":{\"path\":\"/live\",\"port\":\"http\"}," LIVENESS_TIMES "}"},
        {"{\"componentType\":\"frontend\",\"envs\":[{\"name\":\"DYN_TLS_CERT_PATH\","
         "\"valueFrom\":{\"secretKeyRef\":{}}}]}",
         "livenessProbe",
         "{\"httpGet\":{\"path\":\"/live\",\"port\":\"http\",\"scheme\":\"HTTPS\"}," LIVENESS_TIMES
         "}"},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{\"args\":[\"-m\","
         "\"dynamo.frontend\",\"--tls-cert-path=/c\"],\"livenessProbe\":{\"periodSeconds\":10}}}}",
         "livenessProbe",
         "{\"httpGet\":{\"path\":\"/live\",\"port\":\"http\",\"scheme\":\"HTTPS\"}," LIVENESS_TIMES
         "}"},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{\"env\":[" TLS_ENV(
             "CERT", "/c") "],\"livenessProbe\":{\"httpGet\":{\"path\":\"/x\",\"port\":9}}}}}",
         "livenessProbe", "{\"httpGet\":{\"path\":\"/x\",\"port\":9}," LIVENESS_TIMES "}"},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{\"command\":"
         "[\"sh\",\"-c\"],\"args\":[\"python3 -m dynamo.frontend --tls-cert-path /c "
         "--tls-client-ca-cert-path /a\"]}}}",
         "livenessProbe", "{\"tcpSocket\":{\"port\":\"http\"}," LIVENESS_TIMES "}"},
        {"{\"componentType\":\"frontend\",\"envs\":[" TLS_ENV("CERT", "/c") "," TLS_ENV(
             "CLIENT_CA_CERT", "/a") "]}",
         "livenessProbe", "{\"tcpSocket\":{\"port\":\"http\"}," LIVENESS_TIMES "}"},
        {"{\"componentType\":\"worker\",\"envs\":[" TLS_ENV("CERT", "/c") "]}", "readinessProbe",
         "{\"httpGet\":{\"path\":\"/health\",\"port\":\"system\"},\"periodSeconds\":10,"
         "\"timeoutSeconds\":4,\"failureThreshold\":3}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_field(&cases[i]);
}

static void pod_settings_pass_through(void **state)
{
    AUTO(json_free)
    struct json *pod =
        pod_of(&plain, "{\"extraPodSpec\":{\"hostNetwork\":false,\"nodeSelector\":{\"a\":\"b\"},"
                       "\"terminationGracePeriodSeconds\":5,\"securityContext\":{},"
                       "\"serviceAccountName\":\"mine\",\"containers\":[{\"name\":\"side\"}],"
                       "\"volumes\":[{\"name\":\"v\"}],\"mainContainer\":{\"image\":\"i\"}}}");

    (void)state;
    json_del(pod, "containers");
    expect_json(pod, "{\"restartPolicy\":\"Always\",\"hostNetwork\":false,"
                     "\"nodeSelector\":{\"a\":\"b\"},\"terminationGracePeriodSeconds\":5,"
                     "\"securityContext\":{},\"serviceAccountName\":\"mine\","
                     "\"volumes\":[{\"name\":\"v\"},{\"name\":\"shared-memory\","
                     "\"emptyDir\":{\"medium\":\"Memory\",\"sizeLimit\":\"8Gi\"}}]}");
}

static const char *env_value(const struct json *container, const char *name)
{
    return json_get_cstr(env_find(json_get(container, "env"), name), "value");
}

static void environment_has_its_precedence_and_order(void **state)
{
    AUTO(json_free)
    struct json *pod =
        pod_of(&plain, "{\"componentType\":\"worker\",\"envs\":["
                       "{\"name\":\"Z\",\"value\":\"2\"},"
                       "{\"name\":\"NATS_SERVER\",\"value\":\"nats://$(Z)\"}],"
                       "\"extraPodSpec\":{\"mainContainer\":{\"env\":["
                       "{\"name\":\"Z\",\"value\":\"1\"},{\"name\":\"A\",\"value\":\"$(Z)\"},"
                       "{\"name\":\"DYN_SYSTEM_PORT\",\"value\":\"1\"}]}}}");
    const struct json *env = json_get(last_container(pod), "env");
    size_t n = json_len(env);

    (void)state;
    assert_string_equal(env_value(last_container(pod), "Z"), "2");
    assert_string_equal(env_value(last_container(pod), "DYN_SYSTEM_PORT"), "1");
    assert_string_equal(env_value(last_container(pod), "DYN_NAMESPACE"), "ns-g");
    /* What the user names stays in the user's order, behind ours. */
    assert_string_equal(json_get_cstr(json_at(env, n - 4), "name"), "Z");
    assert_string_equal(json_get_cstr(json_at(env, n - 3), "name"), "A");
    assert_string_equal(json_get_cstr(json_at(env, n - 1), "name"), "NATS_SERVER");
}

static void accounts_and_pull_secrets(void **state)
{
    AUTO(json_free)
    struct json *secrets =
        parse("{\"b\":[\"reg.io\"],\"a\":[\"https://reg.io/v2/\"],\"c\":[\"other.io\"]}");
    const struct plan_inputs inputs = {.pull_secrets = secrets, .component_account = "acc"};
    const struct plan_config etcd = {.discovery_backend = "etcd"};
    static const char service[] = "{\"extraPodSpec\":{\"imagePullSecrets\":[{\"name\":\"b\"}],"
                                  "\"mainContainer\":{\"image\":\"reg.io/x:1\"}}}";
    AUTO(json_free) struct json *d = child_of(&etcd, &inputs, "Svc", service, &KIND_DEPLOYMENT);
    const struct json *pod = json_path(d, "spec", "template", "spec", NULL);

    (void)state;
    expect_json(json_get(pod, "imagePullSecrets"), "[{\"name\":\"b\"},{\"name\":\"a\"}]");
    assert_string_equal(json_get_cstr(pod, "serviceAccountName"), "acc");
    assert_null(env_find(json_get(last_container(pod), "env"), "DYN_DISCOVERY_BACKEND"));
}

static void images_name_their_registry(void **state)
{
    static const char *const cases[][2] = {
        {"python:3", "docker.io"},
        {"library/python", "docker.io"},
        {"reg.io/a/b:1", "reg.io"},
        {"localhost/a", "localhost"},
        {"host:5000/a@sha256:x", "host:5000"},
        {"", "docker.io"},
    };
    static const char *const keys[][2] = {
        {"https://index.docker.io/v1/", "docker.io"},
        {"reg.io", "reg.io"},
        {"http://host:5000/v2/", "host:5000"},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_true(str_is(image_registry(cases[i][0]), cases[i][1]));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        assert_true(str_is(image_auth_host(keys[i][0]), keys[i][1]));
}

static void engines_show_in_commands(void **state)
{
    static const struct {
        const char *container;
        const char *want;
    } cases[] = {
        {"{\"command\":[\"python3\",\"-m\",\"dynamo.vllm\"]}", "vllm"},
        {"{\"command\":[\"/usr/bin/python3.12\"],\"args\":[\"-m\",\"dynamo.sglang\"]}", "sglang"},
        {"{\"command\":[\"sh\",\"-c\"],\"args\":[\"cd /x && exec python3 -m dynamo.trtllm -a\"]}",
         "trtllm"},
        {"{\"command\":[\"python3\",\"-m\",\"dynamo.vllm_other\"]}", NULL},
        {"{\"command\":[\"python3\",\"-m\",\"dynamo.mocker\"]}", NULL},
        {"{\"args\":[\"-m\",\"dynamo.vllm\"]}", NULL},
        {"{}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *container = parse(cases[i].container);
        const char *found = framework_detect(container);

        if (cases[i].want)
            assert_string_equal(found, cases[i].want);
        else
            assert_null(found);
    }
}

/* --- live routing ----------------------------------------------------------------------------- */

static const char kv_frontend[] =
    "{\"componentType\":\"frontend\",\"envs\":[{\"name\":\"DYN_ROUTER_MODE\",\"value\":\"kv\"},"
    "{\"name\":\"DYN_LOG\",\"value\":\"info\"}],\"extraPodSpec\":{\"mainContainer\":"
    "{\"image\":\"vendor:1\",\"env\":[{\"name\":\"DYN_KV_EVENTS\",\"value\":\"false\"},"
    "{\"name\":\"DYN_ROUTER_TEMPERATURE\",\"valueFrom\":{\"configMapKeyRef\":{}}},"
    "{\"name\":\"DYN_ROUTER_TTL\",\"value\":\"$(DYN_LOG)\"}]}}}";

static void who_is_a_live_frontend(void **state)
{
    static const struct {
        const char *service;
        bool want;
    } cases[] = {
        {"{\"componentType\":\"frontend\"}", true},
        {"{\"componentType\":\"worker\"}", false},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{\"command\":"
         "[\"/bin/sh\",\"-c\"],\"args\":[\"python3 -m dynamo.frontend --http-port 8000\"]}}}",
         true},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{\"args\":"
         "[\"-m\",\"dynamo.frontend\",\"--router-mode\",\"kv\"]}}}",
         true},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{\"command\":"
         "[\"python3\"],\"args\":[\"-m\",\"mine\"]}}}",
         false},
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"mainContainer\":{\"command\":"
         "[\"/my-proxy\"]}}}",
         false},
        /* nobody may watch the ConfigMap */
        {"{\"componentType\":\"frontend\",\"extraPodSpec\":{\"serviceAccountName\":\"mine\"}}",
         false},
        {"{\"componentType\":\"frontend\",\"annotations\":{"
         "\"nvidia.com/dynamo-discovery-backend\":\"etcd\"}}",
         false},
    };
    const struct plan_config never = {.frontend_image = "i",
                                      .frontend_override = PLAN_OVERRIDE_NEVER};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *service = parse(cases[i].service);

        assert_int_equal(plan_is_live_frontend(&with_image, service), cases[i].want);
        assert_false(plan_is_live_frontend(&plain, service));
        assert_false(plan_is_live_frontend(&never, service));
    }
}

static void routing_travels_in_a_config_map(void **state)
{
    AUTO(json_free) struct json *dgd = graph_of("Frontend", kv_frontend);
    AUTO(object_set_free) struct object_set *set = graph_plan(&with_image, &nothing, dgd);
    const struct planned *map = object_set_find(set, &KIND_CONFIG_MAP, "g-frontend-routing");
    const struct planned *role = object_set_find(set, &KIND_ROLE, "g-k8s-service-discovery-role");

    (void)state;
    assert_non_null(map);
    expect_json(json_get(map->object, "data"),
                "{\"DYN_ROUTER_MODE\":\"kv\",\"DYN_KV_EVENTS\":\"false\"}");
    assert_string_equal(object_annotation(map->object, PLAN_ROUTING_GENERATION), "7");
    expect_json(json_at(json_get(role->object, "rules"), 3),
                "{\"apiGroups\":[\"\"],\"resources\":[\"configmaps\"],"
                "\"verbs\":[\"get\",\"list\",\"watch\"],"
                "\"resourceNames\":[\"g-frontend-routing\"]}");
}

static void the_generation_moves_with_the_data_only(void **state)
{
    AUTO(json_free)
    struct json *present = parse("{\"g-frontend-routing\":{\"metadata\":{\"annotations\":"
                                 "{\"commutator.dev/routing-generation\":\"3\"}},\"data\":"
                                 "{\"DYN_ROUTER_MODE\":\"kv\",\"DYN_KV_EVENTS\":\"false\"}}}");
    const struct plan_inputs inputs = {.routing = present};
    AUTO(json_free) struct json *dgd = graph_of("Frontend", kv_frontend);
    AUTO(object_set_free) struct object_set *same = graph_plan(&with_image, &inputs, dgd);
    AUTO(object_set_free) struct object_set *changed = NULL;
    struct json *data = json_path(present, "g-frontend-routing", "data", NULL);

    (void)state;
    assert_string_equal(
        object_annotation(object_set_find(same, &KIND_CONFIG_MAP, "g-frontend-routing")->object,
                          PLAN_ROUTING_GENERATION),
        "3");
    json_set_cstr(data, "DYN_ROUTER_MODE", "random");
    changed = graph_plan(&with_image, &inputs, dgd);
    assert_string_equal(
        object_annotation(object_set_find(changed, &KIND_CONFIG_MAP, "g-frontend-routing")->object,
                          PLAN_ROUTING_GENERATION),
        "7");
}

/* The point of it all: another mode, the same pod template. */
static void a_flip_leaves_the_template_alone(void **state)
{
    AUTO(json_free)
    struct json *before =
        child_of(&with_image, &nothing, "Frontend", kv_frontend, &KIND_DEPLOYMENT);
    AUTO(json_free)
    struct json *after =
        child_of(&with_image, &nothing, "Frontend",
                 "{\"componentType\":\"frontend\",\"envs\":[{\"name\":\"DYN_ROUTER_MODE\","
                 "\"value\":\"round-robin\"},{\"name\":\"DYN_LOG\",\"value\":\"info\"}],"
                 "\"extraPodSpec\":{\"mainContainer\":{\"image\":\"vendor:1\",\"env\":["
                 "{\"name\":\"DYN_ROUTER_TEMPERATURE\",\"valueFrom\":{\"configMapKeyRef\":{}}},"
                 "{\"name\":\"DYN_ROUTER_TTL\",\"value\":\"$(DYN_LOG)\"}]}}}",
                 &KIND_DEPLOYMENT);
    const struct json *template = json_path(before, "spec", "template", NULL);
    const struct json *main = last_container(json_get(template, "spec"));

    (void)state;
    assert_true(json_equal(before, after));
    assert_null(env_find(json_get(main, "env"), "DYN_ROUTER_MODE"));
    assert_non_null(env_find(json_get(main, "env"), "DYN_ROUTER_TEMPERATURE"));
    assert_non_null(env_find(json_get(main, "env"), "DYN_ROUTER_TTL"));
    expect_json(json_get(main, "envFrom"),
                "[{\"configMapRef\":{\"name\":\"g-frontend-routing\"}}]");
    assert_string_equal(env_value(main, "COMMUTATOR_ROUTING_CONFIGMAP"), "g-frontend-routing");
    assert_string_equal(json_get_cstr(main, "image"), "our/image:1");
    assert_string_equal(json_get_cstr(main, "imagePullPolicy"), "Never");
    assert_string_equal(object_annotation(template, PLAN_ORIGINAL_IMAGE), "vendor:1");
}

static void other_frontends_roll(void **state)
{
    AUTO(json_free) struct json *pod = pod_of(&plain, kv_frontend);
    AUTO(json_free) struct json *dgd = graph_of("Frontend", kv_frontend);
    AUTO(object_set_free) struct object_set *set = graph_plan(&plain, &nothing, dgd);

    (void)state;
    assert_string_equal(env_value(last_container(pod), "DYN_ROUTER_MODE"), "kv");
    assert_string_equal(json_get_cstr(last_container(pod), "image"), "vendor:1");
    assert_null(object_set_find(set, &KIND_CONFIG_MAP, "g-frontend-routing"));
}

/* --- the set ---------------------------------------------------------------------------------- */

static void blocked_graphs_say_why(void **state)
{
    AUTO(json_free) struct json *multinode = graph_of("W", "{\"multinode\":{\"nodeCount\":2}}");
    AUTO(json_free) struct json *picker = graph_of("E", "{\"componentType\":\"epp\"}");
    AUTO(object_set_free) struct object_set *a = graph_plan(&plain, &nothing, multinode);
    AUTO(object_set_free) struct object_set *b = graph_plan(&plain, &nothing, picker);

    (void)state;
    assert_string_equal(a->blocked, "failed to reconcile Dynamo components deployments: "
                                    "no multinode orchestrator available");
    assert_null(object_set_find(a, &KIND_DCD, "g-w"));
    assert_non_null(object_set_find(a, &KIND_SERVICE_ACCOUNT, "g-k8s-service-discovery"));
    assert_non_null(strstr(b->blocked, "spec.services[E]"));
}

static void claims_that_must_exist(void **state)
{
    AUTO(json_free)
    struct json *dgd =
        parse("{\"metadata\":{\"name\":\"g\",\"namespace\":\"ns\"},\"spec\":{\"pvcs\":["
              "{\"name\":\"mine\",\"create\":true,\"size\":\"1Gi\",\"storageClass\":\"s\","
              "\"volumeAccessMode\":\"ReadWriteMany\"},{\"name\":\"given\"},"
              "{\"name\":\"lost\",\"create\":false}],\"services\":{\"A\":{}}}}");
    AUTO(json_free) struct json *claims = parse("{\"given\":{}}");
    AUTO(object_set_free) struct object_set *set = graph_plan(&plain, &nothing, dgd);

    (void)state;
    assert_string_equal(graph_missing_pvc(dgd, claims), "lost");
    json_set(claims, "lost", json_new_object());
    assert_null(graph_missing_pvc(dgd, claims));
    assert_true(object_set_find(set, &KIND_PVC, "mine")->create_only);
    assert_null(object_set_find(set, &KIND_PVC, "given"));
}

static void hashes_follow_the_content(void **state)
{
    AUTO(json_free) struct json *a = parse("{\"kind\":\"X\",\"spec\":{\"b\":1,\"a\":[2]}}");
    AUTO(json_free) struct json *b = parse("{\"metadata\":{\"x\":1},\"spec\":{\"a\":[2],\"b\":1}}");
    AUTO(json_free) struct json *c = parse("{\"kind\":\"X\",\"data\":{\"k\":\"v\"}}");
    char ha[PLAN_HASH_SIZE], hb[PLAN_HASH_SIZE], hc[PLAN_HASH_SIZE];

    (void)state;
    plan_spec_hash(a, ha);
    plan_spec_hash(b, hb);
    plan_spec_hash(c, hc);
    assert_string_equal(ha, hb);
    json_set_cstr(json_get(c, "data"), "k", "w");
    plan_spec_hash(c, hb);
    assert_string_not_equal(hc, hb);
}

/* Whatever stands where an object should: no crash, and still a set. */
static void holes_are_skipped(void **state)
{
    static const char *const services[] = {
        "null",
        "1",
        "[]",
        ("{\"envs\":[{}],\"volumeMounts\":[{}],\"extraPodSpec\":{\"mainContainer\":7}}"),
        ("{\"extraPodSpec\":{\"mainContainer\":{\"env\":[1,{\"name\":2}],\"command\":\"x\"}},"
         "\"componentType\":\"frontend\",\"ingress\":{\"enabled\":true,"
         "\"ingressControllerClassName\":\"n\"}}"),
        ("{\"resources\":{\"limits\":3,\"requests\":{\"custom\":[1]}},\"annotations\":{\"a\":1},"
         "\"labels\":[],\"modelRef\":{\"name\":\"m\"},\"componentType\":\"worker\"}"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        AUTO(json_free) struct json *dgd = graph_of("S", services[i]);
        AUTO(object_set_free) struct object_set *set = graph_plan(&with_image, &nothing, dgd);
        const struct planned *dcd = object_set_find(set, &KIND_DCD, "g-s");
        AUTO(object_set_free)
        struct object_set *children =
            component_plan(&with_image, &nothing, dcd ? dcd->object : dgd);

        assert_true(children->n > 0 || children->blocked);
    }
}

int main(void)
{
    return TEST_RUN(T(a_stock_engine), T(user_settings_go_over_defaults),
                    T(probes_of_a_frontend_over_https), T(pod_settings_pass_through),
                    T(environment_has_its_precedence_and_order), T(accounts_and_pull_secrets),
                    T(images_name_their_registry), T(engines_show_in_commands),
                    T(who_is_a_live_frontend), T(routing_travels_in_a_config_map),
                    T(the_generation_moves_with_the_data_only), T(a_flip_leaves_the_template_alone),
                    T(other_frontends_roll), T(blocked_graphs_say_why), T(claims_that_must_exist),
                    T(hashes_follow_the_content), T(holes_are_skipped));
}
