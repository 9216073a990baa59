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
    static const char *const words[] = {"+model", "-model", "+w", "-w", "~w", "+ch", "-ch"};
    struct rig *rig = arg;
    size_t n = strlen(rig->trace);

    if (ev->worker)
        (void)snprintf(rig->trace + n, TRACE_MAX - n, "%s %s %llx;", words[ev->change],
                       ev->model->name, (unsigned long long)ev->worker->id);
    else
        (void)snprintf(rig->trace + n, TRACE_MAX - n, "%s %s;", words[ev->change],
                       ev->model ? ev->model->name : ev->channel->topic);
}

static void on_changed(void *arg, const struct model_table *t)
{
    struct rig *rig = arg;

    assert_true(t->version > 0);
    rig->changes++;
}

static void rig_init(struct rig *rig, const char *ns_filter)
{
    struct instances_conf conf = {ns_filter, on_event, on_changed, rig};
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

int main(void)
{
    return TEST_RUN(T(test_life_of_a_model), T(test_refused_card), T(test_prefill_and_namespaces),
                    T(test_bad_records), T(test_channels), T(test_other_threads));
}
