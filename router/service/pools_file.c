/* SPDX-License-Identifier: Apache-2.0 */
/* The file of pools: JSON in the schema of 1.6.1. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "lib/base/json_tree.h"
#include "lib/base/log.h"
#include "router/service/pools.h"

static const struct log_target LG = {"commutator::global_router"};

/* How the file calls what a set of pools has; NULL = its grid has no such axis. */
static const struct set_words {
    const char *count, *namespaces, *priorities, *strategy, *mapping;
    const char *tokens; /* beginning of its axis' members */
    bool tokens_optional, ttft, itl;
} WORDS[POOL_KINDS] = {
    [POOL_PREFILL] = {"num_prefill_pools", "prefill_pool_dynamo_namespaces",
                      "prefill_pool_priorities", "prefill_pool_selection_strategy",
                      "prefill_pool_mapping", "isl", false, true, false},
    [POOL_DECODE] = {"num_decode_pools", "decode_pool_dynamo_namespaces", "decode_pool_priorities",
                     "decode_pool_selection_strategy", "decode_pool_mapping", "context_length",
                     false, false, true},
    [POOL_AGG] = {"num_agg_pools", "agg_pool_dynamo_namespaces", "agg_pool_priorities",
                  "agg_pool_selection_strategy", "agg_pool_mapping", "isl", true, true, true},
};

/* --- pools ------------------------------------------------------------------------------------ */

static int read_count(struct pool_set *s, const struct set_words *w, const struct json *file,
                      struct err *e)
{
    int64_t n;

    if (!json_get_i64(file, w->count, &n) || n < 1 || n > POOLS_MAX)
        return err_set(e, -EINVAL, "%s: a whole number between 1 and %d is needed", w->count,
                       POOLS_MAX);
    s->n = (size_t)n;
    return 0;
}

static int read_namespaces(struct pool_set *s, const struct set_words *w, const struct json *file,
                           struct err *e)
{
    const struct json *list = json_get(file, w->namespaces);

    if (!json_is_array(list) || json_len(list) != s->n)
        return err_set(e, -EINVAL, "%s: an array of %zu names is needed, one for each of %s",
                       w->namespaces, s->n, w->count);
    s->namespaces = xcalloc(s->n, sizeof(*s->namespaces));
    for (size_t i = 0; i < s->n; i++) {
        const char *ns = json_cstr(json_at(list, i));

        if (!ns || !*ns)
            return err_set(e, -EINVAL, "%s[%zu] is no name", w->namespaces, i);
        s->namespaces[i] = xstrdup(ns);
    }
    return 0;
}

/* In the order of the file unless it says otherwise. */
static int read_priorities(struct pool_set *s, const struct set_words *w, const struct json *file,
                           struct err *e)
{
    const struct json *list = json_get(file, w->priorities);

    s->priorities = xcalloc(s->n, sizeof(*s->priorities));
    if (list && !json_is_null(list) && (!json_is_array(list) || json_len(list) != s->n))
        return err_set(e, -EINVAL, "%s: an array of %zu whole numbers is needed", w->priorities,
                       s->n);
    for (size_t i = 0; i < s->n; i++) {
        s->priorities[i] = (int64_t)i;
        if (json_is_array(list) && !json_i64(json_at(list, i), &s->priorities[i]))
            return err_set(e, -EINVAL, "%s[%zu] is no whole number", w->priorities, i);
    }
    return 0;
}

/* --- grid ------------------------------------------------------------------------------------- */

/* "ttft_min_ms" is what "ttft_min" was called later. */
static const struct json *aliased(const struct json *strategy, const char *name, const char *end,
                                  const char *unit)
{
    AUTO(mem_free) char *now = xasprintf("%s_%s%s", name, end, unit);
    AUTO(mem_free) char *old = xasprintf("%s_%s", name, end);
    const struct json *v = json_get(strategy, now);

    if (!v && *unit && (v = json_get(strategy, old)))
        log_warn(&LG, "a member of the pools' file has a new name", LOG_STR("old", old),
                 LOG_STR("new", now));
    return v;
}

