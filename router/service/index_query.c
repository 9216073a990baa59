/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "router/kv/block_hash.h"
#include "router/service/index_state.h"

/* --- querying --------------------------------------------------------------------------------- */

struct query {
    struct str model_name, routing_group, lora_name, cache_salt;
    struct u32_list token_ids;
    struct u64_list block_hashes;
};

static int by_worker(const void *a, const void *b)
{
    const struct worker_rank *x = &((const struct route_candidate *)a)->worker;
    const struct worker_rank *y = &((const struct route_candidate *)b)->worker;

    if (x->worker_id != y->worker_id)
        return x->worker_id < y->worker_id ? -1 : 1;
    return (x->dp_rank > y->dp_rank) - (x->dp_rank < y->dp_rank);
}

/* {"rank":tokens,…} of rows that belong to one worker. */
static void put_ranks(struct json_put *j, const struct route_candidate *rows, size_t n,
                      uint64_t block_size)
{
    json_put_object(j);
    for (size_t i = 0; i < n; i++) {
        rest_put_key_u64(j, rows[i].worker.dp_rank);
        json_put_u64(j, rows[i].overlap_blocks * block_size);
    }
    json_put_object_end(j);
}

/* Those of @rows that hold some on the device, in the same order. */
static size_t keep_device(const struct route_candidate *rows, size_t n, struct route_candidate *ret)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (rows[i].overlap_blocks)
            ret[kept++] = rows[i];
    return kept;
}

/* All in tokens; what slower tiers hold goes on where the faster one ends. */
static void put_instance_scores(struct json_put *j, const struct route_candidate *rows, size_t n,
                                uint64_t block_size)
{
    uint64_t device = 0, host = 0, disk = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t blocks = rows[i].overlap_blocks;

        device = MAX(device, blocks);
        host = MAX(host, blocks + rows[i].host_blocks);
        disk = MAX(disk, blocks + rows[i].host_blocks + rows[i].disk_blocks);
    }
    json_put_object(j);
    json_put_member_u64(j, "longest_matched", disk * block_size);
    json_put_member_u64(j, "gpu", device * block_size);
    json_put_key(j, "dp");
    put_ranks(j, rows, n, block_size);
    json_put_member_u64(j, "cpu", host * block_size);
    json_put_member_u64(j, "disk", disk * block_size);
    json_put_object_end(j);
}

typedef void (*put_rows_fn)(struct json_put *j, const struct route_candidate *rows, size_t n,
                            uint64_t block_size);

static void put_by_worker(struct json_put *j, const struct route_candidate *rows, size_t n,
                          uint64_t block_size, put_rows_fn put)
{
    size_t end;

    json_put_object(j);
    for (size_t i = 0; i < n; i = end) {
        for (end = i + 1; end < n && rows[end].worker.worker_id == rows[i].worker.worker_id;)
            end++;
        rest_put_key_u64(j, rows[i].worker.worker_id);
        put(j, rows + i, end - i, block_size);
    }
    json_put_object_end(j);
}

static int answer(struct rest_call *c, const struct kv_group *g, const uint64_t *local, size_t n)
{
    AUTO(route_decision_done) struct route_decision d = {.n_candidates = 0};
    uint64_t *sequence = arena_alloc(c->arena, (n + 1) * sizeof(*sequence));
    struct booking *none = NULL;
    struct route_request q = {.local = local,
                              .sequence = sequence,
                              .n_blocks = n,
                              .isl = (uint32_t)MAX(n * g->block_size, (size_t)1),
                              .overlap_weight = NAN,
                              .temperature = NAN,
                              .query_only = true,
                              .now_ns = clock_now_ns()};
    struct route_candidate *device;
    size_t kept = 0;

    block_hash_sequence(local, n, sequence);
    if (scheduler_route(g->scheduler, &q, &d, &none) != 0)
        d.n_candidates = 0;
    for (size_t i = 0; i < d.n_candidates; i++)
        if (policy_held_blocks(&d.candidates[i]))
            d.candidates[kept++] = d.candidates[i];
    if (kept)
        qsort(d.candidates, kept, sizeof(*d.candidates), by_worker);
    json_put_object(&c->json);
    json_put_key(&c->json, "scores");
    device = arena_alloc(c->arena, (kept + 1) * sizeof(*device));
    put_by_worker(&c->json, device, keep_device(d.candidates, kept, device), g->block_size,
                  put_ranks);
    json_put_key(&c->json, "frequencies");
    json_put_raw(&c->json, STR("[]"));
    json_put_key(&c->json, "instances");
    put_by_worker(&c->json, d.candidates, kept, g->block_size, put_instance_scores);
    json_put_object_end(&c->json);
    return 200;
}

/* The group that the query names; NULL with *ret_status when there is none. */
static struct kv_group *queried_group(struct index_state *s, struct rest_call *c,
                                      const struct query *q, int *ret_status)
{
    struct kv_group *g = kv_groups_find(&s->groups, q->model_name, q->routing_group);

    if (!g)
        *ret_status = rest_error(c, 404, "no indexer for model=%.*s routing_group=%.*s",
                                 STR_ARG(q->model_name), STR_ARG(q->routing_group));
    return g;
}

#define QUERY(member) offsetof(struct query, member)

static int read_query(struct rest_call *c, const struct body_field *table, size_t n,
                      struct query *ret)
{
    int status = rest_body(c, table, n, ret);

    if (status == 0)
        c->model = ret->model_name;
    return status;
}

int index_on_query(void *state, struct rest_call *c)
{
    static const struct body_field table[] = {
        {"token_ids", BODY_TOKENS, QUERY(token_ids), true},
        {"model_name", BODY_STR, QUERY(model_name), true},
        {"routing_group", BODY_STR, QUERY(routing_group), false},
        {"tenant_id", BODY_STR, QUERY(routing_group), false},
        {"lora_name", BODY_STR, QUERY(lora_name), false},
        {"cache_salt", BODY_STR, QUERY(cache_salt), false},
    };
    struct query q = {.routing_group = STR("default")};
    int status = read_query(c, table, ARRAY_LEN(table), &q);
    const struct kv_group *g = status ? NULL : queried_group(state, c, &q, &status);
    uint64_t *local;
    size_t n;

    if (!g)
        return status;
    local = arena_alloc(c->arena, (q.token_ids.len / g->block_size + 1) * sizeof(*local));
    n = block_hash_local_seeded(block_hash_seed(q.lora_name, q.cache_salt), q.token_ids.ptr,
                                q.token_ids.len, g->block_size, local);
    return answer(c, g, local, n);
}

int index_on_query_by_hash(void *state, struct rest_call *c)
{
    static const struct body_field table[] = {
        {"block_hashes", BODY_HASHES, QUERY(block_hashes), true},
        {"model_name", BODY_STR, QUERY(model_name), true},
        {"routing_group", BODY_STR, QUERY(routing_group), false},
        {"tenant_id", BODY_STR, QUERY(routing_group), false},
        {"cache_salt", BODY_STR, QUERY(cache_salt), false},
    };
    struct query q = {.routing_group = STR("default")};
    int status = read_query(c, table, ARRAY_LEN(table), &q);
    const struct kv_group *g;

    if (status)
        return status;
    if (q.cache_salt.ptr)
        return rest_error(c, 400,
                          "cache_salt is not accepted by /query_by_hash: the hashes "
                          "include it");
    g = queried_group(state, c, &q, &status);
    return g ? answer(c, g, q.block_hashes.ptr, q.block_hashes.len) : status;
}
