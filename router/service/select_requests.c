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
#include "router/service/select_state.h"
#include "router/service/selection_cache.h"

struct body {
    struct str selection_id, model_name, routing_group, lora_name, cache_salt, session_id;
    struct u32_list token_ids;
    struct u64_list block_hashes, sequence_hashes, allowed_worker_ids;
    struct opt_u64 isl_tokens, worker_id, dp_rank, effective_prefill_tokens;
    struct str pinned_worker, router_config_override; /* JSON */
};

#define AT(member) offsetof(struct body, member)
static const struct body_field BODY[] = {
    {"selection_id", BODY_STR, AT(selection_id), false},
    {"model_name", BODY_STR, AT(model_name), false},
    {"routing_group", BODY_STR, AT(routing_group), false},
    {"session_id", BODY_STR, AT(session_id), false},
    {"lora_name", BODY_STR, AT(lora_name), false},
    {"cache_salt", BODY_STR, AT(cache_salt), false},
    {"token_ids", BODY_TOKENS, AT(token_ids), false},
    {"block_hashes", BODY_HASHES, AT(block_hashes), false},
    {"sequence_hashes", BODY_HASHES, AT(sequence_hashes), false},
    {"allowed_worker_ids", BODY_HASHES, AT(allowed_worker_ids), false},
    {"isl_tokens", BODY_U32, AT(isl_tokens), false},
    {"worker_id", BODY_U64, AT(worker_id), false},
    {"dp_rank", BODY_U32, AT(dp_rank), false},
    {"effective_prefill_tokens", BODY_U32, AT(effective_prefill_tokens), false},
    {"pinned_worker", BODY_OBJECT, AT(pinned_worker), false},
    {"router_config_override", BODY_OBJECT, AT(router_config_override), false},
};

struct prompt {
    const uint64_t *local, *sequence;
    size_t n_blocks;
    uint32_t isl;
};

/* One decision under way; its record goes with it. */
struct choice {
    struct select_state *s;
    struct rest_call *c;
    struct body body;
    struct kv_group *group;
    struct prompt prompt;
    bool no_prefill_tokens;     /* the prompt counts for nothing */
    const uint32_t *to_compute; /* or for so many tokens; NULL = for what is not cached */
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
    struct body *b = &ch->body;

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
    const struct body *b = &ch->body;
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
    const struct body *b = &ch->body;
    uint32_t block_size = ch->group->block_size;
    const struct tracking_scope scope = {.model = str_from(ch->group->model),
                                         .routing_group = str_from(ch->group->name),
                                         .block_size = block_size,
                                         .cache_namespace = b->cache_salt,
                                         .lora_name = b->lora_name};
    size_t n = b->token_ids.len / block_size;
    uint64_t *local, *sequence;

    if (!b->token_ids.ptr)
        return read_hashes(ch);
    local = arena_alloc(ch->c->arena, (n + 1) * sizeof(*local));
    sequence = arena_alloc(ch->c->arena, (n + 1) * sizeof(*sequence));
    (void)block_hash_local_seeded(block_hash_seed(b->lora_name, b->cache_salt), b->token_ids.ptr,
                                  b->token_ids.len, block_size, local);
    if (ch->s->tracking)
        (void)tracking_hash_sequence(ch->s->tracking, &scope, b->token_ids.ptr, b->token_ids.len,
                                     sequence);
    else
        block_hash_sequence(local, n, sequence);
    ch->prompt = (struct prompt){local, sequence, n, (uint32_t)b->token_ids.len};
    return 0;
}

/* Body, group and prompt; 0 or the status of the error that was written. */
static int read_choice(struct choice *ch)
{
    int status = rest_body(ch->c, BODY, ARRAY_LEN(BODY), &ch->body);

    if (status == 0)
        status = find_group(ch);
    return status ? status : read_prompt(ch);
}

/* --- deciding --------------------------------------------------------------------------------- */

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
    while (map64_next(workers, &at, &id, &worker)) {
        size_t i = 0;

        while (i < allowed->len && allowed->ptr[i] != id)
            i++;
        if (i == allowed->len && ((struct select_worker *)(uintptr_t)worker)->group == ch->group)
            excluded[n++] = id;
    }
    q->exclude = excluded;
    q->n_exclude = n;
}

struct pin {
    struct opt_u64 worker_id, dp_rank;
};
struct override {
    struct opt_f64 weight, temperature;
};

