/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/adapter.h"

#include "lib/base/test.h"

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static const char adapter[] =
    "{\"spec\":{\"replicas\":4,\"dgdRef\":{\"name\":\"g\",\"serviceName\":\"W\"}}}";

static void a_graph_follows_its_adapter(void **state)
{
    static const struct {
        const char *service;
        const char *patch; /* NULL: none */
    } cases[] = {
        {"{\"W\":{\"replicas\":2,\"scalingAdapter\":{\"enabled\":true}}}",
         "{\"spec\":{\"services\":{\"W\":{\"replicas\":4}}}}"},
        {"{\"W\":{\"scalingAdapter\":{\"enabled\":true}}}",
         "{\"spec\":{\"services\":{\"W\":{\"replicas\":4}}}}"},
        {"{\"W\":{\"replicas\":4,\"scalingAdapter\":{\"enabled\":true}}}", NULL},
        {"{\"W\":{\"replicas\":2,\"scalingAdapter\":{\"enabled\":false}}}", NULL},
        {"{\"V\":{\"replicas\":2,\"scalingAdapter\":{\"enabled\":true}}}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mem_free) char *text = xasprintf("{\"spec\":{\"services\":%s}}", cases[i].service);
        AUTO(json_free) struct json *dgd = parse(text);
        AUTO(json_free) struct json *scale = parse(adapter);
        AUTO(json_free) struct json *patch = adapter_graph_patch(scale, dgd);
        AUTO(json_free) struct json *want = cases[i].patch ? parse(cases[i].patch) : NULL;

        assert_true(want ? json_equal(patch, want) : !patch);
    }
}

static void an_adapter_serves_autoscalers(void **state)
{
    AUTO(json_free) struct json *scale = parse(adapter);
    AUTO(json_free) struct json *status = adapter_status(scale, NULL);
    AUTO(json_free)
    struct json *want =
        parse("{\"replicas\":4,\"selector\":\"nvidia.com/dynamo-graph-deployment-name=g,"
              "nvidia.com/dynamo-component=W\"}");
    AUTO(json_free) struct json *scaled = NULL;

    (void)state;
    assert_true(json_equal(status, want));
    json_set(scale, "status", json_dup(status));
    scaled = adapter_status(scale, "2026-01-01T00:00:00Z");
    assert_string_equal(json_get_cstr(scaled, "lastScaleTime"), "2026-01-01T00:00:00Z");
}

int main(void)
{
    return TEST_RUN(T(a_graph_follows_its_adapter), T(an_adapter_serves_autoscalers));
}
