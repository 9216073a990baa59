/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing a worker for a gateway (router.md §8.3). Statuses and members are those of ai-dynamo
 * 1.6.1.
 */
#include <errno.h>
#include <math.h>

#include "lib/base/digest.h"
#include "router/frontend/explain.h"
#include "router/kv/block_hash.h"
#include "router/kv/tracking_hash.h"
#include "router/sched/affinity.h"
#include "router/sched/sequences.h"
#include "router/sched/signals.h"
#include "router/service/overlap_scores.h"
#include "router/service/select_body.h"
#include "router/service/select_state.h"
#include "router/service/selection_cache.h"

struct prompt {
    const uint64_t *local, *sequence;
    size_t n_blocks;
    uint32_t isl;
};

/* One decision under way; its record goes with it. One that may wait is in the call's arena. */
struct choice {
    struct select_state *s;
    struct rest_call *c;
    struct select_body body;
    struct kv_group *group;
    struct prompt prompt;
    bool no_prefill_tokens;     /* the prompt counts for nothing */
    const uint32_t *to_compute; /* or for so many tokens; NULL = for what is not cached */
    struct route_request q;
    double overlap_credit; /* that q names */
    struct admission_ticket ticket;
    int (*answer)(struct choice *ch); /* after a wait; returns the status */
    struct route_decision decision;
    struct booking *booking;
    bool only_looks;       /* not worth a record */
    uint64_t decision_seq; /* its record */
    struct str session;    /* that it was bound for */
};

static void choice_done(struct choice *ch)
{
    route_decision_done(&ch->decision);
}
DEFINE_CLEANUP_EMBEDDED(struct choice, choice_done)

/* --- what is asked ---------------------------------------------------------------------------- */

static int find_group(struct choice *ch)
{
    struct select_body *b = &ch->body;

    if (!b->model_name.ptr)
        b->model_name = STR("default");
    if (!b->routing_group.ptr)
        b->routing_group = STR("default");
    ch->group = kv_groups_find(&ch->s->groups, b->model_name, b->routing_group);
    if (ch->group && ch->group->n_workers)
        return 0;
    if (select_workers_schedulable(ch->s) == 0)
        return rest_error(ch->c, 503, "no schedulable workers are available");
    return rest_error(ch->c, 503, "no schedulable workers for model=%.*s routing_group=%.*s",
                      STR_ARG(b->model_name), STR_ARG(b->routing_group));
}

static int read_hashes(struct choice *ch)
{
    const struct select_body *b = &ch->body;
    const char *missing = !b->block_hashes.ptr      ? "block_hashes"
                          : !b->sequence_hashes.ptr ? "sequence_hashes"
                          : !b->isl_tokens.set      ? "isl_tokens"
                                                    : NULL;

    if (missing)
        return rest_error(ch->c, 400, "%s is required without token_ids", missing);
    if (b->block_hashes.len != b->sequence_hashes.len)
        return rest_error(ch->c, 400,
                          "block_hashes length %zu must match sequence_hashes length %zu",
                          b->block_hashes.len, b->sequence_hashes.len);
    if (b->block_hashes.len * ch->group->block_size > b->isl_tokens.v)
        return rest_error(ch->c, 400, "isl_tokens is too small for that many blocks");
    ch->prompt = (struct prompt){b->block_hashes.ptr, b->sequence_hashes.ptr, b->block_hashes.len,
                                 (uint32_t)b->isl_tokens.v};
    return 0;
}

static int read_prompt(struct choice *ch)
{
    const struct select_body *b = &ch->body;
    uint32_t block_size = ch->group->block_size;
    const struct tracking_scope scope = {.model = str_from(ch->group->model),
                                         .routing_group = str_from(ch->group->name),
                                         .block_size = block_size,
                                         .cache_namespace = b->cache_salt,
                                         .lora_name = b->lora_name};
    struct block_naming nm = {.seed = block_hash_seed(b->lora_name, b->cache_salt),
                              .block_size = block_size,
                              .eagle = b->is_eagle.v};
    struct media_list media;
    struct u32_list tokens;
    uint64_t *local, *sequence;
    size_t n;
    int status = select_tokens_read(ch->c, b, &tokens, &media);

    if (status || !tokens.ptr)
        return status ? status : read_hashes(ch);
    nm.media = media.ptr;
    nm.n_media = media.len;
    local = arena_alloc(ch->c->arena, (tokens.len / block_size + 1) * sizeof(*local));
    sequence = arena_alloc(ch->c->arena, (tokens.len / block_size + 1) * sizeof(*sequence));
    n = block_hash_prompt_named(&nm, tokens.ptr, tokens.len, local, sequence);
    if (ch->s->tracking)
        (void)tracking_hash_sequence(ch->s->tracking, &scope, tokens.ptr, tokens.len, sequence);
    ch->prompt = (struct prompt){local, sequence, n, (uint32_t)tokens.len};
    return 0;
}

