/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_recovery.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "router/sched/scheduler.h"
#include "router/sync/kv_intake.h"
#include "router/wire/plane_client.h"

static const struct log_target LG = {"dynamo_llm::kv_router::worker_query"};

enum { AT_ONCE = 8, AGAIN_MS = 1000, RANKS_MAX = 64 };

struct question {
    struct kv_recovery *owner;
    uint64_t worker_id;
    char *address;               /* of worker_kv_indexer_query */
    struct plane_stream *stream; /* NULL: not asking */
    bool wanted;                 /* ask when possible */
    uint64_t asked_ms;
};

struct kv_recovery {
    struct kv_recovery_conf conf;
    struct map64 questions; /* worker id -> struct question */
    size_t n_running;
    struct timer *again;
};

static void pump(void *arg);

static void answered(struct question *q)
{
    q->stream = NULL;
    q->owner->n_running--;
    pump(q->owner);
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct question *q = arg;
    struct err e;

    if (item->is_error || item->raw.len == 0)
        return;
    /* The dump is the whole truth: what the worker no longer holds must not stay behind. */
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++)
        scheduler_clear(q->owner->conf.scheduler, (struct worker_rank){q->worker_id, rank});
    if (kv_intake_apply_dump(q->owner->conf.intake, item->raw, &e) < 0)
        log_warn(&LG, "the worker's dump cannot be read", LOG_U64("worker_id", q->worker_id),
                 LOG_STR("why", e.text));
    else
        log_debug(&LG, "blocks of a worker recovered", LOG_U64("worker_id", q->worker_id),
                  LOG_U64("bytes", item->raw.len));
}

static void on_finished(void *arg)
{
    answered(arg);
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct question *q = arg;

    /* Workers without a local indexer have no such endpoint: their events alone must do. */
    log_debug(&LG, "the worker does not tell its blocks", LOG_U64("worker_id", q->worker_id),
              LOG_STR("kind", plane_failure_name(kind)), LOG_STR("why", text));
    answered(q);
}

static const struct plane_handlers HANDLERS = {
    .item = on_item, .finished = on_finished, .failed = on_failed};

static void ask(struct question *q)
{
    AUTO(mem_free)
    char *body = xasprintf(
        "{\"worker_id\":%" PRIu64 ",\"start_event_id\":null,\"end_event_id\":null}", q->worker_id);
    char id[UUID_TEXT_SIZE];
    struct plane_call call = {.address = str_from(q->address), .body = str_from(body)};

    random_uuid(id);
    call.id = str_from(id);
    q->wanted = false;
    q->asked_ms = loop_now_ms(q->owner->conf.loop);
    q->owner->n_running++;
    q->stream = plane_client_send(q->owner->conf.plane, &call, &HANDLERS, q);
}

static void pump(void *arg)
{
    struct kv_recovery *r = arg;
    uint64_t now = loop_now_ms(r->conf.loop), id, ptr;
    bool later = false;
    size_t at = 0;

    while (map64_next(&r->questions, &at, &id, &ptr)) {
        struct question *q = (struct question *)(uintptr_t)ptr;

        if (!q->wanted || q->stream)
            continue;
        if (r->n_running == AT_ONCE || (q->asked_ms && q->asked_ms + AGAIN_MS > now))
            later = true;
        else
            ask(q);
    }
    if (later && !timer_active(r->again))
        timer_start(r->again, AGAIN_MS);
}

struct kv_recovery *kv_recovery_new(const struct kv_recovery_conf *conf)
{
    struct kv_recovery *r = xcalloc(1, sizeof(*r));

    r->conf = *conf;
    r->again = timer_new(conf->loop, pump, r);
    return r;
}

static void question_free(struct question *q)
{
    if (q->stream) {
        plane_stream_cancel(q->stream);
        q->owner->n_running--;
    }
    free(q->address);
    free(q);
}

struct kv_recovery *kv_recovery_free(struct kv_recovery *r)
{
    uint64_t id, ptr;
    size_t at = 0;

    if (!r)
        return NULL;
    while (map64_next(&r->questions, &at, &id, &ptr))
        question_free((struct question *)(uintptr_t)ptr);
    map64_done(&r->questions);
    timer_free(r->again);
    free(r);
    return NULL;
}

void kv_recovery_put_worker(struct kv_recovery *r, uint64_t worker_id, const char *address)
{
    struct str rest = str_from(address), socket;
    struct question *q;

    kv_recovery_remove_worker(r, worker_id);
    (void)str_cut(&rest, '/', &socket);
    q = xcalloc(1, sizeof(*q));
    q->owner = r;
    q->worker_id = worker_id;
    q->address = xasprintf("%.*s/%" PRIx64 "/worker_kv_indexer_query", STR_ARG(socket), worker_id);
    map64_put_ptr(&r->questions, worker_id, q);
}

void kv_recovery_remove_worker(struct kv_recovery *r, uint64_t worker_id)
{
    uint64_t ptr;

    if (map64_remove(&r->questions, worker_id, &ptr))
        question_free((struct question *)(uintptr_t)ptr);
}

void kv_recovery_ask_again(struct kv_recovery *r)
{
    uint64_t id, ptr;
    size_t at = 0;

    while (map64_next(&r->questions, &at, &id, &ptr)) {
        struct question *q = (struct question *)(uintptr_t)ptr;

        q->wanted |= q->asked_ms != 0;
    }
    pump(r);
}

void kv_recovery_ask(struct kv_recovery *r, uint64_t worker_id)
{
    struct question *q = map64_find_ptr(&r->questions, worker_id);

    if (!q)
        return;
    q->wanted = true;
    pump(r);
}
