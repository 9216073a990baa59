/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the system server of a program is told, in the names of Dynamo's runtime (DYN_SYSTEM_…): the
 * rows are in system_options.inc. Pure.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"

/* Strings are owned by who loads the table. */
struct system_options {
    char *port_text, *host;
    char *health_path, *live_path;
    int starting; /* enum system_starting */
    /* Derived. */
    int port; /* -1 = no server, 0 = a free one */
};

enum system_starting { SYSTEM_STARTS_NOTREADY, SYSTEM_STARTS_READY };
extern const char *const SYSTEM_STARTING_WORDS[];

/* A worker's is at most 32767: the reference's variable has 16 bits, with a sign. */
enum { SYSTEM_PORT_MAX = 65535, SYSTEM_PORT_WORKER_MAX = 32767 };

/* Fills what is derived. -EINVAL names the variable that is wrong, in words. */
MUST_CHECK int system_options_derive(struct system_options *o, int port_max, struct err *e);
