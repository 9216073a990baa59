/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block hashes, and the index under a replayed trace. Every phase is counted to completion.
 *
 *     kv_bench                    hashes, and a small trace made here
 *     kv_bench hash               hashes alone, for e2e/bench/index_bench.py
 *     kv_bench TRACE WORKERS [THREADS]   a file in Mooncake's format; likewise
 *
 * Each id of a trace stands for 32 blocks of 16 tokens. Request i goes to worker i mod WORKERS, which
 * stores what it does not hold yet in one event; then every prompt is looked up, and once more while
 * another thread stores and removes the blocks of one more worker without a pause; then all blocks
 * are removed, newest request and deepest block first. Of THREADS, each has the events of some workers.
 */
#include <ctype.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bench.h"
#include "lib/base/map64.h"
#include "lib/base/str.h"
#include "router/kv/block_hash.h"
#include "router/kv/prefix_index.h"

enum {
    TOKENS = 4096,
    BLOCK = 16,
    BLOCKS = TOKENS / BLOCK,
    ID_BLOCKS = 32,
    BATCH = 512, /* events that are made at a time; making them is not counted */
    WORKERS_MAX = 4096,
    THREADS_MAX = 16,
    WARM_UP = 100, /* requests */
};

struct request {
    size_t first_id, n_ids;
    uint32_t worker;
    size_t n_held; /* leading blocks that its worker holds already */
};

struct trace {
    uint64_t *ids;
    struct request *requests;
    size_t n_ids, n_requests, n_blocks; /* n_blocks: that enter the index */
    size_t longest;                     /* request, in blocks */
};

/* One request's blocks in the forms that the index takes. */
struct prompt {
    struct prefix_block *blocks;
    uint64_t *local, *external; /* external: deepest first */
    size_t n;
};

struct result {
    size_t n_blocks, n_lookups;
    uint64_t score_sum, apply_ns, remove_ns;
    double lookup_p50_us, lookup_p99_us; /* alone, */
    double busy_p50_us, busy_p99_us;     /* and while somebody writes */
    uint64_t writes;                     /* blocks, meanwhile */
    size_t rss_start, rss_full, rss_end;
    struct prefix_stats stats;
};

static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint64_t wall_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Resident bytes after what is free has gone back to the system. */
static size_t rss_bytes(void)
{
    unsigned long pages = 0;
    FILE *f;

    malloc_trim(0);
    f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%*u %lu", &pages) != 1)
        abort();
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* --- traces ------------------------------------------------------------------------------------
 */

static void trace_add_id(struct trace *t, uint64_t id)
{
    if ((t->n_ids & (t->n_ids - 1)) == 0)
        t->ids = xreallocarray(t->ids, MAX(t->n_ids * 2, (size_t)1), sizeof(*t->ids));
    t->ids[t->n_ids++] = id;
    t->requests[t->n_requests - 1].n_ids++;
}

static void trace_add_request(struct trace *t)
{
    size_t n = t->n_requests;

    if ((n & (n - 1)) == 0)
        t->requests = xreallocarray(t->requests, MAX(n * 2, (size_t)1), sizeof(*t->requests));
    t->requests[t->n_requests++] = (struct request){.first_id = t->n_ids};
}

static void trace_read(struct trace *t, const char *path)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;

    if (!f) {
        perror(path);
        exit(1);
    }
    while (getline(&line, &cap, f) > 0) {
        const char *p = strstr(line, "\"hash_ids\"");

        if (!p)
            continue;
        trace_add_request(t);
        for (p = strchr(p, '['); p && *p && *p != ']';) {
            uint64_t id = 0;

            if (!isdigit((unsigned char)*p)) {
                p++;
                continue;
            }
            for (; isdigit((unsigned char)*p); p++)
                id = id * 10 + (uint64_t)(*p - '0');
            trace_add_id(t, id);
        }
    }
    free(line);
    fclose(f);
}

