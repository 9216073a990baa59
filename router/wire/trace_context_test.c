/* SPDX-License-Identifier: Apache-2.0 */
/* Which traceparents count was asked of 1.6.1 (e2e/test_trace.py asks it again). */
#include "router/wire/trace_context.h"
#include "lib/base/test.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define LATE_TRACE "0af7651916cd43ddf448eb211c80319c"
#define SPAN "b7ad6b7169203331"
#define ZEROS "00000000000000000000000000000000"

static const struct trace_sampler ALL = {true, 1};

static struct trace_context context_of(const char *parent, bool recording)
{
    const struct trace_headers in = {.parent = str_from(parent), .state = STR("a=1,b=2")};
    struct trace_context t;

    trace_context_init(&t, &in, recording ? &ALL : NULL);
    return t;
}

static void what_the_client_sent_is_handed_on(void **state)
{
    const struct trace_headers in = {.parent = STR("00-" TRACE "-" SPAN "-01"),
                                     .state = STR("a=1,b=2"),
                                     .client_id = STR("mine"),
                                     .dynamo_id = STR("7b1a7d4e-4a57-4a5e-9d2a-111111111111")};
    struct plane_header out[TRACE_HEADERS_MAX];
    struct trace_context t;

    (void)state;
    trace_context_init(&t, &in, NULL);
    assert_int_equal(trace_context_headers(&t, out), 4);
    assert_string_equal(out[0].name, "traceparent");
    assert_true(str_eq(out[0].value, in.parent));
    assert_string_equal(out[1].name, "tracestate");
    assert_true(str_eq(out[1].value, in.state));
    assert_string_equal(out[2].name, "x-request-id");
    assert_true(str_eq(out[2].value, in.client_id));
    assert_string_equal(out[3].name, "x-dynamo-request-id");
    assert_true(str_eq(out[3].value, in.dynamo_id));
    assert_string_equal(t.span_id, "");
}

static void nothing_comes_of_nothing(void **state)
{
    const struct trace_headers in = {.state = STR("a=1")};
    struct plane_header out[TRACE_HEADERS_MAX];
    struct trace_context t;

    (void)state;
    trace_context_init(&t, &in, NULL);
    assert_int_equal(trace_context_headers(&t, out), 0);
}

static void a_recorded_request_is_a_span(void **state)
{
    struct trace_context t = context_of("00-" TRACE "-" SPAN "-00", true), other, own;
    char expected[TRACE_PARENT_SIZE];

    (void)state;
    (void)snprintf(expected, sizeof(expected), "00-" TRACE "-%s-00", t.span_id);
    assert_string_equal(t.parent, expected);
    assert_string_equal(t.trace_id, TRACE);
    assert_string_equal(t.parent_id, SPAN);
    assert_int_equal(strlen(t.span_id), SPAN_ID_SIZE - 1);
    assert_string_not_equal(t.span_id, SPAN);
    assert_true(str_is(t.state, "a=1,b=2"));
    other = context_of("00-" TRACE "-" SPAN "-01", true);
    assert_string_not_equal(t.span_id, other.span_id);
    assert_string_equal(other.parent + sizeof(other.parent) - 3, "01");

    own = context_of("", true); /* in a trace of its own */
    (void)snprintf(expected, sizeof(expected), "00-%s-%s-01", own.trace_id, own.span_id);
    assert_string_equal(own.parent, expected);
    assert_int_equal(strlen(own.trace_id), TRACE_ID_SIZE - 1);
    assert_string_equal(own.parent_id, "");
    assert_int_equal(own.state.len, 0);
}

static void bad_parents_count_for_nothing(void **state)
{
    static const char *const bad[] = {
        "",
        "garbage",
        "00-0af7-b7ad-01",
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-01-what",
        "00-" TRACE "-" SPAN "-01-",
        "00-" TRACE "-" SPAN "-zz",
        "00-" TRACE "-" SPAN "-ff",
        "00-" TRACE "-" SPAN "-03",
        "ff-" TRACE "-" SPAN "-01",
        "00-" ZEROS "-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
        "00-zzf7651916cd43dd8448eb211c80319c-" SPAN "-01",
        "0-" TRACE "-" SPAN "-01",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trace_context t = context_of(bad[i], false);

        if (t.parent[0] || t.state.len || t.trace_id[0])
            fail_msg("'%s' was taken", bad[i]);
        t = context_of(bad[i], true);
        assert_string_not_equal(t.trace_id, TRACE);
    }
}

static void newer_versions_may_have_more(void **state)
{
    (void)state;
    assert_string_equal(context_of("cc-" TRACE "-" SPAN "-01-what", false).parent,
                        "00-" TRACE "-" SPAN "-01");
    assert_string_equal(context_of("cc-" TRACE "-" SPAN "-ff", false).parent,
                        "00-" TRACE "-" SPAN "-01");
}

static void what_can_be_no_header_is_left_out(void **state)
{
    char lengthy[TRACE_VALUE_MAX + 2];
    struct trace_headers in = {.client_id = STR("a\nb"), .dynamo_id = STR("no uuid")};
    struct plane_header out[TRACE_HEADERS_MAX];
    struct trace_context t;

    (void)state;
    trace_context_init(&t, &in, NULL);
    assert_int_equal(trace_context_headers(&t, out), 0);
    memset(lengthy, 'a', sizeof(lengthy));
    in.client_id = str_slice(lengthy, TRACE_VALUE_MAX + 1);
    trace_context_init(&t, &in, NULL);
    assert_int_equal(trace_context_headers(&t, out), 0);
    in.client_id = str_slice(lengthy, TRACE_VALUE_MAX);
    trace_context_init(&t, &in, NULL);
    assert_int_equal(trace_context_headers(&t, out), 1);
}

