/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an HTTP request to a request: what its headers say, which model is meant, whether it may run.
 */
#include <stdio.h>

#include "router/frontend/request_batch.h"

/* Body `user` if it is a UUID, else the header, else a new one (wire.md §9.2). */
static void choose_id(struct request *rq)
{
    struct str header = http1_header_get(http_request(rq->x), "x-dynamo-request-id");
    struct str id = uuid_is_valid(rq->in.user) ? rq->in.user : header;

    if (uuid_is_valid(id))
        (void)snprintf(rq->id, sizeof(rq->id), "%.*s", STR_ARG(id));
    else
        random_uuid(rq->id);
}

/* By the name of either generation. */
static bool header_u64(struct http_exchange *x, const char *name, const char *newer, uint64_t *ret)
{
    const struct http1_request *head = http_request(x);

    return str_parse_u64(http1_header_get(head, newer), ret) ||
           str_parse_u64(http1_header_get(head, name), ret);
}

static void choose_pin(struct request *rq)
{
    uint64_t prefill, rank;
    bool updates;

    rq->pinned = header_u64(rq->x, "x-worker-instance-id", "x-dynamo-worker-instance-id", &rq->pin);
    if (rq->pinned) /* a header is for both, and beats the body */
        rq->in.decode_worker_id = OPT_U64(rq->pin);
    if (str_parse_bool(http1_header_get(http_request(rq->x), "x-enable-local-updates"), &updates))
        rq->in.enable_local_updates = (struct opt_bool){true, updates};
    if (header_u64(rq->x, "x-dp-rank", "x-dynamo-dp-rank", &rank) && rank <= UINT32_MAX)
        rq->pin_rank = (uint32_t)rank;
    if (header_u64(rq->x, "x-prefill-instance-id", "x-dynamo-prefill-instance-id", &prefill))
        rq->in.prefill_worker_id = OPT_U64(prefill);
    if (!rq->pinned && rq->in.backend_instance_id.set) {
        rq->pinned = true;
        rq->pin = rq->in.backend_instance_id.v;
    }
}

/* Headers beat the body (router.md §4.5). */
static bool choose_priority(struct request *rq, struct api_error *e)
{
    static const char jump[] = "x-dynamo-request-priority",
                      strict[] = "x-dynamo-request-strict-priority";
    const struct http1_request *head = http_request(rq->x);
    const struct openai_request *in = &rq->in;
    struct str jump_text = http1_header_get(head, jump);
    struct str strict_text = http1_header_get(head, strict);
    uint64_t tier = in->strict_priority.set ? in->strict_priority.v : 0;
    double seconds = in->latency_sensitivity.set ? in->latency_sensitivity.v : 0;
    int64_t v;

    if (in->priority.set)
        seconds = (double)in->priority.v;
    if (jump_text.len) {
        if (!str_parse_i64(jump_text, &v))
            return api_fail(e, 400, jump, "Validation: header %s: expected a whole number", jump);
        seconds = (double)v;
    }
    if (strict_text.len && (!str_parse_u64(strict_text, &tier) || tier > UINT32_MAX))
        return api_fail(e, 400, strict, "Validation: header %s: expected a number of 32 bits",
                        strict);
    rq->ticket.jump_s = MAX(seconds, 0.0);
    rq->ticket.strict_priority = (uint32_t)tier;
    rq->ticket.wanted = http1_header_get(head, "x-dynamo-meta-policy-class");
    return true;
}

/* One of the model's sets of workers: see choose_pin() for whose word counts. */
static struct model *pick_set(struct serving *s, struct http_exchange *x,
                              const struct openai_request *in)
{
    struct opt_u64 worker = in->decode_worker_id;
    uint64_t pin;

    if (header_u64(x, "x-worker-instance-id", "x-dynamo-worker-instance-id", &pin))
        worker = OPT_U64(pin);
    else if (in->backend_instance_id.set)
        worker = in->backend_instance_id;
    return serving_pick_model(s, in->model, worker,
                              http1_header_get(http_request(x), "x-dynamo-session-id"));
}

static bool find_model(struct serving *s, struct http_exchange *x, const struct openai_request *in,
                       struct model **ret, struct api_error *e)
{
    struct model *m = pick_set(s, x, in);

