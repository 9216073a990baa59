/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/index_keeper.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>

#include "lib/base/log.h"
#include "router/sched/scheduler.h"
#include "router/sync/event_order.h"
#include "router/sync/index_file.h"
#include "router/sync/kv_intake.h"

static const struct log_target LG = {"commutator::kv_router::index_keeper"};

/* A rank that the file may name, as it was before the first node was written. */
struct kept {
    struct index_image_worker worker;
    uint64_t resets;
};

/* The file that is being written. */
struct job {
    struct index_keeper *keeper; /* NULL when that has gone */
    struct prefix_index *index;
    struct index_draft draft;
    struct kept *kept;
    struct index_image_worker *workers; /* those of them that are still right */
    size_t n_kept, n_workers;
    uint64_t began_ns;
    atomic_bool stop;
    int result;
    struct err error;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool at_work; /* a pool thread has it */
};

struct index_keeper {
    struct index_keeper_conf conf;
    char *path, *owner;
    uint64_t generation;
    struct timer *timer;
    struct job *job; /* NULL = none */
    struct metric *written, *failed, *restored;
};

/* --- reading ----------------------------------------------------------------------------------- */

/* Which of the file's workers may be believed, and their slots here. */
static size_t resume_workers(struct index_keeper *k, const struct index_image *im, uint32_t *slots)
{
    size_t n = 0;

    for (size_t i = 0; i < im->n_workers; i++) {
        const struct index_image_worker *w = &im->workers[i];
        struct worker_rank rank = {w->worker_id, w->dp_rank};
        struct event_position at = {
            .next = w->next_event, .newest_ms = w->newest_ms, .proof = w->proof};

        if (slots[w->slot] != WORKER_SLOT_NONE || !kv_intake_resume(k->conf.intake, rank, at))
            continue;
        slots[w->slot] = scheduler_slot(k->conf.scheduler, rank);
        n++;
    }
    return n;
}

static void restore(struct index_keeper *k, const struct index_image *im)
{
    AUTO(mem_free) uint32_t *slots = xcalloc(WORKER_SLOTS_MAX, sizeof(*slots));
    struct prefix_index *ix = scheduler_index(k->conf.scheduler);
    uint64_t start = clock_now_ns();
    size_t n;

    for (size_t i = 0; i < WORKER_SLOTS_MAX; i++)
        slots[i] = WORKER_SLOT_NONE;
    n = resume_workers(k, im, slots);
    if (index_image_restore(im, ix, slots) < 0)
        log_warn(&LG, "memory ended before all of the index was restored");
    metric_set(k->restored, (double)prefix_index_stats(ix).entries);
    log_info(&LG, "index restored", LOG_STR("file", k->path),
             LOG_U64("generation", im->head.generation), LOG_U64("ranks", n),
             LOG_U64("blocks", prefix_index_stats(ix).entries),
             LOG_U64("ms", (clock_now_ns() - start) / 1000000));
}

static void load(struct index_keeper *k)
{
    struct index_file f;
    struct err e;
    int r = index_file_open(&f, k->path, &e);

    if (r == -ENOENT)
        return;
    if (r < 0) {
        log_warn(&LG, "starting without the kept index", LOG_STR("why", e.text));
        return;
    }
    k->generation = f.image.head.generation;
    if (f.image.head.block_size != scheduler_block_size(k->conf.scheduler) ||
        !str_eq(f.image.head.owner, str_from(k->owner)))
        log_warn(&LG, "the kept index is of another pool or block size, ignoring",
                 LOG_STR("file", k->path));
    else
        restore(k, &f.image);
    index_file_close(&f);
}

/* --- writing ----------------------------------------------------------------------------------- */

