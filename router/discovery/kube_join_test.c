/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/kube_join.h"

#include <errno.h>

#include "lib/base/strmap.h"
#include "lib/base/test.h"
#include "router/discovery/card.h"

struct seen {
    struct strmap *records;
    size_t puts, gones;
    struct store_stats stats;
};

static void on_put(void *arg, struct str key, struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct seen *s = arg;
    struct record rec;
    struct err e;

    EXPECT_OK(record_parse(json, &scratch, &rec, &e), &e);
    free(strmap_set(s->records, key, str_dup(json)));
    s->puts++;
}

static void on_gone(void *arg, struct str key)
{
    struct seen *s = arg;
    char *old = strmap_remove(s->records, key);

    assert_non_null(old);
    free(old);
    s->gones++;
}

static const struct store_watcher watcher = {.put = on_put, .gone = on_gone};

static void report(struct kube_join *j, struct seen *s)
{
    s->puts = s->gones = 0;
    kube_join_report(j, &watcher, s, &s->stats);
}

static void slice_set(struct kube_join *j, const char *name, const char *text)
{
    AUTO(json_free) struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    kube_join_slice(j, name, v);
}

#define POD(name, ready)                                                                           \
    "{\"conditions\":{\"ready\":" ready "},\"targetRef\":{\"kind\":\"Pod\",\"name\":\"" name "\"}" \
    "}"
#define EP(id)                                                                                     \
    "{\"type\":\"Endpoint\",\"component\":\"b\",\"endpoint\":\"g\",\"namespace\":\"n\","           \
    "\"instance_id\":" id ",\"transport\":{\"tcp\":\"1.2.3.4:5/a/g\"}}"
#define CR(maps) "{\"metadata\":{\"name\":\"x\"},\"spec\":{\"data\":{" maps "}}}"
#define CR_OF(pod, maps)                                                                           \
    "{\"metadata\":{\"ownerReferences\":[{\"kind\":\"Pod\",\"name\":\"" pod                        \
    "\"}]},\"spec\":{\"data\":{" maps "}}}"

static void test_join(void **state)
{
    AUTO(kube_join_free) struct kube_join *j = kube_join_new();
    struct seen s = {.records = strmap_new()};
    struct err e;

    (void)state;
    /* Either may come first; nothing counts alone. */
    EXPECT_OK(kube_join_metadata(j, "pod-a", STR(CR("\"endpoints\":{\"k\":" EP("1") "}")), &e), &e);
    report(j, &s);
    assert_int_equal(s.puts, 0);
    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "true") "," POD("pod-b", "false") "]}");
    report(j, &s);
    assert_int_equal(s.puts, 1);
    assert_non_null(strmap_get(s.records, STR("pod-a/endpoints/k")));
    report(j, &s); /* nothing new, nothing told */
    assert_int_equal(s.puts + s.gones, 0);

    /* Same keys, other content: told. Missing and null maps are empty ones. */
    EXPECT_OK(kube_join_metadata(j, "pod-a",
                                 STR(CR("\"endpoints\":{\"k\":" EP("2") "},\"model_cards\":null")),
                                 &e),
              &e);
    EXPECT_OK(kube_join_metadata(j, "pod-b", STR(CR("\"endpoints\":{\"k\":" EP("3") "}")), &e), &e);
    report(j, &s);
    assert_int_equal(s.puts, 1);

    /* In a second slice, pod-b is ready; pod-a stays ready in the first. */
    slice_set(j, "s2", "{\"endpoints\":[" POD("pod-b", "true") "]}");
    report(j, &s);
    assert_int_equal(s.puts, 1);
    assert_int_equal(s.stats.records, 2);

    /* A container's resource counts by its owner. */
    EXPECT_OK(kube_join_metadata(j, "pod-c-side",
                                 STR(CR_OF("pod-c", "\"endpoints\":{\"k\":" EP("4") "}")), &e),
              &e);
    slice_set(j, "s3", "{\"endpoints\":[{\"targetRef\":{\"name\":\"pod-c\"}}]}");
    report(j, &s);
    assert_int_equal(s.puts, 1);

    /* What does not parse keeps its last good content. */
    assert_int_equal(kube_join_metadata(j, "pod-a", STR("{\"spec\":{}}"), &e), -EINVAL);
    assert_int_equal(kube_join_metadata(j, "pod-a", STR("{\"spec\":{\"data\":"), &e), -EINVAL);
    report(j, &s);
    assert_int_equal(s.puts + s.gones, 0);

    kube_join_slice(j, "s1", NULL);
    report(j, &s);
    assert_int_equal(s.gones, 1);
    EXPECT_OK(kube_join_metadata(j, "pod-b", STR_NULL, &e), &e);
    report(j, &s);
    assert_int_equal(s.gones, 1);
    assert_int_equal(strmap_len(s.records), 1);
    (void)strmap_free_with(s.records, free);
}

static struct json *read_json(const char *shared, const char *file)
{
    AUTO(mem_free) char *path = xasprintf("%s/data/wire/0.9.0/kubernetes-live/%s", shared, file);
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct json *v = NULL;
    struct err e;

    assert_true(test_read_file(path, &text));
    EXPECT_OK(json_parse(&v, buf_str(&text), &e), &e);
    return v;
}

/* Two mocker pods and a frontend of 0.9.0, as a real API server gave them. */
static void test_live_capture(void **state)
{
    const char *shared = test_shared();
    AUTO(kube_join_free) struct kube_join *j = kube_join_new();
    AUTO(json_free) struct json *slices = read_json(shared, "endpointslices.json");
    AUTO(json_free) struct json *metadata = read_json(shared, "dynamoworkermetadatas.json");
    struct seen s = {.records = strmap_new()};
    struct err e;

    (void)state;
    JSON_FOREACH (item, json_get(slices, "items"))
        kube_join_slice(j, json_get_cstr(json_get(item, "metadata"), "name"), item);
    JSON_FOREACH (item, json_get(metadata, "items")) {
        AUTO(mem_free) char *raw = json_to_cstr(item);

        EXPECT_OK(kube_join_metadata(j, json_get_cstr(json_get(item, "metadata"), "name"),
                                     str_from(raw), &e),
                  &e);
    }
    report(j, &s);
    print_message("%zu records\n", s.puts);
    assert_true(s.puts >= 8);
    (void)strmap_free_with(s.records, free);
}

int main(void)
{
    return TEST_RUN(T(test_join), T(test_live_capture));
}
