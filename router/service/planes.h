/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of the request plane that a router among components stands between. One loop. */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/net/loop.h"

struct nats_link;
struct plane_client;
struct plane_server;
struct route_options;

struct planes {
    struct nats_link *nats;      /* of the server; NULL on other planes */
    struct plane_server *server; /* who calls us */
    struct plane_client *client; /* whom we call */
};

/* Zeroed before. @nats_state is told whether requests can come over NATS. When it fails, planes_done(). */
MUST_CHECK int planes_start(struct planes *p, struct loop *l, const struct route_options *o,
                            void (*nats_state)(void *arg, bool up), void *arg, struct err *e);
void planes_done(struct planes *p);
