/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "lib/base/log.h"
#include "router/service/kv_listener.h"
#include "router/service/peer_recovery.h"
#include "router/service/select_state.h"

static const struct log_target LG = {"commutator::router::select"};

/* --- joining and leaving a group -------------------------------------------------------------- */

static void on_event(void *arg, const struct kv_event *ev)
{
    kv_group_apply(arg, ev);
}

static void detach(struct select_state *s, struct select_worker *w)
{
    struct kv_group *g = w->group;

    for (size_t i = 0; i < w->n_listeners; i++)
        kv_listener_free(w->listeners[i]);
    free(w->listeners);
    w->listeners = NULL;
    w->n_listeners = 0;
    w->group = NULL;
    if (!g)
        return;
    select_reservations_drop_worker(s, w->spec.worker_id.v);
    kv_group_remove_worker(g, w->spec.worker_id.v);
    kv_group_wake(g);
    g->n_workers--; /* without any it stays, as in 1.6.1, and so do its sizes */
}

static bool follows_events(const struct select_state *s)
{
    return s->groups.route.use_kv_events;
}

static struct worker_needs needs_of(const struct select_state *s)
{
    return (struct worker_needs){follows_events(s), select_queues(s)};
}

static int start_listeners(struct select_state *s, struct select_worker *w, struct err *e)
{
    uint32_t first = worker_spec_first_rank(&w->spec), n = worker_spec_ranks(&w->spec);

    if (!follows_events(s))
        return 0;
    w->listeners = xcalloc(n, sizeof(struct kv_listener *));
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_listener_conf conf = {
            .loop = s->loop,
            .zmq = s->zmq,
            .endpoint = worker_spec_events(w->arena, &w->spec, first + i),
            .replay_endpoint = w->spec.replay_endpoint,
            .worker_id = w->spec.worker_id.v,
            .dp_rank = first + i,
            .block_size = w->group->block_size,
            .event = on_event,
            .arg = w->group,
        };
        int r = kv_listener_start(&w->listeners[i], &conf, e);

        if (r < 0)
            return err_wrap(e, r, "invalid kv_events endpoint for worker %llu dp_rank %u",
                            (unsigned long long)w->spec.worker_id.v, first + i);
        w->n_listeners++;
    }
    return 0;
}

static int put_into_scheduler(const struct select_worker *w, struct err *e)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct str_list told = worker_spec_taints(a, &w->spec);
    const char **taints = arena_alloc(a, (told.len + 1) * sizeof(*taints));
    const struct worker_info info = {.worker_id = w->spec.worker_id.v,
                                     .dp_start = worker_spec_first_rank(&w->spec),
                                     .dp_size = worker_spec_ranks(&w->spec),
                                     .total_kv_blocks = w->spec.total_kv_blocks.v,
                                     .max_batched_tokens = w->spec.max_num_batched_tokens.v,
                                     .taints = taints,
                                     .n_taints = told.len};

    for (size_t i = 0; i < told.len; i++)
        taints[i] = arena_strdup(a, told.ptr[i]);
    kv_group_wake(w->group);
    return scheduler_put_worker(w->group->scheduler, &info)
               ? 0
               : err_set(e, -ENOSPC, "no room for another worker");
}

static int join(struct select_state *s, struct select_worker *w, struct err *e)
{
    const struct worker_spec *spec = &w->spec;
    struct kv_group *g;
    int r = kv_groups_need(&s->groups, spec->model_name, spec->routing_group,
                           (uint32_t)spec->block_size.v, &g, e);

    if (r < 0)
        return r;
    w->group = g;
    g->n_workers++;
    r = put_into_scheduler(w, e);
    if (r == 0)
        r = start_listeners(s, w, e);
    if (r < 0)
        detach(s, w);
    else if (g->n_workers == 1)
        peer_recovery_ask(s->peers);
    return r;
}

static void ignore_reason(void *arg, const char *reason)
{
    (void)arg;
    (void)reason;
}

