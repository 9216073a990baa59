/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/instances.h"

#include <pthread.h>
#include <stdatomic.h>

#include "lib/base/log.h"
#include "lib/base/test.h"

enum { TRACE_MAX = 4096 };

struct rig {
    struct loop *loop;
    struct store_hub *hub;
    struct store *store;
    struct instances *ix;
    char trace[TRACE_MAX]; /* events as text */
    size_t changes;
};

static void on_event(void *arg, const struct instances_event *ev)
{
    static const char *const words[] = {"+model", "-model", "+w",  "-w",  "~w",
                                        "+ch",    "-ch",    "+ix", "-ix", "~model"};
    struct rig *rig = arg;
    size_t n = strlen(rig->trace);

    if (ev->worker)
        (void)snprintf(rig->trace + n, TRACE_MAX - n, "%s %s %llx;", words[ev->change],
                       ev->model->name, (unsigned long long)ev->worker->id);
    else
        (void)snprintf(rig->trace + n, TRACE_MAX - n, "%s %s;", words[ev->change],
                       ev->model     ? ev->model->name
                       : ev->channel ? ev->channel->topic
                                     : ev->index->endpoint);
}

static void on_changed(void *arg, const struct model_table *t)
{
    struct rig *rig = arg;

    assert_true(t->version > 0);
    rig->changes++;
}

static void rig_init(struct rig *rig, const char *ns_filter)
{
    struct instances_conf conf = {
        .ns_filter = ns_filter, .event = on_event, .changed = on_changed, .arg = rig};
    struct err e;

    *rig = (struct rig){.hub = store_hub_new()};
    EXPECT_OK(log_setup("off", false, &e), &e);
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    rig->store = store_mem_new(rig->hub, rig->loop);
    EXPECT_OK(instances_new(&rig->ix, rig->loop, rig->store, &conf, &e), &e);
    assert_true(instances_synced(rig->ix));
}

static void rig_done(struct rig *rig)
{
    rig->ix = instances_free(rig->ix);
    rig->store = store_free(rig->store);
    loop_run_once(rig->loop, 0);
    rig->loop = loop_free(rig->loop);
    rig->hub = store_hub_free(rig->hub);
}

static struct record record(enum record_kind kind, uint64_t id, const char *ns)
{
    return (struct record){
        .kind = kind,
        .ns = str_from(ns),
        .component = STR("backend"),
        .endpoint = STR("generate"),
        .instance_id = id,
        .transport = TRANSPORT_TCP,
        .address = STR("10.0.0.1:5000/x/generate"),
    };
}

static void endpoint_put(struct rig *rig, uint64_t id, const char *ns)
{
    struct record rec = record(RECORD_ENDPOINT, id, ns);
    struct err e;

    EXPECT_OK(store_publish(rig->store, &rec, &e), &e);
}

static struct record card(uint64_t id, const char *ns, const char *model, unsigned block,
                          const char *type, char **ret_text)
{
    struct record rec = record(RECORD_MODEL, id, ns);

    *ret_text = xasprintf("{\"display_name\":\"%s\",\"slug\":\"%s\",\"context_length\":10,"
                          "\"kv_cache_block_size\":%u,\"migration_limit\":0,\"model_type\":\"%s\","
                          "\"model_input\":\"Tokens\",\"runtime_config\":{\"total_kv_blocks\":%u}}",
                          model, model, block, type, (unsigned)id);
    rec.card_json = str_from(*ret_text);
    return rec;
}

static void card_put(struct rig *rig, uint64_t id, const char *ns, const char *model,
                     unsigned block, const char *type)
{
    AUTO(mem_free) char *text = NULL;
    struct record rec = card(id, ns, model, block, type, &text);
    struct err e;

    EXPECT_OK(store_publish(rig->store, &rec, &e), &e);
}

static void gone(struct rig *rig, enum record_kind kind, uint64_t id, const char *ns)
{
    struct record rec = record(kind, id, ns);

    store_withdraw(rig->store, &rec);
}