static int read_axis(struct pool_axis *a, const struct json *strategy, const char *name,
                     const char *unit, struct err *e)
{
    AUTO(mem_free) char *cells = xasprintf("%s_resolution", name);
    int64_t n;

    if (!json_f64(aliased(strategy, name, "min", unit), &a->min) ||
        !json_f64(aliased(strategy, name, "max", unit), &a->max) || !isfinite(a->max - a->min))
        return err_set(e, -EINVAL, "%s_min%s and %s_max%s: numbers are needed", name, unit, name,
                       unit);
    if (a->min >= a->max)
        return err_set(e, -EINVAL, "%s_min%s must be less than %s_max%s", name, unit, name, unit);
    if (!json_get_i64(strategy, cells, &n) || n < 1 || n > POOL_CELLS_MAX)
        return err_set(e, -EINVAL, "%s: a whole number between 1 and %d is needed", cells,
                       POOL_CELLS_MAX);
    a->cells = (size_t)n;
    return 0;
}

static bool has(const struct json *v)
{
    return v && !json_is_null(v);
}

/* All three members of an optional axis, or none. */
static int read_token_axis(struct pool_set *s, const struct set_words *w,
                           const struct json *strategy, struct err *e)
{
    unsigned n = has(json_get(strategy, "isl_min")) + has(json_get(strategy, "isl_max")) +
                 has(json_get(strategy, "isl_resolution"));

    if (w->tokens_optional && n == 0)
        return 0;
    if (w->tokens_optional && n < 3)
        return err_set(e, -EINVAL,
                       "isl_min, isl_max and isl_resolution must be configured together");
    return read_axis(&s->tokens, strategy, w->tokens, "", e);
}

static int read_axes(struct pool_set *s, const struct set_words *w, const struct json *strategy,
                     struct err *e)
{
    int r = read_token_axis(s, w, strategy, e);

    if (r == 0 && w->ttft)
        r = read_axis(&s->ttft, strategy, "ttft", "_ms", e);
    if (r == 0 && w->itl)
        r = read_axis(&s->itl, strategy, "itl", "_ms", e);
    return r;
}

/* Fills from *@at on what @v says, an array of arrays as deep as there are axes left. */
static int read_cells(struct pool_set *s, const struct json *v, const size_t *lengths, size_t *at,
                      const char *name, struct err *e)
{
    int64_t pool;
    int r = 0;

    if (*lengths == 0) {
        if (!json_i64(v, &pool) || pool < 0 || (uint64_t)pool >= s->n)
            return err_set(e, -EINVAL, "%s: a pool is a number between 0 and %zu", name, s->n - 1);
        s->cells[(*at)++] = (uint32_t)pool;
        return 0;
    }
    if (!json_is_array(v) || json_len(v) != *lengths)
        return err_set(e, -EINVAL, "%s: where an array of %zu is needed there is none", name,
                       *lengths);
    JSON_FOREACH (child, v)
        if (r == 0)
            r = read_cells(s, child, lengths + 1, at, name, e);
    return r;
}

static int read_mapping(struct pool_set *s, const struct set_words *w, const struct json *strategy,
                        struct err *e)
{
    const struct pool_axis *axes[POOL_AXES] = {&s->tokens, &s->ttft, &s->itl};
    size_t lengths[POOL_AXES + 1] = {0}, n_axes = 0, n = 1, at = 0;

    for (size_t i = 0; i < POOL_AXES; i++) {
        if (!axes[i]->cells)
            continue;
        lengths[n_axes++] = axes[i]->cells;
        n *= axes[i]->cells;
        if (n > POOL_CELLS_MAX)
            return err_set(e, -EINVAL, "%s: more than %d cells", w->mapping, POOL_CELLS_MAX);
    }
    s->cells = xcalloc(n, sizeof(*s->cells));
    return read_cells(s, json_get(strategy, w->mapping), lengths, &at, w->mapping, e);
}

