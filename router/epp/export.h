/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the C interface have in common: its functions are seen outside the library, and the
 * process's own variables configure it.
 */
#pragma once

#include <stdbool.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

static inline const char *export_env(const char *name)
{
    return getenv(name);
}
/* What the reference makes of a component's name. */
static inline const char *export_component(const char *text)
{
    return text && *text ? text : "backend";
}
/* Between a dynamo_llm_init() that was OK and dynamo_llm_shutdown(). Any thread. */
bool llm_engine_is_up(void);
