/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/programs_inner.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/portable_math.h"
#include "lib/base/strmap.h"

/* --- workers ----------------------------------------------------------------------------------- */

static int compare(struct worker_rank a, struct worker_rank b)
{
    if (a.worker_id != b.worker_id)
        return a.worker_id < b.worker_id ? -1 : 1;
    return a.dp_rank < b.dp_rank ? -1 : a.dp_rank > b.dp_rank;
}

/* Where it is, or would be. */
static size_t place_of(const struct programs *p, struct worker_rank w)
{
    size_t low = 0, high = p->n_workers;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare(p->workers[middle].worker, w) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct program_worker *programs_worker(const struct programs *p, struct worker_rank w)
{
    size_t at = place_of(p, w);

    return at < p->n_workers && worker_rank_eq(p->workers[at].worker, w) ? &p->workers[at] : NULL;
}

void programs_put_worker(struct programs *p, struct worker_rank w, uint64_t tokens)
{
    size_t at = place_of(p, w);

    if (at == p->n_workers || !worker_rank_eq(p->workers[at].worker, w)) {
        if (p->n_workers == p->cap_workers) {
            p->cap_workers = MAX(p->cap_workers * 2, (size_t)8);
            p->workers = xreallocarray(p->workers, p->cap_workers, sizeof(*p->workers));
        }
        memmove(&p->workers[at + 1], &p->workers[at], (p->n_workers++ - at) * sizeof(*p->workers));
    }
    p->workers[at] = (struct program_worker){.worker = w, .tokens = tokens};
}

void programs_remove_worker(struct programs *p, uint64_t worker_id)
{
    size_t from = place_of(p, (struct worker_rank){worker_id, 0}), to = from;

    while (to < p->n_workers && p->workers[to].worker.worker_id == worker_id)
        to++;
    if (to > from) /* nobody known has no memory, either */
        memmove(&p->workers[from], &p->workers[to], (p->n_workers - to) * sizeof(*p->workers));
    p->n_workers -= to - from;
    LIST_FOREACH (g, &p->all, struct program, link)
        if (g->state.placed && g->state.worker.worker_id == worker_id)
            g->state.placed = false;
}

static bool is_any_measured(const struct programs *p)
{
    for (size_t i = 0; i < p->n_workers; i++)
        if (p->workers[i].tokens)
            return true;
    return false;
}

/* --- what they count for ----------------------------------------------------------------------- */

uint64_t programs_share(uint64_t tokens, double share)
{
    double product = (double)tokens * share;

    return product >= 0x1p64 ? UINT64_MAX : (uint64_t)product;
}

uint64_t program_tokens(const struct program *g)
{
    return g->counted ? g->counted->context_tokens : g->state.tokens;
}

uint64_t program_weight(const struct programs *p, const struct program *g, bool decayed,
                        uint64_t now_ns)
{
    static const double ln_2 = 0x1.62e42fefa39efp-1;
    uint64_t since = g->state.acting_since_ns;
    double idle_s = since && now_ns > since ? (double)(now_ns - since) * 1e-9 : 0;

    if (!g->state.acting)
        return program_tokens(g);
    return programs_share(program_tokens(g),
                          decayed ? portable_exp(-idle_s / p->conf.acting_tau_s * ln_2)
                                  : p->conf.acting_weight);
}

void programs_measure(struct programs *p, uint64_t now_ns)
{
    for (size_t i = 0; i < p->n_workers; i++)
        p->workers[i].used = p->workers[i].decayed = 0;
    LIST_FOREACH (g, &p->all, struct program, link) {
        bool counts = g->state.exists && !g->state.paused && g->state.placed;
        struct program_worker *w = counts ? programs_worker(p, g->state.worker) : NULL;

        if (!w)
            continue;
        w->used = programs_add(w->used, program_weight(p, g, false, now_ns) + p->conf.buffer);
        w->decayed = programs_add(w->decayed, program_weight(p, g, true, now_ns) + p->conf.buffer);
    }
}

static bool has_room(const struct programs *p, const struct program_worker *w,
                     const struct program_ticket *t)
{
    uint64_t needed = programs_add(t->isl_tokens, p->conf.buffer);

    return w && w->tokens && w->tokens >= w->used && w->tokens - w->used >= needed;
}

static const struct program_worker *find_room(const struct programs *p,
                                              const struct program_ticket *t)
{
    const struct program_worker *best = NULL;

    if (t->pinned) {
        best = programs_worker(p, t->pin);
        return has_room(p, best, t) ? best : NULL;
    }
    for (size_t i = 0; i < p->n_workers; i++)
        if (has_room(p, &p->workers[i], t) && (!best || p->workers[i].used < best->used))
            best = &p->workers[i];
    return best;
}

/* --- letting go --------------------------------------------------------------------------------
 */

static struct program_ticket *front_of(const struct program *g)
{
    return list_empty(&g->waiting) ? NULL
                                   : LIST_ENTRY(g->waiting.next, struct program_ticket, link);
}

/* The first that waits goes to @w, or with NULL to where the program is, if it is anywhere. */
static void release(struct programs *p, struct program *g, const struct worker_rank *w)
{
    struct program_ticket *t = front_of(g);
    struct program_state *s = &g->state;

    if (w) {
        s->worker = *w;
        s->placed = true;
    }
    s->paused = false;
    s->deferred_since_ns = 0;
    t->has_target = s->placed;
    t->target = s->worker;
    t->released = true;
    g->current = t;
    list_remove(&t->link);
    list_append(&p->ready, &t->link);
    p->n_waiting--;
}

static void defer(struct program *g, uint64_t now_ns)
{
    g->state.paused = true;
    g->state.placed = false;
    if (!g->state.deferred_since_ns)
        g->state.deferred_since_ns = MAX(now_ns, UINT64_C(1));
}

static void begin(struct program *g, struct program_ticket *t)
{
    struct program_state *s = &g->state;

    t->prior = *s;
    t->began = true;
    if (!s->exists)
        *s = (struct program_state){.exists = true, .tokens = t->isl_tokens};
    s->acting = false;
    s->acting_since_ns = 0;
    s->steps++;
    g->counted = t;
}

static bool is_any_paused(const struct programs *p)
{
    LIST_FOREACH (g, &p->all, struct program, link)
        if (g->state.exists && g->state.paused)
            return true;
    return false;
}

/* Of a program that has no worker. */
static void place(struct programs *p, struct program *g, struct program_ticket *t, uint64_t now_ns)
{
    const struct program_worker *w = NULL;

    if (t->prior.exists || !is_any_paused(p)) {
        programs_measure(p, now_ns);
        w = find_room(p, t);
    }
    if (w)
        release(p, g, &w->worker);
    else
        defer(g, now_ns);
}

/* The last of a session does not wait for room: it gives some back. */
static void release_last(struct programs *p, struct program *g, struct program_ticket *t)
{
    struct program_state was = g->state;

    t->began = true;
    g->counted = NULL;
    release(p, g, NULL);
    t->has_target = was.exists && was.placed;
    g->state = (struct program_state){.exists = false};
}

/* The first that waits, if it is its turn. */
static void admit(struct programs *p, struct program *g, uint64_t now_ns)
{
    struct program_ticket *t = front_of(g);

    if (g->current || !t || t->began)
        return;
    if (t->is_last) {
        release_last(p, g, t);
        return;
    }
    begin(g, t);
    if (g->state.placed && !programs_worker(p, g->state.worker))
        g->state.placed = false; /* it went while it ran */
    if (g->state.paused)
        defer(g, now_ns);
    else if (g->state.placed || !is_any_measured(p))
        release(p, g, NULL);
    else
        place(p, g, t, now_ns);
}

void program_resume(struct programs *p, struct program *g, const struct worker_rank *w)
{
    g->state.paused = false;
    g->state.deferred_since_ns = 0;
    g->state.placed = w != NULL;
    if (w)
        g->state.worker = *w;
    if (!g->current && front_of(g))
        release(p, g, w);
}

void program_pause(struct program *g)
{
    g->state.paused = true;
    g->state.placed = false;
}

/* --- programs ---------------------------------------------------------------------------------- */

static void drop_if_unused(struct programs *p, struct program *g)
{
    if (g->state.exists || !program_is_idle(g))
        return;
    (void)strmap_remove(p->sessions, str_from(g->session));
    list_remove(&g->link);
    free(g->session);
    free(g);
}

void programs_forget(struct programs *p, struct program *g)
{
    g->state = (struct program_state){.exists = false};
    g->counted = NULL;
    drop_if_unused(p, g);
}

/* The one that acts for longest, to have room for another; NULL: all have requests. */
static struct program *least_needed(const struct programs *p)
{
    struct program *oldest = NULL;

    LIST_FOREACH (g, &p->all, struct program, link)
        if (program_is_idle(g) &&
            (!oldest || g->state.acting_since_ns < oldest->state.acting_since_ns))
            oldest = g;
    return oldest;
}

static struct program *need_program(struct programs *p, struct str session)
{
    struct program *g = strmap_get(p->sessions, session);

    if (g)
        return g;
    if (strmap_len(p->sessions) >= p->conf.max_tracked) {
        g = least_needed(p);
        if (!g)
            return NULL;
        programs_forget(p, g);
    }
    g = xcalloc(1, sizeof(*g));
    g->session = str_dup(session);
    list_init(&g->waiting);
    list_append(&p->all, &g->link);
    (void)strmap_set(p->sessions, session, g);
    return g;
}

/* --- requests ---------------------------------------------------------------------------------- */

int programs_enter(struct programs *p, struct program_ticket *t, struct str session,
                   uint64_t now_ns)
{
    struct program *g;

    if (!p->conf.on || session.len == 0)
        return 0;
    g = p->n_tickets < p->conf.max_tracked ? need_program(p, session) : NULL;
    if (!g)
        return PROGRAMS_FULL;
    t->in = p;
    t->program = g;
    t->began = t->released = t->has_target = false;
    t->context_tokens = t->isl_tokens;
    p->n_tickets++;
    p->n_waiting++;
    list_append(&g->waiting, &t->link);
    admit(p, g, now_ns);
    if (!t->released)
        return PROGRAMS_WAITS;
    list_remove(&t->link);
    return 0;
}

void programs_sent(struct program_ticket *t, struct worker_rank w)
{
    if (!t->in || !t->released || !t->program->state.exists)
        return;
    t->program->state.worker = w;
    t->program->state.placed = true;
}

static void end(struct program *g, const struct program_ticket *t, bool ok, uint64_t now_ns)
{
    struct program_state *s = &g->state;
    bool pause = s->marked;

    if (g->counted == t)
        g->counted = NULL;
    if (!t->began)
        return;
    if (t->is_last)
        *s = (struct program_state){.exists = false};
    else if (!ok || !t->released)
        *s = t->prior;
    else if (s->exists) {
        s->acting = true;
        s->acting_since_ns = MAX(now_ns, UINT64_C(1));
        s->tokens = t->context_tokens;
        s->deferred_since_ns = 0;
        s->marked = false;
        if (pause)
            program_pause(g);
    }
}

void programs_leave(struct program_ticket *t, bool ok, uint64_t now_ns)
{
    struct programs *p = t->in;
    struct program *g = t->program;

    if (!p)
        return;
    t->in = NULL;
    p->n_tickets--;
    p->n_waiting -= !t->released;
    list_remove(&t->link);
    if (g->current == t)
        g->current = NULL;
    end(g, t, ok, now_ns);
    admit(p, g, now_ns);
    drop_if_unused(p, g);
}

struct program_ticket *programs_next(struct programs *p)
{
    struct program_ticket *t;

    if (list_empty(&p->ready))
        return NULL;
    t = LIST_ENTRY(p->ready.next, struct program_ticket, link);
    list_remove(&t->link);
    return t;
}

/* --- life -------------------------------------------------------------------------------------- */

struct programs *programs_new(const struct programs_conf *conf)
{
    struct programs *p = xcalloc(1, sizeof(*p));

    p->conf = *conf;
    p->sessions = strmap_new();
    list_init(&p->all);
    list_init(&p->ready);
    return p;
}

struct programs *programs_free(struct programs *p)
{
    if (!p)
        return NULL;
    LIST_FOREACH (g, &p->all, struct program, link)
        programs_forget(p, g);
    strmap_free(p->sessions);
    free(p->workers);
    free(p);
    return NULL;
}

/* Whoever waits goes where it may; those that run are not known any more. */
static void let_all_go(struct programs *p)
{
    LIST_FOREACH (g, &p->all, struct program, link) {
        g->state = (struct program_state){.exists = false};
        for (struct program_ticket *t; (t = front_of(g));) {
            t->began = t->is_last = true;
            release(p, g, NULL);
        }
        if (g->current)
            g->current->began = g->current->is_last = true;
        g->counted = NULL;
        drop_if_unused(p, g);
    }
}

void programs_configure(struct programs *p, const struct programs_conf *conf)
{
    bool was_on = p->conf.on;

    p->conf = *conf;
    if (was_on && !conf->on)
        let_all_go(p);
}

size_t programs_waiting(const struct programs *p)
{
    return p->n_waiting;
}

struct programs_stats programs_stats(const struct programs *p)
{
    struct programs_stats s = {.waiting = p->n_waiting};

    LIST_FOREACH (g, &p->all, struct program, link) {
        s.paused += g->state.exists && g->state.paused;
        s.active += g->state.exists && !g->state.paused;
    }
    return s;
}
