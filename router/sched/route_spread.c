/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/route_spread.h"

#include <math.h>
#include <string.h>

void herd_done(struct herd *h)
{
    free(h->counts);
    *h = (struct herd){0};
}

static double index_of(const struct herd *h)
{
    if (h->n_workers < 2 || h->total < 2 * h->n_workers)
        return NAN;
    return (double)h->largest * (double)h->n_workers / (double)h->total;
}

static void begin_window(struct herd *h, uint64_t window)
{
    if (h->cap)
        memset(h->counts, 0, h->cap * sizeof(*h->counts));
    h->window = window;
    h->total = h->largest = 0;
    h->n_workers = 0;
}

double herd_count(struct herd *h, uint64_t now_ms, uint32_t slot, size_t n_workers)
{
    double ended = NAN;

    if (now_ms / HERD_WINDOW_MS != h->window) {
        ended = index_of(h);
        begin_window(h, now_ms / HERD_WINDOW_MS);
    }
    if (slot >= h->cap) {
        size_t cap = MAX((size_t)slot + 1, h->cap * 2);

        h->counts = xreallocarray(h->counts, cap, sizeof(*h->counts));
        memset(h->counts + h->cap, 0, (cap - h->cap) * sizeof(*h->counts));
        h->cap = cap;
    }
    h->counts[slot]++;
    h->largest = MAX(h->largest, h->counts[slot]);
    h->total++;
    h->n_workers = MAX(h->n_workers, n_workers);
    return ended;
}

double load_variation(const struct route_candidate *candidates, size_t n)
{
    double sum = 0, squares = 0, mean;

    for (size_t i = 0; i < n; i++) {
        sum += candidates[i].requests;
        squares += (double)candidates[i].requests * candidates[i].requests;
    }
    if (sum == 0)
        return 0;
    mean = sum / (double)n;
    return sqrt(fmax(0, squares / (double)n - mean * mean)) / mean;
}
