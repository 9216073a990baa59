/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/records.h"

#include <errno.h>

#include "lib/base/json_tree.h"
#include "lib/base/test.h"
#include "router/discovery/card.h"
#include "router/wire/walk.h"

struct tally {
    size_t records[RECORD_EVENT_SOURCE + 1], same, cards, keys, leased;
};

/* What a parse keeps comes back from what a write makes of it. */
static void check_rewrite(const struct record *rec)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct record again;
    struct err e;

    record_put(&out, rec, true);
    EXPECT_OK(record_parse(buf_str(&out), &scratch, &again, &e), &e);
    assert_int_equal(again.kind, rec->kind);
    assert_true(again.instance_id == rec->instance_id);
    assert_true(str_eq(again.ns, rec->ns) && str_eq(again.component, rec->component));
    assert_true(str_eq(again.endpoint, rec->endpoint) && str_eq(again.topic, rec->topic));
    assert_true(str_eq(again.address, rec->address) && again.transport == rec->transport);
    assert_true(str_eq(again.card_json, rec->card_json));
    assert_true(str_eq(again.metadata_json, rec->metadata_json));
}

static void check_card(struct tally *t, const char *path, struct str json)
{
    /* The sum that a 0.9.0 frontend put into its requests for this very card. */
    static const char SUM[] = "c733ee2820af1a6b161500241dfabdf01a35c2f44b27a7378c621bbf2f13ee18";
    AUTO(model_card_unref) struct model_card *card = NULL;
    AUTO(model_card_unref) struct model_card *again = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    EXPECT_OK(model_card_parse(&card, json, &e), &e);
    t->cards++;
    assert_string_equal(card->display_name, "tinyllama-chat");
    assert_int_equal(card->context_length, 131072);
    assert_int_equal(card->kv_cache_block_size, 16);
    assert_non_null(card->tokenizer.path);
    assert_true(card->total_kv_blocks > 0);
    assert_int_equal(card->dp_size, 1);
    if (strstr(path, "/0.9.0/"))
        assert_string_equal(card->mdc_sum, SUM);
    model_card_put(&out, card);
    EXPECT_OK(model_card_parse(&again, buf_str(&out), &e), &e);
    assert_int_equal(again->flags, card->flags);
    assert_int_equal(again->is_prefill, card->is_prefill);
    assert_true(again->local_indexer == card->local_indexer);
    assert_string_equal(again->tokenizer.checksum, card->tokenizer.checksum);
    if (strstr(path, "/0.9.0/"))
        assert_string_equal(again->mdc_sum, card->mdc_sum);
}

static void check_record(struct tally *t, const char *path, struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct record rec;
    struct err e;

    EXPECT_OK(record_parse(json, &scratch, &rec, &e), &e);
    t->records[rec.kind]++;
    check_rewrite(&rec);
    if (rec.kind == RECORD_MODEL)
        check_card(t, path, rec.card_json);
    /* What 0.9.0 wrote by itself is what we write, unless asked for both forms. */
    if (!strstr(path, "/0.9.0/") || strstr(path, "etcd"))
        return;
    record_put(&out, &rec, false);
    if (!str_eq(buf_str(&out), json))
        fail_msg("%s\nwant %.*s\ngot  %s", path, STR_ARG(json), buf_cstr(&out));
    t->same++;
}

/* "dynamo%2Fbackend%2Fgenerate%2Fa77b" */
static void check_key(struct tally *t, const char *path, struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf key = BUF_NULL;
    AUTO(buf_done) struct buf name = BUF_NULL;
    struct record rec;
    struct err e;

    EXPECT_OK(record_parse(json, &scratch, &rec, &e), &e);
    if (!strstr(path, "/0.9.0/") && rec.kind != RECORD_ENDPOINT && rec.kind != RECORD_MODEL)
        return; /* 1.x names channels differently; we write the names of 0.9 */
    record_key_put(&key, &rec);
    for (size_t i = 0; i < key.len; i++) {
        char c = buf_data(&key)[i];

        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'))
            buf_put_char(&name, c);
        else
            buf_printf(&name, "%%%02X", (unsigned char)c);
    }
    assert_string_equal(strrchr(path, '/') + 1, buf_cstr(&name));
    assert_non_null(strstr(path, record_bucket(rec.kind)));
    t->keys++;
}

