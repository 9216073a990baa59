/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/cache.h"

#include "lib/base/test.h"

static struct json *object(const char *name, int version, const char *owner)
{
    AUTO(mem_free)
    char *text = xasprintf("{\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\",\"resourceVersion\":"
                           "\"%d\",\"generation\":%d,"
                           "\"managedFields\":[{\"manager\":\"m\"}],"
                           "\"ownerReferences\":[{\"controller\":true,\"kind\":"
                           "\"DynamoGraphDeployment\",\"uid\":\"%s\"}]},"
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
    AUTO(cache_free) struct cache *c = cache_new(NULL, 0);
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

static void test_news_are_told_apart(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new(NULL, 0);
    AUTO(json_free) struct json *first = object("a", 5, "u1");
    AUTO(json_free) struct json *echo = json_dup(first);
    AUTO(json_free) struct json *second = object("a", 9, "u1");

    (void)state;
    (void)json_set_cstr(json_get(echo, "metadata"), "resourceVersion", "6");
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, first), CACHE_EDITED);
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, echo), CACHE_NEWS);
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, echo), CACHE_KNOWN);
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, second), CACHE_EDITED);
}

static void test_the_echo_of_a_write_is_no_news(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new(NULL, 0);
    AUTO(json_free) struct json *made = object("a", 5, "u1");
    AUTO(json_free) struct json *corrected = object("a", 5, "u1");
    AUTO(json_free) struct json *by_another = object("a", 5, "u1");

    (void)state;
    (void)json_set_cstr(json_get(corrected, "metadata"), "resourceVersion", "7");
    (void)json_set_cstr(json_get(by_another, "metadata"), "resourceVersion", "8");
    cache_wrote(c, &KIND_CONFIG_MAP, made);
    cache_wrote(c, &KIND_CONFIG_MAP, corrected);
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, made), CACHE_KNOWN);
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, corrected), CACHE_KNOWN);
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, by_another), CACHE_NEWS);
    /* An older one after a newer one was seen: the history was replaced, nothing is known. */
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, corrected), CACHE_NEWS);
}

static void test_our_own_writes_are_seen_at_once_but_never_go_back(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new(NULL, 0);

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
    AUTO(cache_free) struct cache *c = cache_new(NULL, 0);

    (void)state;
    observe(c, "a", 1);
    wrote(c, "ghost", 5);
    cache_observe_synced(c, &KIND_CONFIG_MAP);
    assert_int_equal(version_in(c, "a"), 1);
    assert_int_equal(version_in(c, "ghost"), 0);
}

static void test_indexes(void **state)
{
    AUTO(cache_free) struct cache *c = cache_new(NULL, 0);
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

static bool is_named_a(const struct json *v)
{
    return strcmp(json_cstr(json_path(v, "metadata", "name", NULL)), "a") == 0;
}

static void put_extra(struct buf *out, const struct json *v)
{
    (void)v;
    buf_put_cstr(out, ",\"extra\":1");
}

static void test_views(void **state)
{
    static const struct cache_view views[] = {
        {.kind = &KIND_CONFIG_MAP, .keep = is_named_a, .trim = true, .put = put_extra}};
    AUTO(cache_free) struct cache *c = cache_new(views, ARRAY_LEN(views));
    AUTO(json_free) struct json *a = object("a", 1, "u1");
    AUTO(json_free) struct json *b = object("b", 2, "u1");
    AUTO(json_free) struct json *got = NULL;

    (void)state;
    (void)cache_observe(c, &KIND_CONFIG_MAP, a);
    assert_int_equal(cache_observe(c, &KIND_CONFIG_MAP, b), CACHE_NEWS);
    assert_null(cache_get(c, &KIND_CONFIG_MAP, "n", "b"));
    got = cache_get(c, &KIND_CONFIG_MAP, "n", "a");
    assert_null(json_get(got, "data"));
    assert_non_null(json_get(got, "extra"));
    assert_int_equal(cache_stats(c, &KIND_CONFIG_MAP).objects, 1);
}

int main(void)
{
    return TEST_RUN(T(test_objects_come_and_go), T(test_news_are_told_apart),
                    T(test_the_echo_of_a_write_is_no_news),
                    T(test_our_own_writes_are_seen_at_once_but_never_go_back),
                    T(test_what_no_list_confirms_goes), T(test_indexes), T(test_views));
}
