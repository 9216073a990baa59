/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/route_conf.h"

#include <stddef.h>

const char *const ROUTE_MODE_WORDS[] = {"round-robin", "random", "kv", NULL};
