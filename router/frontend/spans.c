/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/spans.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "lib/base/log.h"
#include "router/frontend/span_options.h"

static const struct log_target LG = {"commutator::spans"};

/* Of a span: more are not given below. */
enum { ATTRIBUTES_MAX = 20, NUMBER_SIZE = 24 };

struct attributes {
    struct span_attribute list[ATTRIBUTES_MAX];
    char numbers[ATTRIBUTES_MAX][NUMBER_SIZE];
    size_t n;
};

/* --- start -----------------------------------------------------------------------------------
 */

int tracer_start(struct tracer *s, struct loop *l, struct metric_registry *metrics, bool wanted,
                 const char *(*env)(const char *name), struct err *e)
{
    AUTO(span_options_done) struct span_options o = {0};
    AUTO(buf_done) struct buf url = BUF_NULL;
    struct span_export_conf conf = {.loop = l, .metrics = metrics};
    int r;

    s->sampler = TRACE_SAMPLER_DEFAULT;
    if (!wanted)
        return 0;
    r = span_options_load(&o, env, e);
    if (r < 0)
        return r;
    if (!span_options_sampler(&o, &s->sampler))
        log_warn(&LG, "OTEL_TRACES_SAMPLER or its argument is not known; as if it were not set");
    span_options_put_url(&o, &url);
    conf.url = buf_cstr(&url);
    conf.grpc = span_options_grpc(&o);
    conf.headers = o.headers;
    conf.service = o.service;
    conf.queue_max = o.queue_max;
    conf.batch_max = o.batch_max;
    conf.delay_ms = o.delay_ms;
    conf.timeout_ms = o.timeout_ms;
    r = span_export_new(&s->export, &conf, e);
    if (r < 0)
        return r;
    s->records = true;
    log_info(&LG, "OpenTelemetry OTLP export enabled", LOG_STR("endpoint", conf.url),
             LOG_STR("protocol", conf.grpc ? "grpc" : "http/protobuf"),
             LOG_STR("service", conf.service));
    return 0;
}

static bool exports(const struct tracer *s, const struct trace_context *t)
{
    return s->export && t->sampled;
}

/* --- attributes ------------------------------------------------------------------------------
 */

/* Numbers are texts, as there. */
static void add(struct attributes *a, const char *key, struct str text)
{
    if (text.len)
        a->list[a->n++] = (struct span_attribute){.key = key, .text = text};
}

static void add_flag(struct attributes *a, const char *key, bool v)
{
    a->list[a->n++] = (struct span_attribute){.key = key, .flag = v};
}

static void add_u64(struct attributes *a, const char *key, uint64_t v)
{
    (void)snprintf(a->numbers[a->n], NUMBER_SIZE, "%" PRIu64, v);
    add(a, key, str_from(a->numbers[a->n]));
}

static void add_ms(struct attributes *a, const char *key, double seconds)
{
    if (!isfinite(seconds))
        return;
    (void)snprintf(a->numbers[a->n], NUMBER_SIZE, "%.2f", seconds * 1e3);
    add(a, key, str_from(a->numbers[a->n]));
}

/* --- decisions -------------------------------------------------------------------------------
 */

static void put_part(const struct tracer *s, const struct trace_context *select, const char *name,
                     uint64_t start_ns, uint64_t end_ns)
{
    struct trace_context own = trace_context_child(select);

    span_export_put(s->export, &(struct span){.name = name,
                                              .kind = SPAN_INTERNAL,
                                              .trace_id = own.trace_id,
                                              .span_id = own.span_id,
                                              .parent_id = own.parent_id,
                                              .state = own.state,
                                              .start_ns = start_ns,
                                              .end_ns = end_ns});
}

/* The steps of a decision, within @parent. Returns when it began, as far as it was not told before. */
static uint64_t put_parts(const struct tracer *s, const struct trace_context *parent,
                          const struct route_request *q, const struct route_decision *d,
                          struct router_times *times, uint64_t now_ns)
{
    uint64_t hashing = times->hashing_at_ns, hashed = hashing + times->block_hashing;

    if (times->queued_at_ns)
        put_part(s, parent, "kv_router.queue", times->queued_at_ns, q->now_ns);
    times->hashing_at_ns = times->queued_at_ns = 0;
    if (hashing) {
        put_part(s, parent, "kv_router.compute_block_hashes", hashing, hashed);
        put_part(s, parent, "kv_router.compute_seq_hashes", hashed,
                 hashed + times->sequence_hashing);
    }
    if (q->n_blocks)
        put_part(s, parent, "kv_router.find_matches", d->match_at_ns, d->match_at_ns + d->match_ns);
    put_part(s, parent, "kv_router.schedule", d->match_at_ns + d->match_ns, now_ns);
    return hashing ? hashing : MIN(q->now_ns, d->match_at_ns);
}