static void attach(struct select_state *s, struct select_worker *w)
{
    struct err e;

    free(TAKE(w->failure));
    if (worker_spec_missing(&w->spec, needs_of(s), ignore_reason, NULL) > 0)
        return;
    if (join(s, w, &e) < 0) {
        w->failure = xasprintf("reconciliation failed: %s", e.text);
        log_warn(&LG, "worker cannot be chosen", LOG_U64("worker_id", w->spec.worker_id.v),
                 LOG_STR("why", e.text));
        return;
    }
    log_info(&LG, "worker can be chosen", LOG_U64("worker_id", w->spec.worker_id.v),
             LOG_STR("group", w->group->key));
}

/* --- the table of workers --------------------------------------------------------------------- */

static struct select_worker *worker_free(struct select_state *s, struct select_worker *w)
{
    detach(s, w);
    free(w->failure);
    arena_free(w->arena);
    free(w);
    return NULL;
}

void select_workers_free_all(struct select_state *s)
{
    uint64_t id, worker;
    size_t at = 0;

    while (map64_next(&s->workers, &at, &id, &worker))
        worker_free(s, (struct select_worker *)(uintptr_t)worker);
    map64_done(&s->workers);
}

struct select_worker *select_worker_schedulable(const struct select_state *s, uint64_t id)
{
    struct select_worker *w = map64_find_ptr(&s->workers, id);

    return w && w->group ? w : NULL;
}

size_t select_workers_schedulable(const struct select_state *s)
{
    uint64_t id, worker;
    size_t at = 0, n = 0;

    while (map64_next(&s->workers, &at, &id, &worker))
        n += ((struct select_worker *)(uintptr_t)worker)->group != NULL;
    return n;
}

/* The spec of a worker becomes @spec, in @take_arena. What both mean the same goes on undisturbed. */
static void replace_spec(struct select_state *s, struct select_worker *w, struct arena *take_arena,
                         const struct worker_spec *spec)
{
    bool same = w->group && worker_spec_same_targets(&w->spec, spec);
    struct arena *old = w->arena;
    struct err e;

    if (!same)
        detach(s, w);
    w->arena = take_arena;
    w->spec = *spec;
    arena_free(old);
    if (!same || worker_spec_missing(spec, needs_of(s), ignore_reason, NULL) > 0) {
        detach(s, w);
        attach(s, w);
    } else if (put_into_scheduler(w, &e) < 0) {
        log_warn(&LG, "worker not updated", LOG_STR("why", e.text));
    }
}

/* --- routes ----------------------------------------------------------------------------------- */

static void put_reason(void *arg, const char *reason)
{
    json_put_cstr(arg, reason);
}

static void put_worker(struct json_put *j, const struct select_worker *w, struct worker_needs needs,
                       const char *lifecycle)
{
    AUTO(buf_done) struct buf reasons = BUF_NULL;
    struct json_put list = json_put_on(&reasons);

    json_put_object(j);
    worker_spec_put(j, &w->spec, lifecycle ? lifecycle : w->group ? "schedulable" : "incomplete");
    json_put_array(&list);
    if (w->failure)
        json_put_cstr(&list, w->failure);
    if (!w->group && !lifecycle &&
        (worker_spec_missing(&w->spec, needs, put_reason, &list) > 0 || w->failure)) {
        json_put_array_end(&list);
        json_put_key(j, "not_schedulable_reasons");
        json_put_raw(j, buf_str(&reasons));
    }
    json_put_object_end(j);
}

/* The status of an error that was written. */
static int spec_error(struct rest_call *c, int r, const struct err *e)
{
    return rest_error(c, r == BODY_NOT_JSON ? 400 : 422, "the body is no worker: %s", e->text);
}

int select_workers_post(void *state, struct rest_call *c)
{
    struct select_state *s = state;
    struct worker_spec spec;
    struct select_worker *w;
    struct arena *a;
    struct err e;
    int r = rest_expect_json(c);

    if (r != 0)
        return r;
    a = arena_new();
    r = worker_spec_parse(a, c->body, &spec, &e);
    if (r != 0) {
        arena_free(a);
        return spec_error(c, r, &e);
    }
    w = map64_find_ptr(&s->workers, spec.worker_id.v);
    if (!w && s->workers.len >= SELECT_WORKERS_MAX) {
        arena_free(a);
        return rest_error(c, 503, "more than %d workers", SELECT_WORKERS_MAX);
    }
    if (!w) {
        w = xcalloc(1, sizeof(*w));
        map64_put_ptr(&s->workers, spec.worker_id.v, w);
    }
    replace_spec(s, w, a, &spec);
    put_worker(&c->json, w, needs_of(s), NULL);
    return 201;
}

