/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/cache.h"

#include "lib/base/test.h"

static struct json *object(const char *name, int version, const char *owner)
{
    AUTO(mem_free) char *text = xasprintf(
        "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\",\"resourceVersion\":\"%d\",\"generation\":%d,"
        "\"managedFields\":[{\"manager\":\"m\"}],"
        "\"ownerReferences\":[{\"controller\":true,\"kind\":\"DynamoGraphDeployment\",\"uid\":\"%s\"}]},"
        "\"data\":{\"v\":\"%d\"}}",
        name, version, version, owner, version);
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static void observe(struct cache *c, const char *name, int version)
{
    AUTO(json_free) struct json *v = object(name, version, "u1");

    (void)cache_observe(c, &KIND_CONFIG_MAP, v);
}

static void observe_deleted(struct cache *c, const char *name, int version)
{
    AUTO(json_free) struct json *v = object(name, version, "u1");

    cache_observe_deleted(c, &KIND_CONFIG_MAP, v);
}

static void wrote(struct cache *c, const char *name, int version)
{
    AUTO(json_free) struct json *v = object(name, version, "u1");

    cache_wrote(c, &KIND_CONFIG_MAP, v);
}

/* 0 when absent. */
static int version_in(struct cache *c, const char *name)
{
    AUTO(json_free) struct json *v = cache_get(c, &KIND_CONFIG_MAP, "n", name);
    const char *text = json_cstr(json_path(v, "data", "v", NULL));
    uint64_t version = 0;

    return str_parse_u64(str_from(text), &version) ? (int)version : 0;
}

static void test_objects_come_and_go(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new();
    AUTO(json_free) struct json *got = NULL;

    (void)state;
    assert_null(cache_get(c, &KIND_CONFIG_MAP, "n", "a"));
    observe(c, "a", 5);
    observe(c, "a", 6);
    assert_int_equal(version_in(c, "a"), 6);
    assert_null(cache_get(c, &KIND_SERVICE, "n", "a"));
    assert_null(cache_get(c, &KIND_CONFIG_MAP, "other", "a"));
    got = cache_get(c, &KIND_CONFIG_MAP, "n", "a");
    assert_null(json_path(got, "metadata", "managedFields", NULL));
    observe_deleted(c, "a", 7);
    assert_int_equal(version_in(c, "a"), 0);
    assert_int_equal(cache_stats(c, &KIND_CONFIG_MAP).objects, 0);
    assert_int_equal(cache_stats(c, &KIND_CONFIG_MAP).bytes, 0);
}

static void test_a_change_of_the_generation_is_told(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new();
    AUTO(json_free) struct json *first = object("a", 5, "u1");
    AUTO(json_free) struct json *echo = json_dup(first);
    AUTO(json_free) struct json *second = object("a", 9, "u1");

    (void)state;
    (void)json_set_cstr(json_get(echo, "metadata"), "resourceVersion", "6");
    assert_true(cache_observe(c, &KIND_CONFIG_MAP, first));
    assert_false(cache_observe(c, &KIND_CONFIG_MAP, echo));
    assert_true(cache_observe(c, &KIND_CONFIG_MAP, second));
}

static void test_our_own_writes_are_seen_at_once_but_never_go_back(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new();

    (void)state;
    wrote(c, "a", 10);
    assert_int_equal(version_in(c, "a"), 10);
    /* The watch is late: what it tells of an older version does not undo ours. */
    wrote(c, "a", 12);
    observe(c, "a", 10);
    assert_int_equal(version_in(c, "a"), 12);
    observe(c, "a", 12);
    observe(c, "a", 15);
    wrote(c, "a", 13);
    assert_int_equal(version_in(c, "a"), 15);
    /* Deleted by somebody before our answer arrived. */
    observe_deleted(c, "b", 21);
    wrote(c, "b", 20);
    assert_int_equal(version_in(c, "b"), 0);
    /* Made anew by us before the deletion of the old one was told. */
    observe(c, "d", 30);
    wrote(c, "d", 40);
    observe_deleted(c, "d", 35);
    assert_int_equal(version_in(c, "d"), 40);
}

static void test_what_no_list_confirms_goes(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new();

    (void)state;
    observe(c, "a", 1);
    wrote(c, "ghost", 5);
    cache_observe_synced(c, &KIND_CONFIG_MAP);
    assert_int_equal(version_in(c, "a"), 1);
    assert_int_equal(version_in(c, "ghost"), 0);
}

static void test_indexes(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new();
    AUTO(json_free) struct json *one = object("a", 1, "u1");
    AUTO(json_free) struct json *two = object("b", 2, "u2");
    AUTO(json_free) struct json *moved = object("a", 3, "u2");
    AUTO(json_free) struct json *of_u1 = NULL;
    AUTO(json_free) struct json *of_u2 = NULL;
    AUTO(json_free) struct json *all = NULL;

    (void)state;
    (void)cache_observe(c, &KIND_CONFIG_MAP, one);
    (void)cache_observe(c, &KIND_CONFIG_MAP, two);
    (void)cache_observe(c, &KIND_CONFIG_MAP, moved);
    of_u1 = cache_get_owned(c, &KIND_CONFIG_MAP, "u1");
    of_u2 = cache_get_owned(c, &KIND_CONFIG_MAP, "u2");
    all = cache_get_all(c, &KIND_CONFIG_MAP, "n");
    assert_int_equal(json_len(of_u1), 0);
    assert_int_equal(json_len(of_u2), 2);
    assert_int_equal(json_len(all), 2);
    assert_non_null(json_get(of_u2, "a"));
}

static void test_secrets_keep_no_credentials(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new();
    AUTO(json_free) struct json *secret = object("pull", 1, "u1");
    AUTO(json_free) struct json *got = NULL;
    AUTO(mem_free) char *text = NULL;

    (void)state;
    /* {"auths":{"https://r.example/v1/":{"auth":"c2VjcmV0"}}} */
    (void)json_set_cstr(json_get(secret, "data"), ".dockerconfigjson",
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
    AUTO(cache_free) struct cache *c = cache_new();
    AUTO(json_free) struct json *pod = object("p", 1, "u1");
    AUTO(json_free) struct json *got = NULL;
    struct json *status = json_need_object(pod, "status");
    struct json *condition = json_add(json_need_array(status, "conditions"), json_new_object());

    (void)state;
    (void)json_set_cstr(condition, "type", "PodScheduled");
    (void)json_set_cstr(condition, "status", "False");
    (void)json_set_cstr(condition, "reason", "Unschedulable");
    (void)json_set_cstr(condition, "message", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    (void)cache_observe(c, &KIND_POD, pod);
    got = cache_get(c, &KIND_POD, "n", "p");
    assert_string_equal(json_get_cstr(got, "waiting"),
                        "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    (void)json_set_cstr(condition, "status", "True");
    (void)cache_observe(c, &KIND_POD, pod);
    assert_null(cache_get(c, &KIND_POD, "n", "p"));
}

int main(void)
{
    return TEST_RUN(T(test_objects_come_and_go), T(test_a_change_of_the_generation_is_told),
                    T(test_our_own_writes_are_seen_at_once_but_never_go_back),
                    T(test_what_no_list_confirms_goes), T(test_indexes),
                    T(test_secrets_keep_no_credentials), T(test_only_pods_in_trouble_are_kept));
}
