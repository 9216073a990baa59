/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registration takes a lock, updates do not: a series is a fixed block of atomics that its users
 * keep a pointer to. Printing reads them without stopping anyone, so a histogram's sum and count
 * may be one observation apart.
 */
#include "lib/base/metric.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "lib/base/strmap.h"

struct metric {
    const struct metric_family *family;
    char *labels;                /* `{a="b",c="d"}` without the closing brace, or "" */
    _Atomic uint64_t value_bits; /* counters and gauges, and a histogram's sum: a double */
    _Atomic uint64_t counts[];   /* histograms: one per bucket and one for +Inf */
};

struct metric_family {
    struct metric_registry *registry;
    struct metric_desc desc;
    size_t n_labels;
    double *buckets;
    struct strmap *series; /* label text -> struct metric */
};

struct metric_registry {
    pthread_mutex_t lock;
    struct strmap *families;
    struct metric *dropped; /* metric_series_dropped_total */
};

static void metric_free(void *series)
{
    struct metric *m = series;

    free(m->labels);
    free(m);
}

static void family_free(void *family)
{
    struct metric_family *f = family;

    strmap_free_with(f->series, metric_free);
    free(f->buckets);
    free((void *)(uintptr_t)f->desc.name);
    free((void *)(uintptr_t)f->desc.help);
    for (size_t i = 0; i < f->n_labels; i++)
        free((void *)(uintptr_t)f->desc.labels[i]);
    free(f);
}

struct metric_registry *metric_registry_new(void)
{
    static const struct metric_desc dropped = {
        .name = "metric_series_dropped_total",
        .help = "Updates that went to an \"other\" series because a family was full",
        .type = METRIC_COUNTER,
    };
    struct metric_registry *r = xcalloc(1, sizeof(*r));

    pthread_mutex_init(&r->lock, NULL);
    r->families = strmap_new();
    r->dropped = metric_plain(metric_family(r, &dropped));
    return r;
}

struct metric_registry *metric_registry_free(struct metric_registry *r)
{
    if (!r)
        return NULL;
    strmap_free_with(r->families, family_free);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return NULL;
}

static struct metric_family *family_new(struct metric_registry *r, const struct metric_desc *desc)
{
    struct metric_family *f = xcalloc(1, sizeof(*f));

    f->registry = r;
    f->desc = *desc;
    f->desc.name = xstrdup(desc->name);
    f->desc.help = xstrdup(desc->help);
    while (f->n_labels < METRIC_LABELS_MAX && desc->labels[f->n_labels]) {
        f->desc.labels[f->n_labels] = xstrdup(desc->labels[f->n_labels]);
        f->n_labels++;
    }
    if (desc->type == METRIC_HISTOGRAM) {
        f->buckets = xreallocarray(NULL, desc->n_buckets, sizeof(double));
        memcpy(f->buckets, desc->buckets, desc->n_buckets * sizeof(double));
    }
    f->desc.buckets = f->buckets;
    f->series = strmap_new();
    return f;
}

struct metric_family *metric_family(struct metric_registry *r, const struct metric_desc *desc)
{
    struct metric_family *f;

    pthread_mutex_lock(&r->lock);
    f = strmap_get(r->families, str_from(desc->name));
    if (!f) {
        f = family_new(r, desc);
        (void)strmap_set(r->families, str_from(desc->name), f);
    }
    pthread_mutex_unlock(&r->lock);
    return f;
}

static void put_label_value(struct buf *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            buf_put_char(out, '\\');
        if (*value == '\n')
            buf_put_cstr(out, "\\n");
        else
            buf_put_char(out, *value);
    }
}

static void put_labels(struct buf *out, const struct metric_family *f, const char *const *values)
{
    for (size_t i = 0; i < f->n_labels; i++) {
        buf_put_char(out, i ? ',' : '{');
        buf_put_cstr(out, f->desc.labels[i]);
        buf_put_cstr(out, "=\"");
        put_label_value(out, values[i] ? values[i] : "");
        buf_put_char(out, '"');
    }
}

/* Finds or adds. NULL when the family is full and @may_overfill is not set. */
static struct metric *series_of(struct metric_family *f, const char *const *values,
                                bool may_overfill)
{
    AUTO(buf_done) struct buf labels = BUF_NULL;
    struct metric *m;

    put_labels(&labels, f, values);
    m = strmap_get(f->series, buf_str(&labels));
    if (m || (strmap_len(f->series) >= METRIC_SERIES_MAX && !may_overfill))
        return m;
    m = xcalloc(1, sizeof(*m) + (f->desc.n_buckets + 1) * sizeof(m->counts[0]));
    m->family = f;
    (void)strmap_set(f->series, buf_str(&labels), m);
    m->labels = buf_take_cstr(&labels);
    return m;
}

struct metric *metric_series(struct metric_family *f, const char *const *values)
{
    static const char *const other[METRIC_LABELS_MAX] = {"other", "other", "other", "other",
                                                         "other", "other", "other", "other"};
    struct metric *m;

    pthread_mutex_lock(&f->registry->lock);
    m = series_of(f, values, false);
    if (!m) {
        metric_add(f->registry->dropped, 1);
        m = series_of(f, other, true);
    }
    pthread_mutex_unlock(&f->registry->lock);
    return m;
}