/* Ten starters, and each conversation goes on for four turns. */
static void trace_make(struct trace *t)
{
    uint64_t fresh = 1000;

    for (uint64_t talk = 0; talk < 1000; talk++) {
        uint64_t own = fresh;

        for (uint64_t turn = 1; turn <= 4; turn++) {
            trace_add_request(t);
            for (uint64_t i = 0; i < 6; i++)
                trace_add_id(t, mix(talk) % 10 * 6 + i);
            for (fresh = own; fresh < own + turn * 4; fresh++)
                trace_add_id(t, fresh);
        }
    }
}

/* Chooses workers, and finds what of each prompt its worker holds by then. */
static void trace_plan(struct trace *t, uint32_t n_workers)
{
    AUTO(map64_done) struct map64 held = {0};

    for (size_t i = 0; i < t->n_requests; i++) {
        struct request *rq = &t->requests[i];
        uint64_t chain = mix(~mix(i % n_workers));
        bool hit = true;

        rq->worker = (uint32_t)(i % n_workers);
        for (size_t k = 0; k < rq->n_ids; k++) {
            bool is_new;

            chain = mix(chain ^ mix(t->ids[rq->first_id + k]));
            (void)map64_put(&held, chain, &is_new);
            hit &= !is_new;
            rq->n_held += hit ? ID_BLOCKS : 0;
        }
        t->n_blocks += rq->n_ids * ID_BLOCKS - rq->n_held;
        t->longest = MAX(t->longest, rq->n_ids * ID_BLOCKS);
    }
}

static void prompt_make(struct prompt *p, const struct trace *t, const struct request *rq)
{
    p->n = rq->n_ids * ID_BLOCKS;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t local = mix(t->ids[rq->first_id + i / ID_BLOCKS] * ID_BLOCKS + i % ID_BLOCKS);

        p->local[i] = local;
        p->blocks[i].local = local;
        p->blocks[i].external = i ? block_hash_next(p->blocks[i - 1].external, local) : local;
        p->external[p->n - 1 - i] = p->blocks[i].external;
    }
}

static void prompt_init(struct prompt *p, size_t longest)
{
    p->blocks = xcalloc(longest + 1, sizeof(*p->blocks));
    p->local = xcalloc(longest + 1, sizeof(*p->local));
    p->external = xcalloc(longest + 1, sizeof(*p->external));
}

static void prompt_done(struct prompt *p)
{
    free(p->blocks);
    free(p->local);
    free(p->external);
}

/* --- phases ------------------------------------------------------------------------------------
 */

static void event_store(struct prefix_index *ix, const struct request *rq, const struct prompt *p)
{
    const uint64_t *parent = rq->n_held ? &p->blocks[rq->n_held - 1].external : NULL;

    if (rq->n_held < p->n &&
        prefix_index_store(ix, rq->worker, parent, p->blocks + rq->n_held, p->n - rq->n_held) != 0)
        abort();
}

static void event_remove(struct prefix_index *ix, const struct request *rq, const struct prompt *p)
{
    if (rq->n_held < p->n &&
        prefix_index_remove(ix, rq->worker, p->external, p->n - rq->n_held) != 0)
        abort();
}

typedef void (*event_fn)(struct prefix_index *ix, const struct request *rq, const struct prompt *p);

/* One thread's part of a batch. */
struct part {
    struct prefix_index *ix;
    const struct request **of;
    const struct prompt *prompts;
    size_t n;
    event_fn event;
    unsigned thread, n_threads;
};

static void *apply_part(void *arg)
{
    const struct part *p = arg;

    for (size_t i = 0; i < p->n; i++)
        if (p->of[i]->worker % p->n_threads == p->thread)
            p->event(p->ix, p->of[i], &p->prompts[i]);
    return NULL;
}

static void apply_batch(const struct part *whole)
{
    struct part parts[THREADS_MAX];
    pthread_t threads[THREADS_MAX];

    for (unsigned i = 0; i < whole->n_threads; i++) {
        parts[i] = *whole;
        parts[i].thread = i;
        if (i > 0 && pthread_create(&threads[i], NULL, apply_part, &parts[i]) != 0)
            abort();
    }
    (void)apply_part(&parts[0]);
    for (unsigned i = 1; i < whole->n_threads; i++)
        (void)pthread_join(threads[i], NULL);
}

