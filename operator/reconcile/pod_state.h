/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps a pod from running, in one sentence for a status. Pure.
 */
#pragma once

#include "lib/base/json_tree.h"

/*
 * "Unschedulable: 0/1 nodes are available: …", "CrashLoopBackOff: …"; NULL when nothing is wrong that
 * a person would have to look at (being created is no reason). Owned.
 */
char *pod_waiting(const struct json *pod);