/* How far each rank's events have come: before the first node is read. */
static void note_positions(const struct index_keeper *k, struct job *j)
{
    uint32_t end = scheduler_slots_end(k->conf.scheduler);

    j->kept = xcalloc(MAX(end, 1u), sizeof(*j->kept));
    for (uint32_t slot = 0; slot < end; slot++) {
        struct event_position at;
        struct worker_rank w;

        if (scheduler_rank_at(k->conf.scheduler, slot, &w) &&
            tier_index_held(scheduler_tiers(k->conf.scheduler), slot) == 0 &&
            kv_intake_position(k->conf.intake, w, &at))
            j->kept[j->n_kept++] = (struct kept){
                .worker = {w.worker_id, w.dp_rank, slot, at.next, at.newest_ms, at.proof},
                .resets = at.resets};
    }
}

/* Those whose slot is still theirs, and whose blocks nothing replaced meanwhile. */
static void choose_workers(const struct index_keeper *k, struct job *j)
{
    j->workers = xcalloc(MAX(j->n_kept, (size_t)1), sizeof(*j->workers));
    for (size_t i = 0; i < j->n_kept; i++) {
        const struct index_image_worker *was = &j->kept[i].worker;
        struct event_position at;
        struct worker_rank w;

        if (scheduler_rank_at(k->conf.scheduler, was->slot, &w) && w.worker_id == was->worker_id &&
            w.dp_rank == was->dp_rank && kv_intake_position(k->conf.intake, w, &at) &&
            at.resets == j->kept[i].resets)
            j->workers[j->n_workers++] = *was;
    }
}

/* Before any worker was found, what is in the file is better than nothing. */
static bool has_ranks(const struct index_keeper *k)
{
    for (uint32_t slot = 0; slot < scheduler_slots_end(k->conf.scheduler); slot++) {
        struct event_position at;
        struct worker_rank w;

        if (scheduler_rank_at(k->conf.scheduler, slot, &w) &&
            kv_intake_position(k->conf.intake, w, &at))
            return true;
    }
    return false;
}

static struct job *job_free(struct job *j)
{
    index_draft_done(&j->draft);
    free(j->kept);
    free(j->workers);
    (void)pthread_cond_destroy(&j->idle);
    (void)pthread_mutex_destroy(&j->lock);
    free(j);
    return NULL;
}

static struct job *job_new(struct index_keeper *k)
{
    struct job *j = xcalloc(1, sizeof(*j));
    struct index_image_head head = {.generation = ++k->generation,
                                    .block_size = scheduler_block_size(k->conf.scheduler),
                                    .owner = str_from(k->owner)};

    if (pthread_mutex_init(&j->lock, NULL) != 0 || pthread_cond_init(&j->idle, NULL) != 0)
        abort();
    j->keeper = k;
    j->index = scheduler_index(k->conf.scheduler);
    j->began_ns = clock_now_ns();
    j->draft.fd = -1;
    note_positions(k, j);
    j->result = index_draft_begin(&j->draft, k->path, &head, &j->error);
    return j;
}

static void tell(struct index_keeper *k, const struct job *j)
{
    if (j->result < 0) {
        metric_add(k->failed, 1);
        log_warn(&LG, "the index could not be kept", LOG_STR("why", j->error.text));
        return;
    }
    metric_add(k->written, 1);
    log_debug(&LG, "index kept", LOG_STR("file", k->path), LOG_U64("ranks", j->n_workers),
              LOG_U64("nodes", j->draft.writer.n_records),
              LOG_U64("ms", (clock_now_ns() - j->began_ns) / 1000000));
}

static void work_nodes(struct job *j)
{
    if (j->result == 0)
        j->result = index_draft_nodes(&j->draft, j->index, &j->stop, &j->error);
}

static void work_end(struct job *j)
{
    if (j->result == 0)
        j->result = index_draft_end(&j->draft, j->workers, j->n_workers, &j->error);
}

static void leave_work(struct job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    j->at_work = false;
    (void)pthread_cond_signal(&j->idle);
    (void)pthread_mutex_unlock(&j->lock);
}

