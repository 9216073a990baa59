/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an HTTP request to a request: what its headers say, which model is meant, whether it may run.
 */
#include <math.h>
#include <stdio.h>

#include "lib/base/json_pull.h"
#include "router/frontend/event_stream.h"
#include "router/frontend/explain.h"
#include "router/frontend/request_batch.h"
#include "router/openai/embeddings.h"
#include "router/openai/messages.h"
#include "router/openai/relay.h"
#include "router/openai/relay_own.h"
#include "router/openai/responses.h"

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

/* A header that says how to route; empty when clients are not to say. */
static struct str steering(const struct serving *s, const struct http_exchange *x, const char *name)
{
    return s->unsteered ? STR_NULL : http1_header_get(http_request(x), name);
}

/* By the name of either generation. */
static bool header_u64(const struct serving *s, const struct http_exchange *x, const char *name,
                       const char *newer, uint64_t *ret)
{
    return str_parse_u64(steering(s, x, newer), ret) || str_parse_u64(steering(s, x, name), ret);
}

static void choose_pin(struct request *rq)
{
    uint64_t prefill, rank;
    bool updates;

    rq->pinned =
        header_u64(rq->s, rq->x, "x-worker-instance-id", "x-dynamo-worker-instance-id", &rq->pin);
    if (rq->pinned) /* a header is for both, and beats the body */
        rq->in.decode_worker_id = OPT_U64(rq->pin);
    if (str_parse_bool(steering(rq->s, rq->x, "x-enable-local-updates"), &updates))
        rq->in.enable_local_updates = (struct opt_bool){true, updates};
    if (header_u64(rq->s, rq->x, "x-dp-rank", "x-dynamo-dp-rank", &rank) && rank <= UINT32_MAX)
        rq->pin_rank = (uint32_t)rank;
    if (header_u64(rq->s, rq->x, "x-prefill-instance-id", "x-dynamo-prefill-instance-id", &prefill))
        rq->in.prefill_worker_id = OPT_U64(prefill);
    if (header_u64(rq->s, rq->x, "x-prefill-dp-rank", "x-dynamo-prefill-dp-rank", &rank) &&
        rank <= UINT32_MAX)
        rq->in.prefill_dp_rank = OPT_U64(rank);
    if (!rq->pinned && rq->in.backend_instance_id.set) {
        rq->pinned = true;
        rq->pin = rq->in.backend_instance_id.v;
    }
}

/* Who is not to share caches with others; before the body's salt, as in 1.6.1. */
static void choose_salt(struct request *rq)
{
    struct str tenant = http1_header_get(http_request(rq->x), "x-tenant-id");

    if (tenant.len && model_is_of_1(rq->m))
        openai_request_set_salt(&rq->in, tenant, rq->arena);
}

/* Headers beat the body (router.md §4.5). */
static bool choose_priority(struct request *rq, struct api_error *e)
{
    static const char jump[] = "x-dynamo-request-priority",
                      strict[] = "x-dynamo-request-strict-priority";
    const struct http1_request *head = http_request(rq->x);
    struct openai_request *in = &rq->in;
    struct str jump_text = steering(rq->s, rq->x, jump);
    struct str strict_text = steering(rq->s, rq->x, strict);
    uint64_t tier;
    int64_t v;

    if (jump_text.len) {
        if (!str_parse_i64(jump_text, &v))
            return api_fail(e, 400, jump, "Validation: header %s: expected a whole number", jump);
        in->priority = OPT_I64(v);
    }
    if (strict_text.len) {
        if (!str_parse_u64(strict_text, &tier) || tier > UINT32_MAX)
            return api_fail(e, 400, strict, "Validation: header %s: expected a number of 32 bits",
                            strict);
        in->strict_priority = OPT_U64(tier);
    }
    if (in->priority.set) /* as 1.6.1 tells workers, too */
        in->latency_sensitivity = OPT_F64(MAX((double)in->priority.v, 0.0));
    rq->ticket.jump_s = in->latency_sensitivity.set ? MAX(in->latency_sensitivity.v, 0.0) : 0;
    rq->ticket.strict_priority = in->strict_priority.set ? (uint32_t)in->strict_priority.v : 0;
    rq->ticket.wanted = http1_header_get(head, "x-dynamo-meta-policy-class");
    return true;
}