    if (s->stopping)
        return api_fail(e, 503, NULL, "Service is shutting down");
    if (s->n_requests + openai_request_choices(in) > s->requests_max)
        return api_fail(e, s->overload_status, NULL,
                        "Too many requests in flight (%zu), please retry later", s->n_requests);
    if (!m)
        return api_fail(e, 404, "model", "Model not found");
    if (m->state == MODEL_LOADING)
        return api_fail(e, 503, "model", "Model is being loaded, please retry");
    if (m->state == MODEL_FAILED)
        return api_fail(e, 503, "model", "Model cannot be served: %s", m->why.text);
    if (in->api == API_CHAT && !m->chat && !m->is_stock)
        return m->why.text[0]
                   ? api_fail(e, 400, "model", "Model serves %s; use /v1/completions", m->why.text)
                   : api_fail(e, 400, "model", "Model has no chat template: use /v1/completions");
    *ret = m;
    return true;
}

struct request *request_new(const struct request_parts *p)
{
    struct request *rq = xcalloc(1, sizeof(*rq));

    *rq = (struct request){.s = p->s,
                           .x = p->x,
                           .m = model_ref(p->m),
                           .arena = p->arena,
                           .in = p->in,
                           .batch = p->batch,
                           .choice = p->choice,
                           .t_start_ns = clock_now_ns(),
                           .is_queued = true,
                           .cached_tokens = DECISION_UNKNOWN};
    if (p->echo) {
        rq->responses = xcalloc(1, sizeof(*rq->responses));
        responses_init(rq->responses, p->echo, p->in.model, clock_wall_ms() / 1000);
    }
    rq->inflight = metric_with(p->s->metrics.inflight, p->m->label);
    rq->active = metric_with(p->s->metrics.active, p->m->label);
    rq->queued = metric_with(p->s->metrics.queued, p->m->label);
    metric_add(
        metric_with(p->s->metrics.started, p->m->label, request_endpoint(rq), request_type(rq)), 1);
    metric_add(rq->inflight, 1);
    metric_add(rq->active, 1);
    metric_add(rq->queued, 1);
    p->s->n_requests++;
    if (p->id)
        (void)snprintf(rq->id, sizeof(rq->id), "%s", p->id);
    else
        choose_id(rq);
    choose_pin(rq);
    return rq;
}

void request_start(struct request *rq)
{
    struct api_error e;

    if (choose_priority(rq, &e))
        request_go(rq, STEP_tokenize);
    else
        request_fail(rq, e.status, "%s", e.text);
}

/* The client left; kill what runs for it. */
static void gone(void *arg)
{
    struct request *rq = arg;

    metric_add(rq->s->metrics.disconnected, 1);
    request_abandon(rq, DECISION_CLIENT_GONE);
}

static bool is_json(struct http_exchange *x, struct api_error *e)
{
    if (openai_content_is_json(http1_header_get(http_request(x), "content-type")))
        return true;
    return api_fail(e, 415, NULL, "Expected request with Content-Type application/json");
}

static void refuse(struct request_parts *parts, const struct api_error *e)
{
    openai_request_done(&parts->in);
    arena_free(parts->arena);
    api_error_respond(parts->x, e);
}

static void serve(const struct request_parts *parts)
{
    struct request *rq = request_new(parts);

    http_add_header(parts->x, "x-request-id", str_from(rq->id)); /* for GET /explain/{id} */
    http_on_gone(parts->x, gone, rq);
    request_start(rq);
}

void request_serve(struct serving *s, struct http_exchange *x, enum api api)
{
    struct request_parts parts = {.s = s, .x = x, .arena = arena_new()};
    struct api_error e;

    if (!is_json(x, &e) ||
        !openai_request_parse(api, http_request(x)->body, parts.arena, &parts.in, &e) ||
        !find_model(s, x, &parts.in, &parts.m, &e))
        refuse(&parts, &e);
    else if (openai_request_choices(&parts.in) > 1 &&
             !parts.m->is_stock) /* they know n themselves */
        request_batch_serve(&parts);
    else
        serve(&parts);
}

static bool knows_responses(const struct model *m, struct api_error *e)
{
    return m->is_stock ? api_fail(e, 501, "model",
                                  "Model is served by plain OpenAI servers: use "
                                  "/v1/chat/completions")
                       : true;
}

void request_serve_responses(struct serving *s, struct http_exchange *x)
{
    struct request_parts parts = {.s = s, .x = x, .arena = arena_new()};
    struct responses_echo echo;
    struct api_error e;

    parts.echo = &echo;
    if (!is_json(x, &e) ||
        !responses_request_parse(http_request(x)->body, parts.arena, &parts.in, &echo, &e) ||
        !find_model(s, x, &parts.in, &parts.m, &e) || !knows_responses(parts.m, &e))
        refuse(&parts, &e);
    else
        serve(&parts);
}
