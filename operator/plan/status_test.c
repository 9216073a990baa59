/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/status.h"

#include "lib/base/test.h"
#include "operator/api/graph.h"

static const char T1[] = "2026-01-01T00:00:00Z";
static const char T2[] = "2026-01-01T00:00:09Z";

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static const char *field(const struct json *object, const char *condition, const char *key)
{
    const char *s = json_get_cstr(status_condition(object, condition), key);

    return s ? s : "(absent)";
}

/* @status in the place of an object's own. */
static struct json *with_status(const struct json *object, struct json *status)
{
    struct json *copy = json_dup(object);

    json_set(copy, "status", status);
    return copy;
}

static void deployments_are_ready_when_complete(void **state)
{
    static const struct {
        const char *text;
        bool want;
    } cases[] = {
        {"{\"metadata\":{\"generation\":2},\"spec\":{\"replicas\":2},\"status\":{"
         "\"observedGeneration\":2,\"replicas\":2,\"updatedReplicas\":2,\"availableReplicas\":2,"
         "\"conditions\":[{\"type\":\"Available\",\"status\":\"True\"}]}}",
         true},
        /* the status is about an older spec */
        {"{\"metadata\":{\"generation\":3},\"spec\":{\"replicas\":2},\"status\":{"
         "\"observedGeneration\":2,\"replicas\":2,\"updatedReplicas\":2,\"availableReplicas\":2,"
         "\"conditions\":[{\"type\":\"Available\",\"status\":\"True\"}]}}",
         false},
        /* an old pod is still there */
        {"{\"metadata\":{\"generation\":2},\"spec\":{\"replicas\":2},\"status\":{"
         "\"observedGeneration\":2,\"replicas\":3,\"updatedReplicas\":2,\"availableReplicas\":2,"
         "\"conditions\":[{\"type\":\"Available\",\"status\":\"True\"}]}}",
         false},
        {"{\"metadata\":{\"generation\":2},\"spec\":{\"replicas\":1,\"paused\":true},\"status\":{"
         "\"observedGeneration\":2,\"replicas\":1,\"updatedReplicas\":1,\"availableReplicas\":1,"
         "\"conditions\":[{\"type\":\"Available\",\"status\":\"True\"}]}}",
         false},
        {"{\"metadata\":{\"generation\":1},\"spec\":{\"replicas\":0},"
         "\"status\":{\"observedGeneration\":1}}",
         true},
        {"{\"metadata\":{\"generation\":1},\"spec\":{}}", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *deployment = parse(cases[i].text);

        assert_int_equal(deployment_is_ready(deployment), cases[i].want);
    }
    assert_false(deployment_is_ready(NULL));
}

static const char ready_deployment[] =
    "{\"metadata\":{\"name\":\"g-w\",\"generation\":1},\"spec\":{\"replicas\":1},\"status\":{"
    "\"observedGeneration\":1,\"replicas\":1,\"updatedReplicas\":1,\"availableReplicas\":1,"
    "\"readyReplicas\":1,\"conditions\":[{\"type\":\"Available\",\"status\":\"True\"}]}}";

static void a_component_tells_its_deployment(void **state)
{
    AUTO(json_free) struct json *dcd = parse("{\"metadata\":{\"name\":\"g-w\",\"generation\":4}}");
    AUTO(json_free) struct json *deployment = parse(ready_deployment);
    struct component_view view = {.deployment = deployment, .want_replicas = 1, .now = T1};
    AUTO(json_free) struct json *first = with_status(dcd, component_status(dcd, &view));
    AUTO(json_free) struct json *again = NULL;
    AUTO(json_free) struct json *later = NULL;
    int64_t observed = 0;

    (void)state;
    assert_string_equal(field(first, "Available", "reason"), "DeploymentReady");
    assert_string_equal(field(first, "Valid", "reason"), "ValidationPassed");
    assert_string_equal(field(first, "DynamoComponentReady", "status"), "True");
    assert_true(json_get_i64(json_get(first, "status"), "observedGeneration", &observed));
    assert_int_equal(observed, 4);

    /* The same view later is the same status, so that nothing is written. */
    view.now = T2;
    again = component_status(first, &view);
    assert_true(json_equal(again, json_get(first, "status")));

    /* Only the condition that turned gets a new time. */
    view.want_replicas = 2;
    view.waiting = "pod g-w-x: Insufficient nvidia.com/gpu";
    later = with_status(dcd, component_status(first, &view));
    assert_string_equal(field(later, "Available", "lastTransitionTime"), T2);
    assert_string_equal(field(later, "Valid", "lastTransitionTime"), T1);
    assert_string_equal(field(later, "Available", "message"),
                        "Deployment is not ready: pod g-w-x: Insufficient nvidia.com/gpu");
}

static void a_component_tells_what_went_wrong(void **state)
{
    AUTO(json_free) struct json *dcd = parse("{\"metadata\":{\"name\":\"g-w\",\"generation\":4}}");
    struct component_view broken = {.error = "no", .now = T1};
    struct component_view invalid = {.invalid = "spec.x is required", .now = T1};
    AUTO(json_free) struct json *a = with_status(dcd, component_status(dcd, &broken));
    AUTO(json_free) struct json *b = with_status(dcd, component_status(dcd, &invalid));

    (void)state;
    assert_string_equal(field(a, "Available", "message"),
                        "Failed to reconcile DynamoComponentDeployment: no");
    assert_null(json_path(a, "status", "observedGeneration", NULL));
    assert_string_equal(field(b, "Valid", "message"), "Validation failed: spec.x is required");
    assert_null(status_condition(b, "Available"));
}

/* --- graphs ----------------------------------------------------------------------------------- */

static const char graph[] =
    "{\"metadata\":{\"name\":\"g\",\"namespace\":\"ns\",\"generation\":2},\"spec\":{\"services\":{"
    "\"A\":{\"replicas\":1},\"B\":{\"replicas\":2}}}}";

/* The planned components as stored, with the given statuses. */
static struct json *components(const struct object_set *set, const char *a, const char *b)
{
    static const char *const names[] = {"g-a", "g-b"};
    const char *const statuses[] = {a, b};
    struct json *all = json_new_object();

    for (size_t i = 0; i < 2; i++) {
        struct json *dcd = json_dup(object_set_find(set, &KIND_DCD, names[i])->object);

        json_set_i64(json_get(dcd, "metadata"), "generation", 1);
        json_set(dcd, "status", parse(statuses[i]));
        json_set(all, names[i], dcd);
    }
    return all;
}

static const char up[] = "{\"observedGeneration\":1,\"service\":{\"componentName\":\"x\"},"
                         "\"conditions\":[{\"type\":\"Available\",\"status\":\"True\","
                         "\"message\":\"Deployment is ready\"}]}";
static const char down[] =
    "{\"observedGeneration\":1,\"conditions\":[{\"type\":\"Available\",\"status\":\"False\","
    "\"message\":\"Deployment is not ready\"}]}";
static const char unschedulable[] =
    "{\"observedGeneration\":1,\"conditions\":[{\"type\":\"Available\",\"status\":\"False\","
    "\"message\":\"Deployment is not ready: pod p: no GPU\"}]}";

static void a_graph_sums_its_components_up(void **state)
{
    static const char not_ready[] = "Component deployment not ready - Available condition not true";
    const struct plan_config config = {0};
    const struct plan_inputs inputs = {0};
    AUTO(json_free) struct json *dgd = parse(graph);
    AUTO(object_set_free) struct object_set *set = graph_plan(&config, &inputs, dgd);
    const struct {
        const char *a, *b, *state;
        char *message;
    } cases[] = {
        {up, up, "successful", xstrdup("All resources are ready")},
        {up, down, "pending", xasprintf("Resources not ready: g-b: %s", not_ready)},
        {down, unschedulable, "pending",
         xasprintf("Resources not ready: g-a: %s; g-b: %s (pod p: no GPU)", not_ready, not_ready)},
        {"{}", up, "pending", xasprintf("Resources not ready: g-a: %s", not_ready)},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *all = components(set, cases[i].a, cases[i].b);
        const struct graph_view view = {.components = all, .want = set, .now = T1};
        AUTO(json_free) struct json *after = with_status(dgd, graph_status(dgd, &view));

        assert_string_equal(json_get_cstr(json_get(after, "status"), "state"), cases[i].state);
        assert_string_equal(field(after, "Ready", "message"), cases[i].message);
        free(cases[i].message);
    }
}

/* Ready is about the present spec: not what a component was before it got that spec. */
static void readiness_is_gated_on_the_generation(void **state)
{
    const struct plan_config config = {0};
    const struct plan_inputs inputs = {0};
    AUTO(json_free) struct json *dgd = parse(graph);
    AUTO(object_set_free) struct object_set *set = graph_plan(&config, &inputs, dgd);
    AUTO(json_free) struct json *all = components(set, up, up);
    const struct graph_view view = {.components = all, .want = set, .now = T1};
    AUTO(json_free) struct json *stale = NULL;
    AUTO(json_free) struct json *other = NULL;

    (void)state;
    json_set_i64(json_path(all, "g-a", "metadata", NULL), "generation", 2);
    stale = with_status(dgd, graph_status(dgd, &view));
    assert_string_equal(field(stale, "Ready", "status"), "False");

    json_set_i64(json_path(all, "g-a", "metadata", NULL), "generation", 1);
    json_set_i64(json_path(all, "g-b", "spec", NULL), "replicas", 9);
    other = with_status(dgd, graph_status(dgd, &view));
    assert_string_equal(field(other, "Ready", "status"), "False");
}

static void a_graph_tells_errors_and_routing(void **state)
{
    const struct plan_config config = {0};
    const struct plan_inputs inputs = {0};
    AUTO(json_free) struct json *dgd = parse(graph);
    AUTO(object_set_free) struct object_set *set = graph_plan(&config, &inputs, dgd);
    struct graph_view view = {.want = set, .error = "no", .now = T1};
    AUTO(json_free) struct json *failed = NULL;
    AUTO(json_free) struct json *invalid = NULL;
    AUTO(json_free) struct json *refused = NULL;
    AUTO(json_free) struct json *flipped = NULL;
    AUTO(json_free) struct json *without = NULL;

    (void)state;
    view.routing = (struct routing_view){"kv", 2, 1, 3, ""};
    failed = with_status(dgd, graph_status(dgd, &view));
    assert_string_equal(json_get_cstr(json_get(failed, "status"), "state"), "failed");
    assert_string_equal(field(failed, "Ready", "reason"), "failed_to_reconcile_the_resources");
    assert_string_equal(field(failed, "RoutingApplied", "message"),
                        "mode kv, generation 2, applied by 1 of 3 pods");
    assert_string_equal(field(failed, "RoutingApplied", "status"), "False");

    view.routing = (struct routing_view){"roulette", 3, 0, 1, "no such mode"};
    refused = with_status(dgd, graph_status(failed, &view));
    assert_string_equal(field(refused, "RoutingApplied", "status"), "False");
    assert_string_equal(field(refused, "RoutingApplied", "reason"), "Refused");
    assert_string_equal(field(refused, "RoutingApplied", "message"),
                        "mode roulette, generation 3, applied by 0 of 1 pods: no such mode");

    view.routing = (struct routing_view){"kv", 2, 3, 3, ""};
    flipped = with_status(dgd, graph_status(failed, &view));
    assert_string_equal(field(flipped, "RoutingApplied", "status"), "True");
    view.routing.mode = NULL;
    without = with_status(dgd, graph_status(flipped, &view));
    assert_null(status_condition(without, "RoutingApplied"));

    view = (struct graph_view){.invalid = "spec.y", .now = T1};
    invalid = with_status(dgd, graph_status(dgd, &view));
    assert_string_equal(field(invalid, "Ready", "reason"), "ValidationFailed");
    assert_string_equal(field(invalid, "Ready", "message"), "Validation failed: spec.y");
}

int main(void)
{
    return TEST_RUN(T(deployments_are_ready_when_complete), T(a_component_tells_its_deployment),
                    T(a_component_tells_what_went_wrong), T(a_graph_sums_its_components_up),
                    T(readiness_is_gated_on_the_generation), T(a_graph_tells_errors_and_routing));
}
