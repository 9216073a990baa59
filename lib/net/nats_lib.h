/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nats_link.c sets up in the library. Internal: names nats.c's types.
 */
#pragma once

#include <nats/nats.h>

#include "lib/net/nats_key.h"
#include "lib/net/nats_link.h"

/* Once for the process; it stays open until that ends. */
void nats_lib_open(void);
/* All but callbacks. @key is the one that @conf names, or none; it is the caller's, and stays as long as
 * the connection lives. */
natsStatus nats_lib_options(natsOptions *o, const struct nats_link_conf *conf,
                            const struct nats_key *key);
