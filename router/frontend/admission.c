/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/admission.h"

#include <assert.h>

#include "lib/base/err.h"
#include "lib/base/log.h"
#include "lib/net/file.h"

static const struct log_target LG = {"commutator::frontend::admission"};

enum { RECHECK_MS = 60000, RULES_BYTES_MAX = 1 << 20 };

/* Words of the reference's metric. */
static const char *const REASONS[] = {[ROUTE_QUEUE_REQUESTS_FULL] = "request_limit",
                                      [ROUTE_QUEUE_ISL_FULL] = "raw_isl_token_limit",
                                      [ROUTE_QUEUE_CACHED_FULL] = "cached_token_limit"};
/* And of its errors. */
static const char *const KINDS[] = {[ROUTE_QUEUE_REQUESTS_FULL] = "requests",
                                    [ROUTE_QUEUE_ISL_FULL] = "raw_isl_tokens",
                                    [ROUTE_QUEUE_CACHED_FULL] = "cached_tokens"};

struct admission {
    struct admission_conf conf;
    const struct queue_profile *profile;
    struct route_queue *queue;
    bool waits;          /* some class has a threshold */
    struct timer *timer; /* runs while somebody waits */
    struct scheduler_observer observer;
};

/* --- rules -------------------------------------------------------------------------------------
 */

int admission_rules_load(struct admission_rules **ret, const struct admission_options *o,
                         struct err *e)
{
    struct admission_rules *rules = xcalloc(1, sizeof(*rules));
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r = 0;

    rules->patience_ms = o->patience_ms;
    queue_profiles_single(&rules->profiles, (enum route_queue_order)o->order, o->threshold,
                          o->max_requests);
    if (o->file) {
        r = file_read(o->file, RULES_BYTES_MAX, &text, e);
        if (r == 0)
            r = queue_profiles_parse(&rules->profiles, buf_str(&text),
                                     (enum route_queue_order)o->order, e);
    }
    if (r < 0) {
        admission_rules_free(rules);
        return err_wrap(e, r, "--router-policy-config %s", o->file);
    }
    *ret = rules;
    return 0;
}

struct admission_rules *admission_rules_free(struct admission_rules *r)
{
    if (!r)
        return NULL;
    queue_profiles_done(&r->profiles);
    free(r);
    return NULL;
}

/* --- metrics -----------------------------------------------------------------------------------
 */

void admission_metrics_init(struct admission_metrics *m, struct metric_registry *r,
                            const char *prefix)
{
    static const char *const names[][2] = {
        {"pending_requests", "Requests that wait in the router queue"},
        {"pending_isl_tokens", "Prompt tokens of the requests that wait in the router queue"},
        {"pending_cached_tokens",
         "Tokens of requests in the router queue that a worker had cached when they came"}};
    struct metric_family **const gauges[] = {&m->requests, &m->isl_tokens, &m->cached_tokens};
    AUTO(mem_free) char *refused = xasprintf("%s_router_queue_backpressure_total", prefix);
    double bounds[32];
    const struct metric_desc wait = {
        .name = "commutator_router_queue_wait_seconds",
        .help = "Time that requests waited in the router queue",
        .type = METRIC_HISTOGRAM,
        .labels = {"model", "worker_type", "policy_class"},
        .buckets = bounds,
        .n_buckets = metric_log_buckets(0.001, 480, 18, bounds),
    };

    for (size_t i = 0; i < ARRAY_LEN(gauges); i++) {
        AUTO(mem_free) char *name = xasprintf("%s_router_queue_%s", prefix, names[i][0]);
        struct metric_desc d = {.name = name,
                                .help = names[i][1],
                                .type = METRIC_GAUGE,
                                .labels = {"model", "worker_type", "policy_class"}};

        *gauges[i] = metric_family(r, &d);
    }
    m->refused = metric_family(
        r, &(struct metric_desc){.name = refused,
                                 .help = "Requests refused because their class may queue no more",
                                 .type = METRIC_COUNTER,
                                 .labels = {"model", "worker_type", "policy_class", "reason"}});
    m->wait = metric_family(r, &wait);
}

static struct metric *of_class(const struct admission *a, struct metric_family *f, size_t class)
{
    return metric_with(f, a->conf.model, a->conf.worker_type, a->profile->classes[class].name);
}

