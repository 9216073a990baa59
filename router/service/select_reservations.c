/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "router/frontend/explain.h"
#include "router/sched/sequences.h"
#include "router/service/select_state.h"
#include "router/service/service_peers.h"

/* --- keeping ---------------------------------------------------------------------------------- */

struct reservation *select_reservation_find(const struct select_state *s, struct str id)
{
    return strmap_get(s->reservations, id);
}

static void touch(struct select_state *s, struct reservation *r)
{
    r->touched_ms = select_now_ms(s);
    list_remove(&r->link);
    list_append(&s->oldest_first, &r->link);
    booking_touch(r->booking, clock_now_ns());
}

struct reservation *select_reservation_add(struct select_state *s, struct str id,
                                           struct kv_group *g, struct worker_rank worker,
                                           struct booking *take_booking)
{
    struct reservation *r = xcalloc(1, sizeof(*r));

    r->id = str_dup(id);
    r->booking = take_booking;
    r->group = g;
    r->worker = worker;
    r->t_start_ns = clock_now_ns();
    list_append(&s->oldest_first, &r->link);
    r->touched_ms = select_now_ms(s);
    (void)strmap_set(s->reservations, id, r);
    return r;
}

/* What the gateway has told of how it went. */
static void note_end(struct select_state *s, const struct reservation *r, bool ok)
{
    const struct decision_outcome o = {
        .ended = ok ? DECISION_FINISHED : DECISION_CLIENT_GONE,
        .cached_tokens = DECISION_UNKNOWN,
        .ttft_ms = r->t_first_ns ? (double)(r->t_first_ns - r->t_start_ns) / 1e6 : NAN,
        .duration_ms = (double)(clock_now_ns() - r->t_start_ns) / 1e6};

    explain_ended(s->explain, r->decision_seq, &o);
}

void select_reservation_end(struct select_state *s, struct reservation *r, bool ok)
{
    if (!r->heard)
        note_end(s, r, ok);
    affinity_release(r->group->affinity, &r->session, clock_now_ns());
    (void)strmap_remove(s->reservations, str_from(r->id));
    list_remove(&r->link);
    (void)booking_end(r->booking, clock_now_ns(), ok);
    free(r->id);
    free(r);
}

void select_reservations_drop_worker(struct select_state *s, uint64_t worker_id)
{
    LIST_FOREACH (r, &s->oldest_first, struct reservation, link)
        if (r->worker.worker_id == worker_id)
            select_reservation_end(s, r, false);
}

/* A gateway that forgot, or died: without this its reservations would weigh for ever. */
void select_reservations_expire(struct select_state *s)
{
    uint64_t now_ms = select_now_ms(s);

    if (s->expiry_ms == 0)
        return;
    LIST_FOREACH (r, &s->oldest_first, struct reservation, link) {
        if (r->touched_ms + s->expiry_ms > now_ms)
            return;
        select_reservation_end(s, r, false);
        metric_add(s->expired, 1);
    }
}

void select_reservations_free_all(struct select_state *s)
{
    LIST_FOREACH (r, &s->oldest_first, struct reservation, link)
        select_reservation_end(s, r, false);
}

void select_reservation_prefilled(struct select_state *s, struct reservation *r)
{
    if (!r->t_first_ns)
        r->t_first_ns = clock_now_ns();
    booking_first_token(r->booking, clock_now_ns());
    touch(s, r);
}

/* --- routes ----------------------------------------------------------------------------------- */

static int not_found(struct rest_call *c)
{
    return rest_error(c, 404, "reservation %.*s not found", STR_ARG(c->name));
}

int select_prefill_complete(void *state, struct rest_call *c)
{
    struct select_state *s = state;
    struct reservation *r = select_reservation_find(s, c->name);

    if (!r)
        return not_found(c);
    select_reservation_prefilled(s, r);
    service_peers_tell(s->replicas, r->group, c->name, r->worker, SEQUENCE_PREFILL_DONE);
    return rest_ok(c, 200);
}

int select_output_block(void *state, struct rest_call *c)
{
    static const struct body_field table[] = {{"decay_fraction", BODY_F64, 0, false}};
    struct select_state *s = state;
    struct opt_f64 decay = {.set = false};
    struct reservation *r;
    int status = rest_body(c, table, ARRAY_LEN(table), &decay);

    if (status)
        return status;
    if (decay.set && !(decay.v >= 0 && decay.v <= 1))
        return rest_error(c, 400, "decay_fraction must be between 0.0 and 1.0");
    r = select_reservation_find(s, c->name);
    if (!r)
        return not_found(c);
    booking_output_block(r->booking, decay.set ? decay.v : 1);
    touch(s, r);
    return rest_ok(c, 200);
}

int select_release(void *state, struct rest_call *c)
{
    struct select_state *s = state;
    struct reservation *r = select_reservation_find(s, c->name);

    if (!r)
        return not_found(c);
    service_peers_tell(s->replicas, r->group, c->name, r->worker, SEQUENCE_FREE);
    select_reservation_end(s, r, true);
    return rest_ok(c, 200);
}

static void put_group_loads(struct json_put *j, struct arena *a, const struct kv_group *g)
{
    struct route_queue_stats waiting = admission_waiting(g->admission);
    size_t n;
    const struct worker_load *loads = kv_group_loads(g, a, &n);

    json_put_object(j);
    json_put_member_cstr(j, "model_name", g->model);
    json_put_member_cstr(j, "routing_group", g->name);
    json_put_key(j, "loads");
    json_put_array(j);
    for (size_t i = 0; i < n; i++) {
        json_put_object(j);
        json_put_member_u64(j, "worker_id", loads[i].worker.worker_id);
        json_put_member_u64(j, "dp_rank", loads[i].worker.dp_rank);
        json_put_member_u64(j, "potential_prefill_tokens", loads[i].active_prefill_tokens);
        json_put_member_u64(j, "potential_decode_blocks", loads[i].active_decode_blocks);
        json_put_member_u64(j, "active_requests", loads[i].active_requests);
        json_put_object_end(j);
    }
    json_put_array_end(j);
    json_put_member_u64(j, "pending_count", waiting.requests);
    json_put_member_u64(j, "pending_isl_tokens", waiting.isl_tokens);
    json_put_object_end(j);
}

static int by_names(const void *a, const void *b)
{
    const struct kv_group *x = *(struct kv_group *const *)a, *y = *(struct kv_group *const *)b;
    int order = strcmp(x->model, y->model);

    return order ? order : strcmp(x->name, y->name);
}

int select_loads(void *state, struct rest_call *c)
{
    struct select_state *s = state;
    struct str model = rest_query(c, "model_name"), name = rest_query(c, "routing_group"), key;
    struct kv_group **all =
        arena_alloc(c->arena, (strmap_len(s->groups.by_key) + 1) * sizeof(struct kv_group *));
    size_t at = 0, n = 0;
    void *group;

    while (strmap_next(s->groups.by_key, &at, &key, &group)) {
        struct kv_group *g = group;

        if ((!model.ptr || str_is(model, g->model)) && (!name.ptr || str_is(name, g->name)))
            all[n++] = g;
    }
    qsort(all, n, sizeof(all[0]), by_names);
    json_put_array(&c->json);
    for (size_t i = 0; i < n; i++)
        put_group_loads(&c->json, c->arena, all[i]);
    json_put_array_end(&c->json);
    return 200;
}
