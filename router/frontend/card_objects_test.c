/* SPDX-License-Identifier: Apache-2.0 */
/* Cards of workers before 0.7, whose files are in the object store of a real NATS server. */
#include "router/frontend/card_objects.h"

#include <errno.h>

#include "lib/base/log.h"
#include "lib/net/loop_test.h"
#include "lib/net/nats_js.h"
#include "lib/net/nats_server_test.h"
#include "lib/net/object_store.h"
#include "router/wire/walk.h"

enum { LARGE = 300000 };

static struct loop *loop;

static void test_urls(void **state)
{
    static const struct {
        const char *url, *bucket, *name;
    } cases[] = {
        {"nats://10.0.0.1:4222/qwen_qwen3-0_6b/tokenizer.json", "qwen_qwen3-0_6b",
         "tokenizer.json"},
        {"nats://h/b/n", "b", "n"},
        {"nats://h/b", NULL, NULL},
        {"nats://h/b/", NULL, NULL},
        {"nats://h/b/c/n", NULL, NULL},
        {"nats://h/b.c/n", NULL, NULL},
        {"nats://h/b>/n", NULL, NULL},
        {"nats://h/b/..", NULL, NULL},
        {"http://h/b/n", NULL, NULL},
        {"/b/n", NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str b = STR_NULL, n = STR_NULL;

        assert_int_equal(card_object_parse(str_from(cases[i].url), &b, &n),
                         cases[i].bucket != NULL);
        assert_true(str_is(b, cases[i].bucket) && str_is(n, cases[i].name));
    }
}

/* --- with a server --------------------------------------------------------------------------------- */

struct told {
    int calls, r;
    size_t n, bytes;
    char first[64];
    struct err e;
};

static void on_files(void *arg, int r, const struct model_bytes *files, size_t n,
                     const struct err *e)
{
    struct told *t = arg;

    t->calls++;
    t->r = r;
    t->n = n;
    for (size_t i = 0; i < n; i++)
        t->bytes += files[i].bytes.len;
    if (n)
        (void)snprintf(t->first, sizeof(t->first), "%s", files[0].path);
    if (r < 0)
        t->e = *e;
}

static void on_put(void *arg, int code)
{
    assert_int_equal(code, 0);
    ++*(int *)arg;
}

static struct model_card *card(const char *config, const char *tokenizer)
{
    AUTO(mem_free)
    char *text = xasprintf(
        "{\"display_name\":\"m\",\"slug\":\"m\",\"context_length\":10,"
        "\"kv_cache_block_size\":16,\"migration_limit\":0,\"model_type\":\"Chat\","
        "\"model_input\":\"Tokens\",\"model_info\":{\"hf_config_json\":{\"path\":\"%s\","
        "\"checksum\":\"blake3:0\"}},\"tokenizer\":{\"hf_tokenizer_json\":{\"path\":\"%s\","
        "\"checksum\":\"blake3:1\"}}}",
        config, tokenizer);
    struct model_card *c = NULL;
    struct err e;

    EXPECT_OK(model_card_parse(&c, str_from(text), &e), &e);
    return c;
}

static void put_objects(const char *url)
{
    AUTO(mem_free) char *large = xcalloc(1, LARGE);
    const struct nats_link_conf conf = {.servers = url, .name = "test"};
    struct object_store *store;
    struct nats_link *link;
    struct nats_js *js;
    int puts = 0;
    struct err e;

    EXPECT_OK(nats_link_start(&link, loop, &conf, &e), &e);
    EXPECT_OK(nats_js_new(&js, loop, link, &e), &e);
    LOOP_UNTIL(loop, nats_link_stats(link).up);
    store = object_store_new(js, "m");
    object_store_put(store, "config.json", STR("{}"), on_put, &puts);
    LOOP_UNTIL(loop, puts == 1);
    object_store_put(store, "tokenizer.json", str_slice(large, LARGE), on_put, &puts);
    LOOP_UNTIL(loop, puts == 2);
    object_store_free(store);
    nats_js_free(js);
    nats_link_free(link);
}

static void test_objects(void **state)
{
    AUTO(model_card_unref)
    struct model_card *both = card("nats://x/m/config.json", "nats://x/m/tokenizer.json");
    AUTO(model_card_unref)
    struct model_card *one = card("/a/config.json", "nats://x/m/tokenizer.json");
    AUTO(model_card_unref)
    struct model_card *none = card("/a/config.json", "hf://m/tokenizer.json");
    AUTO(model_card_unref) struct model_card *gone = card("nats://x/m/other", "/a/tokenizer.json");
    AUTO(model_card_unref) struct model_card *bad = card("nats://x/m", "/a/tokenizer.json");
    struct told t[5] = {{.calls = 0}};
    struct card_objects *o;
    char folder[] = "/tmp/card_objects_test.XXXXXX", url[64];
    const struct nats_link_conf conf = {.servers = url, .name = "test"};
    int port = nats_test_port();
    pid_t server;
    struct err e;

    (void)state;
    EXPECT_OK(log_setup("off", false, &e), &e);
    assert_non_null(mkdtemp(folder));
    server = nats_test_start(port, folder);
    (void)snprintf(url, sizeof(url), "nats://127.0.0.1:%d", port);
    EXPECT_OK(loop_new(&loop, &e), &e);
    put_objects(url);
    assert_false(card_has_objects(none));
    assert_true(card_has_objects(one));
    o = card_objects_new(loop, &conf);
    card_objects_get(o, both, on_files, &t[0]);
    card_objects_get(o, gone, on_files, &t[1]);
    card_objects_get(o, bad, on_files, &t[2]);
    card_objects_get(o, one, on_files, &t[3]);
    assert_int_equal(t[0].calls, 0);
    LOOP_UNTIL(loop, t[3].calls);
    assert_int_equal(t[0].r, 0);
    assert_int_equal(t[0].n, 2);
    assert_int_equal(t[0].bytes, LARGE + 2);
    assert_string_equal(t[0].first, "nats://x/m/config.json");
    assert_int_equal(t[1].r, -ENOENT);
    assert_non_null(strstr(t[1].e.text, "nats://x/m/other"));
    assert_int_equal(t[2].r, -EINVAL);
    assert_int_equal(t[3].n, 1);
    card_objects_get(o, both, on_files, &t[4]);
    loop_run_once(loop, 0); /* it is asked for */
    card_objects_free(o);
    assert_int_equal(t[4].calls, 1);
    assert_int_equal(t[4].r, -ECANCELED);
    loop = loop_free(loop);
    nats_test_kill(server);
    remove_tree(folder);
}

int main(void)
{
    return TEST_RUN(T(test_urls), T(test_objects));
}