/* One of the model's sets of workers: see choose_pin() for whose word counts. */
static struct model *pick_set(struct serving *s, struct http_exchange *x,
                              const struct openai_request *in)
{
    struct opt_u64 worker = in->decode_worker_id;
    uint64_t pin;

    if (header_u64(s, x, "x-worker-instance-id", "x-dynamo-worker-instance-id", &pin))
        worker = OPT_U64(pin);
    else if (in->backend_instance_id.set)
        worker = in->backend_instance_id;
    return serving_pick_model(s, in->model, worker,
                              http1_header_get(http_request(x), "x-dynamo-session-id"));
}

static void settle_tags(const struct model *m, struct openai_request *in, struct arena *arena)
{
    const struct model_card *card = m->card;
    const struct call_tags tags = {card->tool_call_parser, card->tags_on, card->tags_always,
                                   card->tags_strict};

    openai_settle_tags(in, &tags, arena);
}

/* What the body alone could not tell. */
static bool settle_by_model(const struct model *m, struct openai_request *in, struct arena *arena,
                            struct api_error *e)
{
    if (in->api != API_CHAT || m->is_stock) /* plain OpenAI servers answer for themselves */
        return true;
    if (!openai_check_strictly(in, model_is_of_1(m), e))
        return false;
    if (!m->takes_text && !m->card->reasoning_parser)
        openai_drop_default_thinking(in);
    if (model_is_of_1(m) && m->card->thinks.set)
        openai_default_thinking(in, m->card->thinks.v);
    if (model_is_of_1(m))
        settle_tags(m, in, arena);
    return true;
}

static bool find_model(struct request_parts *p, struct api_error *e)
{
    struct serving *s = p->s;
    struct openai_request *in = &p->in;
    struct model *m = pick_set(s, p->x, in);

    if (s->stopping)
        return api_fail(e, 503, NULL, "Service is shutting down");
    if (s->n_requests + openai_request_choices(in) > s->requests_max)
        return api_fail(e, s->overload_status, NULL,
                        "Too many requests in flight (%zu), please retry later", s->n_requests);
    if (!m || !model_serves(m, in->api))
        return api_fail(e, 404, "model", "Model not found");
    if (m->state == MODEL_LOADING)
        return api_fail(e, 503, "model", "Model is being loaded, please retry");
    if (m->state == MODEL_FAILED)
        return api_fail(e, 503, "model", "Model cannot be served: %s", m->why.text);
    if (!pool_is_open(m->pool))
        return api_fail(e, 503, "model", "Model waits for more workers, please retry");
    if (in->api == API_CHAT && !m->chat && !m->is_stock && !m->takes_text)
        return m->why.text[0]
                   ? api_fail(e, 400, "model", "Model serves %s; use /v1/completions", m->why.text)
                   : api_fail(e, 400, "model", "Model has no chat template: use /v1/completions");
    p->m = m;
    return settle_by_model(m, in, p->arena, e);
}

/* Copies: the client may leave before the request does. */
static struct str header_copy(struct http_exchange *x, struct arena *arena, const char *name)
{
    struct str value = http1_header_get(http_request(x), name);

    return value.len ? str_from(arena_strdup(arena, value)) : STR_NULL;
}

void request_take_trace(const struct serving *s, struct http_exchange *x, struct arena *arena,
                        struct trace_context *ret)
{
    const struct trace_headers in = {.parent = header_copy(x, arena, "traceparent"),
                                     .state = header_copy(x, arena, "tracestate"),
                                     .client_id = header_copy(x, arena, "x-request-id"),
                                     .dynamo_id = header_copy(x, arena, "x-dynamo-request-id")};

    trace_context_init(ret, &in, tracer_sampler(&s->tracer));
}

