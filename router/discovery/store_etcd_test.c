/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The etcd store against a real etcd that is killed, emptied, compacted, locked and talked to behind
 * its back.
 */
#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/net/loop_test.h"
#include "router/discovery/etcd_client.h"
#include "router/discovery/etcd_server_test.h"
#include "router/discovery/store_seen_test.h"
#include "router/wire/walk.h"

struct rig {
    struct etcd_test etcd;
    struct loop *loop;
    struct etcd_conf conf;
    struct store_seen saw;
    size_t published;
};

static void on_published(void *arg, int r, const char *why)
{
    (void)why;
    ((struct rig *)arg)->published += r == 0;
}

static void conf_set_endpoints(struct rig *rig, const char *before)
{
    free(rig->conf.endpoints);
    rig->conf.endpoints = xasprintf("%s127.0.0.1:%d/", before, rig->etcd.port);
}

static void rig_init(struct rig *rig)
{
    struct err e;

    *rig = (struct rig){.published = 0};
    EXPECT_OK(log_setup("off", false, &e), &e);
    etcd_test_init(&rig->etcd);
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    store_seen_init(&rig->saw);
    rig->conf.lease_ttl_s = 2;
    conf_set_endpoints(rig, "");
}

static void rig_done(struct rig *rig)
{
    loop_run_once(rig->loop, 0);
    rig->loop = loop_free(rig->loop);
    store_seen_done(&rig->saw);
    free(rig->conf.endpoints);
    etcd_test_kill(&rig->etcd);
    remove_tree(rig->etcd.dir);
}

static struct store *open_store(struct rig *rig)
{
    struct store *s = NULL;
    struct err e;

    EXPECT_OK(store_etcd_new(&s, rig->loop, &rig->conf, &e), &e);
    s->published = on_published;
    s->published_arg = rig;
    return s;
}

static struct store *watch_store(struct rig *rig)
{
    struct store *s = open_store(rig);
    struct err e;

    EXPECT_OK(store_watch(s, &store_seen_watcher, &rig->saw, &e), &e);
    return s;
}

static void publish(struct store *s, const char *address)
{
    struct record rec = store_test_endpoint(s->instance_id, address);
    struct err e;

    EXPECT_OK(store_publish(s, &rec, &e), &e);
}

static char *key_of(const struct store *s)
{
    return xasprintf("v1/instances/dynamo/backend/generate/%llx",
                     (unsigned long long)s->instance_id);
}

static const char *json_of(struct rig *rig, const struct store *s)
{
    AUTO(mem_free) char *key = key_of(s);

    return strmap_get(rig->saw.records, str_from(key));
}

static bool shows(struct rig *rig, const struct store *s, const char *address)
{
    const char *json = json_of(rig, s);

    return json && strstr(json, address);
}

/* Asks etcd directly; {b64} of @text is put in place of %s. */
static void say(struct rig *rig, const char *path, const char *format, const char *text,
                struct buf *answer)
{
    AUTO(buf_done) struct buf coded = BUF_NULL;
    AUTO(buf_done) struct buf body = BUF_NULL;
    AUTO(buf_done) struct buf own = BUF_NULL;
    struct str rest = str_from(format), part;

    base64_encode(&coded, str_from(text));
    for (bool more = true; more;) {
        more = str_cut(&rest, '$', &part);
        buf_put_str(&body, part);
        if (more)
            buf_put_str(&body, buf_str(&coded));
    }
    if (!etcd_test_ask(&rig->etcd, path, buf_cstr(&body), answer ? answer : &own))
        fail_msg("%s %s: %s", path, buf_cstr(&body), buf_cstr(answer ? answer : &own));
}

