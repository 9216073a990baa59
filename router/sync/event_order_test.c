/* SPDX-License-Identifier: Apache-2.0 */
/* Events are told by their id alone: what is applied is written down as text, "+3" live, "=3" from
 * an answer, "C" a cleared rank. */
#include "router/sync/event_order.h"
#include "lib/base/test.h"

enum { WORKER = 7 };

struct bench {
    struct event_order *o;
    struct buf log;
    uint64_t orphan; /* an event of this id follows an unknown block */
    uint64_t withdrawn;
    size_t notes[EVENT_GAVE_UP + 1];
    uint64_t now, sent;
};

static bool on_apply(void *arg, const struct kv_event *ev, bool live)
{
    struct bench *b = arg;

    if (ev->tier != KV_TIER_UNKNOWN)
        buf_printf(&b->log, "%s%llu", live ? "+" : "=", (unsigned long long)ev->event_id);
    return !live || ev->event_id != b->orphan;
}

static void on_clear(void *arg, struct worker_rank w)
{
    (void)w;
    buf_put_char(&((struct bench *)arg)->log, 'C');
}

static void on_forget(void *arg, uint64_t worker_id)
{
    buf_printf(&((struct bench *)arg)->log, "F%llu", (unsigned long long)worker_id);
}

static void on_withdraw(void *arg, uint64_t question)
{
    ((struct bench *)arg)->withdrawn = question;
}

static void on_note(void *arg, enum event_note what, struct worker_rank w, uint64_t first,
                    uint64_t last)
{
    (void)w, (void)first, (void)last;
    ((struct bench *)arg)->notes[what]++;
}

static int setup(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));

    b->o = event_order_new(&(struct event_order_sink){.apply = on_apply,
                                                      .clear = on_clear,
                                                      .forget = on_forget,
                                                      .withdraw = on_withdraw,
                                                      .note = on_note,
                                                      .arg = b});
    b->orphan = UINT64_MAX;
    b->now = b->sent = 1000000;
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    event_order_free(b->o);
    buf_done(&b->log);
    free(b);
    return 0;
}

static void live_sent(struct bench *b, uint64_t id, uint64_t sent_ms)
{
    const struct kv_event ev = {.worker_id = WORKER, .event_id = id, .kind = KV_CLEARED};

    event_order_live(b->o, &ev, sent_ms, b->now);
}

static void live(struct bench *b, uint64_t id)
{
    live_sent(b, id, ++b->sent);
}

/* What was applied since the last look. */
static void expect(struct bench *b, const char *want)
{
    assert_string_equal(buf_cstr(&b->log), want);
    buf_clear(&b->log);
}

static struct event_question asked(struct bench *b, enum event_question_kind kind)
{
    struct event_question q = {0};

    assert_true(event_order_next(b->o, b->now, &q));
    assert_int_equal(q.kind, kind);
    assert_int_equal(q.worker.worker_id, WORKER);
    return q;
}

static void asks_nothing(struct bench *b)
{
    struct event_question q;

    assert_false(event_order_next(b->o, b->now, &q));
}

static void answer(struct bench *b, uint64_t question, bool is_dump, uint64_t first, uint64_t last)
{
    assert_true(event_order_answer_begin(b->o, question, is_dump, (struct opt_u64){0}));
    for (uint64_t id = first; id <= last; id++) {
        const struct kv_event ev = {.worker_id = WORKER, .event_id = id, .kind = KV_CLEARED};

        event_order_answer_feed(b->o, &ev);
    }
    event_order_answer_end(b->o, true, b->now);
}

/* A worker whose blocks are known and whose event @next - 1 was its newest then. */
static void known_until(struct bench *b, uint64_t next)
{
    struct event_question q;

    event_order_put_worker(b->o, WORKER, 0, 1, true, b->now);
    q = asked(b, EVENT_ASK_POSITION);
    if (next == 0) {
        answer(b, q.number, true, 1, 0); /* its ring is empty */
    } else {
        event_order_answer_too_new(b->o, q.number, next - 1, b->now);
        q = asked(b, EVENT_ASK_DUMP);
        answer(b, q.number, true, 1, 0);
    }
    expect(b, "C");
    asks_nothing(b);
}

