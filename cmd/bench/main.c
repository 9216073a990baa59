/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dynamo-bench: load, trace replay, comparison of results, and replay of routing decisions.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/decisions/decision_file.h"
#include "bench/load/bench_conf.h"
#include "bench/load/bench_run.h"
#include "lib/net/loop.h"

enum { EXIT_INTERRUPTED = 130 };

static bool interrupted;

static const char *environment(const char *name)
{
    return getenv(name);
}

static void on_signal(void *arg)
{
    interrupted = true;
    bench_run_interrupt(arg);
}

static int run(const struct bench_conf *conf, struct err *e)
{
    AUTO(loop_free) struct loop *loop = NULL;
    AUTO(bench_run_free) struct bench_run *bench = NULL;
    int r = loop_new(&loop, e);

    if (r == 0)
        r = bench_run_new(&bench, loop, conf, e);
    if (r == 0)
        r = loop_on_signal(loop, SIGINT, on_signal, bench, e);
    if (r == 0)
        r = loop_on_signal(loop, SIGTERM, on_signal, bench, e);
    if (r < 0)
        return r;
    loop_run(loop);
    return bench_run_report(bench, e);
}

static int decisions(const struct bench_conf *conf, struct err *e)
{
    struct decision_question question = {.overlap_weight = conf->overlap_weight,
                                         .temperature = conf->temperature};

    if (conf->policy) {
        question.policy = policy_find(str_from(conf->policy));
        if (!question.policy)
            return err_set(e, -EINVAL, "--policy: no policy is called '%s'", conf->policy);
    }
    return decision_replay_run(conf->replay, &question, conf->json, stdout, e);
}

static int run_command(const struct bench_conf *conf, struct err *e)
{
    switch (conf->command) {
    case BENCH_COMPARE:
        return bench_compare(conf->runs, conf->n_runs, e);
    case BENCH_DECISIONS:
        return decisions(conf, e);
    case BENCH_LOAD:
    case BENCH_TRACE:
    case BENCH_HELP:
        break;
    }
    return run(conf, e);
}

int main(int argc, char **argv)
{
    AUTO(bench_conf_done) struct bench_conf conf;
    struct err e;
    int r = bench_conf_load(&conf, argc, argv, environment, &e);

    if (r == CONF_HELP) {
        bench_conf_print_help(&conf, stdout);
        return 0;
    }
    if (r == CONF_VERSION) {
        printf("dynamo-bench %s\n", COMMUTATOR_VERSION);
        return 0;
    }
    if (r == 0)
        r = run_command(&conf, &e);
    if (r < 0)
        (void)fprintf(stderr, "dynamo-bench: %s\n", e.text);
    return r < 0 ? 1 : interrupted ? EXIT_INTERRUPTED : 0;
}
