/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was read says the same after writing it and reading it again.
 */
#include <stdlib.h>
#include <string.h>

#include "router/wire/indexer_query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same_hashes(const uint64_t *a, size_t n, const uint64_t *b, size_t m)
{
    return n == m && (n == 0 || memcmp(a, b, n * sizeof(*a)) == 0);
}

static void check_query(struct str json)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0}, other = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct indexer_query q, again;

    if (indexer_query_parse(&r, json, &q, NULL) < 0)
        return;
    indexer_query_put(&out, &q);
    if (indexer_query_parse(&other, buf_str(&out), &again, NULL) < 0)
        abort();
    if (!str_eq(q.model, again.model) || q.device_only != again.device_only ||
        !same_hashes(q.local, q.n_blocks, again.local, again.n_blocks))
        abort();
}

static void check_decision(struct str json)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0}, other = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct indexer_decision d, again;

    if (indexer_decision_parse(&r, json, &d, NULL) < 0)
        return;
    indexer_decision_put(&out, &d);
    if (indexer_decision_parse(&other, buf_str(&out), &again, NULL) < 0)
        abort();
    if (!str_eq(d.model, again.model) || d.worker_id != again.worker_id ||
        d.dp_rank != again.dp_rank ||
        !same_hashes(d.local, d.n_blocks, again.local, again.n_blocks) ||
        !same_hashes(d.sequence, d.n_blocks, again.sequence, again.n_blocks))
        abort();
}

static void check_answer(struct str json)
{
    AUTO(indexer_reader_done) struct indexer_reader r = {0}, other = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct indexer_answer a, again;

    if (indexer_answer_parse(&r, json, &a, NULL) < 0)
        return;
    for (size_t i = 0; i < a.n_hits; i++)
        if (a.hits[i].tier == KV_TIER_DEVICE && i && a.hits[i - 1].tier != KV_TIER_DEVICE)
            return; /* in an order that is never written */
    indexer_answer_put(&out, &a);
    if (indexer_answer_parse(&other, buf_str(&out), &again, NULL) < 0)
        abort();
    if (a.kind != again.kind || a.n_hits != again.n_hits || !str_eq(a.error, again.error))
        abort();
    for (size_t i = 0; i < a.n_hits; i++)
        if (a.hits[i].worker_id != again.hits[i].worker_id ||
            a.hits[i].dp_rank != again.hits[i].dp_rank || a.hits[i].tier != again.hits[i].tier ||
            a.hits[i].blocks != again.hits[i].blocks)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str json = str_slice(data, size);

    check_query(json);
    check_decision(json);
    check_answer(json);
    return 0;
}