void metric_drop(struct metric_family *f, struct metric *m)
{
    pthread_mutex_lock(&f->registry->lock);
    if (strmap_remove(f->series, str_from(m->labels)))
        metric_free(m);
    pthread_mutex_unlock(&f->registry->lock);
}

void metric_forget(struct metric_registry *r, const char *name)
{
    struct metric_family *f;

    pthread_mutex_lock(&r->lock);
    f = strmap_get(r->families, str_from(name));
    if (f) {
        strmap_free_with(f->series, metric_free);
        f->series = strmap_new();
    }
    pthread_mutex_unlock(&r->lock);
}

static double double_of(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

static uint64_t bits_of(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

void metric_add(struct metric *m, double delta)
{
    uint64_t before = atomic_load_explicit(&m->value_bits, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&m->value_bits, &before,
                                                  bits_of(double_of(before) + delta),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void metric_set(struct metric *m, double value)
{
    atomic_store_explicit(&m->value_bits, bits_of(value), memory_order_relaxed);
}

void metric_observe(struct metric *m, double value)
{
    const struct metric_desc *d = &m->family->desc;
    size_t i = 0;

    while (i < d->n_buckets && value > d->buckets[i])
        i++;
    atomic_fetch_add_explicit(&m->counts[i], 1, memory_order_relaxed);
    metric_add(m, value);
}

double metric_value(const struct metric *m)
{
    uint64_t n = 0;

    if (m->family->desc.type != METRIC_HISTOGRAM)
        return double_of(atomic_load_explicit(&m->value_bits, memory_order_relaxed));
    for (size_t i = 0; i <= m->family->desc.n_buckets; i++)
        n += atomic_load_explicit(&m->counts[i], memory_order_relaxed);
    return (double)n;
}

static double metric_sum(const struct metric *m)
{
    return double_of(atomic_load_explicit(&m->value_bits, memory_order_relaxed));
}

/* Integers without a point, the rest as short as it reads back. */
static void put_number(struct buf *out, double v)
{
    char text[32];

    if (isnan(v) || isinf(v)) {
        buf_put_cstr(out, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
        return;
    }
    if (v == floor(v) && fabs(v) < 1e15) {
        buf_printf(out, "%.0f", v);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        double back;

        (void)snprintf(text, sizeof(text), "%.*g", digits, v);
        if (str_parse_f64(str_from(text), &back) && back == v)
            break;
    }
    buf_put_cstr(out, text);
}

static void print_histogram(struct buf *out, const struct metric_desc *d, const struct metric *m)
{
    uint64_t total = 0;

    for (size_t i = 0; i <= d->n_buckets; i++) {
        total += atomic_load_explicit(&m->counts[i], memory_order_relaxed);
        buf_printf(out, "%s_bucket%s%sle=\"", d->name, m->labels, m->labels[0] ? "," : "{");
        put_number(out, i < d->n_buckets ? d->buckets[i] : INFINITY);
        buf_printf(out, "\"} %llu\n", (unsigned long long)total);
    }
    buf_printf(out, "%s_sum%s%s ", d->name, m->labels, m->labels[0] ? "}" : "");
    put_number(out, metric_sum(m));
    buf_printf(out, "\n%s_count%s%s %llu\n", d->name, m->labels, m->labels[0] ? "}" : "",
               (unsigned long long)total);
}

static void print_family(struct buf *out, const struct metric_family *f)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    struct str key;
    void *series;
    size_t at = 0;

    if (strmap_len(f->series) == 0)
        return;
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->desc.name, f->desc.help, f->desc.name,
               types[f->desc.type]);
    while (strmap_next(f->series, &at, &key, &series)) {
        const struct metric *m = series;

        if (f->desc.type == METRIC_HISTOGRAM) {
            print_histogram(out, &f->desc, m);
            continue;
        }
        buf_printf(out, "%s%s%s ", f->desc.name, m->labels, m->labels[0] ? "}" : "");
        put_number(out, metric_value(m));
        buf_put_char(out, '\n');
    }
}

void metric_print(struct metric_registry *r, struct buf *out)
{
    struct str key;
    void *family;
    size_t at = 0;

    pthread_mutex_lock(&r->lock);
    while (strmap_next(r->families, &at, &key, &family))
        print_family(out, family);
    pthread_mutex_unlock(&r->lock);
}

static double round_2_digits(double v)
{
    double scale;

    if (v == 0)
        return 0;
    scale = pow(10, 1 - floor(log10(v)));
    /* Divided by a power of ten again, so that 0.0022 is the same double as its literal. */
    return scale >= 1 ? round(v * scale) / scale : round(v * scale) * (1 / scale);
}

size_t metric_log_buckets(double min, double max, size_t n, double *ret_bounds)
{
    size_t used = 0;

    assert(min > 0 && max > min && n >= 1);
    ret_bounds[used++] = 0;
    for (size_t i = 1; i < n; i++) {
        double share = (double)i / (double)(n - 1);
        double bound = round_2_digits(exp(log(min) + share * (log(max) - log(min))));

        if (bound > ret_bounds[used - 1])
            ret_bounds[used++] = bound;
    }
    return used;
}