static void in_order_events_are_applied_at_once(void **state)
{
    struct bench *b = *state;

    known_until(b, 5);
    live(b, 5);
    live(b, 6);
    live(b, 6); /* of the same batch */
    live(b, 7);
    expect(b, "+5+6+6+7");
    live_sent(b, 5, b->sent - 2);
    expect(b, "");
    assert_int_equal(b->notes[EVENT_DUPLICATE], 1);
    asks_nothing(b);
}

static void what_follows_a_gap_waits_for_the_range(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 5);
    live(b, 5);
    live(b, 9);
    live(b, 10);
    expect(b, "+5");
    q = asked(b, EVENT_ASK_RANGE);
    assert_int_equal(q.first.v, 6);
    assert_int_equal(q.last.v, 8);
    live(b, 11);
    answer(b, q.number, false, 6, 8);
    expect(b, "=6=7=8+9+10+11");
    asks_nothing(b);
    assert_int_equal(b->notes[EVENT_GAP], 1);
    assert_int_equal(event_order_stats(b->o).held, 0);
    assert_int_equal(event_order_stats(b->o).held_bytes, 0);
}

static void late_events_close_a_gap_and_withdraw_the_question(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 0);
    live(b, 0);
    live(b, 3);
    q = asked(b, EVENT_ASK_RANGE);
    live_sent(b, 2, b->sent - 1);
    live_sent(b, 1, b->sent - 2);
    expect(b, "+0+1+2+3");
    assert_int_equal(b->withdrawn, q.number);
    assert_false(event_order_answer_begin(b->o, q.number, true, (struct opt_u64){0}));
    asks_nothing(b);
}

/* The dump that answers for the first gap may lack what came since: it is not taken. */
static void a_second_gap_is_asked_for_by_itself(void **state)
{
    struct bench *b = *state;
    struct event_question first, second;

    known_until(b, 0);
    live(b, 1);
    first = asked(b, EVENT_ASK_RANGE);
    live(b, 3);
    live_sent(b, 0, b->sent - 5);
    expect(b, "+0+1");
    assert_int_equal(b->withdrawn, first.number);
    second = asked(b, EVENT_ASK_RANGE);
    assert_int_equal(second.first.v, 2);
    assert_int_equal(second.last.v, 2);
    answer(b, second.number, false, 2, 2);
    expect(b, "=2+3");
}

static void a_range_may_be_answered_with_a_dump(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 2000);
    live(b, 4000);
    q = asked(b, EVENT_ASK_RANGE);
    live(b, 4001);
    answer(b, q.number, true, 0, 2); /* made up ids */
    expect(b, "C=0=1=2+4000+4001");  /* 4000 may have siblings that the dump lacks */
    live(b, 4002);
    expect(b, "+4002");
    asks_nothing(b);
}

static void a_dump_that_tells_its_position_is_exact(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    event_order_put_worker(b->o, WORKER, 0, 1, true, b->now);
    q = asked(b, EVENT_ASK_POSITION);
    live(b, 41);
    live(b, 43);
    live(b, 44);
    assert_true(event_order_answer_begin(b->o, q.number, true, OPT_U64(42)));
    event_order_answer_end(b->o, true, b->now);
    expect(b, "C+43+44");
    asks_nothing(b);
}