/* One turn, then what it told. */
static const char *turn(struct rig *rig)
{
    static char told[TRACE_MAX];

    rig->trace[0] = '\0';
    loop_run_once(rig->loop, 0);
    memcpy(told, rig->trace, TRACE_MAX);
    return told;
}

static void test_life_of_a_model(void **state)
{
    AUTO(model_table_unref) struct model_table *early = NULL;
    AUTO(model_table_unref) struct model_table *t = NULL;
    const struct served_model *m;
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    endpoint_put(&rig, UINT64_C(0xfffffffffffffffe), "a");
    assert_string_equal(turn(&rig), ""); /* no card, no model */
    card_put(&rig, UINT64_C(0xfffffffffffffffe), "a", "m", 16, "Chat");
    assert_string_equal(turn(&rig), "+model m;+w m fffffffffffffffe;");
    early = instances_table(rig.ix);
    card_put(&rig, 2, "a", "m", 16, "Chat"); /* before its endpoint */
    assert_string_equal(turn(&rig), "");
    endpoint_put(&rig, 2, "a");
    endpoint_put(&rig, 1, "a");                        /* without a card: still routed to */
    assert_string_equal(turn(&rig), "+w m 1;+w m 2;"); /* one turn, one change */
    t = instances_table(rig.ix);
    m = model_table_find(t, STR("m"), false);
    assert_int_equal(m->n_workers, 3);
    assert_int_equal(served_model_worker(m, 2)->card->total_kv_blocks, 2); /* its own card */
    assert_ptr_equal(served_model_worker(m, 1)->card, m->card);
    assert_null(served_model_worker(m, 3));
    assert_int_equal(early->models[0].n_workers, 1); /* old tables stay as they were */

    gone(&rig, RECORD_ENDPOINT, 2, "a");
    assert_string_equal(turn(&rig), "-w m 2;");
    gone(&rig, RECORD_MODEL, UINT64_C(0xfffffffffffffffe), "a"); /* the card of 2 carries on */
    assert_string_equal(turn(&rig), "~w m 1;~w m fffffffffffffffe;");
    gone(&rig, RECORD_MODEL, 2, "a");
    assert_string_equal(turn(&rig), "-w m 1;-w m fffffffffffffffe;-model m;");
    rig_done(&rig);
}

static void test_refused_card(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    endpoint_put(&rig, 1, "a");
    endpoint_put(&rig, 2, "a");
    card_put(&rig, 1, "a", "m", 16, "Chat");
    assert_string_equal(turn(&rig), "+model m;+w m 1;+w m 2;");
    card_put(&rig, 2, "a", "m", 32, "Chat"); /* another block size */
    assert_string_equal(turn(&rig), "");
    assert_int_equal(instances_stats(rig.ix).refused_cards, 1);
    endpoint_put(&rig, 3, "a");
    assert_string_equal(turn(&rig), "+w m 3;");
    assert_int_equal(instances_stats(rig.ix).refused_cards, 1); /* told once */
    gone(&rig, RECORD_MODEL, 1, "a"); /* now the other one defines the model */
    assert_string_equal(turn(&rig), "-w m 1;-w m 2;-w m 3;-model m;+model m;+w m 1;+w m 2;+w m 3;");
    rig_done(&rig);
}

/* A card with a tokenizer of that checksum, or of an adapter. */
static void special_card_put(struct rig *rig, uint64_t id, const char *name, const char *more,
                             const char *suffix)
{
    AUTO(mem_free)
    char *text =
        xasprintf("{\"display_name\":\"%s\",\"slug\":\"s\",\"context_length\":10,"
                  "\"kv_cache_block_size\":16,\"migration_limit\":0,\"model_type\":\"Chat\","
                  "\"model_input\":\"Tokens\",%s}",
                  name, more);
    struct record rec = record(RECORD_MODEL, id, "a");
    struct err e;

    rec.card_json = str_from(text);
    rec.model_suffix = str_from(suffix);
    EXPECT_OK(store_publish(rig->store, &rec, &e), &e);
}

#define TOKENIZER(sum)                                                                             \
    "\"tokenizer\":{\"hf_tokenizer_json\":{\"path\":\"t\",\"checksum\":\"blake3:" sum "\"}}"

