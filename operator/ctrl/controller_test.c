/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/controller.h"

#include <pthread.h>

#include "lib/base/test.h"
#include "lib/kube/kube_kinds.h"

/* Two controllers of one thread each; a pass of the second asks for one of the first. */
struct rig {
    struct metric_registry *metrics;
    struct controller *first, *second;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool in_pass, first_ended;
    unsigned passes; /* of the first */
};

struct side {
    struct rig *rig;
    bool is_first;
};

static void set(struct rig *rig, bool *flag)
{
    (void)pthread_mutex_lock(&rig->lock);
    *flag = true;
    (void)pthread_cond_broadcast(&rig->changed);
    (void)pthread_mutex_unlock(&rig->lock);
}

static void wait_for(struct rig *rig, const bool *flag)
{
    (void)pthread_mutex_lock(&rig->lock);
    while (!*flag)
        (void)pthread_cond_wait(&rig->changed, &rig->lock);
    (void)pthread_mutex_unlock(&rig->lock);
}

static int worker_new(void **ret, void *arg, struct err *e)
{
    (void)e;
    *ret = arg;
    return 0;
}

static void worker_free(void *worker)
{
    struct side *side = worker;

    if (side->is_first)
        set(side->rig, &side->rig->first_ended);
}

static int reconcile(void *worker, const struct pass *pass, struct err *e)
{
    struct side *side = worker;
    struct rig *rig = side->rig;

    (void)e;
    if (side->is_first) {
        (void)pthread_mutex_lock(&rig->lock);
        rig->passes++;
        (void)pthread_mutex_unlock(&rig->lock);
        return 0;
    }
    set(rig, &rig->in_pass);
    wait_for(rig, &rig->first_ended);
    queue_add(controller_queue(rig->first), pass->ns, pass->name, false);
    return 0;
}

static uint64_t never_excluded(void *arg, const char *ns)
{
    (void)arg;
    (void)ns;
    return 0;
}

static struct controller *make(struct side *side, const struct kube_kind *kind)
{
    return controller_new(&(struct controller_conf){.kind = kind,
                                                    .n_workers = 1,
                                                    .metrics = side->rig->metrics,
                                                    .worker_new = worker_new,
                                                    .worker_free = worker_free,
                                                    .reconcile = reconcile,
                                                    .excluded_ms = never_excluded,
                                                    .arg = side});
}

static void test_a_pass_that_outlives_the_other_controller_may_still_ask_it(void **state)
{
    struct rig rig = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct side sides[] = {{&rig, true}, {&rig, false}};
    struct err e;

    (void)state;
    rig.metrics = metric_registry_new();
    rig.first = make(&sides[0], &KIND_DGD);
    rig.second = make(&sides[1], &KIND_DCD);
    assert_int_equal(controller_start(rig.first, &e), 0);
    assert_int_equal(controller_start(rig.second, &e), 0);
    queue_add(controller_queue(rig.second), "ns", "a", false);
    wait_for(&rig, &rig.in_pass);

    controllers_stop((struct controller *const[]){rig.first, rig.second}, 2);
    assert_int_equal(queue_stats(controller_queue(rig.first)).adds, 1);
    assert_int_equal(rig.passes, 0);
    controllers_stop((struct controller *const[]){rig.first, rig.second}, 2);
    assert_null(controller_free(rig.first));
    assert_null(controller_free(rig.second));
    (void)metric_registry_free(rig.metrics);
}

static void test_stopping_before_it_was_started(void **state)
{
    struct rig rig = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct side side = {&rig, true};

    (void)state;
    rig.metrics = metric_registry_new();
    rig.first = make(&side, &KIND_DGD);
    queue_add(controller_queue(rig.first), "ns", "a", false);
    controllers_stop(&rig.first, 1);
    assert_int_equal(rig.passes, 0);
    assert_null(controller_free(rig.first));
    assert_null(controller_free(NULL));
    (void)metric_registry_free(rig.metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_that_outlives_the_other_controller_may_still_ask_it),
        cmocka_unit_test(test_stopping_before_it_was_started),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
