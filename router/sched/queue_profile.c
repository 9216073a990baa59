/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/queue_profile.h"

#include <errno.h>
#include <math.h>

#include "lib/base/err.h"
#include "lib/base/yaml.h"
#include "router/sched/policy_keys.h"

enum { BUCKETS_MAX = 64, MODELS_MAX = 256 };

/* --- a class -----------------------------------------------------------------------------------
 */

static int read_order(const struct json *object, const char *where, int *ret, struct err *e)
{
    const struct json *v = json_get(object, "queue_policy");
    const char *word = json_cstr(v);

    if (!v)
        return 0;
    for (int i = 0; word && ROUTE_QUEUE_ORDER_WORDS[i]; i++)
        if (strcmp(word, ROUTE_QUEUE_ORDER_WORDS[i]) == 0) {
            *ret = i;
            return 0;
        }
    return err_set(e, -EINVAL, "%s.queue_policy: expected fcfs, lcfs or wspt", where);
}

static int read_limits(struct queue_class *c, const struct json *v, const char *where,
                       struct err *e)
{
    struct route_queue_rule *rule = &c->rule;
    int r = policy_read_count(v, "quantum", 1, where, &rule->quantum, e);

    if (r == 0 && rule->quantum == 0)
        r = err_set(e, -EINVAL, "%s: quantum is missing", where);
    if (r == 0)
        r = read_order(v, where, &rule->order, e);
    if (r == 0)
        r = policy_read_count(v, "request_queue_limit_per_worker", 1, where, &rule->max_requests,
                              e);
    if (r == 0)
        r = policy_read_count(v, "raw_isl_token_queue_limit_per_worker", 1, where,
                              &rule->max_isl_tokens, e);
    if (r == 0)
        r = policy_read_count(v, "cached_token_queue_limit_per_worker", 1, where,
                              &rule->max_cached_tokens, e);
    return r;
}

static int read_threshold(struct queue_class *c, const struct json *v, const char *where,
                          struct err *e)
{
    struct room_limit *limit = &c->limit;
    int r = policy_read_number(v, "prefill_busy_threshold", where, &limit->tokens, e);

    if (r == 0)
        r = policy_read_number(v, "prefill_busy_threshold_frac", where, &limit->share, e);
    if (r == 0)
        r = policy_read_number(v, "busy_worker_ratio", where, &limit->ratio, e);
    if (r < 0)
        return r;
    if (!(limit->ratio > 0 && limit->ratio <= 1))
        return err_set(e, -EINVAL, "%s.busy_worker_ratio: expected a number above 0, up to 1",
                       where);
    if (json_get(v, "busy_worker_ratio") && !queue_class_waits(c))
        return err_set(e, -EINVAL,
                       "%s.busy_worker_ratio: needs prefill_busy_threshold or "
                       "prefill_busy_threshold_frac",
                       where);
    return 0;
}

static int read_class(struct queue_class *c, const struct json *v, enum route_queue_order order,
                      const char *where, struct err *e)
{
    static const char *const keys[] = {"name",
                                       "policy_family",
                                       "cache_bucket",
                                       "quantum",
                                       "queue_policy",
                                       "prefill_busy_threshold",
                                       "prefill_busy_threshold_frac",
                                       "busy_worker_ratio",
                                       "request_queue_limit_per_worker",
                                       "raw_isl_token_queue_limit_per_worker",
                                       "cached_token_queue_limit_per_worker",
                                       NULL};
    int r = policy_check_keys(v, keys, where, e);

    c->rule.order = order;
    c->limit = (struct room_limit){NAN, NAN, 1};
    if (r == 0)
        r = policy_read_name(v, "name", true, where, &c->name, e);
    if (r == 0)
        r = policy_read_name(v, "policy_family", false, where, &c->family, e);
    if (r == 0)
        r = policy_read_name(v, "cache_bucket", false, where, &c->bucket, e);
    if (r == 0 && !c->family != !c->bucket)
        r = err_set(e, -EINVAL, "%s: policy_family and cache_bucket go together", where);
    if (r == 0)
        r = read_limits(c, v, where, e);
    if (r == 0)
        r = read_threshold(c, v, where, e);
    return r;
}

/* --- a profile ---------------------------------------------------------------------------------
 */

/* A list of 1 to @max entries; else *ret_n is 0. */
static int read_list(const struct json *v, size_t max, const char *where, size_t *ret_n,
                     struct err *e)
{
    *ret_n = 0;
    if (!json_is_array(v) || json_len(v) == 0 || json_len(v) > max)
        return err_set(e, -EINVAL, "%s: expected a list of 1 to %zu entries", where, max);
    *ret_n = json_len(v);
    return 0;
}

static int read_buckets(struct queue_profile *p, const struct json *list, const char *in,
                        struct err *e)
{
    static const char *const keys[] = {"min_tokens", "bucket", NULL};
    struct policy_place at = policy_place("%suncached_isl_buckets", in);
    size_t n;
    int r = read_list(list, BUCKETS_MAX, at.text, &n, e);