static void show_class(const struct admission *a, size_t class)
{
    struct route_queue_stats s = route_queue_stats(a->queue, class);

    metric_set(of_class(a, a->conf.metrics->requests, class), (double)s.requests);
    metric_set(of_class(a, a->conf.metrics->isl_tokens, class), (double)s.isl_tokens);
    metric_set(of_class(a, a->conf.metrics->cached_tokens, class), (double)s.cached_tokens);
}

static void count_refusal(const struct admission *a, size_t class, const char *reason)
{
    metric_add(metric_with(a->conf.metrics->refused, a->conf.model, a->conf.worker_type,
                           a->profile->classes[class].name, reason),
               1);
}

static void hold(const struct admission *a)
{
    if (a->conf.hold)
        a->conf.hold(a->conf.owner);
}

/* The admission may be gone afterwards. */
static void let_go(const struct admission *a)
{
    if (a->conf.let_go)
        a->conf.let_go(a->conf.owner);
}

/* --- going in ----------------------------------------------------------------------------------
 */

static size_t classify(struct admission *a, struct admission_ticket *t)
{
    uint64_t cached;

    if (!queue_profile_has_buckets(a->profile))
        return queue_profile_class(a->profile, t->wanted, 0);
    cached = scheduler_best_cached(a->conf.scheduler, &t->q);
    return queue_profile_class(a->profile, t->wanted, t->q.isl - cached);
}

static int park(struct admission *a, struct admission_ticket *t, size_t class, size_t n_workers)
{
    t->item.strict_priority = t->strict_priority;
    t->item.jump_s = t->jump_s;
    t->item.isl_tokens = t->q.isl;
    t->item.cached_tokens = scheduler_best_cached(a->conf.scheduler, &t->q);
    return route_queue_put(a->queue, class, &t->item, n_workers);
}

static bool must_wait(struct admission *a, const struct admission_ticket *t, size_t class)
{
    const struct queue_class *c = &a->profile->classes[class];

    return queue_class_waits(c) && (route_queue_stats(a->queue, class).requests > 0 ||
                                    !scheduler_has_room(a->conf.scheduler, &t->q, &c->limit));
}

static struct admission_refusal refusal_of(const struct admission *a, size_t class, int bound,
                                           size_t n_workers)
{
    const struct queue_class *c = &a->profile->classes[class];
    struct route_queue_stats have = route_queue_stats(a->queue, class);
    struct admission_refusal refusal = {
        .reason = REASONS[bound], .class = c->name, .kind = KINDS[bound]};

    switch (bound) {
    case ROUTE_QUEUE_REQUESTS_FULL:
        refusal.current = have.requests;
        refusal.limit = c->rule.max_requests * n_workers;
        break;
    case ROUTE_QUEUE_ISL_FULL:
        refusal.current = have.isl_tokens;
        refusal.limit = c->rule.max_isl_tokens * n_workers;
        break;
    default:
        refusal.current = have.cached_tokens;
        refusal.limit = c->rule.max_cached_tokens * n_workers;
    }
    return refusal;
}

int admission_enter(struct admission *a, struct admission_ticket *t, struct admission_refusal *ret)
{
    size_t class, n_workers = scheduler_workers(a->conf.scheduler);
    int r;

    assert(!t->in);
    if (!a->waits || (t->q.pinned && !a->conf.pins_wait))
        return 0;
    class = classify(a, t);
    if (!must_wait(a, t, class))
        return 0;
    t->item.arrival_ms = loop_now_ms(a->conf.loop);
    r = park(a, t, class, n_workers);
    if (r != 0) {
        count_refusal(a, class, REASONS[r]);
        *ret = refusal_of(a, class, r, n_workers);
        return ADMISSION_REFUSED;
    }
    t->in = a;
    hold(a);
    show_class(a, class);
    if (!timer_active(a->timer))
        timer_start(a->timer, RECHECK_MS);
    log_debug(&LG, "waits for room", LOG_VIEW("request_id", t->q.id),
              LOG_STR("class", a->profile->classes[class].name), LOG_U64("isl", t->q.isl),
              LOG_U64("waiting", route_queue_len(a->queue)));
    return ADMISSION_WAITS;
}

void admission_leave(struct admission_ticket *t)
{
    struct admission *a = t->in;

    if (!a)
        return;
    t->in = NULL;
    route_queue_remove(a->queue, &t->item);
    show_class(a, t->item.class);
    let_go(a);
}

struct route_queue_stats admission_waiting(const struct admission *a)
{
    struct route_queue_stats sum = {.requests = 0};