static void test_changed_card(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    endpoint_put(&rig, 1, "a");
    endpoint_put(&rig, 2, "a");
    special_card_put(&rig, 1, "m", TOKENIZER("01"), "");
    special_card_put(&rig, 2, "m", TOKENIZER("01") ",\"source_path\":\"p\"", "");
    assert_string_equal(turn(&rig), "+model m;+w m 1;+w m 2;");
    /* Another sum, but the same tokens: as cards of 0.9 and 1.x are. */
    assert_int_equal(instances_stats(rig.ix).refused_cards, 0);
    special_card_put(&rig, 1, "m", TOKENIZER("02"), "");
    assert_string_equal(turn(&rig), "~model m;~w m 1;~w m 2;");
    assert_int_equal(instances_stats(rig.ix).refused_cards, 1); /* now that of 2 differs */
    special_card_put(&rig, 2, "m", TOKENIZER("02"), "");
    assert_string_equal(turn(&rig), "~w m 2;");
    rig_done(&rig);
}

static void test_adapter(void **state)
{
    static const char lora[] = "\"lora\":{\"name\":\"ad\",\"max_gpu_lora_count\":4}";
    AUTO(model_table_unref) struct model_table *t = NULL;
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    endpoint_put(&rig, 1, "a");
    endpoint_put(&rig, 2, "a");
    special_card_put(&rig, 1, "m", TOKENIZER("01"), "");
    special_card_put(&rig, 2, "m", TOKENIZER("01"), "");
    special_card_put(&rig, 2, "ad", lora, "ad");
    assert_string_equal(turn(&rig), "+model ad;+w ad 2;+model m;+w m 1;+w m 2;");
    t = instances_table(rig.ix);
    assert_string_equal(model_table_find(t, STR("ad"), false)->card->lora_name, "ad");
    special_card_put(&rig, 1, "ad", lora, "ad");
    assert_string_equal(turn(&rig), "+w ad 1;");
    rig_done(&rig);
}

static void test_prefill_and_namespaces(void **state)
{
    AUTO(model_table_unref) struct model_table *t = NULL;
    struct rig rig;

    (void)state;
    rig_init(&rig, "a");
    card_put(&rig, 1, "a", "m", 16, "Chat | Completions");
    card_put(&rig, 2, "a", "m", 16, "Prefill");
    card_put(&rig, 3, "b", "m", 32, "Chat"); /* not ours */
    endpoint_put(&rig, 3, "b");
    assert_string_equal(turn(&rig), "+model m;+model m;");
    t = instances_table(rig.ix);
    assert_int_equal(t->n_models, 2);
    assert_true(model_table_find(t, STR("m"), true)->is_prefill);
    assert_false(model_table_find(t, STR("m"), false)->is_prefill);
    assert_null(model_table_find(t, STR("M"), false));
    rig_done(&rig);

    rig_init(&rig, "dynamo"); /* the global one sees all */
    card_put(&rig, 3, "b", "m", 32, "Chat");
    assert_string_equal(turn(&rig), "+model m;");
    rig_done(&rig);
}

static void test_bad_records(void **state)
{
    AUTO(mem_free) char *text = NULL;
    struct record good = card(1, "a", "m", 16, "Chat", &text), bad;
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig, NULL);
    endpoint_put(&rig, 1, "a");
    EXPECT_OK(store_publish(rig.store, &good, &e), &e);
    assert_string_equal(turn(&rig), "+model m;+w m 1;");
    bad = good;
    bad.card_json = STR("{\"display_name\":\"m\"}"); /* last good stays */
    EXPECT_OK(store_publish(rig.store, &bad, &e), &e);
    EXPECT_OK(store_publish(rig.store, &bad, &e), &e);
    assert_string_equal(turn(&rig), "");
    assert_int_equal(instances_stats(rig.ix).bad_records, 2);
    bad = record(RECORD_ENDPOINT, 5, "a");
    bad.address = STR_NULL;
    EXPECT_OK(store_publish(rig.store, &bad, &e), &e);
    endpoint_put(&rig, 6, "a"); /* its neighbours live */
    assert_string_equal(turn(&rig), "+w m 6;");
    rig_done(&rig);
}

