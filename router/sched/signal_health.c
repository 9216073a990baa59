/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/signal_health.h"

#include <inttypes.h>

static const double ACCURATE = 0.9, FAULTS_FREE = 0.05, FAULTS_ALL = 0.30;
static const double NEW_ACCURACY = 1.0 / 8, NEW_FAULT = 1.0 / 64;

void signal_health_event(struct signal_health *h, uint64_t now_ms)
{
    h->events++;
    h->told_ms = now_ms;
    h->unheard = 0;
    h->asked_ms = 0;
    h->faults -= h->faults * NEW_FAULT;
}

void signal_health_fault(struct signal_health *h, enum signal_fault what)
{
    if (what == SIGNAL_GAP)
        h->gaps++;
    else
        h->orphans++;
    h->faults += (1 - h->faults) * NEW_FAULT;
}

void signal_health_prompt(struct signal_health *h, uint64_t now_ms)
{
    h->prompts++;
    if (h->unheard++ == 0)
        h->unheard_ms = now_ms;
}

void signal_health_cached(struct signal_health *h, uint64_t predicted, uint64_t observed)
{
    double right = 1;

    h->observed++;
    if (observed + 1 < predicted || observed > predicted + 1) {
        h->missed++;
        h->misses++;
    } else {
        h->misses = 0;
    }
    if (predicted == 0)
        return;
    if (observed + 1 < predicted)
        right = (double)(observed + 1) / (double)predicted;
    h->inaccuracy += (1 - right - h->inaccuracy) * NEW_ACCURACY;
}

/* Since the first prompt that no event followed. */
static uint64_t silence_ms(const struct signal_health *h, uint64_t now_ms)
{
    return h->unheard ? now_ms - MIN(now_ms, h->unheard_ms) : 0;
}

enum signal_verdict signal_health_judge(struct signal_health *h, uint64_t now_ms)
{
    uint64_t silent_ms = silence_ms(h, now_ms);
    bool silent = h->unheard >= SIGNAL_PROMPTS && silent_ms >= SIGNAL_DEAD_MS;

    if (h->dead && h->unheard == 0 && !h->block_size) {
        h->dead = false;
        return SIGNAL_REVIVED;
    }
    if (!h->dead && (silent || h->block_size)) {
        h->dead = true;
        return SIGNAL_DIED;
    }
    if (h->block_size)
        return SIGNAL_SAME;
    if (silent_ms >= SIGNAL_ASK_MS &&
        (h->asked_ms == 0 || h->asked_ms + SIGNAL_ASK_AGAIN_MS <= now_ms)) {
        h->asked_ms = now_ms;
        return SIGNAL_ASK_NEWS;
    }
    if (!h->dead && h->misses >= SIGNAL_MISSES) {
        h->misses = 0;
        return SIGNAL_ASK_ALL;
    }
    return SIGNAL_SAME;
}

bool signal_health_is_suspect(const struct signal_health *h, uint64_t now_ms)
{
    return h->dead || h->events == 0 || silence_ms(h, now_ms) >= SIGNAL_SUSPECT_MS;
}

double signal_health_confidence(const struct signal_health *h)
{
    double accuracy = 1 - h->inaccuracy;
    double faults = (h->faults - FAULTS_FREE) / (FAULTS_ALL - FAULTS_FREE);

    if (accuracy >= ACCURATE)
        accuracy = 1;
    if (h->dead) /* guesses do not come from events */
        faults = 0;
    return accuracy * (1 - MIN(1, MAX(0, faults)));
}

void signal_health_reason(const struct signal_health *h, struct worker_rank w, uint64_t now_ms,
                          struct buf *out)
{
    double confidence = signal_health_confidence(h);

    if (h->block_size)
        buf_printf(out,
                   "KV events of worker %" PRIu64 " rank %" PRIu32 " are left out: its blocks have "
                   "%" PRIu32 " tokens, which is not the block size of this router",
                   w.worker_id, w.dp_rank, h->block_size);
    else if (h->dead)
        buf_printf(out,
                   "no KV events from worker %" PRIu64 " rank %" PRIu32 " for %" PRIu64
                   " s although %" PRIu64 " prompts were routed: is event publishing enabled in "
                   "the engine?%s",
                   w.worker_id, w.dp_rank, (now_ms - MIN(now_ms, h->unheard_ms)) / 1000, h->unheard,
                   h->events ? " It did publish before" : "");
    else if (confidence < 1)
        buf_printf(out,
                   "KV events of worker %" PRIu64 " rank %" PRIu32 " are believed to %.0f %%: "
                   "%" PRIu64 " gaps and %" PRIu64 " orphans in %" PRIu64 " events, %" PRIu64
                   " of %" PRIu64 " predictions of cached blocks were wrong",
                   w.worker_id, w.dp_rank, 100 * confidence, h->gaps, h->orphans, h->events,
                   h->missed, h->observed);
}
