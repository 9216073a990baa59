/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/diff.h"

#include <string.h>

#include "operator/api/graph.h"
#include "operator/ctrl/cache.h"
#include "operator/plan/plan.h"

static const char *const not_compared[] = {"apiVersion", "kind", "metadata", "status"};

static bool is_compared(const char *member)
{
    for (size_t i = 0; i < ARRAY_LEN(not_compared); i++)
        if (strcmp(member, not_compared[i]) == 0)
            return false;
    return true;
}

static void set_stamps(struct json *object, const char *hash, int64_t generation)
{
    struct json *annotations =
        json_need_object(json_need_object(object, "metadata"), "annotations");
    AUTO(mem_free) char *number = xasprintf("%jd", (intmax_t)generation);

    (void)json_set_cstr(annotations, DIFF_HASH, hash);
    (void)json_set_cstr(annotations, DIFF_GENERATION, number);
}

void diff_stamp(struct json *want)
{
    char hash[PLAN_HASH_SIZE];

    plan_spec_hash(want, hash);
    set_stamps(want, hash, 1);
}

static bool same_uid(const struct json *a, const struct json *b)
{
    const char *ua = json_get_cstr(a, "uid"), *ub = json_get_cstr(b, "uid");

    return ua && ub && strcmp(ua, ub) == 0;
}

/* Of a kind with generations: what was last applied, by anybody who keeps the annotations. */
static bool spec_is_untouched(const struct json *live, const char *hash)
{
    const char *live_hash = object_annotation(live, DIFF_HASH);
    const char *text = object_annotation(live, DIFF_GENERATION);
    int64_t applied;

    return live_hash && strcmp(live_hash, hash) == 0 && text &&
           str_parse_i64(str_from(text), &applied) && object_generation(live) <= applied;
}

/*
 * Of a kind without: the API server adds defaults to a spec, hence containment; what stands beside
 * it (data, rules, subjects) is stored as sent, so that an addition is a change too.
 */
static bool values_match(const struct json *live, const struct json *want)
{
    JSON_FOREACH (member, want) {
        const char *key = json_key(member);
        const struct json *have = json_get(live, key);

        if (!is_compared(key))
            continue;
        if (strcmp(key, "spec") == 0 ? !json_contains(have, member) : !json_equal(have, member))
            return false;
    }
    return true;
}

static bool metadata_match(const struct json *live, const struct json *want)
{
    static const char *const maps[] = {"labels", "annotations"};
    const struct json *owner = object_controller(want);

    for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
        const struct json *part = json_path(want, "metadata", maps[i], NULL);

        if (part && !json_contains(json_path(live, "metadata", maps[i], NULL), part))
            return false;
    }
    return !owner || same_uid(object_controller(live), owner);
}

/* Ours by name: replaced or dropped with the plan. Everything else in annotations is somebody's. */
static bool is_our_annotation(const char *key)
{
    return str_starts(str_from(key), STR("nvidia.com/")) ||
           str_starts(str_from(key), STR("commutator.dev/"));
}

static struct json *merged_annotations(const struct json *live, const struct json *want)
{
    struct json *merged = json_new_object();

    JSON_FOREACH (it, json_path(live, "metadata", "annotations", NULL))
        if (!is_our_annotation(json_key(it)))
            (void)json_set(merged, json_key(it), json_dup(it));
    JSON_FOREACH (it, json_path(want, "metadata", "annotations", NULL))
        (void)json_set(merged, json_key(it), json_dup(it));
    return merged;
}

static struct json *updated(const struct json *live, const struct json *want, const char *hash,
                            bool spec_changes)
{
    struct json *object = json_dup(live);
    struct json *metadata = json_need_object(object, "metadata");
    const struct json *labels = json_path(want, "metadata", "labels", NULL);
    const struct json *owners = json_path(want, "metadata", "ownerReferences", NULL);
    int64_t generation = object_generation(live);

    json_del(object, "status");
    /* List items come without them; a PUT needs them. */
    (void)json_set(object, "apiVersion", json_dup(json_get(want, "apiVersion")));
    (void)json_set(object, "kind", json_dup(json_get(want, "kind")));
    JSON_FOREACH (member, want)
        if (is_compared(json_key(member)))
            (void)json_set(object, json_key(member), json_dup(member));
    (void)json_set(metadata, "annotations", merged_annotations(live, want));
    if (labels)
        (void)json_set(metadata, "labels", json_dup(labels));
    if (owners)
        (void)json_set(metadata, "ownerReferences", json_dup(owners));
    /* The write itself counts one up when it changes the spec. */
    set_stamps(object, hash, generation ? generation + spec_changes : 1);
    return object;
}

enum diff diff_objects(const struct json *live, const struct json *want, struct json **ret_update)
{
    const struct json *live_owner = object_controller(live), *owner = object_controller(want);
    const struct json *role = json_get(want, "roleRef");
    char hash[PLAN_HASH_SIZE];
    bool spec_matches;

    if (live_owner && owner && !same_uid(live_owner, owner))
        return DIFF_FOREIGN;
    if (role && !json_equal(json_get(live, "roleRef"), role))
        return DIFF_RECREATE;
    plan_spec_hash(want, hash);
    if (object_generation(live))
        spec_matches = spec_is_untouched(live, hash);
    else
        spec_matches = values_match(live, want);
    if (spec_matches && metadata_match(live, want))
        return DIFF_NONE;
    *ret_update = updated(live, want, hash, !spec_matches);
    return DIFF_UPDATE;
}

struct json *diff_patch(const struct json *old, const struct json *new)
{
    struct json *patch = json_new_object();

    JSON_FOREACH (member, old)
        if (!json_get(new, json_key(member)))
            (void)json_set(patch, json_key(member), json_new_null());
    JSON_FOREACH (member, new) {
        const struct json *had = json_get(old, json_key(member));
        struct json *inner;

        if (json_is_object(member) && json_is_object(had)) {
            inner = diff_patch(had, member);
            if (inner)
                (void)json_set(patch, json_key(member), inner);
        } else if (!json_equal(had, member)) {
            (void)json_set(patch, json_key(member), json_dup(member));
        }
    }
    return json_len(patch) ? patch : json_free(patch);
}

bool diff_edited(const struct json *before, const struct json *answer)
{
    static const char *const maps[] = {"labels", "annotations"};

    for (size_t i = 0; i < ARRAY_LEN(maps); i++)
        if (!json_equal(json_path(before, "metadata", maps[i], NULL),
                        json_path(answer, "metadata", maps[i], NULL)))
            return true;
    return object_generation(before) != object_generation(answer);
}