static void test_query_endpoints(void **state)
{
    AUTO(model_table_unref) struct model_table *t = NULL;
    struct record query = record(RECORD_ENDPOINT, 1, "a");
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig, NULL);
    endpoint_put(&rig, 1, "a");
    card_put(&rig, 1, "a", "m", 16, "Chat");
    assert_string_equal(turn(&rig), "+model m;+w m 1;");
    query.endpoint = STR("worker_kv_indexer_query_dp0");
    query.address = STR("10.0.0.1:5000/x/0");
    EXPECT_OK(store_publish(rig.store, &query, &e), &e);
    query.endpoint = STR("worker_kv_indexer_query_dp1");
    query.address = STR("10.0.0.1:5000/x/1");
    EXPECT_OK(store_publish(rig.store, &query, &e), &e);
    query.instance_id = 2; /* a worker that does not serve */
    EXPECT_OK(store_publish(rig.store, &query, &e), &e);
    assert_string_equal(turn(&rig), "~w m 1;");
    t = instances_table(rig.ix);
    assert_string_equal(t->models[0].workers[0].queries, "10.0.0.1:5000/x/0,10.0.0.1:5000/x/1");
    rig_done(&rig);
}

/* Of 1.x: the record of a rank's events names who tells what of them was missed. */
static void test_recovery_targets(void **state)
{
    AUTO(model_table_unref) struct model_table *t = NULL;
    AUTO(buf_done) struct buf metadata = BUF_NULL;
    struct record target = record(RECORD_ENDPOINT, 1, "a"), rec;
    const struct event_source source = {.ns = "dynamo",
                                        .component = "backend",
                                        .endpoint = "generate",
                                        .worker_id = 1,
                                        .publisher_id = 0x1f,
                                        .dp_rank = 3,
                                        .recovery = &target};
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig, NULL);
    endpoint_put(&rig, 1, "a");
    card_put(&rig, 1, "a", "m", 16, "Chat");
    assert_string_equal(turn(&rig), "+model m;+w m 1;");
    target.endpoint = STR("worker_kv_query_source_1f");
    target.address = STR("10.0.0.1:5000/x/worker_kv_query_source_1f");
    record_of_source(&rec, &metadata, &source);
    rec.ns = target.ns;
    rec.component = target.component;
    EXPECT_OK(store_publish(rig.store, &rec, &e), &e);
    assert_string_equal(turn(&rig), "~w m 1;");
    t = instances_table(rig.ix);
    assert_string_equal(t->models[0].workers[0].queries,
                        "10.0.0.1:5000/x/worker_kv_query_source_1f#3");
    rig_done(&rig);
}

/* Whatever plane a worker is on, its address says how to reach it. */
static void test_planes(void **state)
{
    static const struct {
        enum transport transport;
        const char *told, *address;
    } cases[] = {
        {TRANSPORT_TCP, "10.0.0.1:5000/1/generate", "10.0.0.1:5000/1/generate"},
        {TRANSPORT_NATS, "a_backend.generate-2", "nats:a_backend.generate-2/generate"},
        {TRANSPORT_HTTP, "http://h:1/v1/rpc/generate", "http://h:1/v1/rpc/generate"},
    };
    AUTO(model_table_unref) struct model_table *t = NULL;
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig, NULL);
    card_put(&rig, 1, "a", "m", 16, "Chat");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct record rec = record(RECORD_ENDPOINT, i + 1, "a");

        rec.transport = cases[i].transport;
        rec.address = str_from(cases[i].told);
        EXPECT_OK(store_publish(rig.store, &rec, &e), &e);
    }
    assert_string_equal(turn(&rig), "+model m;+w m 1;+w m 2;+w m 3;");
    t = instances_table(rig.ix);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(t->models[0].workers[i].address, cases[i].address);
    rig_done(&rig);
}

