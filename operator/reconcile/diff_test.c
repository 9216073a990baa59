/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/diff.h"

#include "lib/base/test.h"
#include "operator/api/graph.h"

static struct json *tree(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

#define OWNER(uid) "\"ownerReferences\":[{\"controller\":true,\"uid\":\"" uid "\"}]"

static const char deployment[] =
    "{\"apiVersion\":\"apps/"
    "v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"d\",\"namespace\":\"n\","
    "\"labels\":{\"a\":\"1\"}," OWNER("u1") "},\"spec\":{\"replicas\":2,\"template\":{\"x\":[1]}}}";
static const char config_map[] =
    "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\",\"namespace\":"
    "\"n\","
    "\"annotations\":{\"commutator.dev/routing-generation\":\"3\"}," OWNER(
        "u1") "},"
              "\"data\":{\"DYN_ROUTER_MODE\":\"kv\"}}";

/* The object as the API server would hold it after our create. */
static struct json *stored(const char *planned, int64_t generation)
{
    struct json *live = tree(planned);
    struct json *metadata = json_get(live, "metadata");

    diff_stamp(live);
    (void)json_set_cstr(metadata, "uid", "live");
    (void)json_set_cstr(metadata, "resourceVersion", "7");
    if (generation)
        (void)json_set_i64(metadata, "generation", generation);
    (void)json_set(live, "status", tree("{\"replicas\":1}"));
    return live;
}

static void test_what_was_written_is_right(void **state)
{
    static const char *const planned[] = {deployment, config_map};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(planned); i++) {
        AUTO(json_free) struct json *want = tree(planned[i]);
        AUTO(json_free) struct json *live = stored(planned[i], i == 0 ? 1 : 0);
        struct json *update = NULL;

        /* Defaults of the API server, and what others added to the metadata, change nothing. */
        if (i == 0)
            (void)json_set_bool(json_get(live, "spec"), "paused", false);
        (void)json_set_cstr(json_need_object(json_get(live, "metadata"), "labels"), "foreign", "1");
        assert_int_equal(diff_objects(live, want, &update), DIFF_NONE);
        assert_null(update);
    }
}

static void test_a_manual_change_of_a_spec_is_seen_by_its_generation(void **state)
{
    AUTO(json_free) struct json *want = tree(deployment);
    AUTO(json_free) struct json *live = stored(deployment, 2);
    AUTO(json_free) struct json *update = NULL;

    (void)state;
    (void)json_set(json_get(live, "spec"), "nodeSelector", tree("{\"by\":\"hand\"}"));
    assert_int_equal(diff_objects(live, want, &update), DIFF_UPDATE);
    assert_null(json_path(update, "spec", "nodeSelector", NULL));
    assert_null(json_get(update, "status"));
    assert_string_equal(object_annotation(update, DIFF_GENERATION), "3");
    assert_string_equal(json_cstr(json_path(update, "metadata", "resourceVersion", NULL)), "7");
}

static void test_a_new_plan_is_seen_by_its_hash(void **state)
{
    AUTO(json_free) struct json *want = tree(deployment);
    AUTO(json_free) struct json *live = stored(deployment, 1);
    AUTO(json_free) struct json *update = NULL;

    (void)state;
    (void)json_set_i64(json_get(want, "spec"), "replicas", 3);
    (void)json_set_cstr(json_need_object(json_get(live, "metadata"), "annotations"),
                        "deployment.kubernetes.io/revision", "4");
    (void)json_set_cstr(json_need_object(json_get(live, "metadata"), "annotations"),
                        "nvidia.com/restartAt", "old");
    assert_int_equal(diff_objects(live, want, &update), DIFF_UPDATE);
    assert_string_equal(object_annotation(update, DIFF_GENERATION), "2");
    /* Annotations of others stay, those of an older plan go. */
    assert_string_equal(object_annotation(update, "deployment.kubernetes.io/revision"), "4");
    assert_null(object_annotation(update, "nvidia.com/restartAt"));
}

static void test_metadata_drift_is_no_change_of_the_spec(void **state)
{
    AUTO(json_free) struct json *want = tree(deployment);
    AUTO(json_free) struct json *live = stored(deployment, 1);
    AUTO(json_free) struct json *update = NULL;

    (void)state;
    (void)json_set_cstr(json_path(live, "metadata", "labels", NULL), "a", "changed");
    assert_int_equal(diff_objects(live, want, &update), DIFF_UPDATE);
    assert_string_equal(object_label(update, "a"), "1");
    /* So the API server does not count up, and neither do we. */
    assert_string_equal(object_annotation(update, DIFF_GENERATION), "1");
}

static void test_objects_without_generation_are_compared_by_value(void **state)
{
    AUTO(json_free) struct json *want = tree(config_map);
    AUTO(json_free) struct json *live = stored(config_map, 0);
    AUTO(json_free) struct json *update = NULL;

    (void)state;
    (void)json_set_cstr(json_get(live, "data"), "ADDED", "by hand");
    assert_int_equal(diff_objects(live, want, &update), DIFF_UPDATE);
    assert_int_equal(json_len(json_get(update, "data")), 1);
    assert_string_equal(object_annotation(update, "commutator.dev/routing-generation"), "3");
}