static void test_publish_replace_withdraw(void **state)
{
    struct store *worker, *frontend;
    struct rig rig;
    struct record rec;

    (void)state;
    rig_init(&rig);
    conf_set_endpoints(&rig, "http://127.0.0.1:1, "); /* nobody there: the next one is asked */
    worker = open_store(&rig);
    assert_true(worker->instance_id > 0 && worker->instance_id <= INT64_MAX);
    publish(worker, "1.2.3.4:5/a/generate");
    LOOP_UNTIL(rig.loop, rig.published == 1);
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1);
    assert_true(shows(&rig, worker, "1.2.3.4:5/a/generate"));

    /* Another content under the same key is told, by the watch. */
    publish(worker, "1.2.3.4:6/a/generate");
    LOOP_UNTIL(rig.loop, shows(&rig, worker, "1.2.3.4:6/a/generate"));
    assert_int_equal(rig.saw.gones, 0);
    publish(worker, "1.2.3.4:6/a/generate"); /* the same again: nothing to tell */
    LOOP_UNTIL(rig.loop, rig.published == 3);

    rec = store_test_endpoint(worker->instance_id, "");
    store_withdraw(worker, &rec);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 1);
    assert_int_equal(rig.saw.how, STORE_END_SILENT);
    publish(worker, "1.2.3.4:7/a/generate");
    LOOP_UNTIL(rig.loop, shows(&rig, worker, "1.2.3.4:7/a/generate"));
    worker = store_free(worker); /* revokes its lease */
    LOOP_UNTIL(rig.loop, rig.saw.gones == 2);
    assert_int_equal(store_stats(frontend).records, 0);
    assert_int_equal(rig.saw.downs, rig.saw.ups);
    frontend = store_free(frontend);
    rig_done(&rig);
}

/* Foreign keys, garbage and other buckets under the prefix harm nobody; the key tells the record. */
static void test_foreign_keys(void **state)
{
    struct store *frontend;
    struct rig rig;

    (void)state;
    rig_init(&rig);
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"\"}", "v1/other/thing", NULL);
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"e30=\"}", "v1/instances/a/b/c/1", NULL);
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"e30=\"}", "v1/event_channels/a//t/1", NULL);
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1);
    assert_int_equal(strmap_len(rig.saw.records), 2);
    assert_non_null(strmap_get(rig.saw.records, STR("v1/event_channels/a//t/1")));
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"e30=\"}", "v1/instancesx/a/b/c/1", NULL);
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"e30=\"}", "v1/mdc/a/b/c/1", NULL);
    LOOP_UNTIL(rig.loop, rig.saw.puts == 3);
    assert_non_null(strmap_get(rig.saw.records, STR("v1/mdc/a/b/c/1")));
    frontend = store_free(frontend);
    rig_done(&rig);
}

/* More keys than a page has. */
static void test_pages(void **state)
{
    enum { N = 1203 };
    struct store *frontend;
    struct rig rig;

    (void)state;
    rig_init(&rig);
    for (int i = 0; i < N; i += 100) { /* 100 in one transaction */
        AUTO(buf_done) struct buf body = BUF_NULL;
        AUTO(buf_done) struct buf answer = BUF_NULL;

        buf_put_cstr(&body, "{\"success\":[");
        for (int k = i; k < MIN(i + 100, (int)N); k++) {
            AUTO(mem_free) char *key = xasprintf("v1/instances/a/b/c/%x", (unsigned)k);
            AUTO(buf_done) struct buf coded = BUF_NULL;

            base64_encode(&coded, str_from(key));
            buf_printf(&body, "%s{\"request_put\":{\"key\":\"%.*s\",\"value\":\"e30=\"}}",
                       k > i ? "," : "", STR_ARG(buf_str(&coded)));
        }
        buf_put_cstr(&body, "]}");
        assert_true(etcd_test_ask(&rig.etcd, "/v3/kv/txn", buf_cstr(&body), &answer));
    }
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1);
    assert_int_equal(strmap_len(rig.saw.records), N);
    frontend = store_free(frontend);
    rig_done(&rig);
}

/* Away and back: nothing is told as gone, the watch goes on, and what happened meanwhile is told. */
static void test_restart_resumes(void **state)
{
    struct store *worker, *other, *frontend;
    struct rig rig;

    (void)state;
    rig_init(&rig);
    rig.conf.lease_ttl_s = 60;
    worker = open_store(&rig);
    other = open_store(&rig);
    publish(worker, "1.2.3.4:5/a/generate");
    publish(other, "1.2.3.4:5/b/generate");
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, strmap_len(rig.saw.records) == 2 && rig.saw.synced == 1);

    etcd_test_kill(&rig.etcd);
    LOOP_UNTIL(rig.loop, rig.saw.downs == 1);
    assert_false(store_stats(frontend).up);
    publish(worker, "1.2.3.4:6/a/generate"); /* waits until it can be written */
    etcd_test_start(&rig.etcd);
    LOOP_UNTIL(rig.loop, rig.saw.ups == 1 && shows(&rig, worker, "1.2.3.4:6"));
    assert_int_equal(rig.saw.gones, 0);
    publish(other, "1.2.3.4:6/b/generate");
    LOOP_UNTIL(rig.loop, shows(&rig, other, "1.2.3.4:6"));
    assert_int_equal(rig.saw.synced, 1);
    worker = store_free(worker);
    other = store_free(other);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 2);
    assert_true(rig.saw.up_at_end);
    frontend = store_free(frontend);
    rig_done(&rig);
}

