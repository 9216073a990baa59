/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/llm_capi.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/log.h"
#include "router/epp/picker.h"
#include "router/epp/task.h"
#include "router/frontend/prompt_make.h"
#include "router/openai/api_error.h"

static const struct log_target LG = {"commutator::epp"};

#define EXPORT __attribute__((visibility("default")))

enum { BOOKKEEPING_MS = 5000 };

/* The type that callers know by name only. */
struct RouterHandles {
    struct picker *picker;
};

static const char *env_of_process(const char *name)
{
    return getenv(name);
}

/* --- life -------------------------------------------------------------------------------------- */

EXPORT query_router_result_t create_routers(const char *namespace_c_str,
                                            const char *component_c_str, bool enforce_disagg,
                                            RouterHandles **out_handle)
{
    struct picker_conf conf = {.ns = namespace_c_str,
                               .component = component_c_str && *component_c_str ? component_c_str
                                                                                : "backend",
                               .enforce_disagg = enforce_disagg,
                               .env = env_of_process};
    struct picker *p;
    struct err e;

    if (!namespace_c_str || !out_handle)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    if (picker_start(&p, &conf, &e) < 0) {
        log_error(&LG, "no router", LOG_STR("why", e.text));
        return QUERY_ROUTER_ERR_INIT_FAILED;
    }
    *out_handle = xcalloc(1, sizeof(**out_handle));
    (*out_handle)->picker = p;
    return QUERY_ROUTER_OK;
}

EXPORT void destroy(RouterHandles *handle)
{
    if (!handle)
        return;
    picker_free(handle->picker);
    free(handle);
}

/* --- routing ----------------------------------------------------------------------------------- */

/* Borrows a model and what tokenizing takes, and gives both back when it chooses. */
struct routing {
    struct picker *picker;
    struct str body;
    struct openai_request in;
    struct model *model;
    struct tokenizer_scratch *scratch;
    struct token_ids prompt;
    struct pick pick;
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
        r->result = picker_choose(r->picker, r->model, &r->pick);
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
    int code;

    localtime_r(&seconds, &now);
    code = prompt_render(r->model, &r->in, &now, 0, &text, e);
    return code < 0 ? code
                    : prompt_encode(r->model, r->scratch, buf_str(&text), &r->prompt, &reuse, e);
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
    r->pick.tokens = r->prompt.ptr;
    r->pick.n_tokens = r->prompt.len;
    do_on_loop(r, choose);
    return r->result;
}

static query_router_result_t route_text(struct routing *r, const char *request_json,
                                        const char *pods_json)
{
    AUTO(arena_free) struct arena *a = arena_new();
    query_router_result_t result = QUERY_ROUTER_ERR_INVALID_PARAM;
    struct api_error wrong;

    r->body = str_from(request_json);
    if (openai_request_parse(API_CHAT, r->body, a, &r->in, &wrong)) {
        if (pods_json)
            r->pick.pods = pods_parse(a, str_from(pods_json));
        result = route_parsed(r);
    } else {
        log_error(&LG, "a request that is no chat", LOG_STR("param", wrong.param));
    }
    openai_request_done(&r->in);
    return result;
}

/* Fills of *@out what both calls share; the chosen worker is in r->pick. */
static query_router_result_t route(struct routing *r, const RouterHandles *handle,
                                   const char *request_json, const char *pods_json,
                                   CRoutingResult *out)
{
    query_router_result_t result;

    if (!handle || !request_json || !out)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    r->picker = handle->picker;
    result = route_text(r, request_json, pods_json);
    if (result == QUERY_ROUTER_OK) {
        *out = (CRoutingResult){.token_ids = r->prompt.ptr, .token_count = r->prompt.len};
        r->prompt = (struct token_ids){.ptr = NULL};
    }
    token_ids_done(&r->prompt);
    return result;
}

EXPORT query_router_result_t route_prefill_request(RouterHandles *handle, const char *request_json,
                                                   const char *pods_json,
                                                   CRoutingResult *out_result)
{
    struct routing r = {.pick = {.role = POOL_PREFILL}};
    query_router_result_t result = route(&r, handle, request_json, pods_json, out_result);

    if (result != QUERY_ROUTER_OK)
        return result;
    out_result->is_disaggregated = true;
    out_result->prefill_worker_id = r.pick.worker.worker_id;
    out_result->prefill_dp_rank = r.pick.worker.dp_rank;
    return result;
}

EXPORT query_router_result_t route_decode_request(RouterHandles *handle, const char *request_json,
                                                  const char *pods_json, bool is_disaggregated,
                                                  CRoutingResult *out_result)
{
    struct routing r = {.pick = {.role = POOL_DECODE, .disagg = is_disaggregated}};
    query_router_result_t result = route(&r, handle, request_json, pods_json, out_result);

    if (result != QUERY_ROUTER_OK)
        return result;
    out_result->is_disaggregated = is_disaggregated;
    out_result->decode_worker_id = r.pick.worker.worker_id;
    out_result->decode_dp_rank = r.pick.worker.dp_rank;
    return result;
}

EXPORT void free_routing_result(CRoutingResult *result)
{
    if (!result)
        return;
    free(result->token_ids);
    result->token_ids = NULL;
    result->token_count = 0;
}

/* --- account ----------------------------------------------------------------------------------- */

/* Copies: whoever called may have left when the loop comes to it. */
struct account {
    struct task task;
    struct picker *picker;
    char *id;
    uint32_t *tokens;
    size_t n_tokens;
    struct worker_rank worker;
    query_router_result_t result;
};

static void account_free(struct task *t)
{
    struct account *a = (struct account *)t;

    free(a->id);
    free(a->tokens);
    free(a);
}

static void book(struct task *t)
{
    struct account *a = (struct account *)t;

    a->result = picker_book(a->picker, str_from(a->id), a->tokens, a->n_tokens, a->worker);
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

static struct account *account_new(RouterHandles *handle, const char *id,
                                   void (*run)(struct task *t))
{
    struct account *a = xcalloc(1, sizeof(*a));

    task_init(&a->task, run, account_free);
    a->picker = handle->picker;
    a->id = xstrdup(id);
    return a;
}

static query_router_result_t settle(struct account *a)
{
    query_router_result_t result = QUERY_ROUTER_ERR_TIMEOUT;

    if (task_do(&a->task, picker_loop(a->picker), BOOKKEEPING_MS))
        result = a->result;
    task_unref(&a->task);
    return result;
}

EXPORT query_router_result_t add_request(RouterHandles *handle, const char *request_id,
                                         const uint32_t *token_ids, size_t token_count,
                                         uint64_t worker_id, uint32_t dp_rank)
{
    struct account *a;

    if (!handle || !request_id || token_count > UINT32_MAX)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    a = account_new(handle, request_id, book);
    a->worker = (struct worker_rank){worker_id, dp_rank};
    a->n_tokens = token_ids ? token_count : 0;
    a->tokens = xreallocarray(NULL, a->n_tokens + 1, sizeof(*a->tokens));
    if (a->n_tokens)
        memcpy(a->tokens, token_ids, a->n_tokens * sizeof(*token_ids));
    return settle(a);
}

EXPORT query_router_result_t mark_prefill_complete(RouterHandles *handle, const char *request_id)
{
    if (!handle || !request_id)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    return settle(account_new(handle, request_id, prefilled));
}

EXPORT query_router_result_t free_request(RouterHandles *handle, const char *request_id)
{
    if (!handle || !request_id)
        return QUERY_ROUTER_ERR_INVALID_PARAM;
    return settle(account_new(handle, request_id, end));
}
