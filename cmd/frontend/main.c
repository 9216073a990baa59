/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/err.h"
#include "lib/base/log.h"
#include "lib/net/loop.h"
#include "lib/net/tcp.h"
#include "router/frontend/frontend.h"
#include "router/frontend/frontend_conf.h"

static const struct log_target LG = {"commutator::frontend"};

struct process {
    struct loop *loop;
    struct frontend *frontend;
};

static const char *env(const char *name)
{
    return getenv(name);
}

static void on_stopped(void *arg)
{
    loop_stop(((struct process *)arg)->loop);
}

static void on_terminate(void *arg)
{
    struct process *p = arg;

    log_info(&LG, "told to stop");
    frontend_stop(p->frontend, on_stopped, p);
}

static int serve(const struct frontend_conf *conf, const struct frontend_args *args, struct err *e)
{
    AUTO(loop_free) struct loop *loop = NULL;
    AUTO(frontend_free) struct frontend *frontend = NULL;
    struct process p;
    int r;

    tcp_raise_limit();
    r = loop_new(&loop, e);
    p = (struct process){.loop = loop};
    /* First: who finds us may end us at once, and that shall be a clean end. */
    if (r == 0)
        r = loop_on_signal(loop, SIGTERM, on_terminate, &p, e);
    if (r == 0)
        r = loop_on_signal(loop, SIGINT, on_terminate, &p, e);
    if (r == 0)
        r = frontend_start(&frontend, loop, conf, args, e);
    p.frontend = frontend;
    if (r < 0)
        return r;
    loop_run(loop);
    log_info(&LG, "stopped");
    return 0;
}

int main(int argc, char **argv)
{
    struct frontend_conf conf = {0};
    struct frontend_args args = {.argc = argc, .argv = argv, .env = env};
    struct err e;
    int r = frontend_conf_load(&conf, argc, argv, env, &e);

    if (r == CONF_HELP) {
        conf_print_help(&FRONTEND_CONF_SPEC, stdout);
    } else if (r == CONF_VERSION) {
        puts("dynamo-frontend " COMMUTATOR_VERSION);
    } else {
        if (r == 0)
            r = log_setup(conf.log_filter, conf.log_jsonl, &e);
        if (r == 0)
            r = serve(&conf, &args, &e);
        if (r < 0)
            fprintf(stderr, "dynamo-frontend: %s\n", e.text);
    }
    conf_done(&FRONTEND_CONF_SPEC, &conf);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
