/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of `dynamo-router global`, in the names of `python -m dynamo.global_router` of 1.6.1, with those
 * of discovery and the request plane that the other routers have.
 */
#pragma once

#include "lib/base/conf.h"
#include "router/service/route_options.h"

struct global_options {
    struct route_options
        route; /* first: its rows address it by offset; of it only what this spec lists */
    char *pools_file;
    char *component;
    double ttft_ms, itl_ms; /* NAN = none */
};

const struct conf_spec *global_options_spec(void);
/* Fills what is derived. -EINVAL with what is wrong. */
MUST_CHECK int global_options_derive(struct global_options *o, struct err *e);
void global_options_done(struct global_options *o); /* what is derived */