/* 0.9.0 does not say how far its dump goes: events that were lost right after it must not be. */
static void the_position_is_asked_before_the_dump(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    event_order_put_worker(b->o, WORKER, 0, 1, true, b->now);
    q = asked(b, EVENT_ASK_POSITION);
    event_order_answer_too_new(b->o, q.number, 41, b->now);
    q = asked(b, EVENT_ASK_DUMP);
    assert_false(q.first.set || q.last.set);
    answer(b, q.number, true, 0, 0);
    live(b, 43);
    expect(b, "C=0");
    q = asked(b, EVENT_ASK_RANGE);
    assert_int_equal(q.first.v, 42);
    assert_int_equal(q.last.v, 42);
}

static void news_are_asked_after_a_break(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 5);
    event_order_check(b->o, b->now);
    q = asked(b, EVENT_ASK_NEWS);
    assert_int_equal(q.first.v, 5);
    live(b, 7);
    expect(b, ""); /* a dump may come, which may lack it */
    answer(b, q.number, false, 5, 6);
    expect(b, "=5=6+7");
    event_order_check(b->o, b->now);
    q = asked(b, EVENT_ASK_NEWS);
    event_order_answer_too_new(b->o, q.number, 7, b->now);
    expect(b, "");
    asks_nothing(b);
}

/* Its sender had kept it while it had no connection. */
static void what_an_answer_told_first_is_no_restart(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 5);
    live(b, 5);
    event_order_check(b->o, b->now);
    q = asked(b, EVENT_ASK_NEWS);
    answer(b, q.number, false, 6, 8);
    expect(b, "+5=6=7=8");
    live(b, 6);
    live(b, 7);
    expect(b, "");
    assert_int_equal(b->notes[EVENT_DUPLICATE], 2);
    live(b, 9);
    live(b, 4);
    expect(b, "+9C");
}

static void a_restart_drops_the_old_blocks_at_once(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 100);
    live(b, 102);
    q = asked(b, EVENT_ASK_RANGE);
    live(b, 0);
    expect(b, "C+0");
    assert_int_equal(b->withdrawn, q.number);
    live_sent(b, 103, b->sent - 1); /* it was on its way */
    expect(b, "");
    assert_int_equal(b->notes[EVENT_STALE], 1);
    live(b, 1);
    expect(b, "+1");
    asks_nothing(b);
}

static void a_restart_shows_without_its_first_events(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 100);
    live(b, 100);
    live(b, 3);
    expect(b, "+100C");
    q = asked(b, EVENT_ASK_RANGE);
    assert_int_equal(q.first.v, 0);
    assert_int_equal(q.last.v, 2);
    answer(b, q.number, false, 0, 2);
    expect(b, "=0=1=2+3");
}

/* A source that tells no times is in order: only id 0 may begin again. */
static void a_restart_without_times(void **state)
{
    struct bench *b = *state;

    known_until(b, 100);
    live_sent(b, 50, 0);
    expect(b, "");
    live_sent(b, 0, 0);
    live_sent(b, 1, 0);
    expect(b, "C+0+1");
}

static void a_worker_whose_numbers_fell_has_restarted(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 100);
    event_order_check(b->o, b->now);
    q = asked(b, EVENT_ASK_NEWS);
    event_order_answer_too_new(b->o, q.number, 9, b->now);
    expect(b, "C");
    q = asked(b, EVENT_ASK_DUMP);
    answer(b, q.number, true, 0, 1);
    expect(b, "C=0=1");
    live(b, 10);
    expect(b, "+10");
    asks_nothing(b);
}

static void failures_are_retried_with_growing_pauses(void **state)
{
    struct bench *b = *state;
    struct event_question q;
    uint64_t pause = 200;

    known_until(b, 5);
    live(b, 7);
    for (int i = 1; i < EVENT_ATTEMPTS; i++, pause *= 2) {
        q = asked(b, EVENT_ASK_RANGE);
        event_order_answer_failed(b->o, q.number, false, b->now);
        asks_nothing(b);
        assert_int_equal(event_order_wake_ms(b->o), b->now + pause);
        b->now += pause - 1;
        asks_nothing(b);
        b->now++;
        expect(b, "");
    }
    q = asked(b, EVENT_ASK_RANGE);
    event_order_answer_failed(b->o, q.number, false, b->now);
    expect(b, "+7");
    assert_int_equal(b->notes[EVENT_GAVE_UP], 1);
    live(b, 8);
    expect(b, "+8");
    asks_nothing(b);
    assert_true(event_order_wake_ms(b->o) == UINT64_MAX);
}

