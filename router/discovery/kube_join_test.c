/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/kube_join.h"

#include <errno.h>

#include "lib/base/strmap.h"
#include "lib/base/test.h"
#include "router/discovery/card.h"

struct seen {
    struct strmap *records;
    size_t puts, gones, told_again;
    enum store_end how; /* of the last one */
    bool served;
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

static void on_gone(void *arg, struct str key, enum store_end how)
{
    struct seen *s = arg;
    char *old = strmap_remove(s->records, key);

    s->told_again += !old;
    s->gones += old != NULL;
    free(old);
    s->how = how;
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
    kube_join_settle(j);
    report(j, &s);
    assert_int_equal(s.gones, 1);
    assert_int_equal(strmap_len(s.records), 1);
    (void)strmap_free_with(s.records, free);
}

/* Why a record ended: what somebody said, what vanished with its slice, what vanished alone. */
static void test_ends(void **state)
{
    AUTO(kube_join_free) struct kube_join *j = kube_join_new();
    struct seen s = {.records = strmap_new()};
    struct err e;

    (void)state;
#define WORKER(pod)                                                                                \
    EXPECT_OK(kube_join_metadata(j, pod, STR(CR("\"endpoints\":{\"k\":" EP("1") "}")), &e), &e)
    WORKER("pod-a");
    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "true") "]}");
    report(j, &s);
    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "false") "]}");
    report(j, &s);
    assert_true(s.gones == 1 && s.how == STORE_END_TOLD);

    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "true") "]}");
    report(j, &s);
    EXPECT_OK(kube_join_metadata(j, "pod-a", STR_NULL, &e), &e);
    report(j, &s);
    assert_int_equal(s.gones, 0); /* news of its pod may be on the way */
    assert_true(kube_join_is_unsettled(j));
    kube_join_settle(j);
    report(j, &s);
    assert_true(s.gones == 1 && s.how == STORE_END_SILENT);
    assert_false(kube_join_is_unsettled(j));

    WORKER("pod-a");
    report(j, &s);
    EXPECT_OK(kube_join_metadata(j, "pod-a", STR_NULL, &e), &e);
    report(j, &s);
    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "false") "]}"); /* it was */
    report(j, &s);
    assert_true(s.gones == 1 && s.how == STORE_END_TOLD);
    assert_false(kube_join_is_unsettled(j));

    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "true") "]}");
    WORKER("pod-a");
    report(j, &s);
    assert_int_equal(s.puts, 1);
    EXPECT_OK(kube_join_metadata(j, "pod-a", STR(CR("\"endpoints\":{}")), &e), &e);
    report(j, &s);
    assert_true(s.gones == 1 && s.how == STORE_END_TOLD); /* it unregistered */

    WORKER("pod-a");
    report(j, &s);
    kube_join_slice(j, "s1", NULL);
    report(j, &s);
    assert_true(s.gones == 1 && s.how == STORE_END_SILENT);

    /* The pod is deleted: not ready first, then its resource goes after it. */
    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "true") "]}");
    report(j, &s);
    slice_set(j, "s1", "{\"endpoints\":[]}");
    EXPECT_OK(kube_join_metadata(j, "pod-a", STR_NULL, &e), &e);
    report(j, &s);
    assert_true(s.gones == 1 && s.how == STORE_END_TOLD);
    (void)strmap_free_with(s.records, free);
}

static void test_many_vanish(void **state)
{
    AUTO(kube_join_free) struct kube_join *j = kube_join_new();
    struct seen s = {.records = strmap_new()};
    struct err e;

    (void)state;
    /* All of them at once while their pods are ready: nobody's leaving. */
    WORKER("pod-a");
    WORKER("pod-b");
    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "true") "," POD("pod-b", "true") "]}");
    report(j, &s);
    EXPECT_OK(kube_join_metadata(j, "pod-a", STR_NULL, &e), &e);
    report(j, &s);
    EXPECT_OK(kube_join_metadata(j, "pod-b", STR_NULL, &e), &e);
    report(j, &s);
    kube_join_settle(j);
    report(j, &s);
    assert_true(s.gones == 2 && s.how == STORE_END_DOUBTFUL);
    slice_set(j, "s1", "{\"endpoints\":[" POD("pod-a", "true") "," POD("pod-b", "false") "]}");
    s.told_again = 0;
    report(j, &s);
    assert_true(s.told_again == 1 && s.how == STORE_END_TOLD); /* the pod's own end */

    (void)strmap_free_with(s.records, free);
}

