/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of dynamo-bench: run, progress on stderr every five seconds, table on stdout, JSON.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct bench_conf;
struct bench_run;

/* load and trace. @conf is borrowed. Returns when the loop has something to run. */
MUST_CHECK int bench_run_new(struct bench_run **ret, struct loop *l, const struct bench_conf *conf,
                             struct err *e);
/* First call: nothing new is begun. Second: what runs is cut. The loop then stops. */
void bench_run_interrupt(struct bench_run *b);
/* After loop_run(): prints and writes. 0, or -errno. */
MUST_CHECK int bench_run_report(struct bench_run *b, struct err *e);
struct bench_run *bench_run_free(struct bench_run *b);
DEFINE_CLEANUP(struct bench_run *, bench_run_free)

MUST_CHECK int bench_compare(char *const *files, int n_files, struct err *e);
