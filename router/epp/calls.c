/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/calls.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/log.h"
#include "router/epp/task.h"
#include "router/frontend/prompt_make.h"
#include "router/openai/api_error.h"

static const struct log_target LG = {"commutator::epp"};

/* --- routing ----------------------------------------------------------------------------------- */

/* Borrows a model and what tokenizing takes, and gives both back when it chooses. */
struct routing {
    struct picker *picker;
    enum call_for what;
    struct str body;
    struct openai_request in;
    struct model *model;
    struct tokenizer_scratch *scratch;
    struct token_ids prompt;
    struct pick pick;
    struct opt_u64 prefill;
    query_router_result_t result;
};

static void take_model(struct routing *r)
{
    r->model = picker_take_model(r->picker, &r->in, r->body);
    if (r->model)
        r->scratch = model_take_scratch(r->model);
}

static void choose(struct routing *r)
{
    model_give_scratch(r->model, TAKE(r->scratch));
    if (r->result == QUERY_ROUTER_OK)
        r->result = r->what == CALL_PAIR
                        ? picker_choose_pair(r->picker, r->model, &r->pick, &r->prefill)
                        : picker_choose(r->picker, r->model, &r->pick);
    r->model = model_unref(r->model);
}

/* The routing is on its caller's stack: the task, which the loop may hold a moment longer, is not. */
struct step {
    struct task task;
    void (*take)(struct routing *r);
    struct routing *routing;
};

static void run_step(struct task *t)
{
    struct step *s = (struct step *)t;

    s->take(s->routing);
}

static void step_free(struct task *t)
{
    free(t);
}

/* Without limit: the caller stays until it is done. */
static void do_on_loop(struct routing *r, void (*take)(struct routing *r))
{
    struct step *s = xcalloc(1, sizeof(*s));
    bool done;

    task_init(&s->task, run_step, step_free);
    s->take = take;
    s->routing = r;
    done = task_do(&s->task, picker_loop(r->picker), 0);
    assert(done);
    (void)done;
    task_unref(&s->task);
}

static int make_prompt(struct routing *r, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    const time_t seconds = (time_t)(clock_wall_ms() / 1000);
    struct prompt_reuse reuse;
    struct tm now;

    localtime_r(&seconds, &now);
    return prompt_make(
        r->model, &r->in,
        &(struct prompt_making){.now = &now, .scratch = r->scratch, .text = &text, .reuse = &reuse},
        &r->prompt, e);
}

static query_router_result_t route_parsed(struct routing *r)
{
    struct err e;

    do_on_loop(r, take_model);
    if (!r->model)
        return QUERY_ROUTER_ERR_INIT_FAILED;
    if (make_prompt(r, &e) < 0) {
        log_error(&LG, "no prompt can be made of a request", LOG_STR("why", e.text));
        r->result = QUERY_ROUTER_ERR_QUERY_FAILED;
    }
    r->pick.request = &r->in;
    r->pick.salt = r->in.cache_salt;
    r->pick.tokens = r->prompt.ptr;
    r->pick.n_tokens = r->prompt.len;
    do_on_loop(r, choose);
    return r->result;
}

static void keep_answer(struct routing *r, struct call_answer *ret)
{
    *ret = (struct call_answer){.tokens = r->prompt.ptr,
                                .n_tokens = r->prompt.len,
                                .salt = r->pick.salt.len ? str_dup(r->pick.salt) : NULL,
                                .salt_len = r->pick.salt.len,
                                .worker = r->pick.worker,
                                .prefill = r->prefill};
    r->prompt = (struct token_ids){.ptr = NULL};
}

query_router_result_t call_route(struct picker *p, enum call_for what, const char *request_json,
                                 const char *pods_json, struct call_answer *ret)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct routing r = {
        .picker = p,
        .what = what,
        .body = str_from(request_json),
        .pick = {.role = what == CALL_PREFILL ? POOL_PREFILL : POOL_DECODE,
                 .disagg = what == CALL_DECODE_ONLY},
    };
    query_router_result_t result = QUERY_ROUTER_ERR_INVALID_PARAM;
    struct api_error wrong;

    if (openai_request_parse(API_CHAT, r.body, a, &r.in, &wrong)) {
        if (pods_json)
            r.pick.pods = pods_parse(a, str_from(pods_json));
        result = route_parsed(&r);
    } else {
        log_error(&LG, "a request that is no chat", LOG_STR("param", wrong.param));
    }
    if (result == QUERY_ROUTER_OK)
        keep_answer(&r, ret);
    openai_request_done(&r.in);
    token_ids_done(&r.prompt);
    return result;
}

void call_answer_done(struct call_answer *a)
{
    free(a->tokens);
    free(a->salt);
    *a = (struct call_answer){.tokens = NULL};
}

/* --- account ----------------------------------------------------------------------------------- */

/* Copies: whoever called may have left when the loop comes to it. */
struct account {
    struct task task;
    struct picker *picker;
    char *id;
    char *salt;
    size_t salt_len;
    uint32_t *tokens;
    size_t n_tokens;
    struct worker_rank worker;
    query_router_result_t result;
};

static void account_free(struct task *t)
{
    struct account *a = (struct account *)t;

    free(a->id);
    free(a->salt);
    free(a->tokens);
    free(a);
}

static void book(struct task *t)
{
    struct account *a = (struct account *)t;
    const struct pick pick = {.tokens = a->tokens,
                              .n_tokens = a->n_tokens,
                              .salt = str_slice(a->salt, a->salt_len),
                              .worker = a->worker};

    a->result = picker_book(a->picker, str_from(a->id), &pick);
}

static void prefilled(struct task *t)
{
    struct account *a = (struct account *)t;

    picker_prefilled(a->picker, str_from(a->id));
}

static void end(struct task *t)
{
    struct account *a = (struct account *)t;

    picker_end(a->picker, str_from(a->id));
}

static struct account *account_new(struct picker *p, const char *id, void (*run)(struct task *t))
{
    struct account *a = xcalloc(1, sizeof(*a));

    task_init(&a->task, run, account_free);
    a->picker = p;
    a->id = xstrdup(id);
    return a;
}

static query_router_result_t settle(struct account *a, uint64_t patience_ms)
{
    query_router_result_t result = QUERY_ROUTER_ERR_TIMEOUT;

    if (task_do(&a->task, picker_loop(a->picker), patience_ms))
        result = a->result;
    task_unref(&a->task);
    return result;
}

query_router_result_t call_book(struct picker *p, const char *id, const struct call_booking *b,
                                uint64_t patience_ms)
{
    struct account *a = account_new(p, id, book);

    a->worker = b->worker;
    a->salt = b->salt.len ? str_dup(b->salt) : NULL;
    a->salt_len = b->salt.len;
    a->n_tokens = b->tokens ? b->n_tokens : 0;
    a->tokens = xreallocarray(NULL, a->n_tokens + 1, sizeof(*a->tokens));
    if (a->n_tokens)
        memcpy(a->tokens, b->tokens, a->n_tokens * sizeof(*b->tokens));
    return settle(a, patience_ms);
}

query_router_result_t call_prefilled(struct picker *p, const char *id, uint64_t patience_ms)
{
    return settle(account_new(p, id, prefilled), patience_ms);
}

query_router_result_t call_end(struct picker *p, const char *id, uint64_t patience_ms)
{
    return settle(account_new(p, id, end), patience_ms);
}
