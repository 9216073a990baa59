/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/peer_recovery.h"

#include <errno.h>
#include <inttypes.h>

#include "lib/base/test.h"

struct seen {
    struct buf text;
    bool refuse;
};

static void *on_group(void *arg, struct str model, struct str name, uint32_t block_size)
{
    struct seen *s = arg;

    buf_printf(&s->text, "[%.*s|%.*s|%" PRIu32 "] ", STR_ARG(model), STR_ARG(name), block_size);
    return s->refuse ? NULL : s;
}

static void on_event(void *group, const struct kv_event *ev)
{
    struct seen *s = group;

    buf_printf(&s->text, "%" PRIu64 "/%" PRIu32 ":%zu ", ev->worker_id, ev->dp_rank, ev->n_blocks);
}

static int parse(struct seen *s, const char *json, struct err *e)
{
    const struct peer_recovery_conf conf = {.group = on_group, .event = on_event, .arg = s};

    buf_clear(&s->text);
    return peer_dump_parse(str_from(json), &conf, e);
}

/* As ai-dynamo 1.6.1 writes it. */
#define EVENT                                                                                      \
    "{\"worker_id\":7,\"storage_tier\":\"device\",\"residency_domain\":\"worker\",\"event\":{"     \
    "\"event_id\":0,\"data\":{\"stored\":{\"parent_hash\":null,\"start_position\":null,"           \
    "\"blocks\":[{\"block_hash\":1,\"tokens_hash\":2,\"mm_extra_info\":null}]}},\"dp_rank\":3}}"

static void test_reads_the_dump_of_a_peer(void **state)
{
    struct seen s = {.refuse = false};
    struct err e;

    (void)state;
    EXPECT_OK(parse(&s, "{}", &e), &e);
    assert_int_equal(s.text.len, 0);
    EXPECT_OK(parse(&s,
                    "{\"ns/a:b:g\":{\"block_size\":16,\"events\":[" EVENT "," EVENT "],"
                    "\"newer\":[1]},\"m\\u002f:\":{\"events\":[],\"block_size\":4}}",
                    &e),
              &e);
    assert_string_equal(buf_cstr(&s.text), "[ns/a:b|g|16] 7/3:1 7/3:1 [m/||4] ");
    s.refuse = true;
    EXPECT_OK(parse(&s, "{\"a:g\":{\"block_size\":16,\"events\":[" EVENT "]}}", &e), &e);
    assert_string_equal(buf_cstr(&s.text), "[a|g|16] ");
    buf_done(&s.text);
}

static void test_refuses_what_is_no_dump(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "null",
        "{\"a:g\":5}",
        "{\"a:g\":{\"events\":[]}}",
        "{\"a:g\":{\"block_size\":0,\"events\":[]}}",
        "{\"a:g\":{\"block_size\":4294967296,\"events\":[]}}",
        "{\"a:g\":{\"block_size\":4}}",
        "{\"a\":{\"block_size\":4,\"events\":[]}}",
        "{\"a:g\":{\"block_size\":4,\"events\":[{}]}}",
        "{\"a:g\":{\"block_size\":4,\"events\":[]}} x",
    };
    struct seen s = {.refuse = false};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (parse(&s, bad[i], &e) >= 0)
            fail_msg("accepted: %s", bad[i]);
    buf_done(&s.text);
}

static void test_keeps_a_set_of_peers(void **state)
{
    struct loop *l = NULL;
    struct peer_recovery *p = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&l, &e), &e);
    EXPECT_OK(peer_recovery_new(
                  &p,
                  &(struct peer_recovery_conf){.loop = l,
                                               .urls = "http://a:1, http://b:2/ ,,http://a:1/",
                                               .flag = "--peers"},
                  &e),
              &e);
    assert_int_equal(peer_recovery_add(p, STR("https://c"), &e), -EINVAL);
    assert_true(peer_recovery_remove(p, STR("http://a:1/")));
    assert_false(peer_recovery_remove(p, STR("http://a:1")));
    peer_recovery_put(p, &j);
    assert_string_equal(buf_cstr(&out), "[\"http://b:2\"]");
    for (int i = 1; i < PEERS_MAX; i++) {
        AUTO(mem_free) char *url = xasprintf("http://p:%d", i);

        EXPECT_OK(peer_recovery_add(p, str_from(url), &e), &e);
    }
    assert_int_equal(peer_recovery_add(p, STR("http://one-more"), &e), -ENOSPC);
    peer_recovery_free(p);
    loop_free(l);
}

int main(void)
{
    return TEST_RUN(T(test_reads_the_dump_of_a_peer), T(test_refuses_what_is_no_dump),
                    T(test_keeps_a_set_of_peers));
}
