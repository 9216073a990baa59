/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/log.h"
#include "router/service/index_state.h"

static const struct log_target LG = {"commutator::router::index"};

enum { RANKS_MAX = 1024 };

/* --- what workers hold ------------------------------------------------------------------------ */

/*
 * Queries rank candidates, and those are the ranks that the scheduler was told of: a rank that only
 * shows up in events, or in a peer's dump, is told to it then.
 */
static void learn_rank(struct kv_group *g, uint64_t worker_id, uint32_t dp_rank)
{
    size_t n = scheduler_loads(g->scheduler, NULL, 0);
    AUTO(mem_free) struct worker_load *loads = xcalloc(n + 1, sizeof(*loads));
    struct worker_info info = {.worker_id = worker_id, .dp_start = dp_rank};
    uint32_t last = dp_rank;

    n = MIN(n, scheduler_loads(g->scheduler, loads, n));
    for (size_t i = 0; i < n; i++) {
        if (loads[i].worker.worker_id != worker_id)
            continue;
        info.dp_start = MIN(info.dp_start, loads[i].worker.dp_rank);
        last = MAX(last, loads[i].worker.dp_rank);
    }
    info.dp_size = last - info.dp_start + 1;
    if (last - info.dp_start >= RANKS_MAX || !scheduler_put_worker(g->scheduler, &info))
        log_warn(&LG, "no room for another rank", LOG_U64("worker_id", worker_id),
                 LOG_U64("dp_rank", dp_rank));
}

/* Engines behind one publisher say their rank in each batch; it wins over the registered one. */
static void on_event(void *arg, const struct kv_event *ev)
{
    struct index_source *src = arg;

    if (ev->dp_rank != src->dp_rank && ev->dp_rank != src->other_rank) {
        learn_rank(src->group, ev->worker_id, ev->dp_rank);
        src->other_rank = ev->dp_rank;
    }
    kv_group_apply(src->group, ev);
}

/* Events of a dump come in runs of one worker and rank. */
void index_take_dumped(struct kv_group *g, const struct kv_event *ev)
{
    if (ev->worker_id != g->dumped.worker_id || ev->dp_rank != g->dumped.dp_rank || !ev->event_id) {
        g->dumped = (struct worker_rank){ev->worker_id, ev->dp_rank};
        learn_rank(g, ev->worker_id, ev->dp_rank);
    }
    kv_group_apply(g, ev);
}

/* --- sources ---------------------------------------------------------------------------------- */

static struct index_source *find_source(struct index_state *s, const struct kv_group *g,
                                        uint64_t worker_id, uint32_t dp_rank)
{
    LIST_FOREACH (src, &s->sources, struct index_source, link)
        if (src->group == g && src->worker_id == worker_id && src->dp_rank == dp_rank)
            return src;
    return NULL;
}

static void source_free(struct index_source *src)
{
    src->listener = kv_listener_free(src->listener);
    list_remove(&src->link);
    src->state->n_sources--;
    free(src->endpoint);
    free(src);
}

static int add_source(struct index_state *s, const struct index_registration *rg,
                      struct kv_group *g, struct err *e)
{
    struct index_source *src = xcalloc(1, sizeof(*src));
    struct kv_listener_conf conf = {.loop = s->loop,
                                    .zmq = s->zmq,
                                    .endpoint = rg->endpoint,
                                    .replay_endpoint = rg->replay_endpoint,
                                    .worker_id = rg->instance_id.v,
                                    .dp_rank = (uint32_t)rg->dp_rank.v,
                                    .block_size = g->block_size,
                                    .event = on_event,
                                    .arg = src};
    int r;

    src->state = s;
    src->group = g;
    src->worker_id = conf.worker_id;
    src->dp_rank = src->other_rank = conf.dp_rank;
    src->endpoint = str_dup(rg->endpoint);
    list_append(&s->sources, &src->link);
    s->n_sources++;
    r = kv_listener_start(&src->listener, &conf, e);
    if (r < 0) {
        source_free(src);
        return r;
    }
    g->n_workers++; /* counts sources here */
    learn_rank(g, src->worker_id, src->dp_rank);
    return 0;
}

