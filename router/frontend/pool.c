/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/pool.h"

#include <math.h>

#include "lib/base/log.h"
#include "router/kv/block_hash.h"
#include "router/frontend/admission.h"
#include "router/frontend/program_gate.h"
#include "router/frontend/shared_cache.h"
#include "router/sched/worker_selection.h"
#include "router/sync/load_report.h"
#include "router/sync/remote_index.h"

static const struct log_target LG = {"commutator::frontend::pool"};

/* Where users of the reference look for the cost function (router.md §4.2). */
static const struct log_target LG_SCHEDULER = {"dynamo_llm::kv_router::scheduler"};

enum { AVOID_MAX = 64 };

const char *const POOL_ROLE_WORDS[] = {[POOL_DECODE] = "decode", [POOL_PREFILL] = "prefill"};

struct pool *pool_new(struct loop *l, const struct served_model *found, uint32_t block_size,
                      const struct route_conf *route)
{
    struct pool *p = xcalloc(1, sizeof(*p));

    p->refs = 1;
    p->role = found->is_prefill ? POOL_PREFILL : POOL_DECODE;
    p->stage = found->is_prefill        ? ROUTE_PREFILL
               : found->card->is_decode ? ROUTE_DECODE
                                        : ROUTE_AGGREGATED;
    p->loop = l;
    p->model = xstrdup(found->name);
    p->set = xstrdup(found->set ? found->set : found->name);
    p->ns = xstrdup(found->ns);
    p->component = xstrdup(found->component);
    p->endpoint = xstrdup(found->endpoint);
    block_size = block_size ? block_size : found->card->kv_cache_block_size;
    p->eagle = found->card->eagle;
    p->is_stock = found->is_stock;
    p->inhibit_ms = POOL_INHIBIT_MS;
    p->salts_first = found->is_stock;
    p->seed = block_hash_seed(str_from(found->card->lora_name), STR_NULL);
    p->scheduler = scheduler_new(MAX(block_size, 1u), route);
    p->affinity = affinity_new(AFFINITY_SESSIONS_MAX);
    pool_configure(p, route);
    return p;
}

struct pool *pool_ref(struct pool *p)
{
    p->refs++;
    return p;
}

static void worker_free(struct pool_worker *w)
{
    if (!w)
        return;
    free(w->address);
    free(w->bootstrap_host);
    free(w->engine_model);
    free(w->api_key);
    free(w);
}

struct pool *pool_unref(struct pool *p)
{
    uint64_t id, worker;
    size_t at = 0;

    if (!p || --p->refs > 0)
        return NULL;
    while (map64_next(&p->workers, &at, &id, &worker))
        worker_free((struct pool_worker *)(uintptr_t)worker);
    map64_done(&p->workers);
    map64_done(&p->inhibited);
    admission_free(p->admission);
    program_gate_free(p->programs);
    load_report_free(p->report);
    shared_cache_free(p->shared);
    scheduler_free(p->scheduler);
    affinity_free(p->affinity);
    free(p->model);
    free(p->set);
    free(p->ns);
    free(p->component);
    free(p->endpoint);
    free(p);
    return NULL;
}

static void hold_pool(void *pool)
{
    (void)pool_ref(pool);
}

static void let_pool_go(void *pool)
{
    (void)pool_unref(pool);
}

void pool_admit(struct pool *p, const struct admission_metrics *metrics,
                const struct admission_rules *rules)
{
    p->admission = admission_new(&(struct admission_conf){.loop = p->loop,
                                                          .scheduler = p->scheduler,
                                                          .metrics = metrics,
                                                          .model = p->model,
                                                          .worker_type = POOL_ROLE_WORDS[p->role],
                                                          .hold = hold_pool,
                                                          .let_go = let_pool_go,
                                                          .owner = p},
                                 rules);
}

/* In other modes nothing is known of tokens. */
static struct programs_conf programs_of(const struct pool *p)
{
    const struct route_conf *c = scheduler_conf(p->scheduler);
    struct programs_conf programs = c->programs;

    programs.on &= c->mode == ROUTE_KV;
    return programs;
}

void pool_gate(struct pool *p, struct metric_family *programs)
{
    struct programs_conf conf = programs_of(p);

    p->programs = program_gate_new(&(struct program_gate_conf){.loop = p->loop,
                                                               .programs = programs,
                                                               .model = p->model,
                                                               .hold = hold_pool,
                                                               .let_go = let_pool_go,
                                                               .owner = p},
                                   &conf);
}

void pool_configure(struct pool *p, const struct route_conf *route)
{
    struct route_conf c = *route;

    worker_selection_apply(&c, p->stage);
    if (p->role == POOL_PREFILL) {
        c.track_active_blocks = false;
        /* As in 0.9.0 (router.md §4.6). */
        c.busy_decode_blocks = c.busy_prefill_tokens = c.busy_prefill_share = NAN;
    }
    scheduler_configure(p->scheduler, &c);
    if (p->programs) {
        struct programs_conf programs = programs_of(p);

        program_gate_configure(p->programs, &programs);
    }
    if (p->shared)
        shared_cache_switch(p->shared, route->shared_cache != SHARED_CACHE_NONE);
}