static int read_override(struct pool_set *s, const struct json *rule, size_t i, struct err *e)
{
    struct pool_override *o = &s->overrides[i];
    int64_t pool;

    if (json_len(rule) != 3 || !json_get_i64(rule, "min_priority", &o->min_priority) ||
        !json_get_i64(rule, "max_priority", &o->max_priority) ||
        !json_get_i64(rule, "target_pool", &pool))
        return err_set(
            e, -EINVAL,
            "priority_overrides[%zu]: min_priority, max_priority and target_pool are needed", i);
    if (o->min_priority > o->max_priority)
        return err_set(e, -EINVAL, "priority_overrides[%zu]: min_priority is above max_priority",
                       i);
    if (pool < 0 || (uint64_t)pool >= s->n)
        return err_set(e, -EINVAL, "priority_overrides[%zu]: target_pool is none of the %zu pools",
                       i, s->n);
    o->pool = (size_t)pool;
    return 0;
}

static int read_overrides(struct pool_set *s, const struct json *strategy, struct err *e)
{
    const struct json *list = json_get(strategy, "priority_overrides");
    int r = 0;

    if (!list)
        return 0;
    if (!json_is_array(list))
        return err_set(e, -EINVAL, "priority_overrides: an array is needed");
    s->overrides = xcalloc(json_len(list) + 1, sizeof(*s->overrides));
    JSON_FOREACH (rule, list)
        if (r == 0)
            r = read_override(s, rule, s->n_overrides++, e);
    return r;
}

/* --- the file --------------------------------------------------------------------------------- */

static int read_set(struct pools *p, enum pool_kind kind, const struct json *file, struct err *e)
{
    const struct set_words *w = &WORDS[kind];
    const struct json *strategy = json_get(file, w->strategy);
    struct pool_set *s = &p->sets[kind];
    int r = read_count(s, w, file, e);

    s->kind = kind;
    if (r == 0)
        r = read_namespaces(s, w, file, e);
    if (r == 0)
        r = read_priorities(s, w, file, e);
    if (r == 0 && !json_is_object(strategy))
        return err_set(e, -EINVAL, "%s: an object is needed", w->strategy);
    if (r == 0)
        r = read_axes(s, w, strategy, e);
    if (r == 0)
        r = read_mapping(s, w, strategy, e);
    return r == 0 ? read_overrides(s, strategy, e) : r;
}

static int read_file(struct pools *p, const struct json *file, struct err *e)
{
    const struct json *mode = json_get(file, "mode"),
                      *retry = json_get(file, "enable_priority_retry");
    const char *word = mode ? json_cstr(mode) : "disagg";
    int r;

    if (!json_is_object(file))
        return err_set(e, -EINVAL, "an object is needed");
    if (retry && !json_bool(retry, &p->retries))
        return err_set(e, -EINVAL, "enable_priority_retry must be true or false");
    if (word && strcmp(word, "agg") == 0)
        return read_set(p, POOL_AGG, file, e);
    if (!word || strcmp(word, "disagg") != 0)
        return err_set(e, -EINVAL, "mode must be \"disagg\" or \"agg\"");
    r = read_set(p, POOL_PREFILL, file, e);
    return r == 0 ? read_set(p, POOL_DECODE, file, e) : r;
}

int pools_parse(struct pools **ret, struct str json, struct err *e)
{
    AUTO(pools_free) struct pools *p = xcalloc(1, sizeof(*p));
    AUTO(json_free) struct json *file = NULL;
    int r = json_parse(&file, json, e);

    if (r == 0)
        r = read_file(p, file, e);
    if (r < 0)
        return -EINVAL;
    *ret = TAKE(p);
    return 0;
}

struct pools *pools_free(struct pools *p)
{
    for (size_t k = 0; p && k < POOL_KINDS; k++) {
        struct pool_set *s = &p->sets[k];

        for (size_t i = 0; s->namespaces && i < s->n; i++)
            free(s->namespaces[i]);
        free(s->namespaces);
        free(s->priorities);
        free(s->cells);
        free(s->overrides);
    }
    free(p);
    return NULL;
}