static void check_etcd(struct tally *t, const char *path, struct str content)
{
    struct str line;
    bool more = true;

    while (more) {
        struct json_pull p;
        struct str key, value;

        more = str_cut(&content, '\n', &line);
        json_pull_init(&p, line);
        if (!line.len || !json_pull_object(&p))
            continue;
        while (json_pull_key(&p, &key))
            if (str_is(key, "value") && json_pull_peek(&p) == JSON_KIND_OBJECT) {
                assert_true(json_pull_skip(&p, &value));
                check_record(t, path, value);
            } else {
                (void)json_pull_skip(&p, NULL);
            }
    }
}

/* "lease 7d… granted with …, attached keys([v1/instances/… v1/mdc/…])": who owns the lease has its id. */
static void check_leases(struct tally *t, struct str content)
{
    struct str line, word, id;

    for (bool more = true; more;) {
        more = str_cut(&content, '\n', &line);
        if (!str_starts(line, STR("lease ")))
            continue;
        line = str_skip(line, strlen("lease "));
        assert_true(str_cut(&line, ' ', &id));
        for (bool words = true; words;) {
            words = str_cut(&line, ' ', &word);
            if (!str_has(word, STR("v1/instances/")) && !str_has(word, STR("v1/mdc/")))
                continue;
            if (str_ends(word, STR("])")))
                word = str_head(word, word.len - 2);
            assert_true(str_ends(word, id));
            t->leased++;
        }
    }
}

static void check_file(void *arg, const char *path, struct str content)
{
    struct tally *t = arg;

    if (strstr(path, "/etcd-leases.txt"))
        check_leases(t, content);
    else if (strstr(path, "/kv-store") && strstr(path, "/v1/") && content.len) {
        check_record(t, path, content);
        check_key(t, path, content);
    } else if (strstr(path, "etcd-keys.jsonl")) {
        check_etcd(t, path, content);
    }
}

static void test_captures(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", shared);
    struct tally t = {0};

    (void)state;
    walk(dir, check_file, &t);
    print_message("%zu endpoints, %zu models, %zu channels, %zu sources, %zu cards, %zu equal, "
                  "%zu keys\n",
                  t.records[0], t.records[1], t.records[2], t.records[3], t.cards, t.same, t.keys);
    assert_true(t.records[0] > 20 && t.records[1] > 15 && t.records[2] > 50 && t.records[3] > 5);
    assert_true(t.same > 40 && t.keys > 60 && t.leased > 8);
}

/* Cut, it is refused; with a bit flipped, what is still read survives writing. */
static void damage_record(void *arg, const char *path, struct str whole)
{
    AUTO(buf_done) struct buf damaged = BUF_NULL;
    AUTO(buf_done) struct buf once = BUF_NULL;
    AUTO(buf_done) struct buf twice = BUF_NULL;
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    size_t *n_accepted = arg, n;
    struct record rec;

    if (!strstr(path, "/kv-store") || !strstr(path, "/v1/") || !whole.len)
        return;
    n = whole.ptr[whole.len - 1] == '\n' ? whole.len - 1 : whole.len;
    for (size_t i = 0; i < n; i += 1 + n / 256) {
        buf_clear(&scratch);
        assert_true(record_parse(str_head(whole, i), &scratch, &rec, NULL) < 0);
    }
    buf_put_str(&damaged, whole);
    for (size_t i = 0; i < n; i += 1 + n / 256) {
        char *byte = buf_data(&damaged) + i;

        *byte ^= (char)(1u << i % 8);
        buf_clear(&scratch);
        if (record_parse(buf_str(&damaged), &scratch, &rec, NULL) == 0) {
            buf_clear(&once);
            record_put(&once, &rec, true);
            buf_clear(&scratch);
            assert_int_equal(record_parse(buf_str(&once), &scratch, &rec, NULL), 0);
            buf_clear(&twice);
            record_put(&twice, &rec, true);
            assert_true(str_eq(buf_str(&once), buf_str(&twice)));
            ++*n_accepted;
        }
        *byte ^= (char)(1u << i % 8);
    }
}

