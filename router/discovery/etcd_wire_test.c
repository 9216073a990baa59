/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as etcd 3.6.4 and 3.4.23 gave them. */
#include "router/discovery/etcd_wire.h"

#include <errno.h>

#include "lib/base/test.h"

static void note(void *arg, const struct etcd_kv *kv)
{
    buf_printf(arg, "%s%.*s=%.*s@%llu ", kv->is_end ? "-" : "", STR_ARG(kv->key),
               STR_ARG(kv->value), (unsigned long long)kv->revision);
}

static void test_said(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    etcd_put_range(&out, STR("v1/a"), STR("v1/"), 7, 500);
    assert_string_equal(buf_cstr(&out), "{\"key\":\"djEvYQ==\",\"range_end\":\"djEw\","
                                        "\"revision\":\"7\",\"limit\":\"500\"}");
    buf_clear(&out);
    etcd_put_range(&out, STR("v1/"), STR("v1/"), 0, 0);
    assert_string_equal(buf_cstr(&out),
                        "{\"key\":\"djEv\",\"range_end\":\"djEw\",\"count_only\":true}");
    buf_clear(&out);
    etcd_put_watch(&out, STR("v1/"), 8);
    assert_string_equal(buf_cstr(&out),
                        "{\"create_request\":{\"key\":\"djEv\",\"range_end\":\"djEw\","
                        "\"start_revision\":\"8\",\"progress_notify\":true,\"fragment\":true}}");
    buf_clear(&out);
    etcd_put_put(&out, STR("k"), STR("v"), UINT64_C(9223372036854775807));
    assert_string_equal(buf_cstr(&out),
                        "{\"key\":\"aw==\",\"value\":\"dg==\",\"lease\":\"9223372036854775807\"}");
    buf_clear(&out);
    etcd_put_login(&out, "us\"er", NULL);
    assert_string_equal(buf_cstr(&out), "{\"name\":\"us\\\"er\",\"password\":\"\"}");
}

static void test_range(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct etcd_range range;
    struct err e;

    (void)state;
    EXPECT_OK(etcd_range_parse(STR("{\"header\":{\"cluster_id\":\"1\",\"revision\":\"12\"},\"kvs\":"
                                   "[{\"key\":\"djEvYQ==\",\"mod_revision\":\"2\",\"value\":"
                                   "\"eHg=\"},{\"key\":\"djEvYg==\",\"mod_revision\":3}],"
                                   "\"more\":true,\"count\":\"5\"}"),
                               &range, note, &out, &e),
              &e);
    assert_string_equal(buf_cstr(&out), "v1/a=xx@2 v1/b=@3 ");
    assert_int_equal(range.revision, 12);
    assert_true(range.more);
    EXPECT_OK(etcd_range_parse(STR("{\"header\":{\"revision\":\"1\"}}"), &range, note, &out, &e),
              &e);
    assert_false(range.more);
    assert_int_equal(etcd_range_parse(STR("{\"kvs\":[{\"key\":\"!\"}]}"), &range, note, &out, &e),
                     -EINVAL);
    assert_int_equal(etcd_range_parse(STR("{\"kvs\":["), &range, note, &out, &e), -EINVAL);
    assert_int_equal(
        etcd_range_parse(STR("{\"header\":{\"revision\":\"-1\"}}"), &range, note, &out, &e),
        -EINVAL);
}

static void test_watch(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct etcd_watch_answer a;
    struct err e;

    (void)state;
    EXPECT_OK(etcd_watch_parse(STR("{\"result\":{\"header\":{\"revision\":\"9\"},\"events\":[{"
                                   "\"kv\":{\"key\":\"djEvYQ==\",\"mod_revision\":\"8\",\"value\":"
                                   "\"eHg=\"}},{\"type\":\"DELETE\",\"kv\":{\"key\":\"djEvYg==\","
                                   "\"mod_revision\":\"9\"}}]}}"),
                               &a, note, &out, &e),
              &e);
    assert_string_equal(buf_cstr(&out), "v1/a=xx@8 -v1/b=@9 ");
    assert_true(a.revision == 9 && !a.created && !a.cancelled && !a.fragment);
    EXPECT_OK(etcd_watch_parse(STR("{\"result\":{\"header\":{},\"canceled\":true,"
                                   "\"compact_revision\":\"3\"}}"),
                               &a, note, &out, &e),
              &e);
    assert_true(a.cancelled && a.compact_revision == 3);
    assert_int_equal(
        etcd_watch_parse(STR("{\"error\":{\"message\":\"no leader\"}}"), &a, note, &out, &e),
        -EINVAL);
    assert_non_null(strstr(e.text, "no leader"));
}

static void test_small_answers(void **state)
{
    AUTO(buf_done) struct buf token = BUF_NULL;
    struct err e;
    uint64_t n;

    (void)state;
    EXPECT_OK(etcd_keepalive_parse(STR("{\"result\":{\"ID\":\"9\",\"TTL\":\"10\"}}"), &n, &e), &e);
    assert_int_equal(n, 10);
    EXPECT_OK(etcd_keepalive_parse(STR("{\"result\":{\"ID\":\"9\"}}"), &n, &e), &e);
    assert_int_equal(n, 0); /* it is gone */
    assert_int_equal(etcd_keepalive_parse(STR("{}"), &n, &e), -EINVAL);
    EXPECT_OK(etcd_count_parse(STR("{\"header\":{}}"), &n, &e), &e);
    assert_int_equal(n, 0);
    EXPECT_OK(etcd_login_parse(STR("{\"token\":\"ab.9\"}"), &token, &e), &e);
    assert_string_equal(buf_cstr(&token), "ab.9");
    assert_int_equal(etcd_login_parse(STR("{\"token\":\"a\\r\\nb\"}"), &token, &e), -EINVAL);
    assert_string_equal(buf_cstr(&token), "ab.9");
    assert_int_equal(etcd_refusal_parse(STR("{\"code\":5,\"message\":\"etcdserver: x\"}"), &e),
                     ETCD_NOT_FOUND);
    assert_string_equal(e.text, "etcd says \"etcdserver: x\"");
    assert_int_equal(etcd_refusal_parse(STR("<html>"), &e), 2);
}

int main(void)
{
    return TEST_RUN(T(test_said), T(test_range), T(test_watch), T(test_small_answers));
}
