/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery records of one worker: its endpoints, the channels of its events, where 1.x finds them,
 * its card. Strings that it is given must outlive it. One loop.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/discovery/records.h"

struct event_channel_info;
struct json_put;
struct model_card;
struct plane_server;
struct store;

/* Embedded by value; whose they are is set before the first is added. */
struct worker_records {
    struct plane_server *plane; /* borrowed */
    const char *ns, *component, *endpoint;
    uint64_t worker_id;
    /* Derived. */
    struct worker_record *all;
    size_t n;
};

void worker_records_done(struct worker_records *r);

/* It is at @name of the component. */
void worker_records_add_endpoint(struct worker_records *r, const char *name);
void worker_records_add_channel(struct worker_records *r, const struct event_channel_info *ch);
/* KV events of a rank; the endpoint that was added last answers for what was missed. */
void worker_records_add_source(struct worker_records *r, uint32_t dp_rank, uint64_t publisher_id);
void worker_records_add_card(struct worker_records *r, const struct model_card *card);

MUST_CHECK int worker_records_publish(const struct worker_records *r, struct store *s,
                                      struct err *e);
void worker_records_withdraw(const struct worker_records *r, struct store *s);
/* Members of the Kubernetes record's maps (wire.md §2.6): all records of one kind. */
void worker_records_put(const struct worker_records *r, enum record_kind kind, struct json_put *j);
/* Of its first endpoint. */
struct str worker_records_address(const struct worker_records *r);
