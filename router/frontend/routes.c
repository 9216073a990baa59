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

enum { OF_ADMIN = 1, OF_ANTHROPIC };

static const struct row {
    struct http_route route;
    int named, of; /* 1 + enum frontend_path that @route.path is below; what it is served with */
} ROWS[] = {
    {{"POST", "", chat, 0}, 1 + PATH_CHAT, 0},
    {{"POST", "", completions, 0}, 1 + PATH_COMPLETIONS, 0},
    {{"POST", "", embeddings, 0}, 1 + PATH_EMBEDDINGS, 0},
    {{"POST", "", responses, 0}, 1 + PATH_RESPONSES, 0},
    {{"POST", "", messages, 0}, 1 + PATH_MESSAGES, OF_ANTHROPIC},
    {{"POST", "/count_tokens", count_tokens, 0}, 1 + PATH_MESSAGES, OF_ANTHROPIC},
    {{"GET", "", route_models, 1024}, 1 + PATH_MODELS, 0},
    {{"GET", "/*", route_model, 1024}, 1 + PATH_MODELS, 0},
    {{"GET", "", route_health, 1024}, 1 + PATH_HEALTH, 0},
    {{"GET", "", route_live, 1024}, 1 + PATH_LIVE, 0},
    {{"GET", "", route_metrics, 1024}, 1 + PATH_METRICS, 0},
    {{"POST", "/tokenize", own, 0}, 0, 0},
    {{"POST", "/detokenize", own, 0}, 0, 0},
    {{"POST", "/v1/score", own, 0}, 0, 0},
    {{"POST", "/score", own, 0}, 0, 0},
    {{"POST", "/v1/rerank", own, 0}, 0, 0},
    {{"POST", "/v2/rerank", own, 0}, 0, 0},
    {{"POST", "/rerank", own, 0}, 0, 0},
    {{"POST", "/pooling", own, 0}, 0, 0},
    {{"POST", "/classify", own, 0}, 0, 0},
    {{"GET", "/explain/*", explain, 1024}, 0, 0},
    {{"GET", "/decisions", decisions, 1024}, 0, 0},
    {{"GET", "/busy_threshold", route_busy_threshold_get, 1024}, 0, OF_ADMIN},
    {{"POST", "/busy_threshold", route_busy_threshold_post, 65536}, 0, OF_ADMIN},
};

static bool is_served(const struct row *row, const struct frontend_conf *c)
{
    return row->of == OF_ADMIN ? !c->no_admin_api : row->of == OF_ANTHROPIC ? c->anthropic : true;
}

struct http_route *frontend_routes(const struct frontend_conf *c, struct arena *a, size_t *ret_n)
{
    struct http_route *routes = arena_alloc(a, sizeof(*routes) * ARRAY_LEN(ROWS));

    *ret_n = 0;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        struct http_route *r = &routes[*ret_n];

        if (!is_served(&ROWS[i], c))
            continue;
        *r = ROWS[i].route;
        if (ROWS[i].named)
            r->path = arena_printf(a, "%s%s", c->paths[ROWS[i].named - 1], r->path);
        (*ret_n)++;
    }
    return routes;
}
