/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/program.h"

#include <signal.h>
#include <stdio.h>

#include "lib/base/log.h"
#include "lib/net/tcp.h"
#include "router/frontend/frontend_conf.h"
#include "router/service/rest.h"

struct process {
    const struct service_program *program;
    struct loop *loop;
    void *state;
};

static void on_stopped(void *arg)
{
    loop_stop(((struct process *)arg)->loop);
}

static void on_signal(void *arg)
{
    struct process *p = arg;

    p->program->stop(p->state, on_stopped, p);
}

void service_program_stop_rest(void *state, loop_fn stopped, void *arg)
{
    rest_stop(*(struct rest **)state, stopped, arg);
}

static int run(struct process *p, void *conf, struct err *e)
{
    /* First: who finds us may end us at once, and that shall be a clean end. */
    int r = loop_on_signal(p->loop, SIGTERM, on_signal, p, e);

    if (r == 0)
        r = loop_on_signal(p->loop, SIGINT, on_signal, p, e);
    if (r < 0)
        return r; /* `done` is for what `start` has begun */
    r = p->program->start(p->state, p->loop, conf, e);
    if (r == 0)
        loop_run(p->loop);
    p->program->done(p->state);
    return r;
}

static int serve(const struct service_program *program, void *conf, struct err *e)
{
    AUTO(loop_free) struct loop *loop = NULL;
    AUTO(mem_free) void *state = xcalloc(1, program->state_size);
    const struct frontend_conf *base = conf;
    int r = log_setup(base->log_filter, base->log_jsonl, e);

    tcp_raise_limit();
    if (r == 0)
        r = loop_new(&loop, e);
    return r < 0 ? r : run(&(struct process){program, loop, state}, conf, e);
}

int service_program_run(const struct service_program *p, int argc, char *const *argv,
                        const char *(*env)(const char *name))
{
    AUTO(mem_free) void *conf = xcalloc(1, p->conf_size);
    const struct conf_spec *spec = p->spec();
    struct err e;
    int r = conf_load(spec, conf, argc, argv, env, &e);

    if (r == CONF_HELP)
        conf_print_help(spec, stdout);
    else if (r == CONF_VERSION)
        printf("%s %s\n", spec->program, COMMUTATOR_VERSION);
    else if (r == 0)
        r = serve(p, conf, &e);
    if (r < 0)
        (void)fprintf(stderr, "%s: %s\n", spec->program, e.text);
    if (p->conf_done)
        p->conf_done(conf);
    conf_done(spec, conf);
    return r < 0 ? 1 : 0;
}