static void test_channels(void **state)
{
    AUTO(model_table_unref) struct model_table *t = NULL;
    struct record ch = record(RECORD_EVENT_CHANNEL, 9, "a");
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig, NULL);
    ch.topic = STR("kv-events");
    ch.transport = TRANSPORT_NATS;
    ch.address = STR("namespace.a.component.backend");
    EXPECT_OK(store_publish(rig.store, &ch, &e), &e);
    assert_string_equal(turn(&rig), "+ch kv-events;");
    t = instances_table(rig.ix);
    assert_int_equal(t->n_channels, 1);
    assert_string_equal(t->channels[0].address, "namespace.a.component.backend");
    ch.address = STR("elsewhere");
    EXPECT_OK(store_publish(rig.store, &ch, &e), &e);
    assert_string_equal(turn(&rig), "-ch kv-events;+ch kv-events;");
    store_withdraw(rig.store, &ch);
    assert_string_equal(turn(&rig), "-ch kv-events;");
    assert_true(rig.changes >= 3);
    rig_done(&rig);
}

/* Beside the workers whose index it is, and before them. */
static void test_indexes(void **state)
{
    AUTO(model_table_unref) struct model_table *t = NULL;
    struct record query = record(RECORD_ENDPOINT, 7, "a");
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig, NULL);
    query.endpoint = STR("kv_indexer_query");
    query.address = STR("10.0.0.7:5000/7/kv_indexer_query");
    EXPECT_OK(store_publish(rig.store, &query, &e), &e);
    assert_string_equal(turn(&rig), "+ix kv_indexer_query;");
    endpoint_put(&rig, 1, "a");
    card_put(&rig, 1, "a", "m", 16, "Chat");
    assert_string_equal(turn(&rig), "+model m;+w m 1;");
    t = instances_table(rig.ix);
    assert_int_equal(t->n_indexes, 1);
    assert_int_equal(t->indexes[0].instance_id, 7);
    assert_string_equal(t->indexes[0].address, "10.0.0.7:5000/7/kv_indexer_query");
    query.address = STR("10.0.0.7:5001/7/kv_indexer_query");
    EXPECT_OK(store_publish(rig.store, &query, &e), &e);
    assert_string_equal(turn(&rig), "-ix kv_indexer_query;+ix kv_indexer_query;");
    store_withdraw(rig.store, &query);
    assert_string_equal(turn(&rig), "-ix kv_indexer_query;");
    rig_done(&rig);
}

struct reader {
    struct instances *ix;
    atomic_bool stop;
    uint64_t last_version;
    size_t n_taken;
};

static void *read_tables(void *arg)
{
    struct reader *r = arg;

    do {
        AUTO(model_table_unref) struct model_table *t = instances_table(r->ix);

        if (t->version < r->last_version)
            return NULL; /* shows as a version that never arrives */
        r->last_version = t->version;
        for (size_t i = 0; i < t->n_models; i++)
            r->n_taken += t->models[i].n_workers;
    } while (!atomic_load(&r->stop));
    return r;
}

/* Tables are taken by another thread while they are replaced; the thread sanitizer watches. */
static void test_other_threads(void **state)
{
    struct reader r = {0};
    pthread_t thread;
    struct rig rig;
    void *ok;

    (void)state;
    rig_init(&rig, NULL);
    card_put(&rig, 1, "a", "m", 16, "Chat");
    r.ix = rig.ix;
    assert_int_equal(pthread_create(&thread, NULL, read_tables, &r), 0);
    for (uint64_t i = 0; i < 2000; i++) {
        endpoint_put(&rig, i % 50, "a");
        if (i % 3 == 0)
            gone(&rig, RECORD_ENDPOINT, i % 50, "a");
        (void)turn(&rig);
    }
    atomic_store(&r.stop, true);
    assert_int_equal(pthread_join(thread, &ok), 0);
    assert_non_null(ok);
    rig_done(&rig);
}

/* --- last known good -------------------------------------------------------------------------- */

/* A store that says what the test wants. */
struct said_store {
    struct store base;
    struct store_watcher w;
    void *arg;
};