static void a_worker_that_answers_nothing_is_not_asked_again(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    event_order_put_worker(b->o, WORKER, 0, 1, true, b->now);
    q = asked(b, EVENT_ASK_POSITION);
    live(b, 5);
    expect(b, "");
    event_order_answer_failed(b->o, q.number, true, b->now);
    live(b, 6);
    live(b, 9);
    expect(b, "+5+6+9");
    asks_nothing(b);
    assert_int_equal(b->notes[EVENT_GAP], 1);
}

static void half_an_answer_counts_as_failed(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 5);
    live(b, 7);
    q = asked(b, EVENT_ASK_RANGE);
    assert_true(event_order_answer_begin(b->o, q.number, false, (struct opt_u64){0}));
    event_order_answer_end(b->o, false, b->now);
    asks_nothing(b);
    b->now += 200;
    q = asked(b, EVENT_ASK_RANGE);
    answer(b, q.number, false, 6, 6);
    expect(b, "=6+7");
}

static void an_answer_that_fills_nothing_leads_to_a_dump(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 5);
    live(b, 7);
    q = asked(b, EVENT_ASK_RANGE);
    answer(b, q.number, false, 1, 0);
    q = asked(b, EVENT_ASK_DUMP);
    live(b, 8);
    answer(b, q.number, true, 0, 0);
    expect(b, "+7C=0+8");
}

static void orphans_ask_for_dumps_but_not_too_often(void **state)
{
    struct bench *b = *state;
    struct event_question q;
    uint64_t pauses[] = {0, 1000, 2000, 4000};

    known_until(b, 0);
    for (uint64_t id = 0; id < 4; id++) {
        b->orphan = id;
        live(b, id);
        if (pauses[id]) {
            asks_nothing(b);
            assert_int_equal(event_order_wake_ms(b->o), b->now + pauses[id]);
            b->now += pauses[id];
        }
        q = asked(b, EVENT_ASK_DUMP);
        answer(b, q.number, true, 1, 0);
    }
    expect(b, "+0C+1C+2C+3C");
}

static void too_many_held_events_lead_to_a_dump(void **state)
{
    struct bench *b = *state;
    struct event_question q;
    uint64_t id = 7;
    AUTO(mem_free) char *tail = NULL;

    known_until(b, 5);
    while (!b->notes[EVENT_OVERFLOW]) {
        live(b, id++);
        assert_in_range(event_order_stats(b->o).held_bytes, 0, EVENT_HELD_BYTES);
    }
    assert_int_equal(event_order_stats(b->o).held, 0);
    q = asked(b, EVENT_ASK_DUMP);
    live(b, id);
    answer(b, q.number, true, 0, 0);
    tail = xasprintf("C=0+%llu", (unsigned long long)id);
    expect(b, tail);
    live(b, id + 1);
    asks_nothing(b);
}

static void ranks_come_and_go(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    known_until(b, 0);
    event_order_put_worker(b->o, WORKER, 0, 2, true, b->now);
    q = asked(b, EVENT_ASK_POSITION);
    assert_int_equal(q.worker.dp_rank, 1);
    event_order_put_worker(b->o, WORKER, 0, 1, true, b->now);
    assert_int_equal(b->withdrawn, q.number);
    event_order_live(b->o,
                     &(struct kv_event){.worker_id = WORKER, .dp_rank = 1, .kind = KV_CLEARED},
                     b->now, b->now);
    assert_int_equal(b->notes[EVENT_UNKNOWN_RANK], 1);
    live(b, 0);
    expect(b, "+0");
    live(b, 2);
    q = asked(b, EVENT_ASK_RANGE);
    event_order_remove_worker(b->o, WORKER);
    assert_int_equal(b->withdrawn, q.number);
    assert_int_equal(event_order_stats(b->o).held, 0);
    assert_int_equal(event_order_stats(b->o).ranks, 0);
    asks_nothing(b);
}

