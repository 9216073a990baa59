/* SPDX-License-Identifier: Apache-2.0 */
/* Includes the intake, to answer for a worker. Each run is a process of its own: scheduler, intake and
 * keeper; the folder outlives it. */
#include "router/sync/kv_intake.c"

#include "lib/base/test.h"
#include "router/sched/sched_test.h"
#include "router/sync/index_keeper.h"

enum { WORKER = 7, BLOCK = 4 };

static char folder[] = "/tmp/index_keeper_test.XXXXXX";

struct run {
    struct loop *loop;
    struct metric_registry *metrics;
    struct scheduler *scheduler;
    struct kv_intake *intake;
    struct index_keeper *keeper;
};

static struct run *begin(uint32_t block_size, const char *component)
{
    struct run *r = xcalloc(1, sizeof(*r));
    struct kv_intake_conf intake = {.ns = "n", .component = component};
    struct index_keeper_conf keeper = {
        .folder = folder, .ns = "n", .component = component, .endpoint = "e"};
    struct err e;

    EXPECT_OK(loop_new(&r->loop, &e), &e);
    r->metrics = metric_registry_new();
    r->scheduler = scheduler_new(block_size, &ROUTE_CONF_KV);
    intake.loop = keeper.loop = r->loop;
    intake.metrics = keeper.metrics = r->metrics;
    intake.scheduler = keeper.scheduler = r->scheduler;
    EXPECT_OK(kv_intake_start(&r->intake, &intake, &e), &e);
    keeper.intake = r->intake;
    r->keeper = index_keeper_new(&keeper);
    return r;
}

static void end(struct run *r)
{
    index_keeper_free(r->keeper);
    kv_intake_free(r->intake);
    scheduler_free(r->scheduler);
    loop_free(r->loop);
    metric_registry_free(r->metrics);
    free(r);
}

static void worker_appears(struct run *r)
{
    assert_true(scheduler_put_worker(r->scheduler,
                                     &(struct worker_info){.worker_id = WORKER, .dp_size = 1}));
    event_order_put_worker(r->intake->order, WORKER, 0, 1, true, 1000);
}

/* Event @id stores one block, called 100 + id in an engine of that @make. */
static struct kv_event stored(uint64_t id, uint64_t make, struct kv_block *block)
{
    *block = (struct kv_block){1000 * make + 100 + id, 100 + id};
    return (struct kv_event){.worker_id = WORKER, .event_id = id, .blocks = block, .n_blocks = 1};
}

static struct event_question asked(struct run *r, enum event_question_kind kind)
{
    struct event_question q;

    assert_true(event_order_next(r->intake->order, EVENT_ID_NEVER, &q));
    assert_int_equal(q.kind, kind);
    return q;
}

static void answer(struct run *r, const struct event_question *q, uint64_t make, uint64_t last)
{
    assert_true(event_order_answer_begin(r->intake->order, q->number, q->kind == EVENT_ASK_DUMP,
                                         OPT_U64(last)));
    for (uint64_t id = q->first.v; id <= last; id++) {
        struct kv_block block;
        struct kv_event ev = stored(id, make, &block);

        event_order_answer_feed(r->intake->order, &ev);
    }
    event_order_answer_end(r->intake->order, true, 1000);
}

static size_t blocks(const struct run *r)
{
    return scheduler_index_stats(r->scheduler).entries;
}

/* A process that heard events 0 … 9 of the worker and ended. */
static void first_life(void)
{
    AUTO(mem_free) char *path = xasprintf("%s/n.c.e.index", folder);
    struct event_question q;
    struct run *r;

    (void)unlink(path);
    r = begin(BLOCK, "c");
    worker_appears(r);
    q = asked(r, EVENT_ASK_POSITION);
    event_order_answer_too_new(r->intake->order, q.number, 9, 1000);
    q = asked(r, EVENT_ASK_DUMP);
    answer(r, &q, 1, 9);
    assert_int_equal(blocks(r), 10);
    end(r);
}

static void what_was_kept_is_there_and_completed(void **state)
{
    struct run *r;
    struct event_question q;

    (void)state;
    first_life();
    r = begin(BLOCK, "c");
    assert_int_equal(blocks(r), 10);
    worker_appears(r);
    q = asked(r, EVENT_ASK_NEWS);
    assert_int_equal(q.first.v, 9); /* the last of before, to see that it is the same engine */
    answer(r, &q, 1, 12);
    assert_int_equal(blocks(r), 13);
    on_tick(r->intake);
    assert_false(event_order_next(r->intake->order, EVENT_ID_NEVER, &q));
    assert_true(metric_value(r->intake->problems[RESTART]) == 0);
    end(r);
}

/* Its numbers have passed ours: only what the event says shows it. */
static void an_engine_that_restarted_is_asked_for_all(void **state)
{
    struct run *r;
    struct event_question q;

    (void)state;
    first_life();
    r = begin(BLOCK, "c");
    worker_appears(r);
    q = asked(r, EVENT_ASK_NEWS);
    answer(r, &q, 2, 30);
    on_tick(r->intake);
    assert_true(metric_value(r->intake->problems[RESTART]) == 1);
    q = asked(r, EVENT_ASK_DUMP);
    q.first.v = 0;
    answer(r, &q, 2, 30);
    assert_int_equal(blocks(r), 31);
    on_tick(r->intake);
    assert_false(event_order_next(r->intake->order, EVENT_ID_NEVER, &q));
    end(r);
}

static void files_of_others_are_passed_over(void **state)
{
    AUTO(mem_free) char *path = xasprintf("%s/n.c.e.index", folder);
    struct run *r;
    FILE *file;

    (void)state;
    first_life();
    r = begin(BLOCK, "d");
    assert_int_equal(blocks(r), 0);
    end(r);
    r = begin(2 * BLOCK, "c");
    assert_int_equal(blocks(r), 0);
    end(r);
    r = begin(BLOCK, "c"); /* nobody has written in between: no rank was known */
    assert_int_equal(blocks(r), 10);
    end(r);

    first_life();
    file = fopen(path, "r+e");
    assert_non_null(file);
    assert_int_equal(fseek(file, 100, SEEK_SET), 0);
    (void)fputc('x', file);
    assert_int_equal(fclose(file), 0);
    r = begin(BLOCK, "c");
    assert_int_equal(blocks(r), 0);
    end(r);
}

static void ranks_with_slower_tiers_are_left_to_a_dump(void **state)
{
    const struct prefix_block block = {1, 2};
    struct event_question q;
    struct run *r;

    (void)state;
    first_life();
    r = begin(BLOCK, "c");
    worker_appears(r);
    q = asked(r, EVENT_ASK_NEWS);
    answer(r, &q, 1, 9);
    scheduler_tier_store(r->scheduler, (struct worker_rank){WORKER, 0}, TIER_HOST, NULL, &block, 1);
    end(r);
    r = begin(BLOCK, "c");
    assert_int_equal(blocks(r), 0);
    end(r);
}

int main(void)
{
    AUTO(mem_free) char *path = NULL;
    int failed;

    if (!mkdtemp(folder) || log_setup("off", false, NULL) < 0)
        return 1;
    failed = TEST_RUN(
        T(what_was_kept_is_there_and_completed), T(an_engine_that_restarted_is_asked_for_all),
        T(files_of_others_are_passed_over), T(ranks_with_slower_tiers_are_left_to_a_dump));
    path = xasprintf("%s/n.c.e.index", folder);
    (void)unlink(path);
    (void)rmdir(folder);
    return failed;
}