struct http_span request_http_span(const struct request_parts *p)
{
    const struct http1_request *head = http_request(p->x);
    struct http_span h = {
        .minor = head->minor, .start_ns = p->start_ns, .ttft_s = NAN, .itl_s = NAN};

    if (p->s->tracer.export)
        h.uri = str_from(arena_strdup(p->arena, head->path));
    return h;
}

static void take_origin(struct request *rq, const struct request_parts *p)
{
    if (rq->choice == 0)
        explain_named(rq->s->explain, http1_header_get(http_request(rq->x), "x-request-id"),
                      str_from(rq->id));
    if (p->batch) {
        rq->trace = *p->trace;
        return;
    }
    request_take_trace(rq->s, rq->x, rq->arena, &rq->trace);
    rq->span = request_http_span(p);
}

const char *request_endpoint(const struct request *rq)
{
    return rq->own.api                    ? rq->own.api->endpoint
           : rq->dialect                  ? rq->dialect->endpoint
           : rq->in.api == API_CHAT       ? "chat_completions"
           : rq->in.api == API_EMBEDDINGS ? "embeddings"
                                          : "completions";
}

struct request *request_new(const struct request_parts *p)
{
    struct request *rq = xcalloc(1, sizeof(*rq));

    *rq = (struct request){.s = p->s,
                           .form = p->in.api == API_EMBEDDINGS ? &REQUEST_OF_VECTORS
                                   : p->m->takes_text          ? &REQUEST_OF_TEXT
                                                               : &REQUEST_OF_TOKENS,
                           .x = p->x,
                           .m = model_ref(p->m),
                           .arena = p->arena,
                           .in = p->in,
                           .batch = p->batch,
                           .choice = p->choice,
                           .dialect = p->dialect,
                           .own.api = p->m->is_stock ? p->own : NULL,
                           .told = p->told,
                           .t_start_ns = p->start_ns,
                           .is_queued = true,
                           .cached_tokens = DECISION_UNKNOWN};
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
    take_origin(rq, p);
    choose_salt(rq);
    if (model_is_of_1(p->m)) /* the frontend of 0.9.0 leaves a template's arguments as they are */
        openai_settle_thinking(rq->in.template_args);
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
    (void)api_malformed(e, NULL, "Expected request with Content-Type application/json");
    e->status = 415;
    return false;
}

/* The model that a body names; NULL when it names none that is served. */
static const struct model *model_of_body(const struct serving *s, struct str body)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str text = json_pull_member(body, "model"), name;
    struct json_pull p;

    json_pull_init(&p, text);
    if (json_pull_peek(&p) != JSON_KIND_STRING || !json_pull_string(&p, &scratch, &name))
        return NULL;
    return serving_find_model(s, name);
}

/* Its label: "unknown_model" when it is not served, as in 1.6.1. */
static const char *named_model(const struct serving *s, struct str body)
{
    const struct model *m = model_of_body(s, body);

    return m ? m->label : "unknown_model";
}

/* As 1.6.1 counts them, for either generation: of completions only what is refused after the body. */
static void count_refused(const struct request_parts *parts, const struct api_error *e)
{
    struct str body = http_request(parts->x)->body;
    bool chat = parts->in.api == API_CHAT;
    const char *endpoint = parts->dialect ? parts->dialect->endpoint
                           : parts->own   ? parts->own->endpoint
                           : chat         ? "chat_completions"
                                          : "completions";

    if (e->malformed || (!chat && e->status == 400))
        return;
    metric_add(metric_with(parts->s->metrics.requests, named_model(parts->s, body), endpoint,
                           str_is(json_pull_member(body, "stream"), "true") ? "stream" : "unary",
                           "error", api_error_type(e->status)),
               1);
}

void request_refuse(struct http_exchange *x, const struct dialect *d, const struct api_error *e)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    (d ? d->put_error : api_error_put)(&body, e);
    http_respond(x, e->status, "application/json", buf_str(&body));
}

