/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/controller.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/net/loop.h"

static const struct log_target LG = {"dynamo_operator::controller"};

enum { WORKERS_MAX = 16, NAME_MAX_BYTES = 64, UNAVAILABLE_MAX_MS = 5000 };

struct families {
    struct metric_family *duration, *total, *errors;      /* dynamo_operator_reconcile_* */
    struct metric_family *runtime_total, *runtime_active; /* as controller-runtime names them */
    struct metric_family *queue_wait, *queue_work;
};

struct controller {
    struct controller_conf conf;
    char name[NAME_MAX_BYTES]; /* the kind in lower case */
    struct queue *queue;
    struct families f;
    struct metric *depth, *adds, *retries, *unfinished, *longest;
    uint64_t adds_told, retries_told;
    pthread_t threads[WORKERS_MAX];
    void *workers[WORKERS_MAX];
    unsigned n_threads;
};

struct worker_start {
    struct controller *controller;
    void *worker;
};

static uint64_t now_ms(void)
{
    return clock_now_ns() / 1000000;
}

/* --- metrics ----------------------------------------------------------------------------------------- */

static const double reconcile_buckets[] = {.005, .01, .025, .05, .1, .25, .5,
                                           1,    2.5, 5,    10,  30, 60};
static const double queue_buckets[] = {.000001, .00001, .0001, .001, .01, .1, 1, 10, 100, 1000};

static struct metric_family *histogram(struct metric_registry *r, const char *name,
                                       const char *help, const char *const labels[3],
                                       const double *buckets, size_t n)
{
    return metric_family(r, &(struct metric_desc){.name = name,
                                                  .help = help,
                                                  .type = METRIC_HISTOGRAM,
                                                  .labels = {labels[0], labels[1], labels[2]},
                                                  .buckets = buckets,
                                                  .n_buckets = n});
}

static struct metric_family *number(struct metric_registry *r, enum metric_type type,
                                    const char *name, const char *help, const char *const labels[3])
{
    return metric_family(r, &(struct metric_desc){.name = name,
                                                  .help = help,
                                                  .type = type,
                                                  .labels = {labels[0], labels[1], labels[2]}});
}

static void declare_passes(struct controller *c)
{
    static const char *const by_result[3] = {"resource_type", "namespace", "result"};
    static const char *const by_error[3] = {"resource_type", "namespace", "error_type"};
    static const char *const by_outcome[3] = {"controller", "result"};
    static const char *const by_controller[3] = {"controller"};
    struct metric_registry *r = c->conf.metrics;

    c->f.duration =
        histogram(r, "dynamo_operator_reconcile_duration_seconds", "Duration of reconcile passes.",
                  by_result, reconcile_buckets, ARRAY_LEN(reconcile_buckets));
    c->f.total = number(r, METRIC_COUNTER, "dynamo_operator_reconcile_total", "Reconcile passes.",
                        by_result);
    c->f.errors = number(r, METRIC_COUNTER, "dynamo_operator_reconcile_errors_total",
                         "Reconcile passes that failed.", by_error);
    c->f.runtime_total = number(r, METRIC_COUNTER, "controller_runtime_reconcile_total",
                                "Reconcile passes per controller.", by_outcome);
    c->f.runtime_active = number(r, METRIC_GAUGE, "controller_runtime_active_workers",
                                 "Workers that are in a pass.", by_controller);
}

static struct metric *queue_metric(struct controller *c, enum metric_type type, const char *name,
                                   const char *help)
{
    static const char *const labels[3] = {"name", "controller"};

    return metric_with(number(c->conf.metrics, type, name, help, labels), c->name, c->name);
}

static void declare_queue(struct controller *c)
{
    static const char *const labels[3] = {"name", "controller"};

    c->depth = queue_metric(c, METRIC_GAUGE, "workqueue_depth", "Keys that are ready.");
    c->adds = queue_metric(c, METRIC_COUNTER, "workqueue_adds_total", "Keys that became ready.");
    c->retries = queue_metric(c, METRIC_COUNTER, "workqueue_retries_total", "Keys that failed.");
    c->unfinished = queue_metric(c, METRIC_GAUGE, "workqueue_unfinished_work_seconds",
                                 "Sum of the age of running passes.");
    c->longest = queue_metric(c, METRIC_GAUGE, "workqueue_longest_running_processor_seconds",
                              "Age of the oldest running pass.");
    c->f.queue_wait =
        histogram(c->conf.metrics, "workqueue_queue_duration_seconds", "Time from ready to work.",
                  labels, queue_buckets, ARRAY_LEN(queue_buckets));
    c->f.queue_work =
        histogram(c->conf.metrics, "workqueue_work_duration_seconds", "Time of work on a key.",
                  labels, queue_buckets, ARRAY_LEN(queue_buckets));
}

void controller_measure(struct controller *c)
{
    struct queue_stats s = queue_stats(c->queue);

    metric_set(c->depth, (double)s.depth);
    metric_set(c->unfinished, s.unfinished_s);
    metric_set(c->longest, s.longest_s);
    metric_add(c->adds, (double)(s.adds - c->adds_told));
    metric_add(c->retries, (double)(s.retries - c->retries_told));
    c->adds_told = s.adds;
    c->retries_told = s.retries;
}