static void strangers_are_followed_and_forgotten(void **state)
{
    struct bench *b = *state;

    live(b, 5);
    live(b, 9); /* nobody to ask */
    expect(b, "+5+9");
    for (uint64_t w = 0; w < 2 * EVENT_STRANGERS_MAX; w++)
        event_order_live(
            b->o, &(struct kv_event){.worker_id = 100 + w, .kind = KV_CLEARED, .event_id = 1}, 1,
            b->now + 5);
    assert_int_equal(event_order_stats(b->o).strangers, EVENT_STRANGERS_MAX);
    assert_int_equal(b->notes[EVENT_UNKNOWN_RANK], EVENT_STRANGERS_MAX + 1);
    buf_clear(&b->log);
    event_order_tick(b->o, b->now + EVENT_STRANGER_MS);
    expect(b, "F7");
    assert_int_equal(event_order_stats(b->o).strangers, EVENT_STRANGERS_MAX - 1);
    event_order_put_worker(b->o, 100, 0, 1, true, b->now);
    assert_int_equal(event_order_stats(b->o).strangers, EVENT_STRANGERS_MAX - 2);
}

/* All tiers of a rank share its numbers. */
static void events_of_slower_tiers_have_their_place(void **state)
{
    struct bench *b = *state;
    struct kv_event host = {.worker_id = WORKER, .event_id = 8, .tier = KV_TIER_HOST};
    struct event_question q;

    known_until(b, 5);
    live(b, 5);
    event_order_live(b->o, &host, ++b->sent, b->now); /* 6 and 7 are missing */
    expect(b, "+5");
    assert_int_equal(b->notes[EVENT_GAP], 1);
    assert_true(event_order_next(b->o, b->now, &q));
    assert_int_equal(q.kind, EVENT_ASK_RANGE);
    assert_int_equal(q.first.v, 6);
    assert_int_equal(q.last.v, 7);
}

static void unknown_tiers_make_no_gaps(void **state)
{
    struct bench *b = *state;
    struct kv_event host = {.worker_id = WORKER, .event_id = 6, .tier = KV_TIER_UNKNOWN};

    known_until(b, 5);
    live(b, 5);
    event_order_live(b->o, &host, ++b->sent, b->now); /* numbered with the others */
    live(b, 7);
    expect(b, "+5+7");
    host.event_id = 0;
    event_order_live(b->o, &host, ++b->sent, b->now); /* with numbers of its own */
    host.event_id = 1000;
    event_order_live(b->o, &host, ++b->sent, b->now);
    live(b, 8);
    expect(b, "+8");
    asks_nothing(b);
}

static void questions_are_bounded(void **state)
{
    struct bench *b = *state;
    struct event_question q;
    size_t n = 0;

    for (uint64_t w = 0; w < 100; w++)
        event_order_put_worker(b->o, 1000 + w, 0, 4, true, b->now);
    while (event_order_next(b->o, b->now, &q))
        n++;
    assert_int_equal(n, EVENT_QUESTIONS_MAX);
    event_order_answer_too_new(b->o, q.number, 5, b->now);
    assert_true(event_order_next(b->o, b->now, &q));
    asks_nothing(b);
    assert_int_equal(event_order_stats(b->o).asking, EVENT_QUESTIONS_MAX);
}

#define WITH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

