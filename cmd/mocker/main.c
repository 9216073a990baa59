/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dynamo-mocker: a worker without a GPU.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/log.h"
#include "lib/net/loop.h"
#include "lib/net/tcp.h"
#include "worker/mocker.h"
#include "worker/mocker_conf.h"

struct process {
    struct loop *loop;
    struct mocker *mocker;
};

static const char *environment(const char *name)
{
    return getenv(name);
}

static void on_stopped(void *arg)
{
    struct process *p = arg;

    loop_stop(p->loop);
}

static void on_signal(void *arg)
{
    struct process *p = arg;

    mocker_stop(p->mocker, on_stopped, p);
}

static int run(const struct mocker_conf *conf, struct err *e)
{
    AUTO(loop_free) struct loop *loop = NULL;
    AUTO(mocker_free) struct mocker *mocker = NULL;
    struct process p;
    int r = log_setup(conf->log_filter, conf->log_jsonl, e);

    tcp_raise_limit();
    if (r == 0)
        r = loop_new(&loop, e);
    p = (struct process){.loop = loop};
    /* First: who finds our records may end us at once, and then they shall go. */
    if (r == 0)
        r = loop_on_signal(loop, SIGTERM, on_signal, &p, e);
    if (r == 0)
        r = loop_on_signal(loop, SIGINT, on_signal, &p, e);
    if (r == 0)
        r = mocker_start(&mocker, loop, conf, e);
    p.mocker = mocker;
    if (r == 0)
        loop_run(loop);
    return r;
}

int main(int argc, char **argv)
{
    AUTO(mocker_conf_done) struct mocker_conf conf;
    struct err e;
    int r = mocker_conf_load(&conf, argc, argv, environment, &e);

    if (r == CONF_HELP) {
        conf_print_help(&MOCKER_SPEC, stdout);
        return 0;
    }
    if (r == CONF_VERSION) {
        printf("dynamo-mocker %s\n", COMMUTATOR_VERSION);
        return 0;
    }
    if (r == 0)
        r = run(&conf, &e);
    if (r < 0)
        (void)fprintf(stderr, "dynamo-mocker: %s\n", e.text);
    return r < 0 ? 1 : 0;
}
