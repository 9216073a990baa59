/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/span_export.h"

#include <stdio.h>

#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/net/http1.h"
#include "lib/net/http_client.h"

static const struct log_target LG = {"commutator::spans"};

#define GRPC_METHOD "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

enum { HEADERS_MAX = 32, GRPC_PREFIX = 5, GRPC_NO_STATUS = -1 };

struct batch {
    struct list link;
    struct buf spans;
    size_t n;
    unsigned attempts;
};

struct span_export {
    struct loop *loop;
    struct http_client *http;
    char *url, *service;
    char *headers[HEADERS_MAX + 1]; /* NULL-ended */
    bool grpc;
    size_t queue_max, batch_max;
    uint64_t delay_ms, timeout_ms;

    struct list batches; /* oldest first; the last is being filled */
    size_t n, bytes;     /* in all of them */
    uint64_t wall_ns;    /* at clock_now_ns() 0, read anew for each batch */
    struct timer *due;
    struct http_call *call; /* carries the first batch; NULL = none */
    int grpc_status;        /* of its answer */

    struct metric *sent, *dropped, *failed;
    bool ailing; /* told so in the log */

    struct timer *deadline; /* of flushing; NULL = not */
    loop_fn flushed;
    void *flushed_arg;
};

/* --- batches ---------------------------------------------------------------------------------
 */

static struct batch *first_batch(const struct span_export *x)
{
    return list_empty(&x->batches) ? NULL : LIST_ENTRY(x->batches.next, struct batch, link);
}

static struct batch *open_batch(struct span_export *x)
{
    struct batch *b =
        list_empty(&x->batches) ? NULL : LIST_ENTRY(x->batches.prev, struct batch, link);

    if (b && b->n < x->batch_max && !(x->call && b == first_batch(x)))
        return b;
    b = xcalloc(1, sizeof(*b));
    list_append(&x->batches, &b->link);
    x->wall_ns = clock_wall_ns() - clock_now_ns();
    return b;
}

static void drop_batch(struct span_export *x, struct batch *b)
{
    x->n -= b->n;
    x->bytes -= b->spans.len;
    list_remove(&b->link);
    buf_done(&b->spans);
    free(b);
}

/* --- sending ---------------------------------------------------------------------------------
 */

static void go_on(struct span_export *x);

static void ail(struct span_export *x, const char *what, const char *why)
{
    if (!x->ailing)
        log_warn(&LG, what, LOG_STR("endpoint", x->url), LOG_STR("why", why));
    x->ailing = true;
}

static void on_field(void *arg, struct str name, struct str value)
{
    struct span_export *x = arg;
    uint64_t status;

    if (str_eq_nocase(name, STR("grpc-status")) && str_parse_u64(value, &status) && status < 100)
        x->grpc_status = (int)status;
}

/* What the protocol wants to be tried again: the collector has no room, or is away for a moment. */
static bool may_pass(const struct span_export *x, int status, int error)
{
    enum {
        CANCELLED = 1,
        DEADLINE = 4,
        ABORTED = 10,
        OUT_OF_RANGE = 11,
        UNAVAILABLE = 14,
        LOST = 15
    };

    if (error)
        return true;
    if (!x->grpc || status != 200)
        return status == 429 || (status >= 502 && status <= 504);
    return x->grpc_status == CANCELLED || x->grpc_status == DEADLINE || x->grpc_status == ABORTED ||
           x->grpc_status == OUT_OF_RANGE || x->grpc_status == UNAVAILABLE ||
           x->grpc_status == LOST;
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct span_export *x = arg;
    struct batch *b = first_batch(x);
    bool taken = !error && status >= 200 && status < 300 && (!x->grpc || x->grpc_status == 0);
    char words[96];

    x->call = NULL;
    if (taken) {
        metric_add(x->sent, (double)b->n);
        x->ailing = false;
        drop_batch(x, b);
        go_on(x);
        return;
    }
    (void)snprintf(words, sizeof(words), "status %d, gRPC status %d", status, x->grpc_status);
    ail(x, "spans cannot be exported", error ? why : words);
    if (x->flushed || b->attempts == SPAN_ATTEMPTS || !may_pass(x, status, error)) {
        metric_add(x->failed, (double)b->n);
        drop_batch(x, b);
    }
    if (x->flushed)
        go_on(x);
    else if (!list_empty(&x->batches))
        timer_start(x->due, x->delay_ms);
}

static void put_body(const struct span_export *x, const struct batch *b, struct buf *out)
{
    static const char none[GRPC_PREFIX] = {0}; /* not compressed; the length follows */

    if (x->grpc)
        buf_put(out, none, sizeof(none));
    span_put_request(out, str_from(x->service), buf_str(&b->spans));
    if (x->grpc)
        for (size_t i = 0; i < 4; i++)
            buf_data(out)[1 + i] = (char)((out->len - GRPC_PREFIX) >> (24 - 8 * i));
}

static void send_first(struct span_export *x)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct batch *b = first_batch(x);
    struct http_call_spec spec = {.method = "POST",
                                  .url = x->url,
                                  .headers = (const char *const *)x->headers,
                                  .total_ms = x->timeout_ms,
                                  .http2 = x->grpc,
                                  .field = on_field,
                                  .done = on_done,
                                  .arg = x};

    b->attempts++;
    put_body(x, b, &body);
    spec.body = buf_str(&body);
    timer_stop(x->due);
    x->grpc_status = GRPC_NO_STATUS;
    x->call = http_client_start(x->http, &spec);
}

