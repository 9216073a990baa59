/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is served under which path. Handlers are given the struct admin.
 */
#pragma once

#include "lib/base/arena.h"
#include "lib/net/http_server.h"
#include "router/frontend/frontend_conf.h"

/* *@ret_n of them; they and their paths live in @a. */
struct http_route *frontend_routes(const struct frontend_conf *c, struct arena *a, size_t *ret_n);
