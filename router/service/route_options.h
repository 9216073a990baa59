/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of `dynamo-router route`, in the names of `python -m dynamo.router` of both generations
 * (router.md §6.2, 6.3). Every routing, discovery and request-plane option of the frontend is one of
 * them, from the frontend's own table.
 */
#pragma once

#include <stdint.h>

#include "lib/base/conf.h"
#include "lib/base/err.h"
#include "router/frontend/frontend_conf.h"
#include "router/service/system_options.h"

struct route_options {
    struct frontend_conf base; /* first: the frontend's rows address it by offset */
    char *endpoint_text;
    uint64_t block_size;
    struct system_options system;
    uint64_t tcp_port, http_port;
    char *http_host, *http_root;
    char *worker_suffix;
    /* Derived. */
    char *ns;                               /* under which this router registers */
    char *worker_ns, *component, *endpoint; /* of the workers */
};

/* "namespace.component.endpoint", "dyn://" before it or not; views of the text. */
struct endpoint_name {
    struct str ns, component, endpoint;
};
MUST_CHECK int endpoint_name_parse(const char *text, struct endpoint_name *ret, struct err *e);

const struct conf_spec *route_options_spec(void);
/* Fills what is derived. -EINVAL with what is wrong. */
MUST_CHECK int route_options_derive(struct route_options *o, struct err *e);
void route_options_done(struct route_options *o); /* what is derived */
