/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/worker_selection.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "lib/base/err.h"
#include "router/sched/policy_keys.h"

enum { INSTANCES_MAX = 64 };

static const char BUILT_IN[] = "default";

/* --- parameters --------------------------------------------------------------------------------
 */

static int read_two_tier(struct route_selector *s, const struct json *v, const char *where,
                         struct err *e)
{
    static const char *const keys[] = {"cache_threshold", "balance_abs_threshold",
                                       "balance_rel_threshold", NULL};
    struct two_tier_conf *c = &s->two_tier;
    int r = policy_check_keys(v, keys, where, e);

    if (r == 0)
        r = policy_read_number(v, keys[0], where, &c->cache_threshold, e);
    if (r == 0)
        r = policy_read_count(v, keys[1], 0, where, &c->balance_abs_threshold, e);
    if (r == 0)
        r = policy_read_number(v, keys[2], where, &c->balance_rel_threshold, e);
    if (r == 0 && c->cache_threshold > 1)
        r = err_set(e, -EINVAL, "%s.%s: expected a number from 0 to 1", where, keys[0]);
    if (r == 0 && c->balance_rel_threshold < 1)
        r = err_set(e, -EINVAL, "%s.%s: expected a number from 1 on", where, keys[2]);
    return r;
}

static int read_costs(struct route_selector *s, const struct json *v, const char *where,
                      struct err *e)
{
    static const char *const keys[] = {
        "overlap_score_credit",         "overlap_score_credit_decay", "prefill_load_scale",
        "decode_active_request_weight", "host_cache_hit_weight",      "disk_cache_hit_weight",
        "shared_cache_multiplier",      "router_temperature",         NULL};
    double *const values[] = {&s->overlap_credit,        &s->credit_decay, &s->prefill_load_scale,
                              &s->active_request_weight, &s->host_weight,  &s->disk_weight,
                              &s->shared_weight,         &s->temperature};
    int r = policy_check_keys(v, keys, where, e);

    for (size_t i = 0; r == 0 && keys[i]; i++)
        r = policy_read_number(v, keys[i], where, values[i], e);
    return r;
}

static int read_nothing(struct route_selector *s, const struct json *v, const char *where,
                        struct err *e)
{
    static const char *const keys[] = {NULL};

    (void)s;
    return policy_check_keys(v, keys, where, e);
}

/* Nothing of it is set: all is as the options say. */
static struct route_selector selector(int policy)
{
    return (struct route_selector){.given = true,
                                   .policy = policy,
                                   .overlap_credit = NAN,
                                   .credit_decay = NAN,
                                   .prefill_load_scale = NAN,
                                   .active_request_weight = NAN,
                                   .host_weight = NAN,
                                   .disk_weight = NAN,
                                   .shared_weight = NAN,
                                   .temperature = NAN,
                                   .two_tier = TWO_TIER_DEFAULTS};
}

static bool has_value(const struct json *v)
{
    return v && !json_is_null(v);
}

/* --- instances ---------------------------------------------------------------------------------
 */

static const struct json *instance_of(const struct json *section, const char *name)
{
    const struct json *list = json_get(section, "instances");

    for (size_t i = 0; i < json_len(list); i++) {
        const char *known = json_get_cstr(json_at(list, i), "name");

        if (known && strcmp(known, name) == 0)
            return json_at(list, i);
    }
    return NULL;
}

static int check_instance(const struct json *section, const struct json *v, const char *where,
                          struct err *e)
{
    static const char *const keys[] = {"name", "type", "parameters", NULL};
    const char *name = json_get_cstr(v, "name");
    const struct json *parameters = json_get(v, "parameters");
    int r = policy_check_keys(v, keys, where, e);

    if (r < 0)
        return r;
    if (!name || !*name)
        return err_set(e, -EINVAL, "%s.name: expected a name", where);
    if (strcmp(name, BUILT_IN) == 0)
        return err_set(e, -EINVAL, "%s.name: '%s' is taken", where, BUILT_IN);
    if (instance_of(section, name) != v)
        return err_set(e, -EINVAL, "%s: a second instance '%s'", where, name);
    if (!json_get_cstr(v, "type"))
        return err_set(e, -EINVAL, "%s.type: expected a name", where);
    if (has_value(parameters) && !json_is_object(parameters))
        return err_set(e, -EINVAL, "%s.parameters: expected a mapping", where);
    return 0;
}

static int check_instances(const struct json *section, struct err *e)
{
    const struct json *list = json_get(section, "instances");
    int r = 0;

    if (list && (!json_is_array(list) || json_len(list) > INSTANCES_MAX))
        return err_set(e, -EINVAL,
                       "worker_selection.instances: expected a list of up to %d entries",
                       INSTANCES_MAX);
    for (size_t i = 0; r == 0 && i < json_len(list); i++) {
        struct policy_place at = policy_place("worker_selection.instances[%zu]", i);

        r = check_instance(section, json_at(list, i), at.text, e);
    }
    return r;
}

