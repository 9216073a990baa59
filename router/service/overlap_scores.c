/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/overlap_scores.h"

static void put_number(struct json_put *j, const char *key, uint64_t v)
{
    json_put_key(j, key);
    json_put_u64(j, v);
}

static void put_row(struct json_put *j, const struct route_candidate *k)
{
    json_put_object(j);
    put_number(j, "worker_id", k->worker.worker_id);
    put_number(j, "dp_rank", k->worker.dp_rank);
    put_number(j, "device_blocks", k->overlap_blocks);
    put_number(j, "host_pinned_blocks", (uint64_t)k->overlap_blocks + k->host_blocks);
    put_number(j, "disk_blocks", (uint64_t)k->overlap_blocks + k->host_blocks + k->disk_blocks);
    put_number(j, "host_pinned_extension_blocks", k->host_blocks);
    put_number(j, "disk_extension_blocks", k->disk_blocks);
    json_put_key(j, "shared_beyond_device_blocks");
    json_put_null(j);
    json_put_object_end(j);
}

void overlap_scores_put(struct json_put *j, uint32_t block_size, size_t n_blocks,
                        const struct route_decision *d)
{
    json_put_object(j);
    put_number(j, "block_size", block_size);
    put_number(j, "num_blocks", n_blocks);
    json_put_key(j, "workers");
    json_put_array(j);
    for (size_t i = 0; i < d->n_candidates; i++)
        put_row(j, &d->candidates[i]);
    json_put_array_end(j);
    json_put_key(j, "shared_cache");
    json_put_raw(j, STR("{\"enabled\":false,\"total_hit_blocks\":0,\"ranges\":[],\"error\":null}"));
    json_put_object_end(j);
}
