/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restarts that a user asks for with spec.restart: which components get the mark
 * nvidia.com/restartAt now, and how far it has come.
 *
 * All at once, or one after another in the user's order (by name without one), each when the one
 * before is ready again. Without memory: the marks on the components and their readiness tell.
 * Source: operator.md §2.11 and the traces of updates.jsonl. Pure.
 */
#pragma once

#include "lib/base/json_tree.h"

/*
 * {"<service>": "<id>"} for every service that has a mark, old or new; @components is
 * {"<name>": DynamoComponentDeployment} as stored, NULL when nothing is known. Owned.
 */
struct json *restart_marks(const struct json *dgd, const struct json *components)
    __attribute__((returns_nonnull));
/* status.restart: {observedID, phase, inProgress}; NULL when no restart is asked for. Owned. */
struct json *restart_status(const struct json *dgd, const struct json *components);
