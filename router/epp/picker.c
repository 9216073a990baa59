/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/picker_inner.h"

#include <assert.h>
#include <errno.h>

#include "lib/base/log.h"
#include "router/frontend/frontend_conf.h"
#include "router/service/system_server.h"

static const struct log_target LG = {"commutator::epp"};

/* Files of models are loaded off the loop, and nobody tells when they are there. */
enum { LOOK_MS = 20 };

#define AT(member) offsetof(struct picker_options, member)
/* Beside the frontend's. */
static const struct conf_field OWN[] = {
#include "router/service/system_options.inc"
};
static const struct conf_spec OWN_SPEC = {
    .program = "endpoint picker", .fields = OWN, .n_fields = ARRAY_LEN(OWN)};

/* --- the thread -------------------------------------------------------------------------------- */

static void look(void *arg)
{
    struct picker *p = arg;

    if (!picker_can_route(p))
        return;
    timer_stop(p->look);
    log_info(&LG, "ready to choose", LOG_STR("namespace", p->ns),
             LOG_STR("component", p->component));
    own_thread_up(&p->own);
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

static bool is_ready(void *arg)
{
    return picker_can_route(arg);
}

static void measure(void *arg)
{
    struct picker *p = arg;

    frontend_measure(p->frontend);
}

/* One port for what may be several routers of a program: the first has it. */
static int start_system(struct picker *p, struct err *e)
{
    struct system_server_conf conf = {.options = &p->options.system,
                                      .ns = p->ns,
                                      .component = p->component,
                                      .endpoint = "epp",
                                      .metrics = p->serving->metrics.registry,
                                      .ready = is_ready,
                                      .measure = measure,
                                      .arg = p};
    int r = conf_load(&OWN_SPEC, &p->options, 1, p->argv, p->env, e);

    if (r == 0)
        r = system_options_derive(&p->options.system, SYSTEM_PORT_MAX, e);
    if (r == 0 && system_server_start(&p->system, p->own.loop, &conf, e) < 0)
        log_warn(&LG, "no /metrics of this router", LOG_STR("why", e->text));
    return r;
}

/* Flags go before variables. */
static int start(struct picker *p, const struct frontend_args *args, struct err *e)
{
    int r = frontend_conf_load(&p->conf, args->argc, args->argv, args->env, e);

    if (r == 0)
        r = log_setup(p->conf.log_filter, p->conf.log_jsonl, e);
    if (r == 0)
        r = frontend_start(&p->frontend, p->own.loop, &p->conf, args, e);
    if (r < 0)
        return r;
    p->serving = frontend_serving(p->frontend);
    init_metrics(p);
    r = start_system(p, e);
    if (r < 0)
        return r;
    log_info(&LG, "waiting for a model to choose for", LOG_STR("namespace", p->ns),
             LOG_STR("component", p->component), LOG_STR("model", p->model ? p->model : "any"));
    p->look = timer_new(p->own.loop, look, p);
    timer_start_repeat(p->look, LOOK_MS);
    return 0;
}

static void *live(void *arg)
{
    struct picker *p = arg;
    const struct frontend_args args = {
        .argc = p->argc, .argv = p->argv, .env = p->env, .embedded = true};
    struct err e;
    int r = start(p, &args, &e);

    if (r < 0)
        own_thread_fail(&p->own, r, &e);
    else
        loop_run(p->own.loop);
    p->look = timer_free(p->look);
    p->system = system_server_free(p->system);
    picker_drop_bookings(p);
    p->frontend = frontend_free(p->frontend);
    p->serving = NULL;
    conf_done(&FRONTEND_CONF_SPEC, &p->conf);
    conf_done(&OWN_SPEC, &p->options);
    return NULL;
}

/* --- life -------------------------------------------------------------------------------------- */

static struct picker *release(struct picker *p)
{
    strmap_free(p->booked);
    for (int i = 0; i < p->argc; i++)
        free(p->argv[i]);
    free(p->ns);
    free(p->component);
    free(p->model);
    free(p);
    return NULL;
}

static void put_args(struct picker *p, const char *const *flags)
{
    p->argv[p->argc++] = xstrdup("dynamo-epp");
    p->argv[p->argc++] = xasprintf("--namespace-prefix=%s", p->ns);
    for (; *flags && p->argc < PICKER_ARGS_MAX; flags++)
        p->argv[p->argc++] = xstrdup(*flags);
    assert(!*flags);
}

int picker_start(struct picker **ret, const struct picker_conf *conf, struct err *e)
{
    struct picker *p = xcalloc(1, sizeof(*p));
    int r;

    p->ns = xstrdup(conf->ns);
    p->component = xstrdup(conf->component);
    p->model = conf->model ? xstrdup(conf->model) : NULL;
    p->enforce_disagg = conf->enforce_disagg;
    p->env = conf->env;
    p->booked = strmap_new();
    put_args(p, conf->flags);
    r = own_thread_start(&p->own, live, p, e);
    if (r < 0) {
        release(p);
        return r;
    }
    r = own_thread_wait(&p->own, e);
    if (r < 0) {
        picker_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

struct picker *picker_free(struct picker *p)
{
    if (!p)
        return NULL;
    own_thread_join(&p->own);
    return release(p);
}

struct loop *picker_loop(const struct picker *p)
{
    return p->own.loop;
}
