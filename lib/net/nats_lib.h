/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nats_link.c sets up in the library. Internal: names nats.c's types.
 */
#pragma once

#include <nats/nats.h>

#include "lib/net/nats_link.h"

/* Once for the process; it stays open until that ends. */
void nats_lib_open(void);
/* All but callbacks. */
natsStatus nats_lib_options(natsOptions *o, const struct nats_link_conf *conf);