/* Blocks from a file: the worker is asked what came since, and what comes meanwhile waits. */
static void what_was_resumed_goes_on_from_there(void **state)
{
    struct bench *b = *state;
    struct worker_rank w = {WORKER, 0};
    struct event_position at = {.next = 5, .newest_ms = b->sent}, got;
    struct event_question q;

    assert_true(event_order_resume(b->o, w, at, b->now));
    assert_false(event_order_resume(b->o, w, at, b->now));
    assert_false(event_order_position(b->o, w, &got)); /* nobody has confirmed it */
    live(b, 8);
    expect(b, "");
    event_order_put_worker(b->o, WORKER, 0, 1, true, b->now);
    q = asked(b, EVENT_ASK_NEWS);
    assert_int_equal(q.first.v, 5);
    assert_true(event_order_answer_begin(b->o, q.number, false, (struct opt_u64){0}));
    for (uint64_t id = 5; id < 8; id++)
        event_order_answer_feed(b->o, &(struct kv_event){.worker_id = WORKER, .event_id = id});
    event_order_answer_end(b->o, true, b->now);
    expect(b, "=5=6=7+8");
    asks_nothing(b);
    assert_true(event_order_position(b->o, w, &got));
    assert_int_equal(got.next, 9);
}

static void what_was_resumed_is_dropped_when_the_engine_restarted(void **state)
{
    struct bench *b = *state;
    struct event_question q;

    assert_true(event_order_resume(b->o, (struct worker_rank){WORKER, 0},
                                   (struct event_position){.next = 50}, b->now));
    event_order_put_worker(b->o, WORKER, 0, 1, true, b->now);
    q = asked(b, EVENT_ASK_NEWS);
    event_order_answer_too_new(b->o, q.number, 3, b->now);
    expect(b, "C");
    (void)asked(b, EVENT_ASK_DUMP);
}

static void what_was_resumed_needs_a_worker_that_can_be_asked(void **state)
{
    struct bench *b = *state;

    assert_true(event_order_resume(b->o, (struct worker_rank){WORKER, 0},
                                   (struct event_position){.next = 5}, b->now));
    assert_true(event_order_resume(b->o, (struct worker_rank){WORKER + 1, 0},
                                   (struct event_position){.next = 5}, b->now));
    live(b, 9);
    event_order_put_worker(b->o, WORKER, 0, 1, false, b->now);
    expect(b, "C+9");
    asks_nothing(b);
    /* The other one never appears. */
    event_order_tick(b->o, b->now + EVENT_STRANGER_MS);
    expect(b, "F8");
}

int main(void)
{
    return TEST_RUN(
        WITH(in_order_events_are_applied_at_once), WITH(what_follows_a_gap_waits_for_the_range),
        WITH(late_events_close_a_gap_and_withdraw_the_question),
        WITH(a_second_gap_is_asked_for_by_itself), WITH(a_range_may_be_answered_with_a_dump),
        WITH(a_dump_that_tells_its_position_is_exact), WITH(the_position_is_asked_before_the_dump),
        WITH(news_are_asked_after_a_break), WITH(what_an_answer_told_first_is_no_restart),
        WITH(a_restart_drops_the_old_blocks_at_once),
        WITH(a_restart_shows_without_its_first_events), WITH(a_restart_without_times),
        WITH(a_worker_whose_numbers_fell_has_restarted),
        WITH(failures_are_retried_with_growing_pauses),
        WITH(a_worker_that_answers_nothing_is_not_asked_again),
        WITH(half_an_answer_counts_as_failed), WITH(an_answer_that_fills_nothing_leads_to_a_dump),
        WITH(orphans_ask_for_dumps_but_not_too_often), WITH(too_many_held_events_lead_to_a_dump),
        WITH(ranks_come_and_go), WITH(strangers_are_followed_and_forgotten),
        WITH(what_was_resumed_goes_on_from_there),
        WITH(what_was_resumed_is_dropped_when_the_engine_restarted),
        WITH(what_was_resumed_needs_a_worker_that_can_be_asked),
        WITH(events_of_slower_tiers_have_their_place), WITH(unknown_tiers_make_no_gaps),
        WITH(questions_are_bounded));
}
