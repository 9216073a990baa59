/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/alias_table.h"

#include <assert.h>
#include <errno.h>

enum { SEGMENT_BYTES = ALIAS_SEGMENT_RUNS * sizeof(struct alias_run), SEGMENTS_MAX = 1 << 22 };

static uint64_t mixed(uint32_t slot, uint64_t external)
{
    return name_mix(external ^ (slot + UINT64_C(1)) * UINT64_C(0xA0761D6478BD642F));
}

static uint32_t reference_of(uint32_t run, uint32_t cell)
{
    return run * ALIAS_CELLS + cell;
}

/* The array of segments doubles, so its size need not be kept. */
static size_t segments_cap(const struct alias_table *t)
{
    size_t cap = t->n_segments ? 16 : 0;

    while (cap < t->n_segments)
        cap *= 2;
    return cap;
}

void alias_table_done(struct alias_table *t, struct kv_mem *mem)
{
    for (uint32_t i = 0; i < t->n_segments; i++)
        kv_free(mem, t->segments[i], SEGMENT_BYTES);
    kv_free(mem, t->segments, segments_cap(t) * sizeof(*t->segments));
    name_table_done(&t->names, mem);
    *t = (struct alias_table){0};
}

static bool segment_new(struct alias_table *t, struct kv_mem *mem)
{
    size_t cap = segments_cap(t);
    struct alias_run *seg;

    if (t->n_segments == SEGMENTS_MAX)
        return false;
    seg = kv_alloc(mem, SEGMENT_BYTES);
    if (!seg)
        return false;
    if (t->n_segments == cap) {
        struct alias_run **more = kv_resize(mem, t->segments, cap * sizeof(*more),
                                            MAX(cap * 2, (size_t)16) * sizeof(*more));

        if (!more) {
            kv_free(mem, seg, SEGMENT_BYTES);
            return false;
        }
        t->segments = more;
    }
    t->segments[t->n_segments++] = seg;
    t->n_touched += t->n_touched == 0; /* run 0 is none */
    return true;
}

/* 0 when there is no memory. */
static uint32_t run_new(struct alias_table *t, struct kv_mem *mem)
{
    uint32_t id = t->first_free;

    if (id) {
        t->first_free = alias_run(t, id)->next;
        return id;
    }
    if (t->n_touched == t->n_segments * ALIAS_SEGMENT_RUNS && !segment_new(t, mem))
        return 0;
    return t->n_touched++;
}

static void run_free(struct alias_table *t, uint32_t id)
{
    struct alias_run *r = alias_run(t, id);

    r->cells = 0;
    r->next = t->first_free;
    t->first_free = id;
}

uint32_t alias_table_find(const struct alias_table *t, uint32_t slot, uint64_t external)
{
    struct name_probe p = name_table_probe(&t->names, mixed(slot, external));
    uint32_t ref;

    while ((ref = name_probe_next(&p))) {
        const struct alias_run *r = alias_run(t, ref / ALIAS_CELLS);

        if (r->slot == slot && r->external[ref % ALIAS_CELLS] == external)
            break;
    }
    return ref;
}

/* A run of the chain where the cell is free, 0 = none; *ret_n counts the runs before it. */
static uint32_t run_with_room(const struct alias_table *t, uint32_t head, uint32_t cell,
                              uint32_t *ret_n)
{
    uint32_t id = head;

    for (*ret_n = 0; id && alias_run(t, id)->cells & 1u << cell; ++*ret_n)
        id = alias_run(t, id)->next;
    return id;
}

int alias_table_put(struct alias_table *t, struct kv_mem *mem, uint32_t *head,
                    const struct alias_run *of, uint32_t cell, uint64_t external)
{
    uint32_t n_runs, id = run_with_room(t, *head, cell, &n_runs), made = 0;
    struct alias_run *r;

    if (!id && n_runs == ALIAS_RUNS_MAX)
        return ALIAS_TOO_MANY;
    if (!id) {
        id = made = run_new(t, mem);
        if (!made)
            return -ENOMEM;
        *alias_run(t, id) = (struct alias_run){.slot = of->slot, .node = of->node};
    }
    if (!name_table_reserve(&t->names, mem, 1)) {
        if (made)
            run_free(t, made);
        return -ENOMEM;
    }
    name_table_put(&t->names, mixed(of->slot, external), reference_of(id, cell));
    r = alias_run(t, id);
    r->cells |= (uint16_t)(1u << cell);
    r->external[cell] = external;
    if (made) {
        r->next = *head;
        r->named = *head ? alias_run(t, *head)->named : of->named;
        *head = made;
    }
    return 0;
}

static void chain_remove(struct alias_table *t, uint32_t *head, uint32_t id)
{
    struct alias_run *r = alias_run(t, id);

    if (*head == id) {
        *head = r->next;
        if (*head)
            alias_run(t, *head)->named = r->named;
    } else {
        uint32_t before = *head;

        while (alias_run(t, before)->next != id)
            before = alias_run(t, before)->next;
        alias_run(t, before)->next = r->next;
    }
    run_free(t, id);
}

void alias_table_drop(struct alias_table *t, struct kv_mem *mem, uint32_t *head, uint32_t reference)
{
    uint32_t id = reference / ALIAS_CELLS, cell = reference % ALIAS_CELLS;
    struct alias_run *r = alias_run(t, id);

    assert(r->cells & 1u << cell);
    name_table_remove(&t->names, mixed(r->slot, r->external[cell]), reference);
    name_table_shrink(&t->names, mem, 1);
    r->cells &= (uint16_t) ~(1u << cell);
    if (r->cells == 0)
        chain_remove(t, head, id);
    if (t->names.len == 0)
        alias_table_done(t, mem);
}

uint32_t alias_table_cells(const struct alias_table *t, uint32_t head)
{
    uint32_t cells = 0;

    for (uint32_t id = head; id; id = alias_run(t, id)->next)
        cells |= alias_run(t, id)->cells;
    return cells;
}

void alias_table_check(const struct alias_table *t)
{
    size_t n = 0;

    for (uint32_t id = 1; id < t->n_touched; id++) {
        const struct alias_run *r = alias_run(t, id);

        for (uint32_t cell = 0; cell < ALIAS_CELLS; cell++)
            if (r->cells & 1u << cell) {
                assert(alias_table_find(t, r->slot, r->external[cell]) == reference_of(id, cell));
                n++;
            }
    }
    assert(n == t->names.len);
}
