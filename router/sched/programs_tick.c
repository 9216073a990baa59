/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tick of the programs: who is forgotten, resumed and paused.
 */
#include "router/sched/programs_inner.h"

#include <stdlib.h>
#include <string.h>

/* --- those that acted for too long ------------------------------------------------------------- */

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

static void forget_old(struct programs *p, uint64_t now_ns)
{
    uint64_t retention_ns = ns_of(p->conf.retention_s);

    LIST_FOREACH (g, &p->all, struct program, link)
        if (program_is_idle(g) && g->state.acting &&
            now_ns - MIN(g->state.acting_since_ns, now_ns) >= retention_ns)
            programs_forget(p, g);
}

/* --- resuming ---------------------------------------------------------------------------------- */

/* One that may be resumed, or paused. */
struct choice {
    struct program *g;
    uint64_t tokens;
    int group; /* who comes first */
};

/* A request of a program that has run; a new program; one that acts, for which nobody waits. */
static int group_of(const struct program *g)
{
    if (g->state.steps <= 1)
        return 1;
    return g->state.acting ? 2 : 0;
}

static int by_session(const struct choice *a, const struct choice *b)
{
    return strcmp(a->g->session, b->g->session);
}

static int by_turn(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->group != y->group)
        return x->group - y->group;
    if (x->tokens != y->tokens)
        return x->tokens < y->tokens ? -1 : 1;
    return by_session(x, y);
}

static int largest_first(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->tokens != y->tokens)
        return x->tokens > y->tokens ? -1 : 1;
    return by_session(x, y);
}

static int smallest_first(const void *a, const void *b)
{
    return -largest_first(a, b);
}

/* Those of which @is holds, for the caller to free. */
static struct choice *choices(const struct programs *p, size_t *ret_n,
                              bool (*is)(const struct program *g, const void *arg), const void *arg)
{
    struct choice *all = NULL;
    size_t n = 0, cap = 0;

    LIST_FOREACH (g, &p->all, struct program, link) {
        if (!g->state.exists || !is(g, arg))
            continue;
        if (n == cap) {
            cap = MAX(cap * 2, (size_t)16);
            all = xreallocarray(all, cap, sizeof(*all));
        }
        all[n++] = (struct choice){g, program_tokens(g), group_of(g)};
    }
    *ret_n = n;
    return all;
}

static bool is_paused(const struct program *g, const void *arg)
{
    (void)arg;
    return g->state.paused;
}

/* What may be added to each worker; returns the sum. */
static uint64_t measure_free(struct programs *p)
{
    double share = MAX(p->conf.pause_threshold - p->conf.resume_hysteresis, 0.0);
    uint64_t sum = 0;

    for (size_t i = 0; i < p->n_workers; i++) {
        struct program_worker *w = &p->workers[i];
        uint64_t limit = programs_share(w->tokens, share);

        w->free = limit > w->used ? limit - w->used : 0;
        if (w->free <= p->conf.buffer)
            w->free = 0;
        sum = programs_add(sum, w->free);
    }
    return sum;
}

static struct program_worker *emptiest(const struct programs *p)
{
    struct program_worker *best = NULL;

    for (size_t i = 0; i < p->n_workers; i++)
        if (p->workers[i].free && (!best || p->workers[i].free > best->free))
            best = &p->workers[i];
    return best;
}

/* Those whose turn it is and that fit, all workers taken together: they are moved to the front. */
static size_t select_fitting(const struct programs *p, struct choice *all, size_t n, uint64_t room)
{
    uint64_t sum = 0;
    size_t n_fit = 0;

    if (n)
        qsort(all, n, sizeof(*all), by_turn);
    for (size_t i = 0; i < n; i++) {
        uint64_t more = programs_add(sum, programs_add(all[i].tokens, p->conf.buffer));

        if (more > room)
            continue;
        sum = more;
        all[n_fit++] = all[i];
    }
    return n_fit;
}

static void resume(struct programs *p, struct program *g, struct program_worker *w, uint64_t tokens,
                   uint64_t now_ns)
{
    program_resume(p, g, &w->worker);
    w->used = programs_add(w->used, tokens);
    w->decayed = programs_add(w->decayed, program_weight(p, g, true, now_ns) + p->conf.buffer);
}

static void resume_fitting(struct programs *p, uint64_t now_ns)
{
    uint64_t room = measure_free(p);
    size_t n;
    struct choice *all = choices(p, &n, is_paused, NULL);

    n = select_fitting(p, all, n, room);
    if (n)
        qsort(all, n, sizeof(*all), largest_first);
    for (size_t i = 0; i < n; i++) {
        uint64_t needed = programs_add(all[i].tokens, p->conf.buffer);
        struct program_worker *w = emptiest(p);

        if (!w || w->free < needed)
            continue;
        w->free -= needed;
        if (w->free <= p->conf.buffer)
            w->free = 0;
        resume(p, all[i].g, w, needed, now_ns);
    }
    free(all);
}

/* --- those that waited too long ---------------------------------------------------------------- */

static struct program_worker *most_room(const struct programs *p)
{
    struct program_worker *best = NULL;
    __int128 most = 0;

    for (size_t i = 0; i < p->n_workers; i++) {
        struct program_worker *w = &p->workers[i];
        __int128 room = (__int128)w->tokens - w->decayed;

        if (w->tokens && (!best || room > most)) {
            best = w;
            most = room;
        }
    }
    return best;
}

static size_t force_late(struct programs *p, uint64_t now_ns)
{
    uint64_t timeout_ns = ns_of(p->conf.resume_timeout_s);
    size_t n = 0;

    if (!p->n_workers)
        return 0;
    LIST_FOREACH (g, &p->all, struct program, link) {
        uint64_t since = g->state.deferred_since_ns;
        struct program_worker *w;

        if (!g->state.exists || !g->state.paused || !since ||
            now_ns - MIN(since, now_ns) < timeout_ns)
            continue;
        w = most_room(p);
        if (w)
            resume(p, g, w, program_weight(p, g, false, now_ns) + p->conf.buffer, now_ns);
        else
            program_resume(p, g, NULL);
        n++;
    }
    return n;
}

/* --- pausing ----------------------------------------------------------------------------------- */

static bool runs_there(const struct program *g, const void *worker)
{
    const struct program_worker *w = worker;

    return !g->state.paused && !g->state.marked && g->state.placed &&
           worker_rank_eq(g->state.worker, w->worker);
}

static void relieve(struct programs *p, struct program_worker *w, uint64_t now_ns)
{
    uint64_t target = programs_share(w->tokens, p->conf.pause_target);
    size_t n;
    struct choice *all = choices(p, &n, runs_there, w);

    if (n)
        qsort(all, n, sizeof(*all), smallest_first);
    for (size_t i = 0; i < n && w->used > target; i++)
        if (all[i].g->state.acting) {
            w->used -= MIN(w->used, program_weight(p, all[i].g, false, now_ns) + p->conf.buffer);
            program_pause(all[i].g);
        }
    for (size_t i = 0; i < n && w->used > target; i++)
        all[i].g->state.marked |= !all[i].g->state.acting;
    free(all);
}

size_t programs_tick(struct programs *p, uint64_t now_ns)
{
    size_t n;

    forget_old(p, now_ns);
    programs_measure(p, now_ns);
    resume_fitting(p, now_ns);
    n = force_late(p, now_ns);
    for (size_t i = 0; i < p->n_workers; i++)
        if (p->workers[i].used > programs_share(p->workers[i].tokens, p->conf.pause_threshold) &&
            p->workers[i].tokens)
            relieve(p, &p->workers[i], now_ns);
    return n;
}