static int read_instance(struct route_selector *ret, const struct json *v, const char *name,
                         struct err *e)
{
    static const struct {
        const char *type;
        enum route_policy policy;
        int (*read)(struct route_selector *s, const struct json *v, const char *where,
                    struct err *e);
    } types[] = {{"dynamo-default-cost-fn", ROUTE_POLICY_DYNAMO_1, read_costs},
                 {"dynamo-two-tier-cost-fn", ROUTE_POLICY_TWO_TIER, read_two_tier},
                 {"thunderagent", ROUTE_POLICY_THUNDERAGENT, read_nothing}};
    const char *type = json_get_cstr(v, "type");
    const struct json *parameters = json_get(v, "parameters");
    struct policy_place at = policy_place("worker_selection instance '%s'.parameters", name);

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (strcmp(types[i].type, type) != 0)
            continue;
        *ret = selector(types[i].policy);
        return has_value(parameters) ? types[i].read(ret, parameters, at.text, e) : 0;
    }
    return err_set(e, -EINVAL,
                   "worker_selection instance '%s': type '%s' is none of dynamo-default-cost-fn, "
                   "dynamo-two-tier-cost-fn and thunderagent",
                   name, type);
}

/* --- stages ------------------------------------------------------------------------------------
 */

/* Of one stage; @name NULL: nobody says. */
static int read_stage(struct route_selector *ret, const struct json *section, const char *stage,
                      const char *name, struct err *e)
{
    const struct json *instance;

    if (!name || strcmp(name, BUILT_IN) == 0)
        return 0;
    instance = section ? instance_of(section, name) : NULL;
    if (!instance)
        return err_set(e, -EINVAL, "worker_selection.%s: no instance is named '%s'", stage, name);
    return read_instance(ret, instance, name, e);
}

static int check_section(const struct json *section, struct err *e)
{
    static const char *const keys[] = {"aggregated", "prefill",   "decode",
                                       "encode",     "instances", NULL};
    bool any = false;
    int r = policy_check_keys(section, keys, "worker_selection", e);

    for (size_t i = 0; r == 0 && keys[i]; i++) {
        const struct json *v = json_get(section, keys[i]);

        any |= v != NULL;
        if (v && strcmp(keys[i], "instances") != 0 && !json_cstr(v))
            r = err_set(e, -EINVAL, "worker_selection.%s: expected the name of an instance",
                        keys[i]);
    }
    if (r == 0 && !any)
        r = err_set(e, -EINVAL, "worker_selection: expected a stage or instances");
    return r == 0 ? check_instances(section, e) : r;
}

int worker_selection_read(struct route_selector *ret, const struct json *section,
                          const char *prefill, const char *decode, struct err *e)
{
    struct route_selector fresh[ROUTE_STAGES] = {0}, encode;
    int r = section ? check_section(section, e) : 0;

    if (r == 0)
        r = read_stage(&fresh[ROUTE_AGGREGATED], section, "aggregated",
                       section ? json_get_cstr(section, "aggregated") : NULL, e);
    if (r == 0 && !prefill && section)
        prefill = json_get_cstr(section, "prefill");
    if (r == 0)
        r = read_stage(&fresh[ROUTE_PREFILL], section, "prefill", prefill, e);
    if (r == 0 && !decode && section)
        decode = json_get_cstr(section, "decode");
    if (r == 0)
        r = read_stage(&fresh[ROUTE_DECODE], section, "decode", decode, e);
    if (r == 0 && section)
        r = read_stage(&encode, section, "encode", json_get_cstr(section, "encode"), e);
    if (r == 0)
        memcpy(ret, fresh, sizeof(fresh));
    return r;
}

/* --- use ---------------------------------------------------------------------------------------
 */

static void override(double *value, double with)
{
    if (!isnan(with))
        *value = with;
}

void worker_selection_apply(struct route_conf *c, enum route_stage stage)
{
    const struct route_selector *s = &c->selectors[stage];

    if (!s->given)
        return;
    c->policy = s->policy;
    if (s->policy == ROUTE_POLICY_TWO_TIER)
        c->two_tier = s->two_tier;
    override(&c->overlap_credit, s->overlap_credit);
    if (c->load_aware && !c->caches_anyway && s->overlap_credit > 0) {
        c->caches_anyway = true;
        c->use_kv_events = false; /* as in 1.6.1: it guesses */
    }
    override(&c->credit_decay, s->credit_decay);
    override(&c->prefill_load_scale, s->prefill_load_scale);
    override(&c->active_request_weight, s->active_request_weight);
    override(&c->host_weight, s->host_weight);
    override(&c->disk_weight, s->disk_weight);
    override(&c->shared_weight, s->shared_weight);
    override(&c->temperature, s->temperature);
}
