/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engine a worker runs, from its command. Source: operator.md §2.9. Pure.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json_tree.h"

/*
 * The engine that @container starts ("python3 -m dynamo.vllm": "vllm"), or NULL. Constant text.
 */
const char *framework_detect(const struct json *container);
/* Whether @container starts a Python module of that name, directly or in a shell's text. */
bool framework_runs_module(const struct json *container, const char *module);
/*
 * *ret is what the spec names, else what the command shows, else NULL; -EINVAL when they differ.
 */
MUST_CHECK int framework_of(const char **ret, const struct json *spec, const struct json *container,
                            struct err *e);