/* It never became a request. */
static void span_refused(const struct request_parts *parts)
{
    struct http_span h = request_http_span(parts);
    struct trace_context trace;

    if (!parts->s->tracer.export)
        return;
    request_take_trace(parts->s, parts->x, parts->arena, &trace);
    h.model = named_model(parts->s, http_request(parts->x)->body);
    h.outcome = "error";
    span_http(&parts->s->tracer, &trace, &h);
}

static void refuse(struct request_parts *parts, const struct api_error *e)
{
    count_refused(parts, e);
    span_refused(parts);
    openai_request_done(&parts->in);
    arena_free(parts->arena);
    request_refuse(parts->x, parts->dialect, e);
}

/* For GET /explain/{id}, which knows it by the client's own id, too: that one goes back. */
void request_tell_id(struct http_exchange *x, const char *id)
{
    if (!http1_header_get(http_request(x), "x-request-id").len)
        http_add_header(x, "x-request-id", str_from(id));
}

static void serve(const struct request_parts *parts)
{
    struct request *rq = request_new(parts);

    request_tell_id(parts->x, rq->id);
    http_on_gone(parts->x, gone, rq);
    event_stream_keep_alive(parts->x, parts->in.stream ? parts->s->keep_alive_ms : 0);
    request_start(rq);
}

/* As 1.6.1; 0.9.0 does not know the field. */
static bool can_tell_ids(const struct request_parts *p, struct api_error *e)
{
    static const char field[] = "`nvext.extra_fields=[\"completion_token_ids\"]`";

    if (!p->in.wants_ids || !model_is_of_1(p->m))
        return true;
    if (p->dialect == &RESPONSES)
        return api_fail(e, 501, "nvext", "Validation: %s is not supported by the Responses API.",
                        field);
    return openai_request_choices(&p->in) == 1
               ? true
               : api_fail(e, 400, "nvext", "Validation: %s requires exactly one generated choice",
                          field);
}

static void unsteer(struct http_exchange *x)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    if (relay_put_unsteered(&body, http_request(x)->body)) /* else it is refused as it came */
        http_request_set_body(x, buf_str(&body));
}

static struct request_parts parts_of(struct serving *s, struct http_exchange *x)
{
    if (s->unsteered)
        unsteer(x);
    return (struct request_parts){.s = s, .x = x, .arena = arena_new(), .start_ns = clock_now_ns()};
}

static bool is_of_engines(const struct serving *s, struct str body)
{
    const struct model *m = model_of_body(s, body);

    return m && m->is_stock;
}

static bool read_again_loosely(struct request_parts *p, enum api api, struct api_error *e)
{
    openai_request_done(&p->in);
    return openai_request_parse_loosely(api, http_request(p->x)->body, p->arena, &p->in, e);
}

/* Keys that we do not know are for plain OpenAI servers to judge: they have some of their own. */
static bool read_body(struct request_parts *p, enum api api, struct api_error *e)
{
    struct str body = http_request(p->x)->body;
    bool ok = openai_request_parse(api, body, p->arena, &p->in, e) ||
              ((p->s->reads_loosely || is_of_engines(p->s, body)) && read_again_loosely(p, api, e));

    p->in.include_usage |= p->s->tells_usage && p->in.stream;
    return ok;
}

void request_serve(struct serving *s, struct http_exchange *x, enum api api)
{
    struct request_parts parts = parts_of(s, x);
    struct api_error e;

    if (!is_json(x, &e) || !read_body(&parts, api, &e) || !find_model(&parts, &e) ||
        !can_tell_ids(&parts, &e))
        refuse(&parts, &e);
    else if (request_batch_size(parts.m, &parts.in) > 1)
        request_batch_serve(&parts);
    else
        serve(&parts);
}

void request_serve_embeddings(struct serving *s, struct http_exchange *x)
{
    struct request_parts parts = parts_of(s, x);
    struct api_error e;

    if (!is_json(x, &e) ||
        !embeddings_request_parse(http_request(x)->body, parts.arena, &parts.in, &e) ||
        !find_model(&parts, &e) ||
        !embeddings_request_settle(&parts.in, model_is_of_1(parts.m), &e))
        refuse(&parts, &e);
    else
        serve(&parts);
}

