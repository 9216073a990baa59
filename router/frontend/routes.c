/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/routes.h"

#include "router/frontend/admin.h"
#include "router/frontend/explain.h"
#include "router/frontend/request.h"

static void chat(struct http_exchange *x, void *arg)
{
    request_serve(((struct admin *)arg)->serving, x, API_CHAT);
}

static void completions(struct http_exchange *x, void *arg)
{
    request_serve(((struct admin *)arg)->serving, x, API_COMPLETIONS);
}

static void embeddings(struct http_exchange *x, void *arg)
{
    request_serve_embeddings(((struct admin *)arg)->serving, x);
}

static void responses(struct http_exchange *x, void *arg)
{
    request_serve_responses(((struct admin *)arg)->serving, x);
}

static void messages(struct http_exchange *x, void *arg)
{
    request_serve_messages(((struct admin *)arg)->serving, x);
}

static void count_tokens(struct http_exchange *x, void *arg)
{
    request_count_messages(((struct admin *)arg)->serving, x);
}

static void own(struct http_exchange *x, void *arg)
{
    request_serve_own(((struct admin *)arg)->serving, x);
}

static void explain(struct http_exchange *x, void *arg)
{
    explain_answer(((struct admin *)arg)->serving->explain, x);
}

static void decisions(struct http_exchange *x, void *arg)
{
    explain_list(((struct admin *)arg)->serving->explain, x);
}

#define ADMIN_ROUTE(name)                                                                          \
    static void route_##name(struct http_exchange *x, void *arg)                                   \
    {                                                                                              \
        admin_##name(x, arg);                                                                      \
    }
ADMIN_ROUTE(models)
ADMIN_ROUTE(model)
ADMIN_ROUTE(health)
ADMIN_ROUTE(live)
ADMIN_ROUTE(metrics)
ADMIN_ROUTE(busy_threshold_get)
ADMIN_ROUTE(busy_threshold_post)

const struct http_route FRONTEND_ROUTES[] = {
    {"POST", "/v1/chat/completions", chat, 0},
    {"POST", "/v1/completions", completions, 0},
    {"POST", "/v1/embeddings", embeddings, 0},
    {"POST", "/v1/responses", responses, 0},
    {"POST", "/tokenize", own, 0},
    {"POST", "/detokenize", own, 0},
    {"POST", "/v1/score", own, 0},
    {"POST", "/score", own, 0},
    {"POST", "/v1/rerank", own, 0},
    {"POST", "/v2/rerank", own, 0},
    {"POST", "/rerank", own, 0},
    {"POST", "/pooling", own, 0},
    {"POST", "/classify", own, 0},
    {"GET", "/v1/models", route_models, 1024},
    {"GET", "/v1/models/*", route_model, 1024},
    {"GET", "/health", route_health, 1024},
    {"GET", "/live", route_live, 1024},
    {"GET", "/metrics", route_metrics, 1024},
    {"GET", "/explain/*", explain, 1024},
    {"GET", "/decisions", decisions, 1024},
    {"GET", "/busy_threshold", route_busy_threshold_get, 1024},
    {"POST", "/busy_threshold", route_busy_threshold_post, 65536},
    /* The last two are of --enable-anthropic-api. */
    {"POST", "/v1/messages", messages, 0},
    {"POST", "/v1/messages/count_tokens", count_tokens, 0},
};

size_t frontend_routes(bool anthropic)
{
    return ARRAY_LEN(FRONTEND_ROUTES) - (anthropic ? 0 : 2);
}
