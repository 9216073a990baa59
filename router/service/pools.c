/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/pools.h"

#include <errno.h>

#include "router/wire/fields.h"

const char *const POOL_KIND_WORDS[POOL_KINDS] = {"prefill", "decode", "agg"};

/* --- choosing --------------------------------------------------------------------------------- */

static size_t cell_of(const struct pool_axis *a, struct opt_f64 v)
{
    double at = ((v.set ? v.v : (a->min + a->max) / 2) - a->min) / ((a->max - a->min) / a->cells);

    if (!(at > 0))
        return 0;
    return at < (double)a->cells ? (size_t)at : a->cells - 1;
}

static size_t pool_of_grid(const struct pool_set *s, const struct pool_question *q)
{
    const struct {
        const struct pool_axis *axis;
        struct opt_f64 v;
    } axes[POOL_AXES] = {
        {&s->tokens, OPT_F64((double)q->n_tokens)}, {&s->ttft, q->ttft_ms}, {&s->itl, q->itl_ms}};
    size_t at = 0;

    for (size_t i = 0; i < POOL_AXES; i++)
        if (axes[i].axis->cells)
            at = at * axes[i].axis->cells + cell_of(axes[i].axis, axes[i].v);
    return s->cells[at];
}

size_t pool_set_choose(const struct pool_set *s, const struct pool_question *q)
{
    for (size_t i = 0; q->priority.set && i < s->n_overrides; i++) {
        const struct pool_override *o = &s->overrides[i];

        if (o->min_priority <= q->priority.v && q->priority.v <= o->max_priority)
            return o->pool;
    }
    return pool_of_grid(s, q);
}

/* The highest priority below @below that a pool has; false = none. */
static bool next_faster(const struct pool_set *s, int64_t below, int64_t *ret)
{
    bool found = false;

    for (size_t i = 0; i < s->n; i++) {
        if (s->priorities[i] >= below || (found && s->priorities[i] <= *ret))
            continue;
        *ret = s->priorities[i];
        found = true;
    }
    return found;
}

size_t pool_set_order(const struct pool_set *s, size_t first, bool retries, size_t *ret)
{
    int64_t priority = s->priorities[first], faster = 0;
    size_t n = 0;

    ret[n++] = first;
    while (retries && next_faster(s, priority, &faster)) {
        for (size_t i = 0; i < s->n; i++)
            if (s->priorities[i] == faster)
                ret[n++] = i;
        priority = faster;
    }
    return n;
}

/* --- what a request says ---------------------------------------------------------------------- */

static uint64_t count_tokens(struct json_pull *p)
{
    uint64_t n = 0, id;

    if (!json_pull_array(p))
        return 0;
    for (; json_pull_element(p); n++)
        (void)json_pull_u64(p, &id);
    return n;
}

static void pull_fields(struct json_pull *p, const struct field *table, size_t n,
                        struct pool_question *q)
{
    struct str key;

    if (json_pull_null(p) || !json_pull_object(p))
        return;
    while (json_pull_key(p, &key))
        if (!fields_pull(p, key, table, n, q))
            skip_pull(p);
}

int pool_question_parse(struct str request, struct pool_question *ret, struct err *e)
{
    static const struct field router[] = {
        {"ttft_target", FIELD_F64, offsetof(struct pool_question, ttft_ms)},
        {"itl_target", FIELD_F64, offsetof(struct pool_question, itl_ms)},
    };
    static const struct field routing[] = {
        {"priority", FIELD_I64, offsetof(struct pool_question, priority)},
    };
    struct pool_question q = {.n_tokens = 0};
    struct json_pull p;
    struct str key;
    int r;

    json_pull_init(&p, request);
    if (!json_pull_object(&p))
        return err_set(e, -EINVAL, "the request is no object");
    while (json_pull_key(&p, &key)) {
        if (str_is(key, "token_ids"))
            q.n_tokens = count_tokens(&p);
        else if (str_is(key, "router"))
            pull_fields(&p, router, ARRAY_LEN(router), &q);
        else if (str_is(key, "routing"))
            pull_fields(&p, routing, ARRAY_LEN(routing), &q);
        else
            skip_pull(&p);
    }
    r = json_pull_end(&p, e);
    if (r == 0)
        *ret = q;
    return r;
}