static int said_watch(struct store *s, const struct store_watcher *w, void *arg, struct err *e)
{
    struct said_store *said = CONTAINER_OF(s, struct said_store, base);

    (void)e;
    said->w = *w;
    said->arg = arg;
    return 0;
}

static void said_unwatch(struct store *s)
{
    (void)s;
}

static void said_notes(const struct store *s, void (*note)(void *arg, const char *text), void *arg)
{
    (void)s;
    note(arg, "the store's own");
}

static struct store_stats said_stats(const struct store *s)
{
    (void)s;
    return (struct store_stats){.dropped = 7};
}

static const struct store_ops said_ops = {
    .watch = said_watch, .unwatch = said_unwatch, .stats = said_stats, .notes = said_notes};

struct keep_rig {
    struct rig rig;
    struct said_store said;
    char notes[1024];
};

static void say_endpoint(struct keep_rig *k, uint64_t id, const char *ns)
{
    AUTO(mem_free) char *key = xasprintf("e/%s/%llu", ns, (unsigned long long)id);
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct record rec = record(RECORD_ENDPOINT, id, ns);

    record_put(&json, &rec, true);
    k->said.w.put(k->said.arg, str_from(key), buf_str(&json));
}

static void say_card(struct keep_rig *k, uint64_t id, const char *ns)
{
    AUTO(mem_free) char *key = xasprintf("c/%s/%llu", ns, (unsigned long long)id);
    AUTO(buf_done) struct buf json = BUF_NULL;
    AUTO(mem_free) char *text = NULL;
    struct record rec = card(id, ns, "m", 16, "Chat", &text);

    record_put(&json, &rec, true);
    k->said.w.put(k->said.arg, str_from(key), buf_str(&json));
}

static void say_gone(struct keep_rig *k, uint64_t id, const char *ns, enum store_end how)
{
    AUTO(mem_free) char *e = xasprintf("e/%s/%llu", ns, (unsigned long long)id);
    AUTO(mem_free) char *c = xasprintf("c/%s/%llu", ns, (unsigned long long)id);

    k->said.w.gone(k->said.arg, str_from(e), how);
    k->said.w.gone(k->said.arg, str_from(c), how);
}

static void keep_init(struct keep_rig *k, const struct instances_conf *of)
{
    struct instances_conf conf = *of;
    struct err e;

    memset(k, 0, sizeof(*k));
    conf.event = on_event;
    conf.arg = &k->rig;
    EXPECT_OK(log_setup("off", false, &e), &e);
    EXPECT_OK(loop_new(&k->rig.loop, &e), &e);
    k->said.base = (struct store){.ops = &said_ops, .loop = k->rig.loop};
    EXPECT_OK(instances_new(&k->rig.ix, k->rig.loop, &k->said.base, &conf, &e), &e);
    say_endpoint(k, 1, "a");
    say_card(k, 1, "a");
    say_endpoint(k, 2, "a");
    say_card(k, 2, "a");
    k->said.w.synced(k->said.arg);
    (void)turn(&k->rig);
}

static void keep_done(struct keep_rig *k)
{
    k->rig.ix = instances_free(k->rig.ix);
    loop_run_once(k->rig.loop, 0);
    k->rig.loop = loop_free(k->rig.loop);
}

static void on_note(void *arg, const char *text)
{
    struct keep_rig *k = arg;
    size_t n = strlen(k->notes);

    (void)snprintf(k->notes + n, sizeof(k->notes) - n, "%s;", text);
}

static const char *notes(struct keep_rig *k)
{
    k->notes[0] = '\0';
    instances_notes(k->rig.ix, on_note, k);
    return k->notes;
}

