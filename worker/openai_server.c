/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/openai_server.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"
#include "lib/base/log.h"
#include "router/openai/api_error.h"
#include "worker/openai_inner.h"

static const struct log_target LG = {"dynamo_mocker::openai"};

enum { BODY_BYTES_MAX = 64 << 20, RANK_TEXT = 12 };

/* --- metrics, by vLLM's names ----------------------------------------------------------------- */

static struct metric_family *family(struct openai_server *s, const char *name, const char *help,
                                    enum metric_type type, const char *label)
{
    const struct metric_desc desc = {
        .name = name, .help = help, .type = type, .labels = {"model_name", "engine", label}};

    return metric_family(s->metrics, &desc);
}

static struct metric *counter(struct openai_server *s, const char *name, const char *help)
{
    return metric_with(family(s, name, help, METRIC_COUNTER, NULL), s->name, "0");
}

static void put_cache_config(struct openai_server *s)
{
    static const struct metric_desc desc = {
        .name = "vllm:cache_config_info",
        .help = "Information of the LLMEngine CacheConfig",
        .type = METRIC_GAUGE,
        .labels = {"block_size", "enable_prefix_caching", "num_gpu_blocks", "engine"}};
    AUTO(mem_free) char *size = xasprintf("%" PRIu32, s->conf.block_size);
    AUTO(mem_free) char *blocks = xasprintf("%zu", s->conf.n_blocks);

    metric_set(metric_with(metric_family(s->metrics, &desc), size,
                           s->conf.prefix_caching ? "True" : "False", blocks, "0"),
               1);
}

static void make_metrics(struct openai_server *s)
{
    static const char *const reasons[OPENAI_ENDS] = {"stop", "length"};
    static const char *const never[] = {"abort", "error", "repetition"}; /* vLLM lists all */
    struct metric_family *ended;

    s->metrics = metric_registry_new();
    s->running =
        family(s, "vllm:num_requests_running", "Requests in execution", METRIC_GAUGE, NULL);
    s->waiting = family(s, "vllm:num_requests_waiting", "Requests that wait", METRIC_GAUGE, NULL);
    s->usage = family(s, "vllm:kv_cache_usage_perc", "Share of KV blocks in use, 1 is all",
                      METRIC_GAUGE, NULL);
    s->prompt_tokens = counter(s, "vllm:prompt_tokens_total", "Prompt tokens taken");
    s->generation_tokens = counter(s, "vllm:generation_tokens_total", "Tokens generated");
    s->queries = counter(s, "vllm:prefix_cache_queries_total", "Prompt tokens looked up");
    s->hits = counter(s, "vllm:prefix_cache_hits_total", "Prompt tokens found in the cache");
    ended = family(s, "vllm:request_success_total", "Requests ended, by reason", METRIC_COUNTER,
                   "finished_reason");
    for (size_t i = 0; i < OPENAI_ENDS; i++)
        s->ended[i] = metric_with(ended, s->name, "0", reasons[i]);
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        (void)metric_with(ended, s->name, "0", never[i]);
    put_cache_config(s);
}

static void measure(struct openai_server *s)
{
    for (uint32_t i = 0; i < s->conf.dp_size; i++) {
        struct engine_load load = mock_worker_load(s->conf.worker, i);
        char rank[RANK_TEXT];

        (void)snprintf(rank, sizeof(rank), "%" PRIu32, i);
        metric_set(metric_with(s->running, s->name, rank), (double)load.n_running);
        metric_set(metric_with(s->waiting, s->name, rank), (double)load.n_waiting);
        metric_set(metric_with(s->usage, s->name, rank),
                   (double)load.active_blocks / (double)load.total_blocks);
    }
}

static void metrics(struct http_exchange *x, void *arg)
{
    struct openai_server *s = arg;
    AUTO(buf_done) struct buf body = BUF_NULL;

    measure(s);
    metric_print(s->metrics, &body);
    http_respond(x, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&body));
}

/* --- routes ----------------------------------------------------------------------------------- */

static void chat(struct http_exchange *x, void *arg)
{
    openai_job_start(arg, x, API_CHAT);
}

static void completions(struct http_exchange *x, void *arg)
{
    openai_job_start(arg, x, API_COMPLETIONS);
}

static void health(struct http_exchange *x, void *arg)
{
    const struct openai_server *s = arg;

    http_respond(x, s->stopping ? 503 : 200, "application/json", STR_NULL);
}

static void version(struct http_exchange *x, void *arg)
{
    (void)arg;
    http_respond(x, 200, "application/json", STR("{\"version\":\"dynamo-mocker\"}"));
}

static void models(struct http_exchange *x, void *arg)
{
    const struct openai_server *s = arg;
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);

    json_put_object(&j);
    json_put_member_cstr(&j, "object", "list");
    json_put_key(&j, "data");
    json_put_array(&j);
    json_put_object(&j);
    json_put_member_cstr(&j, "id", s->name);
    json_put_member_cstr(&j, "object", "model");
    json_put_member_u64(&j, "created", clock_wall_ms() / 1000);
    json_put_member_cstr(&j, "owned_by", "vllm");
    json_put_member_cstr(&j, "root", s->root);
    json_put_key(&j, "parent");
    json_put_null(&j);
    json_put_member_u64(&j, "max_model_len", s->context_length);
    json_put_object_end(&j);
    json_put_array_end(&j);
    json_put_object_end(&j);
    http_respond(x, 200, "application/json", buf_str(&body));
}

