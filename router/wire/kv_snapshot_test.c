/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/kv_snapshot.h"

#include <errno.h>

#include "lib/base/test.h"

/* Two events of a snapshot that a 0.9.0 router has stored: blocks of 16 tokens, one without and one
 * with a parent. */
static const uint8_t FROM_0_9[] = {
    2,    0,    0,    0,    0,    0,    0,    0, /* */
    0xe3, 0xee, 0x6d, 0xe7, 0xbc, 0xff, 0xc3, 0x83, 0,    0,    0,    0,    0,    0,    0,
    0,    0,    0,    0,    0,    0,    1,    0,    0,    0,    0,    0,    0,    0,    0x40,
    0x70, 0xe6, 0xc8, 0x63, 0x41, 0x58, 0x76, 0x40, 0x70, 0xe6, 0xc8, 0x63, 0x41, 0x58, 0x76,
    0,    0,    0,    0,    0, /* */
    0xe3, 0xee, 0x6d, 0xe7, 0xbc, 0xff, 0xc3, 0x83, 0x17, 0,    0,    0,    0,    0,    0,
    0,    0,    0,    0,    0,    1,    0x6b, 0x56, 0x9f, 0xfb, 0xac, 0x26, 0xd2, 0xaf, 1,
    0,    0,    0,    0,    0,    0,    0,    0x7f, 0x17, 0x43, 0x16, 0x9c, 0xee, 0x40, 0x13,
    0xa8, 0x40, 0xdf, 0xe0, 0x27, 0x38, 0x0f, 0xae, 0,    0,    0,    0,    0,
};

static void on_event(void *arg, const struct kv_event *ev)
{
    unsigned *n = arg;

    assert_true(ev->worker_id == UINT64_C(9494713626228813539));
    assert_int_equal(ev->kind, KV_STORED);
    assert_int_equal(ev->n_blocks, 1);
    assert_int_equal(ev->event_id, *n == 0 ? 0 : 23);
    if (*n == 0) {
        assert_false(ev->parent_hash.set);
        assert_true(ev->blocks[0].block_hash == UINT64_C(8527637791254147136));
    } else {
        assert_true(ev->parent_hash.v == UINT64_C(12669231226144380523));
        assert_true(ev->blocks[0].block_hash == UINT64_C(1387371039385917311));
        assert_true(ev->blocks[0].tokens_hash == UINT64_C(12542305231177728168));
    }
    (*n)++;
}

static void ignore(void *arg, const struct kv_event *ev)
{
    (void)arg;
    (void)ev;
}

static void put(void *arg, const struct kv_event *ev)
{
    kv_snapshot_event_put(arg, ev);
}

static void a_snapshot_of_0_9_is_read_and_written_the_same(void **state)
{
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct str in = str_slice(FROM_0_9, sizeof(FROM_0_9));
    unsigned n = 0;
    struct err e;

    (void)state;
    EXPECT_OK(kv_snapshot_decode(&r, in, on_event, &n, &e), &e);
    assert_int_equal(n, 2);
    kv_snapshot_begin_put(&out, n);
    EXPECT_OK(kv_snapshot_decode(&r, in, put, &out, &e), &e);
    assert_true(str_eq(buf_str(&out), in));
}

static void what_is_cut_or_follows_is_refused(void **state)
{
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};
    uint8_t longer[sizeof(FROM_0_9) + 1] = {0};
    struct err e;

    (void)state;
    for (size_t n = 0; n < sizeof(FROM_0_9); n++)
        assert_int_equal(kv_snapshot_decode(&r, str_slice(FROM_0_9, n), ignore, NULL, &e),
                         -EBADMSG);
    memcpy(longer, FROM_0_9, sizeof(FROM_0_9));
    assert_int_equal(kv_snapshot_decode(&r, str_slice(longer, sizeof(longer)), ignore, NULL, &e),
                     -EBADMSG);
}

static void the_other_kinds_and_images_are_read(void **state)
{
    static const uint64_t gone[] = {7, 8};
    const struct kv_event removed = {.worker_id = 1,
                                     .event_id = 2,
                                     .dp_rank = 3,
                                     .kind = KV_REMOVED,
                                     .removed = gone,
                                     .n_removed = 2};
    const struct kv_event cleared = {.worker_id = 1, .kind = KV_CLEARED};
    static const char with_image[] = "\1\0\0\0\0\0\0\0"
                                     "WWWWWWWW"
                                     "IIIIIIII"
                                     "\0\0\0\0"
                                     "\0"
                                     "\1\0\0\0\0\0\0\0"
                                     "BBBBBBBB"
                                     "TTTTTTTT"
                                     "\1"
                                     "\1\0\0\0\0\0\0\0"
                                     "MMMMMMMM"
                                     "\1\0\0\0\0\0\0\0"
                                     "bbbbbbbb"
                                     "eeeeeeee"
                                     "\0\0\0\0";
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};
    AUTO(buf_done) struct buf in = BUF_NULL, out = BUF_NULL;
    struct err e;

    (void)state;
    kv_snapshot_begin_put(&in, 2);
    kv_snapshot_event_put(&in, &removed);
    kv_snapshot_event_put(&in, &cleared);
    kv_snapshot_begin_put(&out, 2);
    EXPECT_OK(kv_snapshot_decode(&r, buf_str(&in), put, &out, &e), &e);
    assert_true(str_eq(buf_str(&out), buf_str(&in)));
    EXPECT_OK(
        kv_snapshot_decode(&r, str_slice(with_image, sizeof(with_image) - 1), ignore, NULL, &e),
        &e);
}

int main(void)
{
    return TEST_RUN(T(a_snapshot_of_0_9_is_read_and_written_the_same),
                    T(what_is_cut_or_follows_is_refused), T(the_other_kinds_and_images_are_read));
}