static void end_flush(void *arg)
{
    struct span_export *x = arg;
    loop_fn done = x->flushed;

    x->deadline = timer_free(x->deadline);
    x->flushed = NULL;
    if (done)
        done(x->flushed_arg);
}

/* When no call is under way. */
static void go_on(struct span_export *x)
{
    struct batch *b = first_batch(x);

    if (b && (x->flushed || (b->n == x->batch_max && b->attempts == 0)))
        send_first(x);
    else if (b && !timer_active(x->due))
        timer_start(x->due, x->delay_ms);
    else if (!b && x->flushed)
        end_flush(x);
}

static void on_due(void *arg)
{
    struct span_export *x = arg;

    if (!x->call && !list_empty(&x->batches))
        send_first(x);
}

/* --- outside ---------------------------------------------------------------------------------
 */

void span_export_put(struct span_export *x, const struct span *s)
{
    struct batch *b;
    size_t before;

    if (x->n >= x->queue_max || x->bytes >= SPAN_BYTES_MAX) {
        metric_add(x->dropped, 1);
        ail(x, "spans are dropped", "too many of them wait for the collector");
        return;
    }
    b = open_batch(x);
    before = b->spans.len;
    span_put(&b->spans, s, x->wall_ns);
    b->n++;
    x->n++;
    x->bytes += b->spans.len - before;
    if (!x->call)
        go_on(x);
}

void span_export_flush(struct span_export *x, loop_fn done, void *arg)
{
    if (!x || list_empty(&x->batches)) {
        done(arg);
        return;
    }
    x->flushed = done;
    x->flushed_arg = arg;
    x->deadline = timer_new(x->loop, end_flush, x);
    timer_start(x->deadline, SPAN_FLUSH_MS);
    if (!x->call)
        go_on(x);
}

/* Scheme and host of @url with gRPC's path, as clients of gRPC read an endpoint. */
static char *grpc_url(const char *url)
{
    struct str rest = str_from(url);
    size_t scheme = 0;

    for (size_t i = 0; i + 3 <= rest.len; i++)
        if (memcmp(url + i, "://", 3) == 0) {
            scheme = i + 3;
            break;
        }
    rest = str_skip(rest, scheme);
    return xasprintf("%.*s%.*s" GRPC_METHOD, (int)scheme, url, (int)str_index(rest, '/'), rest.ptr);
}

static bool is_header_value(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < ' ' || s.ptr[i] > '~')
            return false;
    return true;
}

/* What is no header is left out, and named. */
static void add_headers(struct span_export *x, size_t n, struct str rest)
{
    bool more = rest.len > 0;

    while (more) {
        AUTO(buf_done) struct buf value = BUF_NULL;
        struct str pair, name;
        bool known;

        more = str_cut(&rest, ',', &pair);
        known = str_cut(&pair, '=', &name);
        name = str_trim(name);
        http_percent_decode(str_trim(pair), false, &value);
        if (known && name.len && n < HEADERS_MAX && is_header_value(name) &&
            is_header_value(buf_str(&value)))
            x->headers[n++] = xasprintf("%.*s: %.*s", STR_ARG(name), STR_ARG(buf_str(&value)));
        else
            log_warn(&LG, "header for the collector is left out", LOG_VIEW("name", name));
    }
}

static void measure(struct span_export *x, struct metric_registry *r)
{
    struct metric_family *f =
        metric_family(r, &(struct metric_desc){.name = "commutator_spans_total",
                                               .help = "Spans of traces, by what became of them",
                                               .type = METRIC_COUNTER,
                                               .labels = {"outcome"}});

    x->sent = metric_with(f, "sent");
    x->dropped = metric_with(f, "dropped");
    x->failed = metric_with(f, "failed");
}

int span_export_new(struct span_export **ret, const struct span_export_conf *conf, struct err *e)
{
    const struct http_client_conf http = {.connections_max = 1};
    struct span_export *x = xcalloc(1, sizeof(*x));
    size_t n = 0;
    int r = http_client_new(&x->http, conf->loop, &http, e);

    if (r < 0) {
        free(x);
        return err_wrap(e, r, "export of spans");
    }
    x->loop = conf->loop;
    x->grpc = conf->grpc;
    x->url = conf->grpc ? grpc_url(conf->url) : xstrdup(conf->url);
    x->service = xstrdup(conf->service);
    x->headers[n++] = xstrdup(conf->grpc ? "content-type: application/grpc"
                                         : "content-type: application/x-protobuf");
    if (conf->grpc)
        x->headers[n++] = xstrdup("te: trailers");
    add_headers(x, n, str_from(conf->headers));
    x->queue_max = conf->queue_max;
    x->batch_max = MIN(conf->batch_max, conf->queue_max);
    x->delay_ms = conf->delay_ms;
    x->timeout_ms = conf->timeout_ms;
    list_init(&x->batches);
    x->due = timer_new(conf->loop, on_due, x);
    measure(x, conf->metrics);
    *ret = x;
    return 0;
}

struct span_export *span_export_free(struct span_export *x)
{
    if (!x)
        return NULL;
    http_client_free(x->http);
    timer_free(x->due);
    timer_free(x->deadline);
    while (!list_empty(&x->batches))
        drop_batch(x, first_batch(x));
    for (size_t i = 0; x->headers[i]; i++)
        free(x->headers[i]);
    free(x->url);
    free(x->service);
    free(x);
    return NULL;
}
