/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own records in etcd: all under one lease, whose id names the instance (wire.md §2.3). Granted with
 * the first record, kept alive at a third of its time, revoked with the last one. A lease that ended
 * all the same (etcd was away for too long, or came back empty) is granted again under the same id,
 * and everything written anew; so the worker goes on under its name.
 *
 * One call at a time, in the order of the changes; what fails is tried again for ever. One loop.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "router/discovery/records.h"

struct etcd_client;
struct etcd_lease;

/* @client is borrowed. @ttl_s 0 = 10. @published as of struct store. */
struct etcd_lease *etcd_lease_new(struct loop *l, struct etcd_client *client, uint64_t id,
                                  uint64_t ttl_s,
                                  void (*published)(void *arg, int r, const char *why), void *arg)
    __attribute__((returns_nonnull));
/* Revokes it if it is held: blocks for a second at most. */
struct etcd_lease *etcd_lease_free(struct etcd_lease *ls);
/* Copies. */
MUST_CHECK int etcd_lease_publish(struct etcd_lease *ls, const struct record *rec, struct err *e);
void etcd_lease_withdraw(struct etcd_lease *ls, const struct record *rec);
uint64_t etcd_lease_failures(const struct etcd_lease *ls);