int index_register(struct index_state *s, const struct index_registration *rg, struct err *e)
{
    struct kv_group *g;
    int r;

    if (s->n_sources >= INDEX_SOURCES_MAX)
        return err_set(e, -ENOSPC, "more than %d registrations", INDEX_SOURCES_MAX);
    if (rg->block_size.v == 0)
        return err_set(e, -EINVAL, "block_size must be greater than 0");
    r = kv_groups_need(&s->groups, rg->model_name, rg->routing_group, (uint32_t)rg->block_size.v,
                       &g, e);
    if (r < 0)
        return r;
    if (find_source(s, g, rg->instance_id.v, (uint32_t)rg->dp_rank.v))
        return err_set(e, -EEXIST, "instance %" PRIu64 " dp_rank %" PRIu64 " already registered",
                       rg->instance_id.v, rg->dp_rank.v);
    r = add_source(s, rg, g, e);
    if (r < 0 && g->n_workers == 0)
        kv_groups_drop(&s->groups, g);
    return r;
}

/* Its blocks go with it; those of the worker's other ranks stay. */
static void remove_source(struct index_source *src)
{
    struct index_state *s = src->state;
    struct kv_group *g = src->group;
    uint64_t worker_id = src->worker_id;
    const struct kv_event cleared = {
        .worker_id = worker_id, .dp_rank = src->dp_rank, .kind = KV_CLEARED};
    bool others = false;

    source_free(src);
    LIST_FOREACH (it, &s->sources, struct index_source, link)
        others = others || (it->group == g && it->worker_id == worker_id);
    if (others)
        kv_group_apply(g, &cleared);
    else
        kv_group_remove_worker(g, worker_id);
    if (--g->n_workers == 0)
        kv_groups_drop(&s->groups, g);
}

void index_sources_free_all(struct index_state *s)
{
    LIST_FOREACH (src, &s->sources, struct index_source, link)
        source_free(src);
}

/* --- registering ------------------------------------------------------------------------------ */

#define REG(member) offsetof(struct index_registration, member)

int index_on_register(void *state, struct rest_call *c)
{
    static const struct body_field table[] = {
        {"instance_id", BODY_U64, REG(instance_id), true},
        {"endpoint", BODY_STR, REG(endpoint), true},
        {"model_name", BODY_STR, REG(model_name), true},
        {"block_size", BODY_U32, REG(block_size), true},
        {"routing_group", BODY_STR, REG(routing_group), false},
        {"tenant_id", BODY_STR, REG(routing_group), false},
        {"dp_rank", BODY_U32, REG(dp_rank), false},
        {"replay_endpoint", BODY_STR, REG(replay_endpoint), false},
        {"additional_salt", BODY_STR, REG(additional_salt), false},
    };
    struct index_registration rg = {.routing_group = STR("default")};
    int status = rest_body(c, table, ARRAY_LEN(table), &rg), r;
    struct err e;

    if (status)
        return status;
    c->model = rg.model_name;
    r = index_register(state, &rg, &e);
    if (r == 0)
        return rest_ok(c, 201);
    return rest_error(c, r == -EEXIST ? 409 : r == -ENOSPC ? 503 : 400, "%s", e.text);
}

int index_on_unregister(void *state, struct rest_call *c)
{
    static const struct body_field table[] = {
        {"instance_id", BODY_U64, REG(instance_id), true},
        {"model_name", BODY_STR, REG(model_name), true},
        {"routing_group", BODY_STR, REG(routing_group), false},
        {"tenant_id", BODY_STR, REG(routing_group), false},
        {"dp_rank", BODY_U32, REG(dp_rank), false},
    };
    struct index_state *s = state;
    struct index_registration rg = {.routing_group = STR("default")};
    int status = rest_body(c, table, ARRAY_LEN(table), &rg);
    const struct kv_group *g;
    size_t n = 0;

    if (status)
        return status;
    c->model = rg.model_name;
    g = kv_groups_find(&s->groups, rg.model_name, rg.routing_group);
    LIST_FOREACH (src, &s->sources, struct index_source, link) {
        if (src->group != g || src->worker_id != rg.instance_id.v ||
            (rg.dp_rank.set && src->dp_rank != rg.dp_rank.v))
            continue;
        remove_source(src);
        n++;
    }
    return n ? rest_ok(c, 200)
             : rest_error(c, 404, "instance %" PRIu64 " not found", rg.instance_id.v);
}

/* --- pauses ----------------------------------------------------------------------------------- */

/* NULL with *ret_status set. Of whichever group it is, as in the reference. */
static struct index_source *source_of(struct index_state *s, struct rest_call *c, int *ret_status)
{
    static const struct body_field table[] = {
        {"instance_id", BODY_U64, REG(instance_id), true},
        {"dp_rank", BODY_U32, REG(dp_rank), false},
    };
    struct index_registration rg = {.routing_group = STR_NULL};
    bool known = false;