static void headers_of_a_frame(void **state)
{
    static const char *const nothing[] = {"",
                                          "{}",
                                          "[]",
                                          "null",
                                          "{\"traceparent\":1}",
                                          "{\"traceparent\":\"a\"",
                                          "{\"x-other\":\"a\"}"};
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct trace_headers h;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(nothing); i++) {
        trace_headers_parse(&h, str_from(nothing[i]), &scratch);
        assert_int_equal(h.parent.len + h.state.len + h.client_id.len + h.dynamo_id.len, 0);
    }
    trace_headers_parse(&h,
                        STR("{\"x-endpoint-path\":\"1/generate\",\"traceparent\":\"a\\u0062\","
                            "\"tracestate\":\"c\",\"x-request-id\":\"\\t\","
                            "\"x-dynamo-request-id\":\"d\"}"),
                        &scratch);
    assert_true(str_is(h.parent, "ab") && str_is(h.state, "c"));
    assert_true(str_is(h.client_id, "\t") && str_is(h.dynamo_id, "d"));
}

static void take_line(struct str line, void *arg)
{
    buf_put_str(arg, line);
}

/* The fields that the reference's lines of a request have, when they are recorded. */
static void lines_of_a_request_name_its_trace(void **state)
{
    static const struct log_target LG = {"trace_context_test"};
    const struct trace_headers in = {.parent = STR("00-" TRACE "-" SPAN "-01"),
                                     .client_id = STR("mine")};
    AUTO(buf_done) struct buf lines = BUF_NULL;
    AUTO(mem_free) char *expected = NULL;
    struct trace_context t;

    (void)state;
    assert_int_equal(log_setup(NULL, true, NULL), 0);
    log_set_sink(take_line, &lines);
    trace_context_init(&t, &in, &ALL);
    log_info(&LG, "said", LOG_REQUEST("id", &t), LOG_U64("n", 1));
    expected = xasprintf("\"request_id\":\"id\",\"trace_id\":\"" TRACE
                         "\",\"span_id\":\"%s\",\"parent_id\":\"" SPAN
                         "\",\"x_request_id\":\"mine\",\"n\":1}\n",
                         t.span_id);
    assert_non_null(strstr(buf_cstr(&lines), expected));
    buf_clear(&lines);
    trace_context_init(&t, &in, NULL);
    log_info(&LG, "said", LOG_REQUEST("id", &t), LOG_U64("n", 1));
    assert_non_null(strstr(buf_cstr(&lines), "\"request_id\":\"id\",\"n\":1}\n"));
    log_set_sink(NULL, NULL);
}

/* Asked of 1.6.1, e2e/test_spans.py asks it again. */
static void samplers(void **state)
{
    static const struct {
        const char *name, *argument, *ratio;
        bool known, fresh, sampled, unsampled; /* parents; the trace id is above a half */
    } cases[] = {
        {NULL, NULL, NULL, true, true, true, false},
        {"always_on", NULL, NULL, true, true, true, true},
        {"always_off", NULL, NULL, true, false, false, false},
        {"traceidratio", "0.0", NULL, true, false, false, false},
        {"traceidratio", "0.8", NULL, true, false, false, false},
        {"traceidratio", "1", NULL, true, true, true, true},
        {"traceidratio", NULL, NULL, true, true, true, true},
        {"parentbased_always_off", NULL, NULL, true, false, true, false},
        {"parentbased_traceidratio", "0", NULL, true, false, true, false},
        {"always_off", NULL, "1", true, true, true, false},
        {NULL, NULL, "0", true, false, true, false},
        {NULL, NULL, "2", false, true, true, false},
        {"xray", NULL, NULL, false, true, true, false},
        {"traceidratio", "x", NULL, false, true, true, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *flags[] = {"", "01", "00"};
        bool want[] = {cases[i].fresh, cases[i].sampled, cases[i].unsampled};
        struct trace_sampler s;

        assert_int_equal(trace_sampler_parse(&s, cases[i].name, cases[i].argument, cases[i].ratio),
                         cases[i].known);
        for (size_t k = 0; k < ARRAY_LEN(flags); k++) {
            AUTO(mem_free) char *parent = xasprintf("00-" LATE_TRACE "-" SPAN "-%s", flags[k]);
            struct trace_headers in = {.parent = str_from(k ? parent : "")};
            struct trace_context t;

            if (k == 0 && s.ratio > 0 && s.ratio < 1)
                continue; /* chance */
            trace_context_init(&t, &in, &s);
            assert_int_equal(t.sampled, want[k]);
            assert_string_equal(t.parent + TRACE_PARENT_SIZE - 3, want[k] ? "01" : "00");
        }
    }
}

static void a_child_is_of_its_parent(void **state)
{
    struct trace_context t = context_of("00-" TRACE "-" SPAN "-01", true);
    struct trace_context child = trace_context_child(&t);
    char expected[TRACE_PARENT_SIZE];

    (void)state;
    (void)snprintf(expected, sizeof(expected), "00-" TRACE "-%s-01", child.span_id);
    assert_string_equal(child.parent, expected);
    assert_string_equal(child.parent_id, t.span_id);
    assert_string_not_equal(child.span_id, t.span_id);
    assert_true(child.sampled);
}

int main(void)
{
    return TEST_RUN(T(headers_of_a_frame), T(what_the_client_sent_is_handed_on),
                    T(nothing_comes_of_nothing), T(a_recorded_request_is_a_span),
                    T(bad_parents_count_for_nothing), T(newer_versions_may_have_more),
                    T(what_can_be_no_header_is_left_out), T(lines_of_a_request_name_its_trace),
                    T(samplers), T(a_child_is_of_its_parent));
}