/*
 * Whether the API server could not be reached or could not answer: no fault of the object, so it need
 * not wait for minutes when the server is back.
 */
static bool is_unavailable(int r)
{
    return r == -EAGAIN || r == -EIO || r == -ETIMEDOUT || r == -ECONNREFUSED || r == -ECONNRESET ||
           r == -EHOSTUNREACH || r == -ENETUNREACH || r == -EPROTO;
}

/* The words of the reference for what the API server or the network answered. */
static const char *error_type(int r)
{
    switch (-r) {
    case ENOENT:
        return "not_found";
    case EBUSY:
    case EEXIST:
        return "already_exists";
    case EINVAL:
        return "validation";
    case EACCES:
        return "forbidden";
    case ETIMEDOUT:
        return "timeout";
    default:
        return is_unavailable(r) ? "unavailable" : "internal";
    }
}

static void measure_pass(struct controller *c, const struct pass *pass, int r, double seconds)
{
    const char *kind = c->conf.kind->kind;
    const char *result = r == 0 ? "success" : r > 0 ? "requeue" : "error";

    metric_observe(metric_with(c->f.duration, kind, pass->ns, result), seconds);
    metric_add(metric_with(c->f.total, kind, pass->ns, result), 1);
    metric_add(metric_with(c->f.runtime_total, c->name, result), 1);
    if (r < 0)
        metric_add(metric_with(c->f.errors, kind, pass->ns, error_type(r)), 1);
}

/* --- passes ------------------------------------------------------------------------------------------ */

static int run_pass(struct controller *c, void *worker, const struct queue_key *key)
{
    struct pass pass = {.ns = key->ns, .name = key->name, .seen_ms = key->queued_ms};
    uint64_t began = clock_now_ns();
    double seconds;
    struct err e;
    int r;

    metric_observe(metric_with(c->f.queue_wait, c->name, c->name),
                   (double)(began / 1000000 - key->queued_ms) / 1000);
    metric_add(metric_with(c->f.runtime_active, c->name), 1);
    r = c->conf.reconcile(worker, &pass, &e);
    metric_add(metric_with(c->f.runtime_active, c->name), -1);
    seconds = (double)(clock_now_ns() - began) / 1e9;
    metric_observe(metric_with(c->f.queue_work, c->name, c->name), seconds);
    measure_pass(c, &pass, r, seconds);
    if (r < 0)
        log_warn(&LG, "pass failed, trying again", LOG_STR("kind", c->conf.kind->kind),
                 LOG_STR("namespace", key->ns), LOG_STR("name", key->name),
                 LOG_U64("failures", key->failures + 1), LOG_STR("why", e.text));
    return r;
}

static void *work(void *arg)
{
    struct worker_start start = *(struct worker_start *)arg;
    struct controller *c = start.controller;
    const struct queue_key *key;

    free(arg);
    while ((key = queue_take(c->queue))) {
        uint64_t excluded_ms = c->conf.excluded_ms(c->conf.arg, key->ns);
        int r = excluded_ms ? 0 : run_pass(c, start.worker, key);

        if (excluded_ms)
            queue_done(c->queue, key, QUEUE_AFTER, excluded_ms);
        else
            queue_done(c->queue, key, r == 0 ? QUEUE_OK : QUEUE_RETRY,
                       is_unavailable(r) ? UNAVAILABLE_MAX_MS : 0);
    }
    return NULL;
}

/* --- outside ----------------------------------------------------------------------------------------- */

struct controller *controller_new(const struct controller_conf *conf)
{
    struct controller *c = xcalloc(1, sizeof(*c));

    c->conf = *conf;
    for (size_t i = 0; conf->kind->kind[i] && i < sizeof(c->name) - 1; i++)
        c->name[i] = (char)tolower((unsigned char)conf->kind->kind[i]);
    c->queue = queue_new(now_ms);
    declare_passes(c);
    declare_queue(c);
    return c;
}

int controller_start(struct controller *c, struct err *e)
{
    for (unsigned i = 0; i < MIN(c->conf.n_workers, (unsigned)WORKERS_MAX); i++) {
        struct worker_start *start;
        int r = c->conf.worker_new(&c->workers[i], c->conf.arg, e);

        if (r < 0)
            return err_wrap(e, r, "controller %s", c->name);
        start = xmalloc(sizeof(*start));
        *start = (struct worker_start){c, c->workers[i]};
        if (pthread_create(&c->threads[i], NULL, work, start) != 0)
            abort(); /* no thread at start: nothing would work */
        c->n_threads++;
    }
    return 0;
}

struct queue *controller_queue(struct controller *c)
{
    return c->queue;
}

void controllers_stop(struct controller *const *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        queue_stop(c[i]->queue);
    for (size_t i = 0; i < n; i++) {
        for (unsigned k = 0; k < c[i]->n_threads; k++) {
            (void)pthread_join(c[i]->threads[k], NULL);
            c[i]->conf.worker_free(c[i]->workers[k]);
        }
        c[i]->n_threads = 0;
    }
}

struct controller *controller_free(struct controller *c)
{
    if (!c)
        return NULL;
    controllers_stop(&c, 1);
    (void)queue_free(c->queue);
    free(c);
    return NULL;
}
