/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of `dynamo-router` `select`, `index` and `slots`, in the names of the reference's
 * `python -m dynamo.select_service` and `python -m dynamo.indexer` (router.md §8.2, 8.3). Those that
 * decide about routing and logs come from the frontend's table.
 */
#pragma once

#include <stdint.h>

#include "lib/base/conf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/frontend/frontend_conf.h"

struct http_options {
    struct frontend_conf base; /* first: the frontend's rows address it by offset */
    char *host;
    uint64_t port, threads;
    char *peers;
    /* select, slots */
    uint64_t replica_port;
    char *replica_peers;
    /* select */
    uint64_t cache_ttl_ms, cache_entries, cache_bytes;
    /* index */
    uint64_t block_size;
    char *workers, *model_name, *routing_group;
    char *access_log, *trace_id_header;
    bool access_log_local, test_endpoints;
};

const struct conf_spec *select_options_spec(void);
/* Reads the policy file. -EINVAL with what is wrong there. */
MUST_CHECK int select_options_derive(struct http_options *o, struct err *e);
const struct conf_spec *index_options_spec(void);
const struct conf_spec *slots_options_spec(void);
