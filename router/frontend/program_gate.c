/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/program_gate.h"

#include <stdlib.h>

#include "lib/base/log.h"

static const struct log_target LG = {"commutator::frontend::programs"};

enum { ACTIVE, PAUSED, WAITING, STATES };

struct program_gate {
    struct program_gate_conf conf;
    struct programs *programs;
    double interval_s;
    struct timer *tick;  /* runs while there are programs */
    struct timer *drain; /* runs while there may be some to let go */
    struct metric *states[STATES];
};

struct metric_family *program_gate_metric(struct metric_registry *r)
{
    return metric_family(
        r,
        &(struct metric_desc){
            .name = "commutator_router_programs",
            .help = "Programs of agents that are active or paused, and requests of them that wait",
            .type = METRIC_GAUGE,
            .labels = {"model", "state"}});
}

static void show_waiting(const struct program_gate *g)
{
    metric_set(g->states[WAITING], (double)programs_waiting(g->programs));
}

static struct programs_stats show(const struct program_gate *g)
{
    struct programs_stats s = programs_stats(g->programs);

    metric_set(g->states[ACTIVE], (double)s.active);
    metric_set(g->states[PAUSED], (double)s.paused);
    metric_set(g->states[WAITING], (double)s.waiting);
    return s;
}

/* In a turn of its own: whoever tells us is in the middle of something. */
static void drain_soon(struct program_gate *g)
{
    if (!timer_active(g->drain))
        timer_start(g->drain, 0);
}

static void tick_later(struct program_gate *g)
{
    if (!timer_active(g->tick))
        timer_start(g->tick, (uint64_t)(g->interval_s * 1000 + 0.5));
}

static uint64_t now_ns(const struct program_gate *g)
{
    return loop_now_ms(g->conf.loop) * UINT64_C(1000000);
}

static void on_drain(void *arg)
{
    struct program_gate *g = arg;
    struct program_ticket *t;

    g->conf.hold(g->conf.owner); /* those that wait may be all that holds it */
    while ((t = programs_next(g->programs))) {
        struct program_waiter *w = CONTAINER_OF(t, struct program_waiter, ticket);

        w->go(w->arg);
    }
    show_waiting(g);
    g->conf.let_go(g->conf.owner);
}

static void on_tick(void *arg)
{
    struct program_gate *g = arg;
    size_t n_late = programs_tick(g->programs, now_ns(g));
    struct programs_stats s = show(g);

    if (n_late)
        log_warn(&LG, "programs waited too long, resumed without room for them",
                 LOG_STR("model", g->conf.model), LOG_U64("programs", n_late));
    if (s.active + s.paused)
        tick_later(g);
    drain_soon(g);
}

int program_gate_enter(struct program_gate *g, struct program_waiter *w, struct str session)
{
    int r = programs_enter(g->programs, &w->ticket, session, now_ns(g));

    w->at = w->ticket.in ? g : NULL;
    if (!w->at)
        return r;
    tick_later(g);
    show_waiting(g);
    if (r == PROGRAMS_WAITS)
        log_debug(&LG, "a request of a program waits", LOG_STR("model", g->conf.model),
                  LOG_U64("isl", w->ticket.isl_tokens));
    return r;
}

void program_gate_leave(struct program_waiter *w, bool ok)
{
    struct program_gate *g = w->at;

    if (!g)
        return;
    w->at = NULL;
    programs_leave(&w->ticket, ok, now_ns(g));
    show_waiting(g);
    drain_soon(g);
}

void program_gate_put_worker(struct program_gate *g, uint64_t worker_id, uint32_t dp_start,
                             uint32_t dp_size, uint64_t tokens)
{
    programs_remove_worker(g->programs, worker_id);
    for (uint32_t i = 0; i < MAX(dp_size, 1u); i++)
        programs_put_worker(g->programs, (struct worker_rank){worker_id, dp_start + i}, tokens);
}

void program_gate_remove_worker(struct program_gate *g, uint64_t worker_id)
{
    programs_remove_worker(g->programs, worker_id);
}

void program_gate_configure(struct program_gate *g, const struct programs_conf *programs)
{
    g->interval_s = MAX(programs->interval_s, 0.001);
    programs_configure(g->programs, programs);
    drain_soon(g);
}

struct program_gate *program_gate_new(const struct program_gate_conf *conf,
                                      const struct programs_conf *programs)
{
    static const char *const words[] = {
        [ACTIVE] = "active", [PAUSED] = "paused", [WAITING] = "waiting"};
    struct program_gate *g = xcalloc(1, sizeof(*g));

    g->conf = *conf;
    g->programs = programs_new(programs);
    g->interval_s = MAX(programs->interval_s, 0.001);
    g->tick = timer_new(conf->loop, on_tick, g);
    g->drain = timer_new(conf->loop, on_drain, g);
    for (size_t i = 0; i < STATES; i++)
        g->states[i] = metric_with(conf->programs, conf->model, words[i]);
    return g;
}

struct program_gate *program_gate_free(struct program_gate *g)
{
    if (!g)
        return NULL;
    timer_free(g->tick);
    timer_free(g->drain);
    programs_free(g->programs);
    free(g);
    return NULL;
}