void pool_share_cache(struct pool *p, const char *endpoint)
{
    p->shared = shared_cache_new(p->loop, p->model, scheduler_block_size(p->scheduler), endpoint);
    shared_cache_switch(p->shared, scheduler_conf(p->scheduler)->shared_cache != SHARED_CACHE_NONE);
}

static uint64_t salted_seed(const struct pool *p, struct str salt)
{
    return p->seed + block_hash_seed(STR_NULL, salt) - BLOCK_HASH_SEED;
}

size_t pool_hash_local(const struct pool *p, struct str salt, const uint32_t *tokens,
                       size_t n_tokens, uint64_t *ret_local)
{
    const struct block_naming nm = {.seed = p->salts_first ? p->seed : salted_seed(p, salt),
                                    .block_size = scheduler_block_size(p->scheduler),
                                    .eagle = p->eagle && !p->salts_first};
    size_t n = block_hash_local_named(&nm, tokens, n_tokens, ret_local);

    if (p->salts_first && n && salt.len)
        (void)block_hash_local_seeded(salted_seed(p, salt), tokens, nm.block_size, nm.block_size,
                                      ret_local);
    return n;
}

size_t pool_hash(const struct pool *p, struct str salt, const uint32_t *tokens, size_t n_tokens,
                 uint64_t *ret_local, uint64_t *ret_sequence)
{
    size_t n;

    if (!p->eagle && !p->salts_first)
        return block_hash_prompt(salted_seed(p, salt), tokens, n_tokens,
                                 scheduler_block_size(p->scheduler), ret_local, ret_sequence);
    n = pool_hash_local(p, salt, tokens, n_tokens, ret_local);
    block_hash_sequence(ret_local, n, ret_sequence);
    return n;
}

bool pool_cuts_as(const struct pool *p, const struct pool *other)
{
    return p->eagle == other->eagle && p->salts_first == other->salts_first &&
           p->seed == other->seed &&
           scheduler_block_size(p->scheduler) == scheduler_block_size(other->scheduler);
}

void pool_put_worker(struct pool *p, const struct worker *w)
{
    const struct model_card *card = w->card;
    struct pool_worker *known = map64_find_ptr(&p->workers, w->id);
    struct pool_worker *fresh = xcalloc(1, sizeof(*fresh));
    struct worker_info info = {.worker_id = w->id,
                               .dp_start = card->dp_start,
                               .dp_size = card->dp_size,
                               .total_kv_blocks = card->total_kv_blocks,
                               .max_num_seqs = card->max_num_seqs,
                               .max_batched_tokens = card->max_num_batched_tokens,
                               .on_cpu = w->on_cpu,
                               .taints = (const char *const *)card->taints,
                               .n_taints = card->n_taints};

    *fresh = (struct pool_worker){.address = xstrdup(w->address),
                                  .dp_size = MAX(card->dp_size, 1u),
                                  .max_num_batched_tokens = card->max_num_batched_tokens};
    if (w->has_own_card && card->bootstrap_host) {
        fresh->bootstrap_host = xstrdup(card->bootstrap_host);
        fresh->bootstrap_port = card->bootstrap_port;
    }
    if (w->engine) {
        fresh->engine_model = xstrdup(w->engine->model);
        fresh->tokenizes = w->engine->tokenizes;
        fresh->api_key = w->engine->api_key ? xstrdup(w->engine->api_key) : NULL;
        p->n_sample = w->engine->n_sample;
        memcpy(p->sample, w->engine->sample, sizeof(p->sample));
    }
    worker_free(known);
    map64_put_ptr(&p->workers, w->id, fresh);
    p->opened |= p->workers.len >= p->min_workers;
    (void)map64_remove(&p->inhibited, w->id, NULL);
    if (!scheduler_put_worker(p->scheduler, &info))
        log_warn(&LG, "no room for another worker, ignoring", LOG_U64("worker_id", w->id));
    if (p->programs)
        program_gate_put_worker(p->programs, w->id, card->dp_start, card->dp_size,
                                card->total_kv_blocks * scheduler_block_size(p->scheduler));
    if (p->shared)
        shared_cache_put_worker(p->shared, w->id, &card->hicache);
    if (p->admission)
        admission_wake(p->admission);
}

void pool_remove_worker(struct pool *p, uint64_t worker_id)
{
    uint64_t worker;

    if (map64_remove(&p->workers, worker_id, &worker))
        worker_free((struct pool_worker *)(uintptr_t)worker);
    (void)map64_remove(&p->inhibited, worker_id, NULL);
    scheduler_remove_worker(p->scheduler, worker_id);
    if (p->programs)
        program_gate_remove_worker(p->programs, worker_id);
    if (p->shared)
        shared_cache_remove_worker(p->shared, worker_id);
    if (p->admission)
        admission_wake(p->admission);
}