/* Of a chat in another form, whose events have no nvext. */
static bool asks_at_once(const struct request_parts *p, struct api_error *e)
{
    return p->in.query_only && p->in.stream
               ? api_fail(e, 400, "stream",
                          "Validation: query_instance_id asks for an answer that is not streamed")
               : true;
}

/*
 * What plain OpenAI servers alone understand is theirs to judge: it goes there although we know no more
 * of it than the model. @e says why it was not read.
 */
static bool read_for_engine(struct request_parts *p, struct api_error *e)
{
    struct str body = http_request(p->x)->body;
    struct api_error ours;

    if (!is_of_engines(p->s, body))
        return false;
    openai_request_done(&p->in);
    if (!relay_own_parse(body, p->arena, &p->in, &ours))
        return false;
    *e = (struct api_error){.status = 0};
    return true;
}

void request_serve_responses(struct serving *s, struct http_exchange *x)
{
    struct request_parts parts = parts_of(s, x);
    struct responses_echo echo = {.store = STR_NULL};
    struct api_error e;

    parts.dialect = &RESPONSES;
    parts.own = &OWN_RESPONSES;
    if (!is_json(x, &e) ||
        (!responses_request_parse(http_request(x)->body, parts.arena, &parts.in, &echo, &e) &&
         !read_for_engine(&parts, &e)) ||
        !find_model(&parts, &e) || !asks_at_once(&parts, &e) || !can_tell_ids(&parts, &e)) {
        refuse(&parts, &e);
        return;
    }
    parts.told = responses_new(&echo, parts.in.model, clock_wall_ms() / 1000);
    serve(&parts);
}

void request_serve_messages(struct serving *s, struct http_exchange *x)
{
    struct request_parts parts = parts_of(s, x);
    struct messages_facts facts = {.strips_preamble = s->strips_preamble};
    struct api_error e;

    parts.dialect = &MESSAGES;
    parts.own = &OWN_MESSAGES;
    if (!is_json(x, &e) ||
        (!messages_request_parse(http_request(x)->body, parts.arena, &parts.in, &facts, &e) &&
         !read_for_engine(&parts, &e)) ||
        !find_model(&parts, &e) || !asks_at_once(&parts, &e)) {
        refuse(&parts, &e);
        return;
    }
    parts.told = messages_new(parts.in.model, facts.estimate);
    serve(&parts);
}

static bool engine_answers(const struct request_parts *p, struct api_error *e)
{
    return p->m->is_stock ? true
                          : api_fail(e, 404, "model",
                                     "Model is not served by engines of which %s "
                                     "could be asked",
                                     p->own->path);
}

/* What is for the engine alone: of no chat, so that load decides. */
static void serve_own(struct serving *s, struct http_exchange *x, const struct own_api *own,
                      const struct dialect *d)
{
    struct request_parts parts = parts_of(s, x);
    struct api_error e;

    parts.dialect = d;
    parts.own = own;
    if (!is_json(x, &e) || !relay_own_parse(http_request(x)->body, parts.arena, &parts.in, &e)) {
        refuse(&parts, &e);
        return;
    }
    parts.in.api = API_EMBEDDINGS;
    parts.in.stream = false;
    if (!find_model(&parts, &e) || !engine_answers(&parts, &e))
        refuse(&parts, &e);
    else
        serve(&parts);
}

void request_serve_own(struct serving *s, struct http_exchange *x)
{
    serve_own(s, x, own_api_find(http_request(x)->path), NULL);
}

void request_count_messages(struct serving *s, struct http_exchange *x)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct messages_facts facts = {.strips_preamble = s->strips_preamble};
    struct api_error e;

    if (is_of_engines(s, http_request(x)->body)) {
        serve_own(s, x, &OWN_COUNT, &MESSAGES);
        return;
    }
    if (!is_json(x, &e) || !messages_count(http_request(x)->body, &facts, &e)) {
        request_refuse(x, &MESSAGES, &e);
        return;
    }
    messages_put_count(&body, &facts);
    http_respond(x, 200, "application/json", buf_str(&body));
}