    p->buckets = xcalloc(n + 1, sizeof(*p->buckets));
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct json *v = json_at(list, i);
        struct queue_bucket *b = &p->buckets[p->n_buckets++];

        at = policy_place("%suncached_isl_buckets[%zu]", in, i);
        r = policy_check_keys(v, keys, at.text, e);
        if (r == 0)
            r = policy_read_count(v, "min_tokens", 0, at.text, &b->min_tokens, e);
        if (r == 0)
            r = policy_read_name(v, "bucket", true, at.text, &b->name, e);
        if (r == 0 && (i == 0 ? b->min_tokens != 0 : b->min_tokens <= b[-1].min_tokens))
            r = err_set(e, -EINVAL, "%s.min_tokens: floors begin at 0 and increase", at.text);
    }
    return r;
}

static int read_classes(struct queue_profile *p, const struct json *list,
                        enum route_queue_order order, const char *in, struct err *e)
{
    struct policy_place at = policy_place("%spolicy_classes", in);
    size_t n;
    int r = read_list(list, ROUTE_QUEUE_CLASSES_MAX, at.text, &n, e);

    p->classes = xcalloc(n + 1, sizeof(*p->classes));
    for (size_t i = 0; r == 0 && i < n; i++) {
        at = policy_place("%spolicy_classes[%zu]", in, i);
        r = read_class(&p->classes[p->n_classes++], json_at(list, i), order, at.text, e);
        for (size_t k = 0; r == 0 && k < i; k++)
            if (strcmp(p->classes[k].name, p->classes[i].name) == 0)
                r = err_set(e, -EINVAL, "%s: a second class '%s'", at.text, p->classes[i].name);
    }
    return r;
}

static const struct queue_class *class_of(const struct queue_profile *p, const char *family,
                                          const char *bucket)
{
    for (size_t i = 0; i < p->n_classes; i++)
        if (p->classes[i].family && strcmp(p->classes[i].family, family) == 0 &&
            strcmp(p->classes[i].bucket, bucket) == 0)
            return &p->classes[i];
    return NULL;
}

/* Every family has one class for every bucket, and the default one is among them. */
static int check_matrix(const struct queue_profile *p, const char *in, struct err *e)
{
    bool has_default = false;

    for (size_t i = 0; i < p->n_classes; i++) {
        const struct queue_class *c = &p->classes[i];
        bool known = false;

        if (!c->family)
            continue;
        has_default |= strcmp(c->family, p->default_family) == 0;
        if (class_of(p, c->family, c->bucket) != c)
            return err_set(e, -EINVAL, "%sclass '%s': family '%s' has bucket '%s' twice", in,
                           c->name, c->family, c->bucket);
        for (size_t k = 0; k < p->n_buckets; k++) {
            known |= strcmp(p->buckets[k].name, c->bucket) == 0;
            if (!class_of(p, c->family, p->buckets[k].name))
                return err_set(e, -EINVAL, "%sfamily '%s' has no class for bucket '%s'", in,
                               c->family, p->buckets[k].name);
        }
        if (!known)
            return err_set(e, -EINVAL, "%sclass '%s': no bucket '%s'", in, c->name, c->bucket);
    }
    if (!has_default)
        return err_set(e, -EINVAL, "%sdefault_policy_family: no class has family '%s'", in,
                       p->default_family);
    return 0;
}

/* Whether the file has classes of its own, or nothing at all, which is an error. */
static bool has_profile(const struct json *v)
{
    return json_get(v, "default_policy_family") || json_get(v, "uncached_isl_buckets") ||
           json_get(v, "policy_classes") ||
           !(json_get(v, "models") || json_get(v, "router") || json_get(v, "worker_selection") ||
             json_get(v, "request_classifier"));
}

enum { MODEL_KEYS = 3 }; /* the first so many can be a model's */

/* @in: "" or "models.<name>." */
static int read_profile(struct queue_profile *p, const struct json *v, enum route_queue_order order,
                        const char *in, struct err *e)
{
    static const char *const keys[] = {"default_policy_family",
                                       "uncached_isl_buckets",
                                       "policy_classes",
                                       "models",
                                       "router",
                                       "worker_selection",
                                       "request_classifier",
                                       NULL};
    int r = policy_check_keys(v, keys, *in ? in : "policy file", e);

    for (size_t i = MODEL_KEYS; r == 0 && *in && keys[i]; i++)
        if (json_get(v, keys[i]))
            r = err_set(e, -EINVAL, "%s%s: cannot be here", in, keys[i]);
    if (r == 0 && !*in && !has_profile(v))
        return 0;
    if (r == 0)
        r = policy_read_name(v, "default_policy_family", true, *in ? in : "policy file",
                             &p->default_family, e);
    if (r == 0)
        r = read_buckets(p, json_get(v, "uncached_isl_buckets"), in, e);
    if (r == 0)
        r = read_classes(p, json_get(v, "policy_classes"), order, in, e);
    return r == 0 ? check_matrix(p, in, e) : r;
}