    for (size_t i = 0; i < a->profile->n_classes; i++) {
        struct route_queue_stats s = route_queue_stats(a->queue, i);

        sum.requests += s.requests;
        sum.isl_tokens += s.isl_tokens;
        sum.cached_tokens += s.cached_tokens;
    }
    return sum;
}

/* --- coming out --------------------------------------------------------------------------------
 */

static bool has_room(void *arg, struct route_queue_item *head)
{
    struct admission *a = arg;
    const struct admission_ticket *t = CONTAINER_OF(head, struct admission_ticket, item);

    return scheduler_has_room(a->conf.scheduler, &t->q, &a->profile->classes[head->class].limit);
}

static void send_off(struct admission *a, struct admission_ticket *t, uint64_t now_ms)
{
    t->in = NULL;
    show_class(a, t->item.class);
    metric_observe(of_class(a, a->conf.metrics->wait, t->item.class),
                   (double)(now_ms - t->item.arrival_ms) / 1000);
    let_go(a); /* drain() holds it too */
    t->go(t->arg);
}

/* One that goes is booked before the next is looked at. */
static void drain(void *arg)
{
    struct admission *a = arg;
    uint64_t now_ms = loop_now_ms(a->conf.loop);
    struct route_queue_item *item;

    hold(a); /* those that wait may be all that holds it */
    while ((item = route_queue_next(a->queue, now_ms, has_room, a)))
        send_off(a, CONTAINER_OF(item, struct admission_ticket, item), now_ms);
    if (route_queue_len(a->queue) && !timer_active(a->timer))
        timer_start(a->timer, RECHECK_MS);
    let_go(a);
}

/* In a turn of its own: whoever tells us is in the middle of something. */
void admission_wake(struct admission *a)
{
    if (route_queue_len(a->queue))
        timer_start(a->timer, 0);
}

static void on_relief(struct scheduler_observer *o, const struct booking *b)
{
    (void)b;
    admission_wake(CONTAINER_OF(o, struct admission, observer));
}

/* --- life --------------------------------------------------------------------------------------
 */

static struct route_queue *queue_for(const struct queue_profile *p, uint64_t patience_ms)
{
    struct route_queue_rule rules[ROUTE_QUEUE_CLASSES_MAX];

    for (size_t i = 0; i < p->n_classes; i++)
        rules[i] = p->classes[i].rule;
    return route_queue_new(rules, p->n_classes, patience_ms);
}

/* Empties the gauges of the classes that were, as they may not be again. */
static struct route_queue *take_queue(struct admission *a)
{
    for (size_t i = 0; a->queue && i < a->profile->n_classes; i++) {
        metric_set(of_class(a, a->conf.metrics->requests, i), 0);
        metric_set(of_class(a, a->conf.metrics->isl_tokens, i), 0);
        metric_set(of_class(a, a->conf.metrics->cached_tokens, i), 0);
    }
    return TAKE(a->queue);
}

void admission_configure(struct admission *a, const struct admission_rules *rules)
{
    AUTO(route_queue_free) struct route_queue *old = take_queue(a);
    struct route_queue_item *item;

    a->profile = queue_profile_of(&rules->profiles, a->conf.model);
    a->queue = queue_for(a->profile, rules->patience_ms);
    a->waits = false;
    for (size_t i = 0; i < a->profile->n_classes; i++) {
        a->waits |= queue_class_waits(&a->profile->classes[i]);
        show_class(a, i);
    }
    while (old && (item = route_queue_any(old))) {
        struct admission_ticket *t = CONTAINER_OF(item, struct admission_ticket, item);
        size_t class = classify(a, t);

        route_queue_remove(old, item);
        (void)!park(a, t, class, SIZE_MAX); /* so many workers that no bound is reached */
        show_class(a, class);
    }
    admission_wake(a);
}

struct admission *admission_new(const struct admission_conf *conf,
                                const struct admission_rules *rules)
{
    struct admission *a = xcalloc(1, sizeof(*a));

    a->conf = *conf;
    a->timer = timer_new(conf->loop, drain, a);
    a->observer = (struct scheduler_observer){.prefilled = on_relief, .ended = on_relief};
    scheduler_observe(conf->scheduler, &a->observer);
    admission_configure(a, rules);
    return a;
}

struct admission *admission_free(struct admission *a)
{
    if (!a)
        return NULL;
    list_remove(&a->observer.link);
    timer_free(a->timer);
    route_queue_free(a->queue);
    free(a);
    return NULL;
}