static void test_owner(void **state)
{
    AUTO(json_free) struct json *want = tree(config_map);
    AUTO(json_free) struct json *live = stored(config_map, 0);
    AUTO(json_free) struct json *update = NULL;

    (void)state;
    (void)json_set(json_get(live, "metadata"), "ownerReferences",
                   tree("[{\"controller\":true,\"uid\":\"other\"}]"));
    assert_int_equal(diff_objects(live, want, &update), DIFF_FOREIGN);
    json_del(json_get(live, "metadata"), "ownerReferences");
    assert_int_equal(diff_objects(live, want, &update), DIFF_UPDATE);
    assert_int_equal(json_len(json_path(update, "metadata", "ownerReferences", NULL)), 1);
}

static void test_a_role_reference_cannot_be_changed(void **state)
{
    static const char binding[] = "{\"kind\":\"RoleBinding\",\"metadata\":{\"name\":\"b\"},"
                                  "\"roleRef\":{\"kind\":\"Role\",\"name\":\"r\"},\"subjects\":[]}";
    AUTO(json_free) struct json *want = tree(binding);
    AUTO(json_free) struct json *live = stored(binding, 0);
    struct json *update = NULL;

    (void)state;
    assert_int_equal(diff_objects(live, want, &update), DIFF_NONE);
    (void)json_set_cstr(json_get(live, "roleRef"), "name", "other");
    assert_int_equal(diff_objects(live, want, &update), DIFF_RECREATE);
}

/* As the API server does with a merge patch. */
static void apply(struct json *object, const struct json *patch)
{
    JSON_FOREACH (member, patch) {
        const char *key = json_key(member);
        struct json *old = json_get(object, key);

        if (json_is_null(member))
            json_del(object, key);
        else if (json_is_object(member) && json_is_object(old))
            apply(old, member);
        else
            (void)json_set(object, key, json_dup(member));
    }
}

static void test_patch(void **state)
{
    static const struct {
        const char *old, *new;
    } cases[] = {
        {"{}", "{\"a\":1}"},
        {"{\"a\":1}", "{}"},
        {"{\"a\":{\"b\":1,\"c\":2},\"d\":[1]}", "{\"a\":{\"b\":1},\"d\":[2,3]}"},
        {"{\"services\":{\"A\":{\"replicas\":1},\"B\":{\"replicas\":1}}}",
         "{\"services\":{\"A\":{\"replicas\":2}}}"},
        {"{\"a\":[1]}", "{\"a\":{\"b\":1}}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *old = tree(cases[i].old);
        AUTO(json_free) struct json *new = tree(cases[i].new);
        AUTO(json_free) struct json *patch = diff_patch(old, new);

        assert_non_null(patch);
        apply(old, patch);
        assert_true(json_equal(old, new));
        assert_null(diff_patch(old, new));
    }
    {
        AUTO(json_free) struct json *new = tree("{\"a\":1}");
        AUTO(json_free) struct json *patch = diff_patch(NULL, new);

        assert_true(json_equal(patch, new));
    }
}

static void test_an_answer_shows_an_edit(void **state)
{
    static const struct {
        const char *metadata;
        bool edited;
    } cases[] = {
        {"{\"generation\":3,\"labels\":{\"a\":\"1\"},\"resourceVersion\":\"9\"}", false},
        {"{\"generation\":4,\"labels\":{\"a\":\"1\"},\"resourceVersion\":\"9\"}", true},
        {"{\"generation\":3,\"labels\":{\"a\":\"2\"},\"resourceVersion\":\"9\"}", true},
        {"{\"generation\":3,\"labels\":{\"a\":\"1\"},\"annotations\":{\"b\":\"1\"}}", true},
        {"{\"generation\":3,\"resourceVersion\":\"9\"}", true},
    };
    AUTO(json_free) struct json *before = json_new_object();

    (void)state;
    (void)json_set(before, "metadata",
                   tree("{\"generation\":3,\"labels\":{\"a\":\"1\"},\"resourceVersion\":\"5\"}"));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *answer = json_new_object();

        (void)json_set(answer, "metadata", tree(cases[i].metadata));
        (void)json_set(answer, "status", tree("{\"state\":\"successful\"}"));
        assert_int_equal(diff_edited(before, answer), cases[i].edited);
    }
}

int main(void)
{
    return TEST_RUN(
        T(test_what_was_written_is_right),
        T(test_a_manual_change_of_a_spec_is_seen_by_its_generation),
        T(test_a_new_plan_is_seen_by_its_hash), T(test_metadata_drift_is_no_change_of_the_spec),
        T(test_objects_without_generation_are_compared_by_value), T(test_owner),
        T(test_a_role_reference_cannot_be_changed), T(test_patch), T(test_an_answer_shows_an_edit));
}