/* What the store missed is compacted: a list tells it, ends included, before it says it is up. */
static void test_compacted_meanwhile(void **state)
{
    AUTO(buf_done) struct buf answer = BUF_NULL;
    AUTO(mem_free) char *compact = NULL;
    struct store *frontend;
    struct str revision;
    struct rig rig;
    int port;

    (void)state;
    rig_init(&rig);
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"e30=\"}", "v1/instances/a/b/c/1", NULL);
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"e30=\"}", "v1/instances/a/b/c/2", NULL);
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1);
    port = rig.etcd.port;
    etcd_test_kill(&rig.etcd);
    LOOP_UNTIL(rig.loop, rig.saw.downs == 1);

    /* The same data on a port that the store does not know. */
    rig.etcd.port = nats_test_port();
    etcd_test_start(&rig.etcd);
    say(&rig, "/v3/kv/deleterange", "{\"key\":\"$\"}", "v1/instances/a/b/c/1", NULL);
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"eyJhIjoxfQ==\"}", "v1/instances/a/b/c/2",
        &answer);
    revision = str_from(strstr(buf_cstr(&answer), "\"revision\""));
    assert_true(revision.len > 0);
    revision = str_skip(revision, sizeof("\"revision\":\"") - 1);
    compact = xasprintf("{\"revision\":\"%.*s\",\"physical\":true}", (int)str_index(revision, '"'),
                        revision.ptr);
    say(&rig, "/v3/kv/compaction", compact, "", NULL);
    etcd_test_kill(&rig.etcd);
    rig.etcd.port = port;
    etcd_test_start(&rig.etcd);

    LOOP_UNTIL(rig.loop, rig.saw.ups == 1);
    assert_int_equal(rig.saw.gones, 1);
    assert_false(rig.saw.up_at_end);
    assert_string_equal(strmap_get(rig.saw.records, STR("v1/instances/a/b/c/2")), "{\"a\":1}");
    say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"e30=\"}", "v1/instances/a/b/c/3", NULL);
    LOOP_UNTIL(rig.loop, strmap_len(rig.saw.records) == 2); /* followed on */
    frontend = store_free(frontend);
    rig_done(&rig);
}

/* It comes back empty: told as an interruption; publishers register again under their old ids. */
static void test_emptied(void **state)
{
    struct store *worker, *frontend;
    struct rig rig;
    size_t puts;

    (void)state;
    rig_init(&rig);
    worker = open_store(&rig);
    publish(worker, "1.2.3.4:5/a/generate");
    for (int i = 0; i < 5; i++) /* so that the new past is shorter */
        say(&rig, "/v3/kv/put", "{\"key\":\"$\",\"value\":\"e30=\"}", "v1/instances/a/b/c/1", NULL);
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1 && strmap_len(rig.saw.records) == 2);
    puts = rig.saw.puts;
    etcd_test_kill(&rig.etcd);
    remove_tree(rig.etcd.dir);
    assert_int_equal(mkdir(rig.etcd.dir, 0700), 0);
    etcd_test_start(&rig.etcd);
    LOOP_UNTIL(rig.loop, rig.saw.ups == 1 && json_of(&rig, worker));
    assert_true(rig.saw.gones >= 1);
    assert_int_equal(rig.saw.how, STORE_END_SILENT);
    assert_false(rig.saw.up_at_end);
    assert_null(strmap_get(rig.saw.records, STR("v1/instances/a/b/c/1")));
    LOOP_UNTIL(rig.loop, rig.saw.gones == 1 || rig.saw.puts > puts);
    worker = store_free(worker);
    frontend = store_free(frontend);
    rig_done(&rig);
}

/* A lease that ended, and a key that somebody deleted: both come back. */
static void test_lost_lease_and_key(void **state)
{
    AUTO(mem_free) char *revoke = NULL;
    AUTO(mem_free) char *key = NULL;
    struct store *worker, *frontend;
    struct rig rig;

    (void)state;
    rig_init(&rig);
    worker = open_store(&rig);
    publish(worker, "1.2.3.4:5/a/generate");
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1 && json_of(&rig, worker));

    revoke = xasprintf("{\"ID\":\"%llu\"}", (unsigned long long)worker->instance_id);
    say(&rig, "/v3/lease/revoke", revoke, "", NULL);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 1 && json_of(&rig, worker));
    key = key_of(worker);
    say(&rig, "/v3/kv/deleterange", "{\"key\":\"$\"}", key, NULL);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 2 && json_of(&rig, worker));
    worker = store_free(worker);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 3);
    frontend = store_free(frontend);
    rig_done(&rig);
}