/* Body, group and prompt; 0 or the status of the error that was written. */
static int read_choice(struct choice *ch)
{
    int status = select_body_read(ch->c, &ch->body);

    if (status == 0)
        status = find_group(ch);
    return status ? status : read_prompt(ch);
}

/* --- deciding --------------------------------------------------------------------------------- */

static bool is_listed(const struct u64_list *ids, uint64_t id)
{
    for (size_t i = 0; i < ids->len; i++)
        if (ids->ptr[i] == id)
            return true;
    return false;
}

/* The scheduler knows workers to leave out; a gateway names those to choose from. */
static void exclude_others(struct choice *ch, struct route_request *q)
{
    const struct u64_list *allowed = &ch->body.allowed_worker_ids;
    const struct map64 *workers = &ch->s->workers;
    uint64_t *excluded, id, worker;
    size_t at = 0, n = 0;

    if (!allowed->ptr)
        return;
    excluded = arena_alloc(ch->c->arena, (workers->len + 1) * sizeof(*excluded));
    while (map64_next(workers, &at, &id, &worker))
        if (!is_listed(allowed, id) &&
            ((struct select_worker *)(uintptr_t)worker)->group == ch->group)
            excluded[n++] = id;
    q->exclude = excluded;
    q->n_exclude = n;
}

static int route_failed(struct choice *ch, int outcome)
{
    switch (outcome) {
    case ROUTE_NO_SUCH_PIN:
        if (ch->body.pinned_worker.ptr)
            break;
        return rest_error(ch->c, 404, "worker %llu has no dp_rank %u",
                          (unsigned long long)ch->q.pin.worker_id, ch->q.pin.dp_rank);
    case ROUTE_ALL_BUSY:
        return rest_error(ch->c, 503, "all workers are busy, please retry later");
    default:
        break;
    }
    return rest_error(ch->c, 503, "no endpoints available to route work");
}

static const struct route_candidate *chosen(const struct choice *ch)
{
    return &ch->decision.candidates[ch->decision.chosen];
}

static void note_decision(struct choice *ch, const struct route_request *q, int result)
{
    const struct route_decision *d = &ch->decision;
    struct decision_context context = {.model = str_from(ch->group->model),
                                       .worker_type = "decode",
                                       .attempt = 1,
                                       .time_ms = clock_wall_ms(),
                                       .index_age_ms = DECISION_UNKNOWN};

    if (result == 0)
        context.index_age_ms = scheduler_index_age_ms(
            ch->group->scheduler, d->candidates[d->chosen].slot, select_now_ms(ch->s));
    ch->decision_seq = explain_decided(ch->s->explain, q, d, result, &context);
}

static uint64_t affinity_ttl_ns(const struct choice *ch)
{
    return scheduler_conf(ch->group->scheduler)->affinity_ttl_s * UINT64_C(1000000000);
}

/* Empty when sessions do not matter: they are off, or the request names its worker. */
static struct str session_of(const struct choice *ch, const struct route_request *q)
{
    return affinity_ttl_ns(ch) && !q->pinned ? ch->body.session_id : STR_NULL;
}

static void bind_session(struct choice *ch, struct str session)
{
    if (!affinity_ttl_ns(ch))
        return;
    (void)affinity_bind(ch->group->affinity, session, chosen(ch)->worker, clock_now_ns());
    ch->session = session;
}

static void find_binding(const struct choice *ch, struct route_request *q)
{
    q->bound = affinity_find(ch->group->affinity, session_of(ch, q), affinity_ttl_ns(ch), q->now_ns,
                             &q->binding);
}

static void constrain(struct choice *ch, const struct select_constraints *told)
{
    struct route_taint *preferred =
        arena_alloc(ch->c->arena, (told->preferred.len + 1) * sizeof(*preferred));

    for (size_t i = 0; i < told->preferred.len; i++)
        preferred[i] = (struct route_taint){told->preferred.ptr[i].name, told->preferred.ptr[i].v};
    ch->q.required = told->required.ptr;
    ch->q.n_required = told->required.len;
    ch->q.preferred = preferred;
    ch->q.n_preferred = told->preferred.len;
}