const struct pool_worker *pool_worker(const struct pool *p, uint64_t worker_id)
{
    return map64_find_ptr(&p->workers, worker_id);
}

void pool_note_lack(struct pool *p, uint64_t worker_id, unsigned lack)
{
    struct pool_worker *w = map64_find_ptr(&p->workers, worker_id);

    if (w)
        w->lacks |= lack;
}

struct str pool_worker_address(const struct pool *p, uint64_t worker_id)
{
    const struct pool_worker *w = pool_worker(p, worker_id);

    return w ? str_from(w->address) : STR_NULL;
}

const struct pool_worker *pool_tokenizer(struct pool *p)
{
    uint64_t id, value;
    size_t at = 0;

    while (map64_next(&p->workers, &at, &id, &value)) {
        const struct pool_worker *w = (const struct pool_worker *)(uintptr_t)value;
        const uint64_t *until = map64_find(&p->inhibited, id);

        if (w->tokenizes && !(until && *until > loop_now_ms(p->loop)))
            return w;
    }
    return NULL;
}

void pool_inhibit(struct pool *p, uint64_t worker_id)
{
    *map64_put(&p->inhibited, worker_id, NULL) = loop_now_ms(p->loop) + p->inhibit_ms;
}

/* Writes at most @cap ids that are inhibited now, returns how many. */
static size_t inhibited(struct pool *p, uint64_t *ret_ids, size_t cap)
{
    uint64_t now = loop_now_ms(p->loop), id, until;
    size_t at = 0, n = 0;

    while (n < cap && map64_next(&p->inhibited, &at, &id, &until))
        if (until > now)
            ret_ids[n++] = id;
    if (n == 0 && p->inhibited.len)
        map64_clear(&p->inhibited);
    return n;
}

static int route_around(struct pool *p, struct route_request *q, struct pool_avoid avoid,
                        struct route_decision *ret_decision, struct booking **ret_booking)
{
    uint64_t few[2 * AVOID_MAX], *ids = few, start = clock_now_ns();
    AUTO(mem_free) uint64_t *many = NULL; /* who names its workers may leave out thousands */
    struct shared_hits hits;
    int r;

    q->shared =
        shared_cache_ask(p->shared, scheduler_conf(p->scheduler), q->tokens, q->n_tokens, &hits);
    ret_decision->shared_ns = clock_now_ns() - start;
    if (avoid.n > AVOID_MAX)
        ids = many = xreallocarray(NULL, avoid.n + AVOID_MAX, sizeof(ids[0]));
    if (avoid.n)
        memcpy(ids, avoid.ids, avoid.n * sizeof(ids[0]));
    q->exclude = ids;
    q->n_exclude = avoid.n + inhibited(p, ids + avoid.n, AVOID_MAX);
    r = scheduler_route(p->scheduler, q, ret_decision, ret_booking);
    if (r == ROUTE_NO_WORKERS && q->n_exclude > avoid.n) {
        /* Better a worker that failed somebody else just now than none. */
        q->n_exclude = avoid.n;
        r = scheduler_route(p->scheduler, q, ret_decision, ret_booking);
    }
    q->shared = NULL;
    return r;
}

struct remote_prompt pool_remote_prompt(const struct pool *p, const struct route_request *q)
{
    return (struct remote_prompt){
        .ns = p->ns,
        .component = p->component,
        .model = str_from(p->model),
        .local = q->local,
        .sequence = q->sequence,
        .n_blocks = q->n_blocks,
        .by_writes = scheduler_conf(p->scheduler)->remote == ROUTE_REMOTE_WRITES,
    };
}

int pool_route(struct pool *p, struct route_request *q, struct pool_avoid avoid,
               struct route_decision *ret_decision, struct booking **ret_booking)
{
    struct remote_prompt prompt = pool_remote_prompt(p, q);
    int r = route_around(p, q, avoid, ret_decision, ret_booking);

    if (r == 0 && *ret_booking && p->remote && prompt.by_writes && prompt.n_blocks)
        remote_index_write(p->remote, &prompt,
                           ret_decision->candidates[ret_decision->chosen].worker);
    return r;
}

struct trace {
    const struct pool *pool;
    const char *request_id;
    const struct trace_context *context;
};

static void trace_line(void *arg, struct str text)
{
    const struct trace *t = arg;
    const struct log_field fields[] = {LOG_REQUEST(t->request_id, t->context),
                                       LOG_STR("worker_type", POOL_ROLE_WORDS[t->pool->role])};

    log_emitf(&LG_SCHEDULER, LOG_INFO, fields, ARRAY_LEN(fields), "%.*s", STR_ARG(text));
}

void pool_trace(const struct pool *p, const struct route_decision *d, const char *request_id,
                const struct trace_context *context)
{
    struct trace t = {p, request_id, context};

    if (!log_enabled(&LG_SCHEDULER, LOG_INFO))
        return;
    log_hold();
    route_decision_trace(d, trace_line, &t);
    log_release();
}
