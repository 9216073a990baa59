/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A router's index as a service of its own: what 1.x asks and writes on the request plane
 * (captured from ai-dynamo 1.6.1, both roles).
 *
 * Endpoints stand in the component of the workers that the index is of. A router that follows KV
 * events serves the first alone, one that goes by what is routed serves both.
 *
 *     kv_indexer_query                    {"model_name":s,"block_hashes":[u64],"device_only":bool}
 *       ─▶ {"TieredScores":{"device":{"scores":[[WORKER,blocks],…],"frequencies":[]},
 *                           "lower_tier":[[TIER,{"hits":[[WORKER,blocks],…]}],…]}}
 *     kv_indexer_record_routing_decision  {"model_name":s,"worker":WORKER,"local_hashes":[u64],
 *                                          "sequence_hashes":[u64]}
 *       ─▶ "Recorded"
 *     both ─▶ {"Error":s}                 WORKER = {"worker_id":u64,"dp_rank":u32}
 *
 * Hashes are block_hash_local() and block_hash_sequence(). Blocks of a lower tier ("host_pinned",
 * "disk", "external") count from where the faster ones end. An answer is one item without annotation,
 * as those to recovery queries. Without device_only (until 1.2) tiers are wanted. 1.6.1 speaks MessagePack to who
 * registers so, JSON to others; here it is JSON in both directions. Readers hand out views of the
 * reader, valid until its next call. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/kv_event.h"

struct err;

#define INDEXER_QUERY_ENDPOINT "kv_indexer_query"
#define INDEXER_RECORD_ENDPOINT "kv_indexer_record_routing_decision"

enum {
    INDEXER_BLOCKS_MAX = 1 << 20, /* of one prompt */
    INDEXER_HITS_MAX = 1 << 18,   /* of one answer, all tiers */
};

struct indexer_query {
    struct str model;
    const uint64_t *local;
    size_t n_blocks;
    bool device_only;
};

struct indexer_hit {
    uint64_t worker_id;
    uint32_t dp_rank;
    enum kv_tier tier;
    uint32_t blocks; /* beyond those of faster tiers */
};

struct indexer_decision {
    struct str model;
    uint64_t worker_id;
    uint32_t dp_rank;
    const uint64_t *local, *sequence; /* n_blocks each */
    size_t n_blocks;
};

enum indexer_answer_kind {
    INDEXER_ANSWER_HITS,
    INDEXER_ANSWER_RECORDED,
    INDEXER_ANSWER_ERROR,
};

struct indexer_answer {
    enum indexer_answer_kind kind;
    const struct indexer_hit *hits; /* HITS: device first, each tier in the order of the answer */
    size_t n_hits;
    struct str error; /* ERROR */
};

/* Memory of readers; zero-initialise, reuse. */
struct indexer_reader {
    struct buf scratch;
    uint64_t *local, *sequence;
    size_t n_local, n_sequence, cap_local, cap_sequence;
    struct indexer_hit *hits;
    size_t n_hits, cap_hits;
};
void indexer_reader_done(struct indexer_reader *r);
DEFINE_CLEANUP_EMBEDDED(struct indexer_reader, indexer_reader_done)

/* All: -EINVAL, or -EMSGSIZE above a bound. */
MUST_CHECK int indexer_query_parse(struct indexer_reader *r, struct str json,
                                   struct indexer_query *ret, struct err *e);
MUST_CHECK int indexer_decision_parse(struct indexer_reader *r, struct str json,
                                      struct indexer_decision *ret, struct err *e);
MUST_CHECK int indexer_answer_parse(struct indexer_reader *r, struct str json,
                                    struct indexer_answer *ret, struct err *e);

void indexer_query_put(struct buf *out, const struct indexer_query *q);
void indexer_decision_put(struct buf *out, const struct indexer_decision *d);
/* Hits of one tier stand together, device first. */
void indexer_answer_put(struct buf *out, const struct indexer_answer *a);