/* Members of the body that are objects themselves. */
static int read_details(struct choice *ch, struct pin *pin, struct override *over)
{
    static const struct body_field pins[] = {
        {"worker_id", BODY_U64, offsetof(struct pin, worker_id), true},
        {"dp_rank", BODY_U32, offsetof(struct pin, dp_rank), true}};
    static const struct body_field overrides[] = {
        {"overlap_score_weight", BODY_F64, offsetof(struct override, weight), false},
        {"router_temperature", BODY_F64, offsetof(struct override, temperature), false}};
    struct err e = {""};
    int r = 0;

    if (ch->body.pinned_worker.ptr)
        r = body_parse(ch->c->arena, ch->body.pinned_worker, pins, ARRAY_LEN(pins), pin, &e);
    if (r == 0 && ch->body.router_config_override.ptr)
        r = body_parse(ch->c->arena, ch->body.router_config_override, overrides,
                       ARRAY_LEN(overrides), over, &e);
    if (r == 0 && ((over->weight.set && over->weight.v < 0) ||
                   (over->temperature.set && over->temperature.v < 0)))
        r = err_set(&e, -EINVAL, "router_config_override must not be negative");
    return r ? rest_error(ch->c, 422, "the body is not as expected: %s", e.text) : 0;
}

static int route_failed(struct choice *ch, int outcome, const struct worker_rank *pin)
{
    switch (outcome) {
    case ROUTE_NO_SUCH_PIN:
        return rest_error(ch->c, 404, "worker %llu has no dp_rank %u",
                          (unsigned long long)pin->worker_id, pin->dp_rank);
    case ROUTE_ALL_BUSY:
        return rest_error(ch->c, 503, "all workers are busy, please retry later");
    default:
        return rest_error(ch->c, 503, "no schedulable workers for model=%s routing_group=%s",
                          ch->group->model, ch->group->name);
    }
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

/* @pin may be NULL: then the body's pinned_worker counts. */
static int decide(struct choice *ch, const struct worker_rank *pin, bool query_only)
{
    const struct prompt *p = &ch->prompt;
    struct override over = {{false, 0}, {false, 0}};
    struct pin named = {{false, 0}, {false, 0}};
    struct route_request q = {.id = ch->body.selection_id,
                              .local = p->local,
                              .sequence = p->sequence,
                              .n_blocks = p->n_blocks,
                              .isl = MAX(p->isl, 1u),
                              .to_compute = ch->to_compute,
                              .no_prefill_tokens = ch->no_prefill_tokens,
                              .query_only = query_only,
                              .now_ns = clock_now_ns(),
                              .random = random_u64()};
    int status = read_details(ch, &named, &over), r;

    if (status)
        return status;
    if (affinity_ttl_ns(ch) && ch->body.session_id.len > AFFINITY_ID_MAX)
        return rest_error(ch->c, 400, "session affinity ID must not exceed %d bytes",
                          AFFINITY_ID_MAX);
    q.pinned = pin || named.worker_id.set;
    q.pin = pin ? *pin : (struct worker_rank){named.worker_id.v, (uint32_t)named.dp_rank.v};
    q.overlap_weight = over.weight.set ? over.weight.v : NAN;
    q.temperature = over.temperature.set ? over.temperature.v : NAN;
    exclude_others(ch, &q);
    find_binding(ch, &q);
    r = scheduler_route(ch->group->scheduler, &q, &ch->decision, &ch->booking);
    if (!ch->only_looks)
        note_decision(ch, &q, r);
    if (r == 0 && !query_only)
        bind_session(ch, session_of(ch, &q));
    return r ? route_failed(ch, r, &q.pin) : 0;
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
    json_put_key(j, "longest_matched");
    json_put_u64(j, disk);
    json_put_key(j, "gpu");
    json_put_u64(j, device);
    json_put_key(j, "dp");
    json_put_object(j);
    json_put_key(j, rank);
    json_put_u64(j, device);
    json_put_object_end(j);
    json_put_key(j, "cpu");
    json_put_u64(j, host);
    json_put_key(j, "disk");
    json_put_u64(j, disk);
    json_put_object_end(j);
}

/* Members model_name to endpoint: where the request is to go. */
static void put_place(struct json_put *j, const struct choice *ch, struct worker_rank w)
{
    const struct select_worker *worker = select_worker_schedulable(ch->s, w.worker_id);

    json_put_key(j, "model_name");
    json_put_cstr(j, ch->group->model);
    json_put_key(j, "routing_group");
    json_put_cstr(j, ch->group->name);
    json_put_key(j, "worker_id");
    json_put_u64(j, w.worker_id);
    json_put_key(j, "dp_rank");
    json_put_u64(j, w.dp_rank);
    json_put_key(j, "endpoint");
    json_put_str(j, worker ? worker->spec.endpoint : STR_NULL);
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
    json_put_key(j, "block_size");
    json_put_u64(j, ch->group->block_size);
    json_put_key(j, "overlap");
    put_overlap(j, c, ch->group->block_size);
    json_put_key(j, "effective_prefill_tokens");
    json_put_u64(j, uncached_tokens(ch, c));
    json_put_key(j, "potential_decode_blocks");
    json_put_u64(j, c->active_blocks + c->new_blocks + partial);
}

static struct str pending_key(const struct choice *ch)
{
    char *key = arena_printf(ch->c->arena, "%s%c%.*s", ch->group->key, '\n',
                             STR_ARG(ch->body.selection_id));

    return str_from(key);
}

int select_select(void *state, struct rest_call *c)
{
    AUTO(choice_done) struct choice ch = {.s = state, .c = c};
    struct str id;
    int status = read_choice(&ch);

    if (status == 0)
        status = decide(&ch, NULL, true);
    if (status)
        return status;
    id = ch.body.selection_id;
    if (id.ptr) {
        const struct selection s = {chosen(&ch)->worker, ch.prompt.local, ch.prompt.sequence,
                                    ch.prompt.n_blocks,  ch.prompt.isl,   ch.body.session_id};

        selection_cache_put(ch.s->pending, pending_key(&ch), &s, select_now_ms(ch.s));
    }
    json_put_object(&c->json);
    if (id.ptr) {
        json_put_key(&c->json, "selection_id");
        json_put_str(&c->json, id);
    }
    put_selection(&ch);
    json_put_object_end(&c->json);
    return 200;
}

/* --- reserving -------------------------------------------------------------------------------- */

/* Whether the id is free and there is room; 0 or the status of the error that was written. */
static int may_reserve(struct choice *ch)
{
    struct select_state *s = ch->s;

    if (select_reservation_find(s, ch->body.selection_id))
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

int select_select_and_reserve(void *state, struct rest_call *c)
{
    AUTO(choice_done) struct choice ch = {.s = state, .c = c};
    int status = read_choice(&ch);

    if (status == 0 && !ch.body.selection_id.ptr) {
        char *id = arena_alloc(c->arena, UUID_TEXT_SIZE);

        random_uuid(id);
        ch.body.selection_id = str_from(id);
    }
    if (status == 0)
        status = may_reserve(&ch);
    if (status == 0)
        status = decide(&ch, NULL, false);
    if (status)
        return status;
    keep(&ch);
    json_put_object(&c->json);
    json_put_key(&c->json, "selection_id");
    json_put_str(&c->json, ch.body.selection_id);
    json_put_key(&c->json, "sequence_hashes");
    json_put_array(&c->json);
    for (size_t i = 0; i < ch.prompt.n_blocks; i++)
        json_put_i64(&c->json, (int64_t)ch.prompt.sequence[i]);
    json_put_array_end(&c->json);
    json_put_key(&c->json, "isl_tokens");
    json_put_u64(&c->json, ch.prompt.isl);
    json_put_key(&c->json, "track_prefill_tokens");
    json_put_bool(&c->json, true);
    put_selection(&ch);
    json_put_object_end(&c->json);
    return 200;
}

/* Reserves what an earlier /select with this id had chosen. */
static int replay(struct choice *ch)
{
    const struct body *b = &ch->body;
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
    struct body *b = &ch.body;
    int status = rest_body(c, BODY, ARRAY_LEN(BODY), b);

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
    json_put_key(&c->json, "selection_id");
    json_put_str(&c->json, b->selection_id);
    put_place(&c->json, &ch, chosen(&ch)->worker);
    json_put_object_end(&c->json);
    return 201;
}

/* --- what would be ---------------------------------------------------------------------------- */

static void put_rank(struct json_put *j, struct worker_rank w)
{
    json_put_key(j, "worker_id");
    json_put_u64(j, w.worker_id);
    json_put_key(j, "dp_rank");
    json_put_u64(j, w.dp_rank);
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
        json_put_key(j, "potential_prefill_tokens");
        json_put_u64(j, k->prefill_tokens + uncached_tokens(&ch, k));
        json_put_key(j, "potential_decode_blocks");
        json_put_u64(j, k->active_blocks + k->new_blocks);
        json_put_key(j, "active_requests");
        json_put_u64(j, k->requests);
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
