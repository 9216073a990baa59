/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a picker, for its two files: life (picker.c) and choosing (picker_route.c).
 */
#pragma once

#include <pthread.h>

#include "lib/base/strmap.h"
#include "router/epp/picker.h"
#include "router/frontend/frontend.h"
#include "router/frontend/serving.h"

struct picker {
    char *ns, *component;
    bool enforce_disagg;
    const char *(*env)(const char *name);
    pthread_t thread;
    struct loop *loop;

    /* Of the loop's thread. */
    struct frontend_conf conf;
    struct frontend *frontend; /* NULL: it has not begun, or has ended */
    struct serving *serving;
    struct strmap *booked; /* request id -> struct booked */
    struct timer *look;    /* until it is ready */
    struct metric *bookings, *refused;

    /* What the starter waits for. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ready, failed;
    struct err why;
};

/* Whether a request could be routed now. */
bool picker_can_route(const struct picker *p);
void picker_drop_bookings(struct picker *p);