/* All events of the trace, or of the trace backwards; returns the CPU time they took. */
static uint64_t apply(struct prefix_index *ix, const struct trace *t, bool backwards,
                      event_fn event, unsigned n_threads)
{
    struct prompt *batch = xcalloc(BATCH, sizeof(*batch));
    uint64_t took = 0;

    for (size_t i = 0; i < BATCH; i++)
        prompt_init(&batch[i], t->longest);
    for (size_t done = 0; done < t->n_requests; done += BATCH) {
        const struct request *of[BATCH];
        size_t n = MIN((size_t)BATCH, t->n_requests - done);
        uint64_t start;

        for (size_t i = 0; i < n; i++) {
            of[i] = &t->requests[backwards ? t->n_requests - 1 - done - i : done + i];
            prompt_make(&batch[i], t, of[i]);
        }
        start = bench_cpu_ns();
        apply_batch(&(struct part){ix, of, batch, n, event, 0, n_threads});
        took += bench_cpu_ns() - start;
    }
    for (size_t i = 0; i < BATCH; i++)
        prompt_done(&batch[i]);
    free(batch);
    return took;
}

/* Returns the sum of the scores; the times are in @took. */
static uint64_t look_up(struct prefix_index *ix, const struct trace *t, uint32_t n_workers,
                        uint64_t *took)
{
    static uint32_t scores[WORKERS_MAX];
    uint64_t sum = 0;
    struct prompt p;

    prompt_init(&p, t->longest);
    for (size_t i = 0; i < t->n_requests; i++) {
        uint64_t start;

        prompt_make(&p, t, &t->requests[i]);
        start = wall_ns();
        (void)prefix_index_match(ix, p.local, p.n, scores, n_workers);
        took[i] = wall_ns() - start;
        for (uint32_t w = 0; w < n_workers; w++)
            sum += scores[w];
    }
    prompt_done(&p);
    return sum;
}

struct writer {
    struct prefix_index *ix;
    const struct trace *trace;
    uint32_t worker;      /* one that nobody asks for */
    struct prompt prompt; /* made by the main thread, whose memory is measured */
    _Atomic bool stop;
    uint64_t n_blocks;
};

static void *write_on(void *arg)
{
    struct writer *w = arg;
    struct prompt p = w->prompt;

    for (size_t i = 0; !w->stop; i = (i + 1) % w->trace->n_requests) {
        prompt_make(&p, w->trace, &w->trace->requests[i]);
        if (prefix_index_store(w->ix, w->worker, NULL, p.blocks, p.n) != 0 ||
            prefix_index_remove(w->ix, w->worker, p.external, p.n) != 0)
            abort();
        w->n_blocks += 2 * p.n;
    }
    return NULL;
}

static void look_up_all(struct prefix_index *ix, const struct trace *t, uint32_t n_workers,
                        struct result *r)
{
    struct writer w = {.ix = ix, .trace = t, .worker = n_workers};
    uint64_t *took = xcalloc(t->n_requests, sizeof(*took));
    pthread_t thread;

    prompt_init(&w.prompt, t->longest);
    r->n_lookups = t->n_requests;
    r->score_sum = look_up(ix, t, n_workers, took);
    r->lookup_p50_us = (double)bench_percentile(took, t->n_requests, 0.5) / 1e3;
    r->lookup_p99_us = (double)bench_percentile(took, t->n_requests, 0.99) / 1e3;
    if (pthread_create(&thread, NULL, write_on, &w) != 0)
        abort();
    if (look_up(ix, t, n_workers, took) != r->score_sum)
        abort(); /* the writer's blocks were there already */
    w.stop = true;
    (void)pthread_join(thread, NULL);
    r->busy_p50_us = (double)bench_percentile(took, t->n_requests, 0.5) / 1e3;
    r->busy_p99_us = (double)bench_percentile(took, t->n_requests, 0.99) / 1e3;
    r->writes = w.n_blocks;
    prompt_done(&w.prompt);
    free(took);
}

static struct result phases(const struct trace *t, uint32_t n_workers, unsigned n_threads)
{
    struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    struct result r = {.n_blocks = t->n_blocks, .rss_start = rss_bytes()};

