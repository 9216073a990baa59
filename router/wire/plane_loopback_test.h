/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a caller and a listener of the TCP request plane on one loop. */
#pragma once

#include "lib/base/test.h"
#include "router/wire/plane_client.h"
#include "router/wire/plane_server.h"

/* Both are the caller's to free, before @l. */
static inline void test_planes(struct loop *l, struct plane_client **ret_client,
                               struct plane_server **ret_server)
{
    const struct plane_client_conf client = {.advertise_ip = "127.0.0.1"};
    const struct plane_server_conf server = {.host = "127.0.0.1"};
    struct err e;

    EXPECT_OK(plane_client_new(ret_client, l, &client, &e), &e);
    EXPECT_OK(plane_server_new(ret_server, l, &server, &e), &e);
}