static void test_kept_while_down_and_after(void **state)
{
    struct keep_rig k;
    struct instances_stats st;

    (void)state;
    keep_init(&k, &(struct instances_conf){.keep_ms = 2000});
    assert_string_equal(notes(&k), "the store's own;");
    k.said.w.state(k.said.arg, false, "it fell over");
    say_gone(&k, 1, "a", STORE_END_SILENT); /* as a list after a restart would tell */
    say_gone(&k, 2, "a", STORE_END_SILENT);
    assert_string_equal(turn(&k.rig), "");
    st = instances_stats(k.rig.ix);
    assert_true(st.kept == 2 && st.workers == 2 && st.beyond_limit == 7);
    assert_non_null(strstr(notes(&k), "(it fell over)"));
    k.said.w.state(k.said.arg, true, "");
    say_endpoint(&k, 2, "a"); /* one registers again, the same: nothing to tell */
    say_card(&k, 2, "a");
    assert_string_equal(turn(&k.rig), "");
    st = instances_stats(k.rig.ix);
    assert_true(st.kept == 1 && st.restored == 2 && st.view_age_ms == 0);
    assert_non_null(strstr(notes(&k), "lost 1 of 2 workers"));
    /* An end in the time after: it may be a lease that the store let die. A word of the owner counts. */
    say_endpoint(&k, 3, "a");
    assert_string_equal(turn(&k.rig), "+w m 3;");
    say_gone(&k, 3, "a", STORE_END_TOLD);
    assert_string_equal(turn(&k.rig), "-w m 3;");
    say_gone(&k, 2, "a", STORE_END_SILENT);
    assert_string_equal(turn(&k.rig), "");
    assert_int_equal(instances_stats(k.rig.ix).kept, 2);
    /* The deadline: the store is believed. */
    k.rig.trace[0] = '\0';
    while (instances_stats(k.rig.ix).dropped < 4)
        loop_run_once(k.rig.loop, 50);
    loop_run_once(k.rig.loop, 0);
    assert_non_null(strstr(k.rig.trace, "-w m 1;"));
    assert_non_null(strstr(k.rig.trace, "-model m;"));
    assert_string_equal(notes(&k), "the store's own;");
    /* Long after: ends are ends. */
    say_endpoint(&k, 1, "a");
    say_card(&k, 1, "a");
    assert_string_equal(turn(&k.rig), "+model m;+w m 1;");
    say_gone(&k, 1, "a", STORE_END_SILENT);
    assert_string_equal(turn(&k.rig), "-w m 1;-model m;");
    keep_done(&k);
}

/* No deadline runs out while the store is away. */
static void test_kept_as_long_as_down(void **state)
{
    struct keep_rig k;

    (void)state;
    keep_init(&k, &(struct instances_conf){.keep_ms = 1});
    say_gone(&k, 1, "a", STORE_END_DOUBTFUL);
    k.said.w.state(k.said.arg, false, "away");
    for (uint64_t end = clock_now_ns() + 20000000; clock_now_ns() < end;)
        loop_run_once(k.rig.loop, 5);
    assert_int_equal(instances_stats(k.rig.ix).workers, 2);
    assert_int_equal(instances_stats(k.rig.ix).kept, 2); /* all: nobody can be asked */
    k.said.w.state(k.said.arg, true, "back");
    while (instances_stats(k.rig.ix).workers > 1)
        loop_run_once(k.rig.loop, 5);
    keep_done(&k);
}

/* Unless one is set for that: then nobody is served until it is back, and nothing is forgotten. */
static void test_given_up_when_down_for_long(void **state)
{
    struct keep_rig k;

    (void)state;
    keep_init(&k, &(struct instances_conf){.keep_ms = 60000, .keep_down_ms = 20});
    k.said.w.state(k.said.arg, false, "away");
    assert_string_equal(turn(&k.rig), "");
    k.rig.trace[0] = '\0';
    while (!instances_stats(k.rig.ix).given_up || instances_stats(k.rig.ix).workers)
        loop_run_once(k.rig.loop, 5);
    assert_non_null(strstr(k.rig.trace, "-w m 1;"));
    assert_non_null(strstr(notes(&k), "no longer serving"));
    k.said.w.state(k.said.arg, true, "back");
    assert_string_equal(turn(&k.rig), "+model m;+w m 1;+w m 2;");
    assert_false(instances_stats(k.rig.ix).given_up);
    /* The next outage begins anew. */
    k.said.w.state(k.said.arg, false, "away");
    assert_string_equal(turn(&k.rig), "");
    keep_done(&k);
}

