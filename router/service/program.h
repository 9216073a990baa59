/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of dynamo-router share: options, logs, loop, signals, orderly end.
 *
 * A command is a value of struct service_program; its callbacks all run on the loop's thread.
 */
#pragma once

#include <stddef.h>

#include "lib/base/conf.h"
#include "lib/base/err.h"
#include "lib/net/loop.h"

struct service_program {
    const char *command; /* first argument: "route" */
    const char *summary; /* one line */
    const struct conf_spec *(*spec)(void);
    size_t
        conf_size; /* of the struct that the spec fills, which begins with a struct frontend_conf */
    size_t state_size; /* of what the program runs with; zeroed, and freed after `done` */
    /* @conf outlives the state; the log is set up. When it fails, `done` follows. */
    int (*start)(void *state, struct loop *l, void *conf, struct err *e);
    /* Takes nothing new, ends what runs within its own deadline, then calls @stopped. */
    void (*stop)(void *state, loop_fn stopped, void *arg);
    void (*done)(void *state);     /* also of a state that is half built */
    void (*conf_done)(void *conf); /* frees what the spec does not know of; may be NULL */
};

/* `stop` of the services whose state begins with their struct rest *. */
void service_program_stop_rest(void *state, loop_fn stopped, void *arg);

extern const struct service_program ROUTE_PROGRAM, SELECT_PROGRAM, INDEX_PROGRAM, SLOTS_PROGRAM,
    BRIDGE_PROGRAM, GLOBAL_PROGRAM;

/* Runs the command until SIGTERM or SIGINT. Returns the exit status. */
int service_program_run(const struct service_program *p, int argc, char *const *argv,
                        const char *(*env)(const char *name));
