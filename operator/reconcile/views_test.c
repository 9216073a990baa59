/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/views.h"

#include "lib/base/test.h"
#include "lib/kube/kube_kinds.h"

static struct json *named(const char *name)
{
    AUTO(mem_free)
    char *text =
        xasprintf("{\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\"},\"data\":{}}", name);
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static void test_secrets_keep_no_credentials(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new(views, views_len);
    AUTO(json_free) struct json *secret = named("pull");
    AUTO(json_free) struct json *got = NULL;
    AUTO(mem_free) char *text = NULL;

    (void)state;
    /* {"auths":{"https://r.example/v1/":{"auth":"c2VjcmV0"}}} */
    (void)json_set_cstr(
        json_get(secret, "data"), ".dockerconfigjson",
        "eyJhdXRocyI6eyJodHRwczovL3IuZXhhbXBsZS92MS8iOnsiYXV0aCI6ImMyVmpjbVYwIn19fQ==");
    (void)cache_observe(c, &KIND_SECRET, secret);
    got = cache_get(c, &KIND_SECRET, "n", "pull");
    text = json_to_cstr(got);
    assert_non_null(strstr(text, "\"registries\":[\"https://r.example/v1/\"]"));
    assert_null(strstr(text, "c2VjcmV0"));
    assert_null(json_get(got, "data"));
}

static void test_only_pods_in_trouble_are_kept(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new(views, views_len);
    AUTO(json_free) struct json *pod = named("p");
    AUTO(json_free) struct json *got = NULL;
    struct json *status = json_need_object(pod, "status");
    struct json *condition = json_add(json_need_array(status, "conditions"), json_new_object());

    (void)state;
    (void)json_set_cstr(condition, "type", "PodScheduled");
    (void)json_set_cstr(condition, "status", "False");
    (void)json_set_cstr(condition, "reason", "Unschedulable");
    (void)json_set_cstr(condition, "message",
                        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    (void)cache_observe(c, &KIND_POD, pod);
    got = cache_get(c, &KIND_POD, "n", "p");
    assert_string_equal(json_get_cstr(got, "waiting"),
                        "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    (void)json_set_cstr(condition, "status", "True");
    (void)cache_observe(c, &KIND_POD, pod);
    assert_null(cache_get(c, &KIND_POD, "n", "p"));
}

static void test_of_a_deployment_its_replicas(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new(views, views_len);
    AUTO(json_free) struct json *deployment = named("d");
    AUTO(json_free) struct json *got = NULL;
    struct json *spec = json_need_object(deployment, "spec");

    (void)state;
    (void)json_set_i64(spec, "replicas", 3);
    (void)json_need_object(spec, "template");
    (void)json_set_i64(json_need_object(deployment, "status"), "observedGeneration", 2);
    (void)cache_observe(c, &KIND_DEPLOYMENT, deployment);
    got = cache_get(c, &KIND_DEPLOYMENT, "n", "d");
    assert_int_equal(json_len(json_get(got, "spec")), 1);
    assert_non_null(json_path(got, "spec", "replicas", NULL));
    assert_non_null(json_path(got, "status", "observedGeneration", NULL));
}

static void test_of_ingresses_only_ours(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new(views, views_len);
    AUTO(json_free) struct json *foreign = named("foreign");
    AUTO(json_free) struct json *ours = named("ours");
    AUTO(json_free) struct json *got = NULL;
    struct json *owners = json_need_array(json_get(ours, "metadata"), "ownerReferences");
    struct json *owner = json_add(owners, json_new_object());

    (void)state;
    (void)json_set_bool(owner, "controller", true);
    (void)json_set_cstr(owner, "kind", "DynamoComponentDeployment");
    (void)cache_observe(c, &KIND_INGRESS, foreign);
    (void)cache_observe(c, &KIND_INGRESS, ours);
    assert_null(cache_get(c, &KIND_INGRESS, "n", "foreign"));
    got = cache_get(c, &KIND_INGRESS, "n", "ours");
    assert_non_null(got);
}

int main(void)
{
    return TEST_RUN(T(test_secrets_keep_no_credentials), T(test_only_pods_in_trouble_are_kept),
                    T(test_of_a_deployment_its_replicas), T(test_of_ingresses_only_ours));
}