void span_asked(const struct tracer *s, const struct trace_context *t,
                const struct route_request *q, const struct route_decision *d,
                struct router_times *times)
{
    if (exports(s, t) && d->mode == ROUTE_KV)
        (void)put_parts(s, t, q, d, times, clock_now_ns());
}

void span_decided(const struct tracer *s, const struct trace_context *t,
                  const struct route_request *q, const struct route_decision *d,
                  struct router_times *times)
{
    struct trace_context select;
    uint64_t now_ns, start_ns;

    if (!exports(s, t) || d->mode != ROUTE_KV || q->query_only)
        return;
    now_ns = clock_now_ns();
    select = trace_context_child(t);
    start_ns = put_parts(s, &select, q, d, times, now_ns);
    span_export_put(s->export, &(struct span){.name = "kv_router.select_worker",
                                              .kind = SPAN_INTERNAL,
                                              .trace_id = select.trace_id,
                                              .span_id = select.span_id,
                                              .parent_id = select.parent_id,
                                              .state = select.state,
                                              .start_ns = start_ns,
                                              .end_ns = now_ns});
}

/* --- attempts --------------------------------------------------------------------------------
 */

void attempt_span_begin(struct attempt_span *a, const struct tracer *s,
                        const struct trace_context *t)
{
    a->n++;
    if (!exports(s, t)) {
        a->trace = *t;
        return;
    }
    a->trace = trace_context_child(t);
    a->start_ns = clock_now_ns();
}

/* The words of plane_failure_name() and of engines, as 1.6.1 would put it. */
static void name_trouble(const char *trouble, const char **ret_outcome, const char **ret_type)
{
    static const struct {
        const char *trouble, *outcome, *type;
    } known[] = {{"unreachable", "connection_failed", "cannot_connect"},
                 {"bad_address", "connection_failed", "cannot_connect"},
                 {"no_ack", "timeout", "connection_timeout"},
                 {"no_call_home", "timeout", "connection_timeout"},
                 {"no_first_item", "timeout", "response_timeout"},
                 {"stalled", "timeout", "response_timeout"},
                 {"timeout", "timeout", "response_timeout"},
                 {"refused", "unavailable", "worker_unavailable"},
                 {"overloaded", "unavailable", "resource_exhausted"},
                 {"broken_early", "worker_disconnected", "disconnected"},
                 {"broken", "worker_disconnected", "disconnected"}};

    *ret_outcome = "error";
    *ret_type = "internal";
    for (size_t i = 0; trouble && i < ARRAY_LEN(known); i++)
        if (str_is(str_from(trouble), known[i].trouble)) {
            *ret_outcome = known[i].outcome;
            *ret_type = known[i].type;
        }
}

/* "power-of-two" is PowerOfTwo there. */
static struct str mode_name(enum route_mode mode, char ret[static NUMBER_SIZE])
{
    size_t n = 0;
    bool big = true;

    for (const char *c = ROUTE_MODE_WORDS[mode]; *c && n + 1 < NUMBER_SIZE; c++) {
        if (*c != '-')
            ret[n++] = (char)(big ? *c - 'a' + 'A' : *c);
        big = *c == '-';
    }
    return str_slice(ret, n);
}

static void add_attempt(struct attributes *a, const struct attempt_span *at,
                        const struct attempt_end *end)
{
    static const char *const phases[PHASES] = {
        [PHASE_AGGREGATED] = "Aggregated", [PHASE_PREFILL] = "Prefill", [PHASE_DECODE] = "Decode"};
    const struct route_decision *d = end->decision;
    const struct route_candidate *chosen = &d->candidates[d->chosen];
    const char *outcome, *type;

    add(a, "request_id", str_from(end->id));
    if (d->mode == ROUTE_KV) {
        add_u64(a, "dp_rank", chosen->worker.dp_rank);
        add_u64(a, "overlap_blocks", chosen->overlap_blocks);
        add(a, "phase", str_from(phases[end->phase]));
    } else {
        add(a, "router_mode", mode_name(d->mode, a->numbers[a->n]));
    }
    add_u64(a, "worker_id", chosen->worker.worker_id);
    add_u64(a, "request.attempt", at->n - 1);
    add_flag(a, "migration.is_retry", at->n > 1);
    if (end->phase != PHASE_PREFILL && end->tokens_before != ATTEMPT_UNKNOWN)
        add_u64(a, "migration.tokens_completed", end->tokens_before);
    if (at->n > 1) {
        name_trouble(at->trouble, &outcome, &type);
        add(a, "migration.reason", str_from(type));
        add_u64(a, "migration.from_worker_id", at->lost);
    }
}