static double or_nan(struct opt_f64 v)
{
    return v.set ? v.v : NAN;
}

static void override(struct choice *ch, const struct select_override *over)
{
    struct route_request *q = &ch->q;

    q->overlap_weight = or_nan(over->load_scale.set ? over->load_scale : over->weight);
    q->temperature = or_nan(over->temperature);
    ch->overlap_credit = over->credit.v;
    q->overlap_credit = over->credit.set ? &ch->overlap_credit : NULL;
    q->no_kv_reuse = over->assume_kv_reuse.set && !over->assume_kv_reuse.v;
    q->no_prefill_tokens |= over->track_prefill_tokens.set && !over->track_prefill_tokens.v;
}

/* 0 or the status of the error that was written. */
static int check_pin(struct choice *ch)
{
    const struct u64_list *allowed = &ch->body.allowed_worker_ids;
    uint64_t worker = ch->q.pin.worker_id;

    if (!ch->q.pinned || !allowed->ptr || is_listed(allowed, worker))
        return 0;
    return rest_error(ch->c, 400, "pinned worker %llu is not in allowed worker set",
                      (unsigned long long)worker);
}

/* Fills ch->q. @pin may be NULL: then the body's pinned_worker counts. 0 or the status of the error
 * that was written. */
static int prepare(struct choice *ch, const struct worker_rank *pin, bool query_only)
{
    const struct prompt *p = &ch->prompt;
    struct select_details d = {.pin = {.worker_id = {.set = false}}};
    int status = select_details_read(ch->c, &ch->body, &d);
    bool pinned = !ch->only_looks && (pin || d.pin.worker_id.set);

    if (status)
        return status;
    if (affinity_ttl_ns(ch) && ch->body.session_id.len > AFFINITY_ID_MAX)
        return rest_error(ch->c, 400, "session affinity ID must not exceed %d bytes",
                          AFFINITY_ID_MAX);
    ch->q = (struct route_request){
        .id = ch->body.selection_id,
        .local = p->local,
        .sequence = p->sequence,
        .n_blocks = p->n_blocks,
        .isl = MAX(p->isl, 1u),
        .pinned = pinned,
        .pin = pin ? *pin : (struct worker_rank){d.pin.worker_id.v, (uint32_t)d.pin.dp_rank.v},
        .to_compute = ch->to_compute,
        .no_prefill_tokens = ch->no_prefill_tokens,
        .query_only = query_only,
        .now_ns = clock_now_ns(),
        .random = random_u64()};
    override(ch, &d.over);
    if (ch->only_looks)
        return 0; /* at all workers, as in 1.6.1 */
    constrain(ch, &d.constraints);
    exclude_others(ch, &ch->q);
    find_binding(ch, &ch->q);
    if (!ch->q.pinned && d.affinity.worker_id.set) {
        ch->q.bound = true;
        ch->q.binding =
            (struct worker_rank){d.affinity.worker_id.v, (uint32_t)d.affinity.dp_rank.v};
    }
    return check_pin(ch);
}

/* Routes what was prepared; 0 or the status of the error that was written. */
static int route(struct choice *ch)
{
    const struct route_request *q = &ch->q;
    int r = scheduler_route(ch->group->scheduler, q, &ch->decision, &ch->booking);

    if (!ch->only_looks)
        note_decision(ch, q, r);
    if (r == 0 && !q->query_only)
        bind_session(ch, session_of(ch, q));
    return r ? route_failed(ch, r) : 0;
}

