/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is served under which path. Handlers are given the struct admin.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/net/http_server.h"

extern const struct http_route FRONTEND_ROUTES[];
/* How many of them are served. */
size_t frontend_routes(bool anthropic);
