/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_ring.h"
#include "lib/base/test.h"
#include "router/sync/kv_answer.h"

#include <errno.h>

static void push(struct event_ring *r, uint64_t id)
{
    const struct kv_block block = {id + 100, id + 200};
    const uint64_t removed = id;
    struct kv_event ev = {.worker_id = 7, .event_id = id};

    if (id % 2 == 0) {
        ev.kind = KV_STORED;
        ev.blocks = &block;
        ev.n_blocks = 1;
    } else {
        ev.kind = KV_REMOVED;
        ev.removed = &removed;
        ev.n_removed = 1;
    }
    event_ring_push(r, &ev);
}

struct seen {
    uint64_t first, last;
    size_t n;
};

static void note(void *arg, const struct kv_event *ev)
{
    struct seen *s = arg;

    if (s->n++ == 0)
        s->first = ev->event_id;
    s->last = ev->event_id;
    assert_int_equal(ev->worker_id, 7);
    if (ev->kind == KV_STORED) {
        assert_int_equal(ev->n_blocks, 1);
        assert_int_equal(ev->blocks[0].block_hash, ev->event_id + 100);
    } else {
        assert_int_equal(ev->removed[0], ev->event_id);
    }
}

static struct seen read_answer(const struct buf *answer)
{
    AUTO(kv_event_reader_done) struct kv_event_reader reader = {.blocks = NULL};
    struct seen s = {.n = 0};
    struct err e;

    EXPECT_OK(kv_events_parse(&reader, buf_str(answer), note, &s, &e), &e);
    return s;
}

static void a_range_is_answered_while_it_is_remembered(void **state)
{
    static const struct {
        struct opt_u64 start, end;
        int want;
        uint64_t first, last;
    } cases[] = {
        {{true, 2999}, {false, 0}, 0, 2999, 2999},
        {{true, 1976}, {false, 0}, 0, 1976, 2999},
        {{true, 1975}, {false, 0}, EVENT_RING_DUMP, 0, 0},
        {{true, 0}, {true, 10}, EVENT_RING_DUMP, 0, 0},
        {{false, 0}, {false, 0}, EVENT_RING_DUMP, 0, 0},
        {{false, 0}, {true, 2500}, EVENT_RING_DUMP, 0, 0},
        {{true, 2000}, {true, 2003}, 0, 2000, 2003},
        {{true, 2990}, {true, 9999}, 0, 2990, 2999},
    };
    AUTO(event_ring_free) struct event_ring *r = event_ring_new();

    (void)state;
    assert_null(event_ring_newest(r));
    for (uint64_t id = 0; id < 3000; id++)
        push(r, id);
    assert_int_equal(event_ring_newest(r)->event_id, 2999);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        const struct kv_query q = {7, cases[i].start, cases[i].end, {false, 0}};
        struct seen s;

        assert_int_equal(event_ring_answer(r, &q, false, &out), cases[i].want);
        if (cases[i].want != 0) {
            assert_int_equal(out.len, 0);
            continue;
        }
        s = read_answer(&out);
        assert_int_equal(s.first, cases[i].first);
        assert_int_equal(s.last, cases[i].last);
        assert_int_equal(s.n, s.last - s.first + 1);
    }
}

static void ranges_that_cannot_be_are_told_apart(void **state)
{
    AUTO(event_ring_free) struct event_ring *r = event_ring_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct kv_query q = {.worker_id = 7, .start = {true, 5}, .end = {true, 4}};

    (void)state;
    assert_int_equal(event_ring_answer(r, &q, false, &out), 0);
    assert_string_equal(buf_cstr(&out), "{\"InvalidRange\":{\"start_id\":5,\"end_id\":4}}");
    q.end = (struct opt_u64){false, 0};
    assert_int_equal(event_ring_answer(r, &q, false, &out), EVENT_RING_DUMP);
    push(r, 0);
    buf_clear(&out);
    assert_int_equal(event_ring_answer(r, &q, false, &out), 0);
    assert_string_equal(
        buf_cstr(&out),
        "{\"TooNew\":{\"requested_start\":5,\"requested_end\":null,\"newest_available\":0}}");
    q.start.v = UINT64_MAX;
    buf_clear(&out);
    assert_int_equal(event_ring_answer(r, &q, false, &out), 0);
    assert_true(str_starts(buf_str(&out), STR("{\"TooNew\"")));
}

static void newer_routers_are_told_all_up_to_the_newest(void **state)
{
    AUTO(event_ring_free) struct event_ring *r = event_ring_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf dump = BUF_NULL;
    struct kv_answer answer;
    struct seen s;
    struct err e;
    const struct kv_query q = {.worker_id = 7, .start = {true, 1}, .end = {true, 1}};

    (void)state;
    kv_events_begin_put("TreeDump", &dump, true);
    kv_events_end_put(r, &dump, true);
    assert_string_equal(buf_cstr(&dump), "{\"TreeDump\":{\"events\":[],\"last_event_id\":0}}");
    for (uint64_t id = 1; id <= 2; id++)
        push(r, id);
    assert_int_equal(event_ring_answer(r, &q, true, &out), 0);
    assert_true(str_starts(buf_str(&out), STR("{\"Events\":{\"events\":[{")));
    assert_true(str_ends(buf_str(&out), STR("],\"last_event_id\":2}}")));
    EXPECT_OK(kv_answer_parse(buf_str(&out), &answer, &e), &e);
    assert_int_equal(answer.kind, KV_ANSWER_EVENTS);
    assert_int_equal(answer.newest.v, 2);
    buf_clear(&dump);
    buf_put_str(&dump, answer.events);
    s = read_answer(&dump);
    assert_int_equal(s.first, 1);
    assert_int_equal(s.last, 2);
}

static void queries_are_read_as_routers_write_them(void **state)
{
    struct kv_query q;
    struct err e;

    (void)state;
    EXPECT_OK(kv_query_parse(STR("{\"worker_id\":12068259693190267366,\"start_event_id\":null,"
                                 "\"end_event_id\":18446744073709551615,\"dp_rank\":3,\"x\":[1]}"),
                             &q, &e),
              &e);
    assert_true(q.worker_id == UINT64_C(12068259693190267366));
    assert_false(q.start.set);
    assert_true(q.end.set && q.end.v == UINT64_MAX);
    assert_true(q.dp_rank.set && q.dp_rank.v == 3);
    assert_int_equal(kv_query_parse(STR("{}"), &q, &e), -EINVAL);
    assert_int_equal(kv_query_parse(STR("{\"worker_id\":-1}"), &q, &e), -EINVAL);
    assert_int_equal(kv_query_parse(STR("{\"worker_id\":1,\"start_event_id\":\"a\"}"), &q, &e),
                     -EINVAL);
    assert_int_equal(kv_query_parse(STR("null"), &q, &e), -EINVAL);
    assert_int_equal(kv_query_parse(STR("{\"worker_id\":1"), &q, &e), -EINVAL);
}

int main(void)
{
    return TEST_RUN(
        T(a_range_is_answered_while_it_is_remembered), T(ranges_that_cannot_be_are_told_apart),
        T(newer_routers_are_told_all_up_to_the_newest), T(queries_are_read_as_routers_write_them));
}