static void test_damage(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", shared);
    size_t n_accepted = 0;

    (void)state;
    walk(dir, damage_record, &n_accepted);
    assert_true(n_accepted > 100);
}

static void test_bad(void **state)
{
    static const struct {
        const char *json;
        int want;
    } cases[] = {
        {"", -EINVAL},
        {"{", -EINVAL},
        {"[]", -EINVAL},
        {"{}", -EINVAL},
        {"{\"type\":\"Novelty\",\"x\":1}", RECORD_UNKNOWN},
        {"{\"type\":\"Endpoint\"}", -EINVAL},
        {"{\"type\":\"Endpoint\",\"namespace\":\"n\",\"component\":\"c\",\"endpoint\":\"e\","
         "\"instance_id\":1}",
         -EINVAL},
        {"{\"type\":\"Endpoint\",\"namespace\":\"n\",\"component\":\"c\",\"endpoint\":\"e\","
         "\"instance_id\":-1,\"transport\":{\"tcp\":\"a\"}}",
         -EINVAL},
        {"{\"type\":\"Endpoint\",\"namespace\":\"n\",\"component\":\"c\",\"endpoint\":\"e\","
         "\"instance_id\":18446744073709551615,\"transport\":{\"tcp\":\"a\"},\"new\":{}}",
         0},
        {"{\"type\":\"Model\",\"namespace\":\"n\",\"component\":\"c\",\"endpoint\":\"e\","
         "\"instance_id\":1}",
         -EINVAL},
        {"{\"type\":\"EventChannel\",\"scope\":{\"kind\":\"namespace\",\"name\":\"n\"},"
         "\"topic\":\"t\",\"instance_id\":1,\"transport\":{\"kind\":\"Zmq\",\"config\":{"
         "\"endpoint\":\"tcp://1.2.3.4:5\"}}}",
         0},
        {"{\"type\":\"EventChannel\",\"namespace\":\"n\",\"component\":\"\",\"instance_id\":1}",
         -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf scratch = BUF_NULL;
        struct record rec;
        struct err e = {""};
        int r = record_parse(str_from(cases[i].json), &scratch, &rec, &e);

        if (r != cases[i].want)
            fail_msg("%s: %d %s", cases[i].json, r, e.text);
        assert_true(r >= 0 || e.text[0]);
    }
}

/* What a worker runs on: only "cpu" sets it apart, as for 1.6.1. */
static void test_device(void **state)
{
    static const struct {
        const char *member;
        bool on_cpu;
    } cases[] = {{"", false},
                 {",\"device_type\":null", false},
                 {",\"device_type\":\"cpu\"", true},
                 {",\"device_type\":\"cuda\"", false},
                 {",\"device_type\":\"xpu\"", false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mem_free)
        char *json =
            xasprintf("{\"type\":\"Endpoint\",\"namespace\":\"n\",\"component\":\"c\","
                      "\"endpoint\":\"e\",\"instance_id\":1,\"transport\":{\"tcp\":\"a\"}%s}",
                      cases[i].member);
        AUTO(buf_done) struct buf scratch = BUF_NULL;
        struct record rec;
        struct err e;

        EXPECT_OK(record_parse(str_from(json), &scratch, &rec, &e), &e);
        assert_int_equal(rec.on_cpu, cases[i].on_cpu);
    }
}

/* As 1.6.1 writes it, without what our endpoints do not say. */
static void test_source(void **state)
{
    static const char WANT[] =
        "{\"type\":\"EventSource\",\"scope\":{\"kind\":\"endpoint\",\"endpoint\":{\"namespace\":"
        "\"dynamo\",\"component\":\"backend\",\"name\":\"generate\"}},\"topic\":\"kv-events\","
        "\"publisher_id\":8968802300043090,\"metadata\":{\"kv_state_endpoint\":{\"namespace\":"
        "\"dynamo\",\"component\":\"backend\",\"name\":\"generate\"},\"worker\":{\"worker_id\":"
        "12988049932146391635,\"dp_rank\":2},\"publisher_id\":8968802300043090,"
        "\"recovery_target\":{\"component\":\"backend\",\"endpoint\":"
        "\"worker_kv_query_source_1fdd1403279f52\",\"namespace\":\"dynamo\",\"instance_id\":"
        "12988049932146391635,\"transport\":{\"tcp\":\"127.0.0.1:44223/b43ed299829f3a53/dynamo/"
        "backend/worker_kv_query_source_1fdd1403279f52\"}}}}";
    static const char LIVE_ONLY[] = "\"publisher_id\":8968802300043090}";
    const struct record recovery = {.kind = RECORD_ENDPOINT,
                                    .ns = STR("dynamo"),
                                    .component = STR("backend"),
                                    .endpoint = STR("worker_kv_query_source_1fdd1403279f52"),
                                    .instance_id = UINT64_C(12988049932146391635),
                                    .transport = TRANSPORT_TCP,
                                    .address =
                                        STR("127.0.0.1:44223/b43ed299829f3a53/dynamo/backend/"
                                            "worker_kv_query_source_1fdd1403279f52")};
    struct event_source source = {.ns = "dynamo",
                                  .component = "backend",
                                  .endpoint = "generate",
                                  .worker_id = UINT64_C(12988049932146391635),
                                  .publisher_id = UINT64_C(8968802300043090),
                                  .dp_rank = 2,
                                  .recovery = &recovery};
    AUTO(buf_done) struct buf metadata = BUF_NULL;
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct source_metadata md;
    struct record rec;
    struct err e;

    (void)state;
    record_of_source(&rec, &metadata, &source);
    record_put(&out, &rec, false);
    assert_string_equal(buf_cstr(&out), WANT);
    EXPECT_OK(source_metadata_parse(rec.metadata_json, &scratch, &md, &e), &e);
    assert_true(md.worker_id == source.worker_id && md.dp_rank == 2 && md.has_recovery);
    assert_true(md.recovery.instance_id == recovery.instance_id &&
                md.recovery.transport == TRANSPORT_TCP);
    assert_true(str_eq(md.recovery.address, recovery.address));
    buf_clear(&out);
    record_key_put(&out, &rec);
    assert_string_equal(buf_cstr(&out), "namespace/dynamo/component/backend/endpoint/generate/"
                                        "topic/kv-events/1fdd1403279f52");
    source.recovery = NULL;
    buf_clear(&metadata);
    record_of_source(&rec, &metadata, &source);
    assert_true(str_ends(rec.metadata_json, STR(LIVE_ONLY)));
    EXPECT_OK(source_metadata_parse(rec.metadata_json, &scratch, &md, &e), &e);
    assert_false(md.has_recovery);
    assert_int_equal(source_metadata_parse(STR("{\"worker\":{\"dp_rank\":1}}"), &scratch, &md, &e),
                     -EINVAL);
    assert_int_equal(source_metadata_parse(STR("null"), &scratch, &md, &e), -EINVAL);
}

static void test_names(void **state)
{
    static const struct {
        const char *text, *slug;
    } slugs[] = {
        {"/models/My Model", "models_my_model"},
        {"Qwen/Qwen3-0.6B", "qwen_qwen3-0_6b"},
        {"__x", "x"},
        {"\xC3\xA4", ""},
        {"a\xC3\xA4", "a_"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(slugs); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        slug_put(&out, str_from(slugs[i].text));
        assert_string_equal(buf_cstr(&out), slugs[i].slug);
    }
    assert_true(instance_id_of_pod(STR("worker-0")) == UINT64_C(0x43710f49c0cff));
    assert_true(instance_id_of_pod(STR("my-pod")) == UINT64_C(0x6ea0ff95f52f1));
    assert_true(instance_id_of_pod(STR("dynamo-vllm-decode-7c9d8b6f5-abcde")) ==
                UINT64_C(0x3854c0ee2bcc5));
    assert_true(instance_id_of_pod(STR("mock-worker-0")) == UINT64_C(0x520f855aa375f));
}

int main(void)
{
    return TEST_RUN(T(test_captures), T(test_damage), T(test_bad), T(test_device), T(test_source),
                    T(test_names));
}