/* A revision that ends the instances of several leases was no worker's leaving. */
static void test_wiped_at_once(void **state)
{
    struct store *a, *b, *frontend;
    struct rig rig;

    (void)state;
    rig_init(&rig);
    a = open_store(&rig);
    b = open_store(&rig);
    publish(a, "1.2.3.4:5/a/generate");
    publish(b, "1.2.3.4:5/b/generate");
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1 && strmap_len(rig.saw.records) == 2);
    say(&rig, "/v3/kv/deleterange", "{\"key\":\"$\",\"range_end\":\"djEw\"}", "v1/", NULL);
    LOOP_UNTIL(rig.loop, rig.saw.gones == 2);
    assert_int_equal(rig.saw.how, STORE_END_DOUBTFUL);
    a = store_free(a);
    b = store_free(b);
    frontend = store_free(frontend);
    rig_done(&rig);
}

static void auth_on(struct rig *rig)
{
    static const char *const steps[][2] = {
        {"/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"secret\"}"},
        {"/v3/auth/role/add", "{\"name\":\"root\"}"},
        {"/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}"},
        {"/v3/auth/enable", "{}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        say(rig, steps[i][0], steps[i][1], "", NULL);
}

static void test_users(void **state)
{
    struct store *worker, *frontend, *stranger;
    struct store_seen other;
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig);
    store_seen_init(&other);
    rig.conf.user = (char *)(uintptr_t) "root";
    rig.conf.password = (char *)(uintptr_t) "secret";
    worker = open_store(&rig); /* etcd asks for no user yet */
    publish(worker, "1.2.3.4:5/a/generate");
    LOOP_UNTIL(rig.loop, rig.published == 1);
    auth_on(&rig);
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1 && json_of(&rig, worker));
    publish(worker, "1.2.3.4:6/a/generate"); /* refused at first, then with a token */
    LOOP_UNTIL(rig.loop, shows(&rig, worker, "1.2.3.4:6"));

    rig.conf.password = (char *)(uintptr_t) "wrong";
    stranger = open_store(&rig);
    EXPECT_OK(store_watch(stranger, &store_seen_watcher, &other, &e), &e);
    LOOP_UNTIL(rig.loop, other.downs == 1);
    assert_int_equal(strmap_len(other.records), 0);

    /* Tokens do not outlive etcd: all log in again. */
    etcd_test_kill(&rig.etcd);
    LOOP_UNTIL(rig.loop, rig.saw.downs == 1);
    etcd_test_start(&rig.etcd);
    LOOP_UNTIL(rig.loop, rig.saw.ups == 1);
    publish(worker, "1.2.3.4:7/a/generate");
    LOOP_UNTIL(rig.loop, shows(&rig, worker, "1.2.3.4:7"));
    assert_int_equal(other.ups, 0);
    stranger = store_free(stranger);
    worker = store_free(worker);
    frontend = store_free(frontend);
    store_seen_done(&other);
    rig_done(&rig);
}

/* It stands still (a full disk, a paused machine) without a connection breaking. */
static void test_stalled(void **state)
{
    struct store *worker, *frontend;
    struct rig rig;

    (void)state;
    rig_init(&rig);
    rig.conf.lease_ttl_s = 60;
    worker = open_store(&rig);
    publish(worker, "1.2.3.4:5/a/generate");
    frontend = watch_store(&rig);
    LOOP_UNTIL(rig.loop, rig.saw.synced == 1 && json_of(&rig, worker));
    assert_int_equal(kill(rig.etcd.pid, SIGSTOP), 0);
    LOOP_UNTIL(rig.loop, rig.saw.downs == 1);
    assert_int_equal(kill(rig.etcd.pid, SIGCONT), 0);
    LOOP_UNTIL(rig.loop, rig.saw.ups == 1);
    assert_int_equal(rig.saw.gones, 0);
    worker = store_free(worker);
    frontend = store_free(frontend);
    rig_done(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_publish_replace_withdraw), T(test_foreign_keys), T(test_pages),
                    T(test_restart_resumes), T(test_compacted_meanwhile), T(test_emptied),
                    T(test_lost_lease_and_key), T(test_wiped_at_once), T(test_users),
                    T(test_stalled));
}
