/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/span_options.h"

#include "lib/base/conf.h"

#define AT(member) offsetof(struct span_options, member)

/* Defaults: the OpenTelemetry specification's. Times are in milliseconds. */
static const struct conf_field FIELDS[] = {
    {.env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", .type = CONF_STR, .offset = AT(traces_endpoint)},
    {.env = "OTEL_EXPORTER_OTLP_ENDPOINT", .type = CONF_STR, .offset = AT(endpoint)},
    {.env = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
     .env_alias = "OTEL_EXPORTER_OTLP_PROTOCOL",
     .type = CONF_STR,
     .offset = AT(protocol)},
    {.env = "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
     .env_alias = "OTEL_EXPORTER_OTLP_HEADERS",
     .type = CONF_STR,
     .offset = AT(headers)},
    {.env = "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
     .env_alias = "OTEL_EXPORTER_OTLP_TIMEOUT",
     .type = CONF_U64,
     .offset = AT(timeout_ms),
     .initial = "10000",
     .min = 1,
     .max = 3600000},
    {.env = "OTEL_SERVICE_NAME", .type = CONF_STR, .offset = AT(service), .initial = "dynamo"},
    {.env = "OTEL_TRACES_SAMPLER", .type = CONF_STR, .offset = AT(sampler)},
    {.env = "OTEL_TRACES_SAMPLER_ARG", .type = CONF_STR, .offset = AT(sampler_argument)},
    {.env = "OTEL_TRACES_SAMPLE_RATIO", .type = CONF_STR, .offset = AT(sample_ratio)},
    {.env = "OTEL_BSP_SCHEDULE_DELAY",
     .type = CONF_U64,
     .offset = AT(delay_ms),
     .initial = "5000",
     .min = 1,
     .max = 3600000},
    {.env = "OTEL_BSP_MAX_QUEUE_SIZE",
     .type = CONF_U64,
     .offset = AT(queue_max),
     .initial = "2048",
     .min = 1,
     .max = 65536},
    {.env = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
     .type = CONF_U64,
     .offset = AT(batch_max),
     .initial = "512",
     .min = 1,
     .max = 65536},
};

static const struct conf_spec SPEC = {
    .program = "traces", .fields = FIELDS, .n_fields = ARRAY_LEN(FIELDS)};

int span_options_load(struct span_options *ret, const char *(*env)(const char *name), struct err *e)
{
    char *const none[] = {NULL};

    return conf_load(&SPEC, ret, 0, none, env, e);
}

void span_options_done(struct span_options *o)
{
    conf_done(&SPEC, o);
}

bool span_options_grpc(const struct span_options *o)
{
    return !o->protocol || !str_is(str_from(o->protocol), "http/protobuf");
}

void span_options_put_url(const struct span_options *o, struct buf *out)
{
    const char *path = span_options_grpc(o) ? "" : "/v1/traces";
    const char *base = span_options_grpc(o) ? "http://localhost:4317" : "http://localhost:4318";
    struct str text = str_from(o->endpoint ? o->endpoint : base);

    if (o->traces_endpoint) {
        buf_put_cstr(out, o->traces_endpoint);
        return;
    }
    if (str_ends(text, STR("/")))
        text.len--;
    buf_put_str(out, text);
    buf_put_cstr(out, path);
}

bool span_options_sampler(const struct span_options *o, struct trace_sampler *ret)
{
    return trace_sampler_parse(ret, o->sampler, o->sampler_argument, o->sample_ratio);
}
