/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a trace on a fixed schedule: each request leaves at its time, however the server does.
 *
 * The file is read as it is played. At most `in_flight_max` requests are under way; those that find
 * no room are sent as soon as there is some, and counted as late. One loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/load/score.h"
#include "lib/base/err.h"
#include "lib/net/loop.h"

struct replay;

struct replay_conf {
    struct http_client *http;
    const char *url; /* of the server, without path */
    const char *model;
    FILE *file;            /* borrowed; lines of JSON */
    double speed;          /* 2 = twice as fast; above 0 */
    uint64_t requests_max; /* 0 = all */
    uint64_t in_flight_max;
    uint64_t input_max; /* longer prompts are left out, and counted; 0 = none */
    uint32_t token_first, token_last;
    uint64_t timeout_ms;
    bool ignore_eos, want_worker;
    /* All is answered, or replay_stop() took effect; @why is not NULL when the trace is at fault.
     */
    void (*done)(void *arg, const char *why);
    void *arg;
};

struct replay *replay_start(struct loop *l, const struct replay_conf *conf, struct score *score)
    __attribute__((returns_nonnull));
void replay_stop(struct replay *rp); /* nothing more is sent */
struct replay *replay_free(struct replay *rp);
DEFINE_CLEANUP(struct replay *, replay_free)
size_t replay_running(const struct replay *rp);
uint64_t replay_late(const struct replay *rp);
uint64_t replay_left_out(const struct replay *rp);
