/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/picker_inner.h"

#include <errno.h>
#include <signal.h>

#include "lib/base/log.h"
#include "router/frontend/frontend_conf.h"

static const struct log_target LG = {"commutator::epp"};

/* Files of models are loaded off the loop, and nobody tells when they are there. */
enum { LOOK_MS = 20 };

/* --- the thread -------------------------------------------------------------------------------- */

static void tell(struct picker *p, int r)
{
    (void)pthread_mutex_lock(&p->lock);
    p->ready = r == 0;
    p->failed = r < 0;
    (void)pthread_cond_signal(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
}

static void look(void *arg)
{
    struct picker *p = arg;

    if (!picker_can_route(p))
        return;
    timer_stop(p->look);
    log_info(&LG, "ready to choose", LOG_STR("namespace", p->ns),
             LOG_STR("component", p->component));
    tell(p, 0);
}

static void init_metrics(struct picker *p)
{
    struct metric_registry *r = p->serving->metrics.registry;
    const struct metric_desc bookings = {.name = "commutator_epp_bookings",
                                         .help = "Requests that add_request() has told of",
                                         .type = METRIC_GAUGE};
    const struct metric_desc refused = {.name = "commutator_epp_refused_total",
                                        .help = "Requests beyond the bound, not booked",
                                        .type = METRIC_COUNTER};

    p->bookings = metric_plain(metric_family(r, &bookings));
    p->refused = metric_plain(metric_family(r, &refused));
}

/* Always by caches, as the reference's picker does; flags go before the variable. */
static int start(struct picker *p, const struct frontend_args *args, struct err *e)
{
    int r = frontend_conf_load(&p->conf, args->argc, args->argv, args->env, e);

    if (r == 0)
        r = log_setup(p->conf.log_filter, p->conf.log_jsonl, e);
    if (r == 0)
        r = frontend_start(&p->frontend, p->loop, &p->conf, args, e);
    if (r < 0)
        return r;
    p->serving = frontend_serving(p->frontend);
    init_metrics(p);
    p->look = timer_new(p->loop, look, p);
    timer_start_repeat(p->look, LOOK_MS);
    return 0;
}

static void *live(void *arg)
{
    struct picker *p = arg;
    char name[] = "dynamo-epp", mode[] = "--router-mode=kv", prefix[] = "--namespace-prefix";
    char *const argv[] = {name, mode, prefix, p->ns, NULL};
    const struct frontend_args args = {
        .argc = ARRAY_LEN(argv) - 1, .argv = argv, .env = p->env, .embedded = true};
    int r = start(p, &args, &p->why);

    if (r < 0)
        tell(p, r);
    else
        loop_run(p->loop);
    p->look = timer_free(p->look);
    picker_drop_bookings(p);
    p->frontend = frontend_free(p->frontend);
    p->serving = NULL;
    p->loop = loop_free(p->loop);
    conf_done(&FRONTEND_CONF_SPEC, &p->conf);
    return NULL;
}

/* Signals are for the program that we are in: none is taken by our threads, nor is SIGPIPE's
 * disposition changed for it. On a thread that blocks it, a peer that left is an error code. */
static int start_thread(struct picker *p, struct err *e)
{
    struct sigaction pipe;
    sigset_t all, before;
    int r;

    (void)sigaction(SIGPIPE, NULL, &pipe);
    r = loop_new(&p->loop, e);
    (void)sigaction(SIGPIPE, &pipe, NULL);
    if (r < 0)
        return r;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&p->thread, NULL, live, p);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0)
        return 0;
    p->loop = loop_free(p->loop);
    return err_errno(e, -r, "thread");
}

/* --- life -------------------------------------------------------------------------------------- */

static int wait_until_ready(struct picker *p, struct err *e)
{
    bool failed;

    (void)pthread_mutex_lock(&p->lock);
    while (!p->ready && !p->failed)
        (void)pthread_cond_wait(&p->changed, &p->lock);
    failed = p->failed;
    (void)pthread_mutex_unlock(&p->lock);
    return failed ? err_set(e, -EINVAL, "%s", p->why.text) : 0;
}

static struct picker *release(struct picker *p)
{
    (void)pthread_cond_destroy(&p->changed);
    (void)pthread_mutex_destroy(&p->lock);
    strmap_free(p->booked);
    free(p->ns);
    free(p->component);
    free(p);
    return NULL;
}

int picker_start(struct picker **ret, const struct picker_conf *conf, struct err *e)
{
    struct picker *p = xcalloc(1, sizeof(*p));
    int r;

    p->ns = xstrdup(conf->ns);
    p->component = xstrdup(conf->component);
    p->enforce_disagg = conf->enforce_disagg;
    p->env = conf->env;
    p->booked = strmap_new();
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->changed, NULL);
    r = start_thread(p, e);
    if (r < 0) {
        release(p);
        return r;
    }
    r = wait_until_ready(p, e);
    if (r < 0) {
        (void)pthread_join(p->thread, NULL);
        release(p);
        return r;
    }
    *ret = p;
    return 0;
}

struct picker *picker_free(struct picker *p)
{
    if (!p)
        return NULL;
    loop_stop(p->loop);
    (void)pthread_join(p->thread, NULL);
    return release(p);
}

struct loop *picker_loop(const struct picker *p)
{
    return p->loop;
}