/* The worker of the path; NULL with the error written. */
static struct select_worker *named_worker(struct select_state *s, struct rest_call *c, int *status)
{
    uint64_t id;
    struct select_worker *w = str_parse_u64(c->name, &id) ? map64_find_ptr(&s->workers, id) : NULL;

    if (!w)
        *status = rest_error(c, 404, "worker %.*s not found", STR_ARG(c->name));
    return w;
}

/* As in 1.6.1 the body is looked at first, and what names the worker or its group changes nothing. */
int select_workers_patch(void *state, struct rest_call *c)
{
    struct select_state *s = state;
    struct worker_spec spec = {.worker_id = {.set = false}};
    struct select_worker *w;
    struct arena *a;
    struct err e;
    int status = rest_expect_json(c), r;

    if (status)
        return status;
    r = worker_spec_patch(c->arena, c->body, &spec, &e);
    if (r != 0)
        return spec_error(c, r, &e);
    w = named_worker(s, c, &status);
    if (!w)
        return status;
    a = arena_new();
    spec = worker_spec_copy(a, &w->spec);
    r = worker_spec_patch(a, c->body, &spec, &e);
    if (r != 0) {
        arena_free(a);
        return spec_error(c, r, &e);
    }
    spec.worker_id = w->spec.worker_id;
    spec.model_name = (struct str){arena_strdup(a, w->spec.model_name), w->spec.model_name.len};
    spec.routing_group =
        (struct str){arena_strdup(a, w->spec.routing_group), w->spec.routing_group.len};
    replace_spec(s, w, a, &spec);
    put_worker(&c->json, w, needs_of(s), NULL);
    return 200;
}

int select_workers_delete(void *state, struct rest_call *c)
{
    struct select_state *s = state;
    int status = 0;
    struct select_worker *w = named_worker(s, c, &status);

    if (!w)
        return status;
    put_worker(&c->json, w, needs_of(s), "unschedulable");
    (void)map64_remove(&s->workers, w->spec.worker_id.v, NULL);
    worker_free(s, w);
    return 200;
}

static int by_place(const void *a, const void *b)
{
    const struct worker_spec *x = &(*(struct select_worker *const *)a)->spec;
    const struct worker_spec *y = &(*(struct select_worker *const *)b)->spec;
    int order = str_cmp(x->model_name, y->model_name);

    order = order ? order : str_cmp(x->routing_group, y->routing_group);
    return order ? order : (x->worker_id.v > y->worker_id.v) - (x->worker_id.v < y->worker_id.v);
}

/* The array of all workers; returns how many can be chosen. */
static size_t put_workers(struct select_state *s, struct rest_call *c)
{
    struct select_worker **all = arena_alloc(c->arena, (s->workers.len + 1) * sizeof(*all));
    uint64_t id, worker;
    size_t at = 0, n = 0, schedulable = 0;

    while (map64_next(&s->workers, &at, &id, &worker))
        all[n++] = (struct select_worker *)(uintptr_t)worker;
    qsort(all, n, sizeof(struct select_worker *), by_place);
    json_put_array(&c->json);
    for (size_t i = 0; i < n; i++) {
        put_worker(&c->json, all[i], needs_of(s), NULL);
        schedulable += all[i]->group != NULL;
    }
    json_put_array_end(&c->json);
    return schedulable;
}

int select_workers_get(void *state, struct rest_call *c)
{
    (void)put_workers(state, c);
    return 200;
}

int select_ready(void *state, struct rest_call *c)
{
    size_t n = select_workers_schedulable(state);

    json_put_object(&c->json);
    json_put_member_bool(&c->json, "ready", n > 0);
    json_put_member_u64(&c->json, "schedulable_workers", n);
    json_put_key(&c->json, "workers");
    (void)put_workers(state, c);
    json_put_object_end(&c->json);
    return n > 0 ? 200 : 503;
}
