/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters, gauges and histograms with labels, printed as Prometheus text 0.0.4.
 *
 * A family is declared once (name, help, type, label names); a series is one combination of label
 * values, looked up once and kept by its user: updating it is lock-free. Thread safe.
 * The number of series per family is bounded; beyond it updates go to a series whose label values
 * are "other", and the counter metric_series_dropped_total says so.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
enum { METRIC_LABELS_MAX = 8, METRIC_SERIES_MAX = 4096 };

struct metric_registry;
struct metric_family;
struct metric; /* one series; lives as long as the registry or until metric_drop() */

struct metric_desc {
    const char *name;
    const char *help;
    enum metric_type type;
    const char *labels[METRIC_LABELS_MAX]; /* NULL-terminated when fewer */
    const double *buckets;                 /* histograms: ascending upper bounds without +Inf */
    size_t n_buckets;
};

struct metric_registry *metric_registry_new(void);
struct metric_registry *metric_registry_free(struct metric_registry *r);
DEFINE_CLEANUP(struct metric_registry *, metric_registry_free)
/* Copies @desc. Declaring a name twice returns the first family. */
struct metric_family *metric_family(struct metric_registry *r, const struct metric_desc *desc);
/* As many values as the family has labels; NULL counts as "". */
struct metric *metric_series(struct metric_family *f, const char *const *values);
/* Shorthand: metric_with(f, "a", "b") */
#define metric_with(f, ...) metric_series((f), (const char *const[]){__VA_ARGS__, NULL})
#define metric_plain(f) metric_series((f), (const char *const[]){NULL})
/* Forgets a series (a worker that left). The pointer is dead afterwards. */
void metric_drop(struct metric_family *f, struct metric *m);
/* Forgets every series of the family of this name, if there is one: for values that are sampled anew
   before each print. Nobody may keep a series of it. */
void metric_forget(struct metric_registry *r, const char *name);

void metric_add(struct metric *m, double delta); /* counters: delta >= 0 */
void metric_set(struct metric *m, double value); /* gauges */
void metric_observe(struct metric *m, double value);
double metric_value(const struct metric *m); /* histograms: the count */

void metric_print(struct metric_registry *r, struct buf *out);
/*
 * Dynamo's bucket rule: 0, then @n - 1 points spaced evenly in log space from @min to @max, rounded
 * to 2 significant digits, duplicates removed. Writes at most @n bounds, returns how many.
 */
size_t metric_log_buckets(double min, double max, size_t n, double *ret_bounds);