static void put_tokens(const struct openai_server *s, struct http_exchange *x,
                       const struct token_ids *ids)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct json_put j = json_put_on(&body);

    json_put_object(&j);
    json_put_member_u64(&j, "count", ids->len);
    json_put_member_u64(&j, "max_model_len", s->context_length);
    json_put_key(&j, "tokens");
    json_put_array(&j);
    for (size_t i = 0; i < ids->len; i++)
        json_put_u64(&j, ids->ptr[i]);
    json_put_array_end(&j);
    json_put_key(&j, "token_strs");
    json_put_null(&j);
    json_put_object_end(&j);
    http_respond(x, 200, "application/json", buf_str(&body));
}

/* {"prompt":s} or {"messages":[…],"tools":[…],"chat_template_kwargs":{…}} */
static void tokenize(struct http_exchange *x, void *arg)
{
    struct openai_server *s = arg;
    AUTO(json_free) struct json *body = NULL;
    AUTO(token_ids_done) struct token_ids ids = {0};
    struct openai_request in = {.api = API_COMPLETIONS};
    struct api_error e;
    struct err why;

    if (json_parse(&body, http_request(x)->body, &why) < 0) {
        (void)api_fail(&e, 400, NULL, "%s", why.text);
        api_error_respond(x, &e);
        return;
    }
    in.messages = json_get(body, "messages");
    in.tools = json_get(body, "tools");
    in.template_args = json_get(body, "chat_template_kwargs");
    in.prompt.text = str_from(json_get_cstr(body, "prompt"));
    if (in.messages)
        in.api = API_CHAT;
    if (!in.messages && !in.prompt.text.ptr)
        (void)api_fail(&e, 400, "prompt", "neither prompt nor messages");
    else if (openai_prompt(s, &in, &ids, &e)) {
        put_tokens(s, x, &ids);
        return;
    }
    api_error_respond(x, &e);
}

static const struct http_route ROUTES[] = {
    {"POST", "/v1/chat/completions", chat, 0}, {"POST", "/v1/completions", completions, 0},
    {"POST", "/tokenize", tokenize, 0},        {"GET", "/v1/models", models, 1024},
    {"GET", "/health", health, 1024},          {"GET", "/version", version, 1024},
    {"GET", "/metrics", metrics, 1024},
};

/* --- life ------------------------------------------------------------------------------------- */

static int load_text(struct openai_server *s, struct err *e)
{
    const struct model_places here = {.model_root = NULL};
    int r = model_text_load(&s->text, s->conf.card, &here, NULL, 0, TEMPLATE_TRANSFORMERS,
                            CHAT_AS_SENT, e);

    if (r < 0)
        return err_wrap(e, r, "OpenAI API of '%s'", s->name);
    s->scratch = tokenizer_scratch_new(s->text.tokenizer);
    if (s->text.lacks.text[0])
        log_warn(&LG, "chat template cannot be used", LOG_STR("model", s->name),
                 LOG_STR("why", s->text.lacks.text));
    return 0;
}

int openai_server_start(struct openai_server **ret, const struct openai_server_conf *conf,
                        struct err *e)
{
    AUTO(openai_server_free) struct openai_server *s = xcalloc(1, sizeof(*s));
    const struct http_server_conf http = {.host = conf->host,
                                          .port = conf->port,
                                          .body_bytes = BODY_BYTES_MAX,
                                          .routes = ROUTES,
                                          .n_routes = ARRAY_LEN(ROUTES),
                                          .arg = s,
                                          .on_error = api_error_from_server};
    uint64_t all = (uint64_t)conf->n_blocks * conf->block_size;
    int r;

    s->conf = *conf;
    list_init(&s->jobs);
    s->name = xstrdup(conf->card->display_name);
    s->root = xstrdup(conf->root);
    s->context_length =
        conf->card->context_length ? conf->card->context_length : (uint32_t)MIN(all, UINT32_MAX);
    make_metrics(s);
    r = load_text(s, e);
    if (r == 0)
        r = http_server_start(&s->http, conf->loop, &http, e);
    if (r < 0)
        return r;
    log_info(&LG, "engine serves the OpenAI API", LOG_STR("model", s->name),
             LOG_U64("port", openai_server_port(s)));
    *ret = TAKE(s);
    return 0;
}

uint16_t openai_server_port(const struct openai_server *s)
{
    return http_server_port(s->http);
}

static void nothing(void *arg)
{
    (void)arg;
}

void openai_server_stop(struct openai_server *s)
{
    if (!s || s->stopping)
        return;
    s->stopping = true;
    http_server_stop(s->http, nothing, NULL);
}

struct openai_server *openai_server_free(struct openai_server *s)
{
    if (!s)
        return NULL;
    http_server_free(s->http);
    openai_jobs_drop(s);
    tokenizer_scratch_free(s->scratch);
    model_text_done(&s->text);
    metric_registry_free(s->metrics);
    free(s->name);
    free(s->root);
    free(s);
    return NULL;
}
