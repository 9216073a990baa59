/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/overlap_scores.h"

static void put_row(struct json_put *j, const struct route_candidate *k, bool shared)
{
    json_put_object(j);
    json_put_member_u64(j, "worker_id", k->worker.worker_id);
    json_put_member_u64(j, "dp_rank", k->worker.dp_rank);
    json_put_member_u64(j, "device_blocks", k->overlap_blocks);
    json_put_member_u64(j, "host_pinned_blocks", (uint64_t)k->overlap_blocks + k->host_blocks);
    json_put_member_u64(j, "disk_blocks",
                        (uint64_t)k->overlap_blocks + k->host_blocks + k->disk_blocks);
    json_put_member_u64(j, "host_pinned_extension_blocks", k->host_blocks);
    json_put_member_u64(j, "disk_extension_blocks", k->disk_blocks);
    json_put_key(j, "shared_beyond_device_blocks");
    if (shared)
        json_put_u64(j, k->shared_blocks);
    else
        json_put_null(j);
    json_put_object_end(j);
}

static void put_range(struct json_put *j, uint32_t from, uint32_t to)
{
    json_put_array(j);
    json_put_u64(j, from);
    json_put_u64(j, to);
    json_put_array_end(j);
}

/* [from, to) of each run of pages that are there. */
static void put_ranges(struct json_put *j, const struct shared_hits *h)
{
    uint32_t n = h ? h->n_pages : 0, begin = 0;
    bool inside = false;

    json_put_array(j);
    for (uint32_t i = 0; i <= n; i++) {
        bool there = i < n && h->from[i] > h->from[i + 1];

        if (there && !inside)
            begin = i;
        else if (!there && inside)
            put_range(j, begin, i);
        inside = there;
    }
    json_put_array_end(j);
}

/* Nobody is asked over the network, so that nothing can go wrong. */
static void put_shared(struct json_put *j, const struct overlap_shared *s)
{
    json_put_object(j);
    json_put_member_bool(j, "enabled", s->enabled);
    json_put_member_u64(j, "total_hit_blocks", s->hits ? shared_hits_from(s->hits, 0) : 0);
    json_put_key(j, "ranges");
    put_ranges(j, s->hits);
    json_put_key(j, "error");
    json_put_null(j);
    json_put_object_end(j);
}

void overlap_scores_put(struct json_put *j, uint32_t block_size, size_t n_blocks,
                        const struct overlap_shared *shared, const struct route_decision *d)
{
    json_put_object(j);
    json_put_member_u64(j, "block_size", block_size);
    json_put_member_u64(j, "num_blocks", n_blocks);
    json_put_key(j, "workers");
    json_put_array(j);
    for (size_t i = 0; i < d->n_candidates; i++)
        put_row(j, &d->candidates[i], shared->enabled);
    json_put_array_end(j);
    json_put_key(j, "shared_cache");
    put_shared(j, shared);
    json_put_object_end(j);
}