static void test_mismatch(void **state)
{
    AUTO(kube_join_free) struct kube_join *j = kube_join_new();
    struct kube_mismatch mm;
    struct err e;

    (void)state;
    slice_set(j, "own", "{\"endpoints\":[" POD("front-1", "true") "," POD("front-2", "true") "]}");
    slice_set(j, "f",
              "{\"metadata\":{\"labels\":{\"kubernetes.io/service-name\":\"g2-frontend\"}},"
              "\"endpoints\":[" POD("front-3", "true") "]}");
    mm = kube_join_mismatch(j, "front-1");
    assert_int_equal(mm.ready_alone + mm.metadata_alone, 0); /* frontends need none */
    slice_set(j, "w", "{\"endpoints\":[" POD("pod-a", "true") "," POD("pod-b", "false") "]}");
    mm = kube_join_mismatch(j, "front-1");
    assert_int_equal(mm.ready_alone, 1);
    assert_string_equal(mm.example, "pod-a");
    WORKER("pod-b"); /* the other way round */
    mm = kube_join_mismatch(j, "front-1");
    assert_int_equal(mm.metadata_alone, 1);
    slice_set(j, "w", "{\"endpoints\":[" POD("pod-a", "true") "," POD("pod-b", "true") "]}");
    mm = kube_join_mismatch(j, "front-1");
    assert_int_equal(mm.ready_alone + mm.metadata_alone, 0); /* one that counts is enough */
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

/* Writes of the releases as their API server saw them: the last state of a mocker's resource. */
static void captured_writes(const char *generation, struct seen *s)
{
    AUTO(kube_join_free) struct kube_join *j = kube_join_new();
    AUTO(mem_free)
    char *path =
        xasprintf("%s/data/wire/%s/kubernetes/kube-api-requests.jsonl", test_shared(), generation);
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct str rest, line;
    struct err e;

    assert_true(test_read_file(path, &text));
    slice_set(j, "s", "{\"endpoints\":[" POD("mock-worker-0", "true") "]}");
    rest = buf_str(&text);
    for (bool more = true; more;) {
        AUTO(buf_done) struct buf body = BUF_NULL;
        struct str raw;

        more = str_cut(&rest, '\n', &line);
        raw = json_pull_member(line, "body");
        if (!str_has(line, STR("\"PATCH\"")) || !str_has(line, STR("mock-worker-0?")))
            continue;
        if (raw.ptr[0] == '"')
            assert_true(json_unescape(str_slice(raw.ptr + 1, raw.len - 2), &body));
        else
            buf_put_str(&body, raw);
        EXPECT_OK(kube_join_metadata(j, "mock-worker-0", buf_str(&body), &e), &e);
        report(j, s);
        /* Served at some time: an Endpoint and its card; the last writes withdraw them. */
        if (strmap_get(s->records,
                       STR("mock-worker-0/endpoints/dynamo/backend/generate/520f855aa375f")) &&
            strmap_get(s->records,
                       STR("mock-worker-0/model_cards/dynamo/backend/generate/520f855aa375f")))
            s->served = true;
    }
}

static void test_captured_writes(void **state)
{
    static const char *const generations[] = {"0.9.0", "1.x"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(generations); i++) {
        struct seen s = {.records = strmap_new()};

        captured_writes(generations[i], &s);
        assert_true(s.served);
        (void)strmap_free_with(s.records, free);
    }
}

/*
 * DYN_KUBE_DISCOVERY_MODE=container (wire.md §15.5): the resource of container `main` bears the pod's
 * name, that of another one "{pod}-{container}"; the ids are hashes of those names.
 */
static void test_containers_of_a_pod(void **state)
{
    AUTO(kube_join_free) struct kube_join *j = kube_join_new();
    struct seen s = {.records = strmap_new()};
    struct err e;

    (void)state;
    EXPECT_OK(
        kube_join_metadata(j, "p-0", STR(CR_OF("p-0", "\"endpoints\":{\"k\":" EP("1") "}")), &e),
        &e);
    EXPECT_OK(kube_join_metadata(
                  j, "p-0-decode",
                  STR("{\"metadata\":{\"ownerReferences\":[{\"kind\":\"Pod\",\"name\":\"p-0\","
                      "\"controller\":false}]},\"spec\":{\"data\":{\"endpoints\":{\"k\":" EP(
                          "2") "},\"model_cards\":null}}}"),
                  &e),
              &e);
    slice_set(j, "s", "{\"endpoints\":[" POD("p-0", "true") "]}");
    report(j, &s);
    assert_int_equal(s.puts, 2);
    EXPECT_OK(kube_join_metadata(j, "p-0-decode", STR_NULL, &e), &e);
    kube_join_settle(j);
    report(j, &s);
    assert_true(s.gones == 1 && s.how == STORE_END_SILENT);
    slice_set(j, "s", "{\"endpoints\":[" POD("p-0", "false") "]}");
    report(j, &s);
    assert_true(s.gones == 1 && s.how == STORE_END_TOLD);
    (void)strmap_free_with(s.records, free);
}

int main(void)
{
    return TEST_RUN(T(test_join), T(test_ends), T(test_many_vanish), T(test_mismatch),
                    T(test_live_capture), T(test_captured_writes), T(test_containers_of_a_pod));
}