static void test_doubt(void **state)
{
    struct keep_rig k;

    (void)state;
    keep_init(&k, &(struct instances_conf){.keep_ms = 60000});
    say_gone(&k, 1, "a", STORE_END_SILENT); /* the store is well: a worker left */
    assert_string_equal(turn(&k.rig), "-w m 1;");
    say_gone(&k, 2, "a", STORE_END_DOUBTFUL);
    assert_string_equal(turn(&k.rig), "");
    assert_int_equal(instances_stats(k.rig.ix).kept, 1);
    say_gone(&k, 2, "a", STORE_END_TOLD); /* its pod is not ready any more */
    assert_string_equal(turn(&k.rig), "-w m 2;-model m;");
    keep_done(&k);

    keep_init(&k, &(struct instances_conf){.keep_ms = 0});
    k.said.w.state(k.said.arg, false, "away");
    say_gone(&k, 1, "a", STORE_END_DOUBTFUL);
    assert_string_equal(turn(&k.rig), "-w m 1;");
    keep_done(&k);
}

/* Two graphs serve one model: a set of workers each, whose cards need not agree. */
static void test_sets_of_a_model(void **state)
{
    AUTO(model_table_unref) struct model_table *t = NULL;
    struct rig rig;

    (void)state;
    rig_init(&rig, "dynamo"); /* the global namespace: all */
    endpoint_put(&rig, 1, "a");
    card_put(&rig, 1, "a", "m", 16, "Chat");
    endpoint_put(&rig, 2, "b");
    card_put(&rig, 2, "b", "m", 32, "Chat");
    assert_string_equal(turn(&rig), "+model m;+w m 1;+model m;+w m 2;");
    assert_int_equal(instances_stats(rig.ix).refused_cards, 0);
    t = instances_table(rig.ix);
    assert_int_equal(t->n_models, 2);
    assert_string_equal(t->models[0].set, "m@a/backend/generate");
    assert_string_equal(t->models[1].set, "m@b/backend/generate");
    assert_int_equal(t->models[1].card->kv_cache_block_size, 32);
    /* One graph goes, the other does not notice. */
    gone(&rig, RECORD_ENDPOINT, 1, "a");
    gone(&rig, RECORD_MODEL, 1, "a");
    assert_string_equal(turn(&rig), "-w m 1;-model m;");
    rig_done(&rig);
}

static void test_wrong_namespace_is_said(void **state)
{
    struct keep_rig k;

    (void)state;
    keep_init(&k, &(struct instances_conf){.ns_filter = "b"});
    assert_non_null(strstr(notes(&k), "registered in namespace a, but b is served"));
    say_card(&k, 9, "b"); /* one of ours: others may be what they like */
    (void)turn(&k.rig);
    assert_string_equal(notes(&k), "the store's own;");
    keep_done(&k);

    keep_init(&k, &(struct instances_conf){.ns_filter = "b", .ns_prefix = "graph-"});
    assert_non_null(strstr(notes(&k), "but graph-* is served"));
    say_endpoint(&k, 3, "graph-1");
    say_card(&k, 3, "graph-1");
    assert_string_equal(turn(&k.rig), "+model m;+w m 3;");
    keep_done(&k);
    keep_init(&k, &(struct instances_conf){.ns_filter = "b", .ns_prefix = "dynamo"});
    assert_int_equal(instances_stats(k.rig.ix).workers, 2); /* the global one: all */
    keep_done(&k);
}

int main(void)
{
    return TEST_RUN(T(test_life_of_a_model), T(test_refused_card), T(test_changed_card),
                    T(test_adapter), T(test_prefill_and_namespaces), T(test_bad_records),
                    T(test_query_endpoints), T(test_recovery_targets), T(test_planes),
                    T(test_channels), T(test_indexes), T(test_other_threads),
                    T(test_kept_while_down_and_after), T(test_kept_as_long_as_down),
                    T(test_given_up_when_down_for_long), T(test_doubt),
                    T(test_wrong_namespace_is_said), T(test_sets_of_a_model));
}
