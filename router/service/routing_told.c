/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/routing_told.h"

#include <math.h>

#include "lib/net/loop.h"
#include "router/sched/route_decision.h"
#include "router/sched/scheduler.h"

static double since_ms(uint64_t start_ns, uint64_t at_ns)
{
    return at_ns ? (double)(at_ns - start_ns) / 1e6 : NAN;
}

struct routing_told routing_told_of(const struct route_decision *d, const struct routing_times *at,
                                    bool worker, bool timing)
{
    const struct route_candidate *c = &d->candidates[d->chosen];
    double total_ms = since_ms(at->start_ns, clock_now_ns());

    return (struct routing_told){
        .has_worker = worker,
        .has_timing = timing,
        .worker = c->worker,
        .received_ms = clock_wall_ms() - (uint64_t)total_ms,
        .sent_ms = since_ms(at->start_ns, at->sent_ns),
        .first_token_ms = since_ms(at->start_ns, at->first_ns),
        .total_ms = total_ms,
        .kv_hit_rate = d->isl_blocks ? (double)c->overlap_blocks / (double)d->isl_blocks : NAN,
        .queue_depth = at->queue_depth};
}

static void put_ms(struct json_put *j, const char *key, double ms)
{
    if (isnan(ms))
        return;
    json_put_key(j, key);
    json_put_f64(j, ms);
}

static void put_timing(struct json_put *j, const struct routing_told *told)
{
    json_put_key(j, "timing");
    json_put_object(j);
    json_put_member_u64(j, "request_received_ms", told->received_ms);
    put_ms(j, "prefill_wait_time_ms", told->sent_ms);
    put_ms(j, "prefill_time_ms", told->first_token_ms - told->sent_ms);
    put_ms(j, "ttft_ms", told->first_token_ms);
    put_ms(j, "total_time_ms", told->total_ms);
    put_ms(j, "kv_hit_rate", told->kv_hit_rate);
    json_put_member_u64(j, "router_queue_depth", told->queue_depth);
    json_put_object_end(j);
}

static void put_rank(struct json_put *j, const char *id_key, const char *rank_key,
                     struct worker_rank w)
{
    json_put_member_u64(j, id_key, w.worker_id);
    json_put_member_u64(j, rank_key, w.dp_rank);
}

void routing_told_put(struct json_put *j, const struct routing_told *told)
{
    json_put_object(j);
    if (told->has_worker) {
        json_put_key(j, "worker_id");
        json_put_object(j);
        put_rank(j, "prefill_worker_id", "prefill_dp_rank", told->worker);
        put_rank(j, "decode_worker_id", "decode_dp_rank", told->worker);
        json_put_object_end(j);
    }
    if (told->has_timing)
        put_timing(j, told);
    json_put_object_end(j);
}

const char *routing_refusal(int outcome)
{
    switch (outcome) {
    case ROUTE_ALL_BUSY:
        return "Service temporarily unavailable: All workers are busy, please retry later";
    case ROUTE_NO_SUCH_PIN:
        return "the worker that the request names is not there";
    case ROUTE_PIN_NEEDED:
        return "the request has to name its worker";
    default:
        return "no instances found for the router's endpoint";
    }
}