static void profile_done(struct queue_profile *p)
{
    for (size_t i = 0; i < p->n_classes; i++) {
        free(p->classes[i].name);
        free(p->classes[i].family);
        free(p->classes[i].bucket);
    }
    for (size_t i = 0; i < p->n_buckets; i++)
        free(p->buckets[i].name);
    free(p->classes);
    free(p->buckets);
    free(p->default_family);
    *p = (struct queue_profile){0};
}

/* --- the file ----------------------------------------------------------------------------------
 */

static int read_models(struct queue_profiles *p, const struct json *models,
                       enum route_queue_order order, struct err *e)
{
    int r = 0;

    if (!models)
        return 0;
    if (!json_is_object(models) || json_len(models) > MODELS_MAX)
        return err_set(e, -EINVAL, "models: expected a mapping of up to %d models", MODELS_MAX);
    p->models = xcalloc(json_len(models) + 1, sizeof(*p->models));
    p->model_names = xcalloc(json_len(models) + 1, sizeof(*p->model_names));
    JSON_FOREACH (v, models) {
        struct policy_place in = policy_place("models.%s.", json_key(v));

        p->model_names[p->n_models] = xstrdup(json_key(v));
        r = read_profile(&p->models[p->n_models++], v, order, in.text, e);
        if (r < 0)
            break;
    }
    return r;
}

int queue_profiles_parse(struct queue_profiles *p, struct str yaml, enum route_queue_order order,
                         struct err *e)
{
    AUTO(queue_profiles_done) struct queue_profiles fresh = {0};
    AUTO(json_free) struct json *documents = NULL;
    int r = yaml_parse(&documents, yaml, e);

    if (r < 0)
        return r;
    if (json_len(documents) != 1)
        return err_set(e, -EINVAL, "policy file: expected one YAML document, found %zu",
                       json_len(documents));
    r = read_profile(&fresh.root, json_at(documents, 0), order, "", e);
    if (r == 0)
        r = read_models(&fresh, json_get(json_at(documents, 0), "models"), order, e);
    if (r < 0)
        return r;
    if (fresh.root.n_classes == 0) {
        fresh.root = p->root;
        p->root = (struct queue_profile){0};
    }
    queue_profiles_done(p);
    *p = fresh;
    fresh = (struct queue_profiles){0};
    return 0;
}

void queue_profiles_single(struct queue_profiles *ret, enum route_queue_order order, double share,
                           uint64_t max_requests)
{
    struct queue_class *c = xcalloc(1, sizeof(*c));

    *c = (struct queue_class){
        .name = xstrdup("default"),
        .rule = {.order = order, .quantum = 1, .max_requests = max_requests},
        .limit = {NAN, share, 1},
    };
    *ret = (struct queue_profiles){.root = {.classes = c, .n_classes = 1}};
}

void queue_profiles_done(struct queue_profiles *p)
{
    profile_done(&p->root);
    for (size_t i = 0; i < p->n_models; i++) {
        profile_done(&p->models[i]);
        free(p->model_names[i]);
    }
    free(p->models);
    free(p->model_names);
    *p = (struct queue_profiles){0};
}

/* --- questions ---------------------------------------------------------------------------------
 */

const struct queue_profile *queue_profile_of(const struct queue_profiles *p, const char *model)
{
    for (size_t i = 0; i < p->n_models; i++)
        if (strcmp(p->model_names[i], model) == 0)
            return &p->models[i];
    return &p->root;
}

bool queue_profile_has_buckets(const struct queue_profile *p)
{
    return p->n_buckets > 0;
}

size_t queue_profile_class(const struct queue_profile *p, struct str wanted,
                           uint64_t uncached_tokens)
{
    const char *family = p->default_family, *bucket;
    size_t i = p->n_buckets;

    for (size_t k = 0; k < p->n_classes; k++) {
        if (!p->classes[k].family && str_is(wanted, p->classes[k].name))
            return k;
        if (p->classes[k].family && str_is(wanted, p->classes[k].family))
            family = p->classes[k].family;
    }
    if (i == 0)
        return 0;
    while (i > 1 && uncached_tokens < p->buckets[i - 1].min_tokens)
        i--;
    bucket = p->buckets[i - 1].name;
    return (size_t)(class_of(p, family, bucket) - p->classes);
}

bool queue_class_waits(const struct queue_class *c)
{
    return !isnan(c->limit.tokens) || !isnan(c->limit.share);
}

static bool profile_waits(const struct queue_profile *p)
{
    for (size_t i = 0; i < p->n_classes; i++)
        if (queue_class_waits(&p->classes[i]))
            return true;
    return false;
}

bool queue_profiles_wait(const struct queue_profiles *p)
{
    bool waits = profile_waits(&p->root);

    for (size_t i = 0; i < p->n_models; i++)
        waits |= profile_waits(&p->models[i]);
    return waits;
}