    r.apply_ns = apply(ix, t, false, event_store, n_threads);
    r.rss_full = rss_bytes();
    r.stats = prefix_index_stats(ix);
    look_up_all(ix, t, n_workers, &r);
    r.remove_ns = apply(ix, t, true, event_remove, n_threads);
    r.rss_end = rss_bytes();
    prefix_index_free(ix);
    return r;
}

static struct result replay(struct trace *t, uint32_t n_workers, unsigned n_threads)
{
    struct trace some;
    struct result r;

    trace_plan(t, n_workers);
    some = *t;
    /* Pages of code and of threads' stacks that any run needs belong to the start. */
    some.n_requests = MIN(t->n_requests, (size_t)WARM_UP);
    (void)phases(&some, n_workers, n_threads);
    r = phases(t, n_workers, n_threads);
    free(t->ids);
    free(t->requests);
    return r;
}

/* --- what is printed ---------------------------------------------------------------------------
 */

static double hash_block_ns(void)
{
    static uint32_t tokens[TOKENS];
    static uint64_t local[BLOCKS], sequence[BLOCKS];
    uint64_t start;
    enum { ROUNDS = 2000 };

    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint32_t)mix(i);
    start = bench_cpu_ns();
    for (int i = 0; i < ROUNDS; i++) {
        tokens[0] = (uint32_t)i;
        (void)block_hash_prompt(BLOCK_HASH_SEED, tokens, TOKENS, BLOCK, local, sequence);
    }
    return (double)(bench_cpu_ns() - start) / ROUNDS / BLOCKS;
}

static double per_second(size_t n, uint64_t ns)
{
    return (double)n / ((double)ns / 1e9);
}

/* One object for the script that compares. */
static void print_figures(const struct result *r)
{
    printf("{\"blocks\":%zu,\"lookups\":%zu,\"score_sum\":%llu,\"apply_per_cpu_s\":%.6g,"
           "\"remove_per_cpu_s\":%.6g,\"lookup_p50_us\":%.4g,\"lookup_p99_us\":%.4g,"
           "\"busy_p50_us\":%.4g,\"busy_p99_us\":%.4g,\"writes\":%llu,"
           "\"counted_bytes\":%zu,\"rss_start\":%zu,\"rss_full\":%zu,\"rss_end\":%zu}\n",
           r->n_blocks, r->n_lookups, (unsigned long long)r->score_sum,
           per_second(r->n_blocks, r->apply_ns), per_second(r->n_blocks, r->remove_ns),
           r->lookup_p50_us, r->lookup_p99_us, r->busy_p50_us, r->busy_p99_us,
           (unsigned long long)r->writes, r->stats.bytes, r->rss_start, r->rss_full, r->rss_end);
}

static void report(const struct result *r)
{
    bench_report("index.store", per_second(r->n_blocks, r->apply_ns), "blocks/CPU s", "higher");
    bench_report("index.made.remove", per_second(r->n_blocks, r->remove_ns), "blocks/CPU s",
                 "higher");
    bench_report("index.match", r->lookup_p50_us, "us", "lower");
    bench_report("index.made.bytes_per_block", (double)r->stats.bytes / (double)r->n_blocks,
                 "bytes", "lower");
}

int main(int argc, char **argv)
{
    struct trace t = {0};
    struct result r;

    if (argc == 2 && strcmp(argv[1], "hash") == 0) {
        printf("{\"hash_block_ns\":%.4g}\n", hash_block_ns());
        return 0;
    }
    if (argc == 3 || argc == 4) {
        uint64_t n_workers, n_threads = 1;

        if (!str_parse_u64(str_from(argv[2]), &n_workers) || n_workers < 1 ||
            n_workers > WORKERS_MAX ||
            (argc == 4 && !str_parse_u64(str_from(argv[3]), &n_threads)) || n_threads < 1 ||
            n_threads > THREADS_MAX)
            return 2;
        trace_read(&t, argv[1]);
        r = replay(&t, (uint32_t)n_workers, (unsigned)n_threads);
        print_figures(&r);
        return 0;
    }
    bench_report("hash.block_alone", hash_block_ns(), "ns", "lower");
    trace_make(&t);
    r = replay(&t, 64, 1);
    report(&r);
    return 0;
}