/* Returns what was wrong, NULL for nothing. */
static const char *add_outcome(struct attributes *a, enum decision_end how, const char *trouble)
{
    const char *outcome = "success", *type = NULL;

    if (how == DECISION_CLIENT_GONE) {
        add(a, "request.outcome", STR("cancelled"));
        add(a, "cancellation.signal", STR("stream_drop"));
        return NULL;
    }
    if (how != DECISION_FINISHED)
        name_trouble(trouble, &outcome, &type);
    add(a, "request.outcome", str_from(outcome));
    add(a, "error.type", str_from(type));
    return type;
}

void attempt_span_end(struct attempt_span *a, const struct tracer *s, const struct attempt_end *end)
{
    const struct route_decision *d = end->decision;
    const char *trouble = a->failure;
    struct attributes attributes;
    struct span span = {.kind = SPAN_CLIENT,
                        .trace_id = a->trace.trace_id,
                        .span_id = a->trace.span_id,
                        .parent_id = a->trace.parent_id,
                        .state = a->trace.state,
                        .start_ns = a->start_ns,
                        .attributes = attributes.list};

    if (!a->start_ns)
        return;
    a->start_ns = 0;
    attributes.n = 0;
    add_attempt(&attributes, a, end);
    span.error = add_outcome(&attributes, end->how, trouble);
    span.name = d->mode == ROUTE_KV ? "kv_router.route_request" : "router.route_request";
    span.end_ns = clock_now_ns();
    span.n_attributes = attributes.n;
    span_export_put(s->export, &span);
    a->trouble = trouble;
    a->failure = NULL;
    a->lost = d->candidates[d->chosen].worker.worker_id;
}

/* --- requests --------------------------------------------------------------------------------
 */

/* What came with it of a trace. */
static void add_remote(struct attributes *a, const struct trace_context *t)
{
    if (t->parent_id[0]) {
        add(a, "trace_id", str_from(t->trace_id));
        add(a, "parent_id", str_from(t->parent_id));
        add(a, "trace_flags", str_from(t->parent + TRACE_PARENT_SIZE - 3));
    }
    add(a, "x_request_id", t->client_id);
}

/* @span has all but what is of the trace, and of the time when it ends: now. */
static void put_request(const struct tracer *s, const struct trace_context *t, struct span *span,
                        const struct attributes *a)
{
    span->trace_id = t->trace_id;
    span->span_id = t->span_id;
    span->parent_id = t->parent_id;
    span->parent_is_remote = t->parent_id[0] != '\0';
    span->state = t->state;
    span->end_ns = clock_now_ns();
    span->attributes = a->list;
    span->n_attributes = a->n;
    span_export_put(s->export, span);
}

void span_payload(const struct tracer *s, const struct trace_context *t,
                  const struct payload_span *h)
{
    struct span span = {.name = "handle_payload", .kind = SPAN_SERVER, .start_ns = h->start_ns};
    struct attributes a;

    if (!exports(s, t))
        return;
    a.n = 0;
    add_remote(&a, t);
    add(&a, "request_id", t->dynamo_id);
    add(&a, "tracestate", t->state);
    add(&a, "component", str_from(h->component));
    add(&a, "endpoint", str_from(h->endpoint));
    add(&a, "namespace", str_from(h->ns));
    add_u64(&a, "instance_id", h->instance_id);
    put_request(s, t, &span, &a);
}

void span_http(const struct tracer *s, const struct trace_context *t, const struct http_span *h)
{
    struct span span = {.name = "http-request",
                        .kind = SPAN_INTERNAL,
                        .start_ns = h->start_ns,
                        .error = str_is(str_from(h->outcome), "error") ? "" : NULL};
    struct attributes a;

    if (!exports(s, t))
        return;
    a.n = 0;
    add(&a, "method", STR("POST"));
    add(&a, "uri", h->uri);
    add(&a, "version", h->minor ? STR("HTTP/1.1") : STR("HTTP/1.0"));
    add_remote(&a, t);
    add(&a, "x_dynamo_request_id", t->dynamo_id);
    add(&a, "request_id", str_from(h->id));
    add(&a, "model", str_from(h->model));
    if (h->input_tokens)
        add_u64(&a, "input_tokens", h->input_tokens);
    if (h->output_tokens)
        add_u64(&a, "output_tokens", h->output_tokens);
    add_ms(&a, "ttft_ms", h->ttft_s);
    add_ms(&a, "avg_itl_ms", h->itl_s);
    if (h->routed) {
        add_u64(&a, "prefill_worker_id", h->prefill_worker);
        add_u64(&a, "decode_worker_id", h->decode_worker);
    }
    add(&a, "request.outcome", str_from(h->outcome));
    put_request(s, t, &span, &a);
}
