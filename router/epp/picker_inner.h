/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a picker, for its two files: life (picker.c) and choosing (picker_route.c).
 */
#pragma once

#include "lib/base/strmap.h"
#include "router/epp/own_thread.h"
#include "router/epp/picker.h"
#include "router/frontend/frontend.h"
#include "router/frontend/serving.h"
#include "router/service/system_options.h"

enum { PICKER_ARGS_MAX = 12 };

struct picker_options {
    struct system_options system;
};

struct picker {
    char *ns, *component, *model; /* model NULL = any */
    bool enforce_disagg;
    const char *(*env)(const char *name);
    char *argv[PICKER_ARGS_MAX + 1];
    int argc;
    struct own_thread own;

    /* Of the loop's thread. */
    struct frontend_conf conf;
    struct picker_options options;
    struct frontend *frontend; /* NULL: it has not begun, or has ended */
    struct serving *serving;
    struct system_server *system; /* NULL: nobody asked for it */
    struct strmap *booked;        /* request id -> struct booked */
    struct timer *look;           /* until it is ready */
    struct metric *bookings, *refused;
};

/* Whether a request could be routed now. */
bool picker_can_route(const struct picker *p);
void picker_drop_bookings(struct picker *p);