static void nodes_in_pool(void *arg)
{
    work_nodes(arg);
    leave_work(arg);
}

static void end_in_pool(void *arg)
{
    work_end(arg);
    leave_work(arg);
}

static void ended(void *arg)
{
    struct job *j = arg;

    if (j->keeper) {
        tell(j->keeper, j);
        j->keeper->job = NULL;
    }
    job_free(j);
}

static void nodes_done(void *arg)
{
    struct job *j = arg;

    if (!j->keeper || j->result < 0) {
        ended(j);
        return;
    }
    choose_workers(j->keeper, j);
    j->at_work = true;
    loop_work(j->keeper->conf.loop, end_in_pool, ended, j);
}

static void write_in_pool(void *arg)
{
    struct index_keeper *k = arg;

    if (k->job || !has_ranks(k))
        return; /* the last one takes longer than a period */
    k->job = job_new(k);
    k->job->at_work = true;
    loop_work(k->conf.loop, nodes_in_pool, nodes_done, k->job);
}

/* --- life -------------------------------------------------------------------------------------- */

/* A file name of its own for each pool, whatever the names hold. */
static char *path_of(const struct index_keeper_conf *c)
{
    char *path = xasprintf("%s/%s.%s.%s.index", c->folder, c->ns, c->component, c->endpoint);

    for (char *p = path + strlen(c->folder) + 1; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '.' && *p != '-')
            *p = '_';
    return path;
}

static void init_metrics(struct index_keeper *k)
{
    static const struct metric_desc writes = {
        .name = "commutator_router_index_writes_total",
        .help = "Times the index was put into its file",
        .type = METRIC_COUNTER,
        .labels = {"dynamo_namespace", "dynamo_component", "outcome"}};
    static const struct metric_desc restored = {.name = "commutator_router_index_restored_blocks",
                                                .help = "Blocks that the file held at the start",
                                                .type = METRIC_GAUGE,
                                                .labels = {"dynamo_namespace", "dynamo_component"}};
    struct metric_family *f = metric_family(k->conf.metrics, &writes);

    k->written = metric_with(f, k->conf.ns, k->conf.component, "ok");
    k->failed = metric_with(f, k->conf.ns, k->conf.component, "failed");
    k->restored =
        metric_with(metric_family(k->conf.metrics, &restored), k->conf.ns, k->conf.component);
}

struct index_keeper *index_keeper_new(const struct index_keeper_conf *conf)
{
    struct index_keeper *k = xcalloc(1, sizeof(*k));

    k->conf = *conf;
    k->path = path_of(conf);
    k->owner = xasprintf("%s/%s/%s", conf->ns, conf->component, conf->endpoint);
    init_metrics(k);
    kv_intake_keep_proofs(conf->intake);
    load(k);
    k->timer = timer_new(conf->loop, write_in_pool, k);
    if (conf->period_ms)
        timer_start_repeat(k->timer, conf->period_ms);
    return k;
}

/* The loop still ends the job, but there is nothing left for it to do. */
static void abandon(struct job *j)
{
    atomic_store(&j->stop, true);
    (void)pthread_mutex_lock(&j->lock);
    while (j->at_work)
        (void)pthread_cond_wait(&j->idle, &j->lock);
    (void)pthread_mutex_unlock(&j->lock);
    j->keeper = NULL;
}

static void write_now(struct index_keeper *k)
{
    struct job *j;

    if (!has_ranks(k))
        return;
    j = job_new(k);
    work_nodes(j);
    choose_workers(k, j);
    work_end(j);
    tell(k, j);
    job_free(j);
}

struct index_keeper *index_keeper_free(struct index_keeper *k)
{
    if (!k)
        return NULL;
    timer_free(k->timer);
    if (k->job)
        abandon(k->job);
    write_now(k);
    free(k->path);
    free(k->owner);
    free(k);
    return NULL;
}
