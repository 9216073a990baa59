/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/load_report.h"

#include <string.h>

#include "lib/base/list.h"
#include "router/sched/scheduler.h"
#include "router/sched/sequences.h"
#include "router/wire/event_bus.h"

/* Decisions between two flushes whose hit rate is told; there are hardly more. */
enum { HITS_MAX = 4096, FLUSH_MS = 5 };

struct load_report {
    struct load_report_conf conf;
    struct scheduler_observer observer;
    struct event_outlet *hit_rates, *loads;
    struct timer *flush;
    struct kv_hit_rate *hits; /* since the last flush */
    size_t n_hits, cap_hits;
    uint32_t *changed; /* slots, each once */
    size_t n_changed, cap_changed;
    uint8_t *is_changed; /* by slot */
    size_t cap_slots;
    struct buf payload;
};

/* --- what happened -----------------------------------------------------------------------------
 */

static void note_slot(struct load_report *r, uint32_t slot)
{
    if (slot == WORKER_SLOT_NONE)
        return; /* its worker has left */
    if (slot >= r->cap_slots) {
        size_t cap = MAX((size_t)slot + 1, r->cap_slots * 2);

        r->is_changed = xreallocarray(r->is_changed, cap, sizeof(*r->is_changed));
        memset(r->is_changed + r->cap_slots, 0, cap - r->cap_slots);
        r->changed = xreallocarray(r->changed, cap, sizeof(*r->changed));
        r->cap_slots = cap;
    }
    if (r->is_changed[slot])
        return;
    r->is_changed[slot] = 1;
    r->changed[r->n_changed++] = slot;
    if (!timer_active(r->flush))
        timer_start(r->flush, FLUSH_MS);
}

static bool is_kv(const struct load_report *r)
{
    return scheduler_conf(r->conf.scheduler)->mode == ROUTE_KV;
}

static void note_hit(struct load_report *r, const struct route_booked *b)
{
    uint32_t block = scheduler_block_size(r->conf.scheduler);

    if (r->n_hits == HITS_MAX)
        return;
    if (r->n_hits == r->cap_hits) {
        r->cap_hits = r->cap_hits ? r->cap_hits * 2 : 16;
        r->hits = xreallocarray(r->hits, r->cap_hits, sizeof(*r->hits));
    }
    r->hits[r->n_hits++] = (struct kv_hit_rate){.worker_id = b->worker.worker_id,
                                                .dp_rank = b->worker.dp_rank,
                                                .isl_blocks = (b->isl + block - 1) / block,
                                                .overlap_blocks = b->overlap_blocks};
}

static void on_booked(struct scheduler_observer *o, const struct route_booked *b)
{
    struct load_report *r = CONTAINER_OF(o, struct load_report, observer);

    if (!is_kv(r))
        return;
    note_hit(r, b);
    note_slot(r, booking_slot(b->booking));
}

static void on_changed(struct scheduler_observer *o, const struct booking *b)
{
    struct load_report *r = CONTAINER_OF(o, struct load_report, observer);

    if (is_kv(r))
        note_slot(r, booking_slot(b));
}

/* --- telling -----------------------------------------------------------------------------------
 */

static void send(struct load_report *r, struct event_outlet *outlet)
{
    /* Lost when the link is down: the next change of the target tells its load again. */
    (void)event_outlet_send(outlet, buf_str(&r->payload));
    buf_clear(&r->payload);
}

static void send_load(struct load_report *r, uint32_t slot)
{
    struct worker_load load;
    struct active_load v;

    if (!scheduler_load(r->conf.scheduler, slot, &load))
        return;
    v = (struct active_load){.worker_id = load.worker.worker_id,
                             .dp_rank = load.worker.dp_rank,
                             .active_decode_blocks = OPT_U64(load.booked_blocks),
                             .active_prefill_tokens = OPT_U64(load.active_prefill_tokens)};
    active_load_put(&r->payload, &v);
    send(r, r->loads);
}

static void flush(void *arg)
{
    struct load_report *r = arg;

    for (size_t i = 0; i < r->n_hits; i++) {
        kv_hit_rate_put(&r->payload, &r->hits[i]);
        send(r, r->hit_rates);
    }
    for (size_t i = 0; i < r->n_changed; i++) {
        r->is_changed[r->changed[i]] = 0;
        send_load(r, r->changed[i]);
    }
    r->n_hits = r->n_changed = 0;
}

/* --- life --------------------------------------------------------------------------------------
 */

int load_report_start(struct load_report **ret, const struct load_report_conf *conf, struct err *e)
{
    AUTO(load_report_free) struct load_report *r = xcalloc(1, sizeof(*r));
    const struct event_topic hit_rates = {conf->ns, NULL, NULL, TOPIC_KV_HIT_RATE};
    const struct event_topic loads = {conf->ns, NULL, NULL, TOPIC_KV_METRICS};
    int outcome;

    r->conf = *conf;
    r->observer = (struct scheduler_observer){
        .booked = on_booked, .prefilled = on_changed, .grown = on_changed, .ended = on_changed};
    r->flush = timer_new(conf->loop, flush, r);
    outcome = event_outlet_new(&r->hit_rates, conf->bus, &hit_rates, event_publisher_id(), e);
    if (outcome == 0)
        outcome = event_outlet_new(&r->loads, conf->bus, &loads, event_publisher_id(), e);
    if (outcome < 0)
        return outcome;
    scheduler_observe(conf->scheduler, &r->observer);
    *ret = TAKE(r);
    return 0;
}

struct load_report *load_report_free(struct load_report *r)
{
    if (!r)
        return NULL;
    list_remove(&r->observer.link);
    timer_free(r->flush);
    event_outlet_free(r->hit_rates);
    event_outlet_free(r->loads);
    free(r->hits);
    free(r->changed);
    free(r->is_changed);
    buf_done(&r->payload);
    free(r);
    return NULL;
}