static int decide(struct choice *ch, const struct worker_rank *pin, bool query_only)
{
    int status = prepare(ch, pin, query_only);

    return status ? status : route(ch);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Until it is answered; @answer writes what was chosen. */
static struct choice *choice_new(struct select_state *s, struct rest_call *c,
                                 int (*answer)(struct choice *ch))
{
    struct choice *ch = arena_alloc(c->arena, sizeof(*ch));

    *ch = (struct choice){.s = s, .c = c, .answer = answer};
    return ch;
}

/* Gives back what is outside of the arena; returns @status. */
static int choice_end(struct choice *ch, int status)
{
    choice_done(ch);
    return status;
}

static int decide_and_answer(struct choice *ch)
{
    int status = route(ch);

    return choice_end(ch, status ? status : ch->answer(ch));
}

/* Nobody else may reserve under its id meanwhile. */
static void stop_waiting(struct choice *ch)
{
    if (!ch->q.query_only)
        (void)strmap_remove(ch->s->waiting, ch->body.selection_id);
}

/* Workers and bindings may be others than when it came. */
static void on_room(void *arg)
{
    struct choice *ch = arg;
    int status;

    stop_waiting(ch);
    status = prepare(ch, NULL, ch->q.query_only);
    rest_answer(ch->c, status ? choice_end(ch, status) : decide_and_answer(ch));
}

static void on_gone(void *arg)
{
    struct choice *ch = arg;

    admission_leave(&ch->ticket);
    stop_waiting(ch);
    choice_done(ch);
}

static int refuse(struct choice *ch, const struct admission_refusal *why)
{
    struct json_put *j = &ch->c->json;
    char *text = arena_printf(ch->c->arena,
                              "router policy class \"%s\" queue %s limit reached "
                              "(current=%llu, limit=%llu)",
                              why->class, why->kind, (unsigned long long)why->current,
                              (unsigned long long)why->limit);

    json_put_object(j);
    json_put_member_cstr(j, "error", text);
    json_put_key(j, "details");
    json_put_object(j);
    json_put_member_cstr(j, "policy_class", why->class);
    json_put_member_cstr(j, "limit_kind", why->kind);
    json_put_member_u64(j, "current", why->current);
    json_put_member_u64(j, "limit", why->limit);
    json_put_object_end(j);
    json_put_object_end(j);
    return 429;
}

static int wait_for_room(struct choice *ch)
{
    if (!ch->q.query_only)
        (void)strmap_set(ch->s->waiting, ch->body.selection_id, ch);
    rest_defer(ch->c, on_gone, ch);
    return REST_LATER;
}

/* Decides and answers, now or when there is room. */
static int admit(struct choice *ch, bool query_only)
{
    const struct select_body *b = &ch->body;
    struct admission_refusal why;
    int status = prepare(ch, NULL, query_only);

    if (status)
        return choice_end(ch, status);
    ch->ticket =
        (struct admission_ticket){.q = ch->q,
                                  .wanted = rest_header(ch->c, "x-dynamo-meta-policy-class"),
                                  .strict_priority = (uint32_t)b->strict_priority.v,
                                  .jump_s = b->priority_jump.v > 0 ? b->priority_jump.v : 0,
                                  .go = on_room,
                                  .arg = ch};
    switch (admission_enter(ch->group->admission, &ch->ticket, &why)) {
    case ADMISSION_WAITS:
        return wait_for_room(ch);
    case ADMISSION_REFUSED:
        return choice_end(ch, refuse(ch, &why));
    default:
        return decide_and_answer(ch);
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

/* All in tokens; what slower tiers hold goes on where the faster one ends. */
static void put_overlap(struct json_put *j, const struct route_candidate *c, uint64_t block_size)
{
    AUTO(mem_free) char *rank = xasprintf("%u", c->worker.dp_rank);
    uint64_t device = c->overlap_blocks * block_size;
    uint64_t host = device + c->host_blocks * block_size;
    uint64_t disk = host + c->disk_blocks * block_size;

    json_put_object(j);
    json_put_member_u64(j, "longest_matched", disk);
    json_put_member_u64(j, "gpu", device);
    json_put_key(j, "dp");
    json_put_object(j);
    json_put_key(j, rank);
    json_put_u64(j, device);
    json_put_object_end(j);
    json_put_member_u64(j, "cpu", host);
    json_put_member_u64(j, "disk", disk);
    json_put_object_end(j);
}

/* Members model_name to endpoint: where the request is to go. */
static void put_place(struct json_put *j, const struct choice *ch, struct worker_rank w)
{
    const struct select_worker *worker = select_worker_schedulable(ch->s, w.worker_id);

    json_put_member_cstr(j, "model_name", ch->group->model);
    json_put_member_cstr(j, "routing_group", ch->group->name);
    json_put_member_u64(j, "worker_id", w.worker_id);
    json_put_member_u64(j, "dp_rank", w.dp_rank);
    json_put_member_str(j, "endpoint", worker ? worker->spec.endpoint : STR_NULL);
}

/* Blocks on slower tiers count by their weights, as they do in the choice. */
static uint64_t uncached_tokens(const struct choice *ch, const struct route_candidate *c)
{
    uint64_t cached = policy_credited_tokens(ch->decision.policy, c, &ch->decision.inputs);

    return cached < ch->prompt.isl ? ch->prompt.isl - cached : 0;
}

static void put_selection(const struct choice *ch)
{
    struct json_put *j = &ch->c->json;
    const struct route_candidate *c = chosen(ch);
    bool partial = ch->prompt.isl % ch->group->block_size != 0;

    put_place(j, ch, c->worker);
    json_put_member_u64(j, "block_size", ch->group->block_size);
    json_put_key(j, "overlap");
    put_overlap(j, c, ch->group->block_size);
    json_put_member_u64(j, "effective_prefill_tokens", uncached_tokens(ch, c));
    json_put_member_u64(j, "potential_decode_blocks", c->active_blocks + c->new_blocks + partial);
}

static struct str pending_key(const struct choice *ch)
{
    char *key = arena_printf(ch->c->arena, "%s%c%.*s", ch->group->key, '\n',
                             STR_ARG(ch->body.selection_id));

    return str_from(key);
}

static int answer_select(struct choice *ch)
{
    struct json_put *j = &ch->c->json;
    struct str id = ch->body.selection_id;

    if (id.ptr) {
        const struct selection s = {chosen(ch)->worker,  ch->prompt.local, ch->prompt.sequence,
                                    ch->prompt.n_blocks, ch->prompt.isl,   ch->body.session_id};

        selection_cache_put(ch->s->pending, pending_key(ch), &s, select_now_ms(ch->s));
    }
    json_put_object(j);
    if (id.ptr) {
        json_put_member_str(j, "selection_id", id);
    }
    put_selection(ch);
    json_put_object_end(j);
    return 200;
}

int select_select(void *state, struct rest_call *c)
{
    struct choice *ch = choice_new(state, c, answer_select);
    int status = read_choice(ch);

    return status ? choice_end(ch, status) : admit(ch, true);
}

/* --- reserving -------------------------------------------------------------------------------- */

/* Whether the id is free and there is room; 0 or the status of the error that was written. */
static int may_reserve(struct choice *ch)
{
    struct select_state *s = ch->s;

    if (select_reservation_find(s, ch->body.selection_id) ||
        strmap_get(s->waiting, ch->body.selection_id))
        return rest_error(ch->c, 409, "selection %.*s is already reserved or being reserved",
                          STR_ARG(ch->body.selection_id));
    if (strmap_len(s->reservations) >= SELECT_RESERVATIONS_MAX)
        return rest_error(ch->c, 503, "more than %d reservations", SELECT_RESERVATIONS_MAX);
    return 0;
}

static void keep(struct choice *ch)
{
    struct reservation *r = select_reservation_add(ch->s, ch->body.selection_id, ch->group,
                                                   chosen(ch)->worker, TAKE(ch->booking));

    r->decision_seq = ch->decision_seq;
    r->session = affinity_hold(ch->group->affinity, ch->session);
}

static int answer_reserved(struct choice *ch)
{
    struct json_put *j = &ch->c->json;

    keep(ch);
    json_put_object(j);
    json_put_member_str(j, "selection_id", ch->body.selection_id);
    json_put_key(j, "sequence_hashes");
    json_put_array(j);
    for (size_t i = 0; i < ch->prompt.n_blocks; i++)
        json_put_i64(j, (int64_t)ch->prompt.sequence[i]);
    json_put_array_end(j);
    json_put_member_u64(j, "isl_tokens", ch->prompt.isl);
    json_put_member_bool(j, "track_prefill_tokens", ch->decision.inputs.track_prefill_tokens);
    put_selection(ch);
    json_put_object_end(j);
    return 200;
}

int select_select_and_reserve(void *state, struct rest_call *c)
{
    struct choice *ch = choice_new(state, c, answer_reserved);
    int status = read_choice(ch);

    if (status == 0 && !ch->body.selection_id.ptr) {
        char *id = arena_alloc(c->arena, UUID_TEXT_SIZE);

        random_uuid(id);
        ch->body.selection_id = str_from(id);
    }
    if (status == 0)
        status = may_reserve(ch);
    return status ? choice_end(ch, status) : admit(ch, false);
}

/* Reserves what an earlier /select with this id had chosen. */
static int replay(struct choice *ch)
{
    const struct select_body *b = &ch->body;
    const struct selection *s = NULL;
    struct worker_rank w;
    int status;

    ch->group = kv_groups_find(&ch->s->groups, b->model_name, b->routing_group);
    if (ch->group)
        s = selection_cache_find(ch->s->pending, pending_key(ch), select_now_ms(ch->s));
    if (!s)
        return rest_error(ch->c, 404,
                          "no pending selection %.*s for model=%.*s routing_group=%.*s "
                          "(expired, already used, or never selected)",
                          STR_ARG(b->selection_id), STR_ARG(b->model_name),
                          STR_ARG(b->routing_group));
    w = s->worker;
    ch->prompt = (struct prompt){s->local, s->sequence, s->n_blocks, s->isl};
    ch->body.session_id = s->session;
    status = may_reserve(ch);
    if (status)
        return status;
    status = decide(ch, &w, false);
    if (status == 0)
        bind_session(ch, ch->body.session_id);
    selection_cache_remove(ch->s->pending, pending_key(ch));
    return status;
}

/* Such a reservation counts for what it says that there is to compute, else for nothing. */
static int reserve_explicit(struct choice *ch)
{
    uint32_t to_compute = (uint32_t)ch->body.effective_prefill_tokens.v;
    struct worker_rank w = {ch->body.worker_id.v, (uint32_t)ch->body.dp_rank.v};
    const struct select_worker *worker;
    int status = may_reserve(ch);

    if (status == 0)
        status = find_group(ch);
    if (status)
        return status;
    ch->no_prefill_tokens = to_compute == 0;
    worker = select_worker_schedulable(ch->s, w.worker_id);
    if (!worker || worker->group != ch->group)
        return rest_error(ch->c, 404,
                          "schedulable worker %llu not found for model=%s "
                          "routing_group=%s",
                          (unsigned long long)w.worker_id, ch->group->model, ch->group->name);
    if (!ch->body.dp_rank.set)
        w.dp_rank = worker_spec_first_rank(&worker->spec);
    status = read_prompt(ch);
    if (status == 0 && to_compute > ch->prompt.isl)
        return rest_error(ch->c, 400,
                          "effective_prefill_tokens (%u) must not exceed isl_tokens (%u)",
                          to_compute, ch->prompt.isl);
    if (status)
        return status;
    ch->to_compute = &to_compute;
    status = decide(ch, &w, false);
    ch->to_compute = NULL;
    return status;
}

int select_reserve(void *state, struct rest_call *c)
{
    AUTO(choice_done) struct choice ch = {.s = state, .c = c};
    struct select_body *b = &ch.body;
    int status = select_body_read(c, b);

    if (status)
        return status;
    if (!b->selection_id.ptr)
        return rest_error(c, 422, "the body is not as expected: missing field `selection_id`");
    if (!b->model_name.ptr)
        b->model_name = STR("default");
    if (!b->routing_group.ptr)
        b->routing_group = STR("default");
    status = b->worker_id.set ? reserve_explicit(&ch) : replay(&ch);
    if (status)
        return status;
    keep(&ch);
    json_put_object(&c->json);
    json_put_member_str(&c->json, "selection_id", b->selection_id);
    put_place(&c->json, &ch, chosen(&ch)->worker);
    json_put_object_end(&c->json);
    return 201;
}

/* --- what would be ---------------------------------------------------------------------------- */

static void put_rank(struct json_put *j, struct worker_rank w)
{
    json_put_member_u64(j, "worker_id", w.worker_id);
    json_put_member_u64(j, "dp_rank", w.dp_rank);
}

int select_potential_loads(void *state, struct rest_call *c)
{
    AUTO(choice_done) struct choice ch = {.s = state, .c = c, .only_looks = true};
    struct json_put *j = &c->json;
    int status = read_choice(&ch);

    if (status == 0)
        status = decide(&ch, NULL, true);
    if (status)
        return status;
    json_put_array(j);
    for (size_t i = 0; i < ch.decision.n_candidates; i++) {
        const struct route_candidate *k = &ch.decision.candidates[i];

        json_put_object(j);
        put_rank(j, k->worker);
        json_put_member_u64(j, "potential_prefill_tokens",
                            k->prefill_tokens + uncached_tokens(&ch, k));
        json_put_member_u64(j, "potential_decode_blocks", k->active_blocks + k->new_blocks);
        json_put_member_u64(j, "active_requests", k->requests);
        json_put_object_end(j);
    }
    json_put_array_end(j);
    return 200;
}

int select_overlap_scores(void *state, struct rest_call *c)
{
    AUTO(choice_done) struct choice ch = {.s = state, .c = c, .only_looks = true};
    const struct overlap_shared shared = {.enabled =
                                              false}; /* it knows no cards that would tell of one */
    int status = read_choice(&ch);

    if (status == 0)
        status = decide(&ch, NULL, true);
    if (status)
        return status;
    overlap_scores_put(&c->json, ch.group->block_size, ch.prompt.n_blocks, &shared, &ch.decision);
    return 200;
}