    *ret_status = rest_body(c, table, ARRAY_LEN(table), &rg);
    if (*ret_status)
        return NULL;
    LIST_FOREACH (src, &s->sources, struct index_source, link) {
        if (src->worker_id == rg.instance_id.v && src->dp_rank == rg.dp_rank.v)
            return src;
        known = known || src->worker_id == rg.instance_id.v;
    }
    *ret_status = known ? rest_error(c, 404, "instance %" PRIu64 " dp_rank %" PRIu64 " not found",
                                     rg.instance_id.v, rg.dp_rank.v)
                        : rest_error(c, 404, "instance %" PRIu64 " not found", rg.instance_id.v);
    return NULL;
}

static int refuse_from(struct rest_call *c, const struct index_source *src, const char *what)
{
    return rest_error(c, 409,
                      "instance %" PRIu64 " dp_rank %" PRIu32 " cannot be %s from status %s",
                      src->worker_id, src->dp_rank, what,
                      kv_listener_status_word(kv_listener_status(src->listener)));
}

int index_on_pause(void *state, struct rest_call *c)
{
    int status;
    struct index_source *src = source_of(state, c, &status);

    if (!src)
        return status;
    if (kv_listener_status(src->listener) == KV_LISTENER_PAUSED)
        return refuse_from(c, src, "paused");
    kv_listener_pause(src->listener);
    return rest_ok(c, 200);
}

int index_on_resume(void *state, struct rest_call *c)
{
    int status;
    struct index_source *src = source_of(state, c, &status);

    if (!src)
        return status;
    if (kv_listener_status(src->listener) != KV_LISTENER_PAUSED)
        return refuse_from(c, src, "resumed");
    kv_listener_resume(src->listener);
    return rest_ok(c, 200);
}

/* --- telling ---------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct index_source *x = *(struct index_source *const *)a,
                              *y = *(struct index_source *const *)b;
    int order = strcmp(x->group->key, y->group->key);

    if (order == 0)
        order = (x->worker_id > y->worker_id) - (x->worker_id < y->worker_id);
    return order ? order : (x->dp_rank > y->dp_rank) - (x->dp_rank < y->dp_rank);
}

/* One instance: the sources all[0..n), of one worker and group. */
static void put_instance(struct json_put *j, struct index_source *const *all, size_t n)
{
    const struct kv_group *g = all[0]->group;
    enum kv_listener_status worst = KV_LISTENER_PAUSED;

    for (size_t i = 0; i < n; i++)
        worst = MIN(worst, kv_listener_status(all[i]->listener));
    json_put_object(j);
    json_put_member_u64(j, "instance_id", all[0]->worker_id);
    json_put_member_cstr(j, "source", "zmq");
    json_put_member_cstr(j, "status", kv_listener_status_word(worst));
    json_put_member_cstr(j, "model_name", g->model);
    json_put_member_cstr(j, "routing_group", g->name);
    json_put_member_u64(j, "block_size", g->block_size);
    json_put_key(j, "endpoints");
    json_put_object(j);
    for (size_t i = 0; i < n; i++) {
        rest_put_key_u64(j, all[i]->dp_rank);
        json_put_cstr(j, all[i]->endpoint);
    }
    json_put_object_end(j);
    json_put_key(j, "listeners");
    json_put_object(j);
    for (size_t i = 0; i < n; i++) {
        rest_put_key_u64(j, all[i]->dp_rank);
        json_put_object(j);
        json_put_member_cstr(j, "endpoint", all[i]->endpoint);
        json_put_member_cstr(j, "status",
                             kv_listener_status_word(kv_listener_status(all[i]->listener)));
        json_put_object_end(j);
    }
    json_put_object_end(j);
    json_put_object_end(j);
}

size_t index_sources_sorted(struct index_state *s, struct arena *a, struct index_source ***ret)
{
    struct index_source **all = arena_alloc(a, (s->n_sources + 1) * sizeof(*all));
    size_t n = 0;

    LIST_FOREACH (src, &s->sources, struct index_source, link)
        all[n++] = src;
    qsort(all, n, sizeof(struct index_source *), by_place);
    *ret = all;
    return n;
}

int index_on_workers(void *state, struct rest_call *c)
{
    struct str model = rest_query(c, "model_name"), name = rest_query(c, "routing_group");
    struct index_source **all;
    size_t n = index_sources_sorted(state, c->arena, &all), end;

    json_put_array(&c->json);
    for (size_t i = 0; i < n; i = end) {
        const struct kv_group *g = all[i]->group;

        for (end = i + 1;
             end < n && all[end]->group == g && all[end]->worker_id == all[i]->worker_id;)
            end++;
        if ((!model.ptr || str_is(model, g->model)) && (!name.ptr || str_is(name, g->name)))
            put_instance(&c->json, all + i, end - i);
    }
    json_put_array_end(&c->json);
    return 200;
}
