/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts of models whose tokenizer is not here: an engine that answers /tokenize, as vLLM does,
 * cuts them as it will when it computes them. Where none can, their length is guessed.
 */
#include "lib/base/json_put.h"
#include "lib/base/log.h"
#include "lib/net/http_client.h"
#include "router/frontend/request_relay.h"
#include "router/frontend/request_state.h"

static const struct log_target LG = {"commutator::frontend::relay"};

enum { TOKENIZE_MS = 5000, BYTES_PER_TOKEN = 4, ANSWER_BYTES_MAX = 16 << 20 };

void request_guess_length(struct request *rq)
{
    rq->prompt.len = 0;
    rq->isl_guess = http_request(rq->x)->body.len / BYTES_PER_TOKEN + 1;
}

void request_put_head(struct request *rq)
{
    const struct pool *p = rq->m->pool;
    AUTO(token_ids_done) struct token_ids own = {0};
    size_t n_head;
    struct err e;

    if (rq->in.api != API_COMPLETIONS || !p->n_sample ||
        tokenizer_encode(rq->m->tokenizer, rq->scratch, STR(ENGINE_SAMPLE), &own, &e) < 0 ||
        own.len >= p->n_sample)
        return;
    n_head = p->n_sample - own.len;
    if (memcmp(p->sample + n_head, own.ptr, own.len * sizeof(*own.ptr)) != 0)
        return; /* it cuts otherwise: what it puts before cannot be told */
    for (size_t i = 0; i < n_head; i++)
        token_ids_push(&rq->prompt, p->sample[i]);
}

static void put_question(const struct request *rq, const char *model, struct buf *out)
{
    static const char *const keys[] = {"messages", "tools", "chat_template", "chat_template_kwargs",
                                       "prompt"};
    struct str body = rq->in.made_chat.len ? rq->in.made_chat : http_request(rq->x)->body;
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "model");
    json_put_cstr(&j, model);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct str value = json_pull_member(body, keys[i]);

        if (!value.len)
            continue;
        json_put_key(&j, keys[i]);
        json_put_raw(&j, value);
    }
    json_put_object_end(&j);
}

static bool take_tokens(struct request *rq, struct str answer)
{
    struct json_pull p;
    struct str tokens = json_pull_member(answer, "tokens");
    uint64_t id;
    struct err e;

    json_pull_init(&p, tokens);
    if (!tokens.len || !json_pull_array(&p))
        return false;
    while (json_pull_element(&p) && json_pull_u64(&p, &id))
        token_ids_push(&rq->prompt, (uint32_t)id);
    return json_pull_end(&p, &e) == 0 && rq->prompt.len > 0;
}

static void on_data(void *arg, struct str bytes)
{
    struct request *rq = arg;

    if (rq->prompt_text.len + bytes.len <= ANSWER_BYTES_MAX)
        buf_put_str(&rq->prompt_text, bytes);
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct request *rq = arg;

    rq->tokenizing = NULL;
    if (error < 0 || status != 200 || !take_tokens(rq, buf_str(&rq->prompt_text))) {
        log_debug(&LG, "no engine tokenized the prompt", LOG_REQUEST(rq->id, &rq->trace),
                  LOG_I64("status", status), LOG_STR("why", why));
        request_guess_length(rq);
    }
    request_go(rq, STEP_check);
}

enum step_result request_tokenize_there(struct request *rq)
{
    const struct pool_worker *w = pool_tokenizer(rq->m->pool);
    const char *headers[] = {"content-type: application/json", NULL, NULL};
    AUTO(buf_done) struct buf body = BUF_NULL;
    AUTO(mem_free) char *url = NULL;
    struct http_call_spec spec = {.method = "POST",
                                  .headers = headers,
                                  .connect_ms = rq->s->engine_connect_ms,
                                  .total_ms = TOKENIZE_MS,
                                  .data = on_data,
                                  .done = on_done,
                                  .arg = rq};

    if (!w) {
        request_guess_length(rq);
        return STEP_MORE;
    }
    url = xasprintf("%s/tokenize", w->address);
    headers[1] = request_authorization(rq, w);
    put_question(rq, w->engine_model, &body);
    spec.url = url;
    spec.body = buf_str(&body);
    rq->tokenizing = http_client_start(rq->s->engines, &spec);
    return STEP_WAIT;
}
