/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/matches.h"

#include <math.h>
#include <string.h>

#include "router/sched/scheduler_inner.h"

void prompt_matches_add(struct prompt_matches *m, const struct prompt_match *row)
{
    if (m->n == m->cap) {
        m->cap = MAX(m->cap * 2, (size_t)16);
        m->rows = xreallocarray(m->rows, m->cap, sizeof(*m->rows));
    }
    m->rows[m->n++] = *row;
}

void prompt_matches_done(struct prompt_matches *m)
{
    free(m->rows);
    *m = (struct prompt_matches){.n = 0};
}

/* --- told --------------------------------------------------------------------------------------- */

static void add_tier(struct scheduler *s, uint32_t slot, const struct prompt_match *row)
{
    struct tier_reach *reach = &s->reach[slot];

    reach->host = MAX(reach->host, s->scores[slot]);
    reach->disk = MAX(reach->disk, reach->host);
    reach->disk += row->blocks;
    if (row->tier == MATCH_HOST)
        reach->host += row->blocks;
}

/* Others may tell of targets that are not known here, and of longer prompts than were asked for. */
void scheduler_take_matches(struct scheduler *s, const struct route_request *q)
{
    uint32_t n_slots = (uint32_t)worker_table_end(s->workers), n = (uint32_t)q->n_blocks;

    memset(s->scores, 0, n_slots * sizeof(*s->scores));
    scheduler_need_reach(s, n_slots);
    memset(s->reach, 0, n_slots * sizeof(*s->reach));
    s->n_reach = n_slots;
    for (size_t i = 0; i < q->matches->n; i++) {
        struct prompt_match row = q->matches->rows[i];
        uint32_t slot = worker_table_find(s->workers, row.worker);

        if (slot == WORKER_SLOT_NONE)
            continue;
        row.blocks = MIN(row.blocks, n);
        if (row.tier == MATCH_DEVICE)
            s->scores[slot] = MAX(s->scores[slot], row.blocks);
        else
            add_tier(s, slot, &row);
    }
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        s->reach[slot].host = MIN(s->reach[slot].host, n);
        s->reach[slot].disk = MIN(s->reach[slot].disk, n);
    }
}

/* --- found -------------------------------------------------------------------------------------- */

static void add_rows(struct scheduler *s, enum match_tier tier, struct prompt_matches *m)
{
    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++) {
        struct route_candidate c = {.overlap_blocks = s->scores[slot]};
        struct prompt_match row = {.tier = tier};

        if (tier != MATCH_DEVICE)
            scheduler_fill_tiers(s, slot, &c);
        row.blocks = tier == MATCH_DEVICE ? c.overlap_blocks
                     : tier == MATCH_HOST ? c.host_blocks
                                          : c.disk_blocks;
        if (row.blocks && worker_table_get(s->workers, slot, &row.worker))
            prompt_matches_add(m, &row);
    }
}

void scheduler_find_matches(struct scheduler *s, const uint64_t *local, size_t n_blocks,
                            bool with_tiers, uint64_t now_ns, struct prompt_matches *ret)
{
    const struct route_request q = {.local = local, .n_blocks = n_blocks, .now_ns = now_ns};

    ret->n = 0;
    ret->told = true;
    scheduler_match_prompt(s, &q);
    add_rows(s, MATCH_DEVICE, ret);
    if (!with_tiers || !s->n_reach)
        return;
    add_rows(s, MATCH_HOST, ret);
    add_rows(s, MATCH_DISK, ret);
}

bool scheduler_note_routed(struct scheduler *s, struct worker_rank w, const uint64_t *local,
                           const uint64_t *sequence, size_t n_blocks, uint64_t now_ns)
{
    uint32_t slot = worker_table_find(s->workers, w);

    if (s->conf.use_kv_events || !scheduler_knows(s, w))
        return false;
    approx_index_insert(s->approx, slot, local, sequence, n_blocks, now_ns / NS_PER_MS);
    if (scheduler_keeps_used(&s->conf) && s->targets[slot].total_kv_blocks)
        approx_index_keep(s->approx, slot, s->targets[slot].total_kv_blocks);
    return true;
}
