/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/merge.h"

#include <string.h>

static bool is_empty(const struct json *v)
{
    const char *s = json_cstr(v);

    return json_is_null(v) || (s && !s[0]) || (json_is_array(v) && json_len(v) == 0);
}

static void merge_member(struct json *base, const char *key, const struct json *over)
{
    struct json *have = json_get(base, key);

    if (json_is_object(have) && json_is_object(over))
        merge_over(have, over);
    else if (!is_empty(over))
        json_set(base, key, json_dup(over));
}

void merge_over(struct json *base, const struct json *over)
{
    JSON_FOREACH (member, over)
        merge_member(base, json_key(member), member);
}

/* A probe may have one handler only, so that of the user ends ours. */
static void make_way_for_handler(struct json *probe, const struct json *over)
{
    static const char *const handlers[] = {"exec", "grpc", "httpGet", "tcpSocket"};
    const struct json *get = json_get(over, "httpGet");
    const char *given = NULL;

    for (size_t i = 0; i < ARRAY_LEN(handlers); i++) {
        if (json_is_object(json_get(over, handlers[i])))
            given = handlers[i];
    }
    for (size_t i = 0; given && i < ARRAY_LEN(handlers); i++) {
        if (strcmp(handlers[i], given) != 0)
            json_del(probe, handlers[i]);
    }
    /* Another port need not be asked as ours is. */
    if (json_get(get, "port") && !json_get(get, "scheme"))
        json_del(json_get(probe, "httpGet"), "scheme");
}

void merge_container(struct json *base, const struct json *over)
{
    JSON_FOREACH (member, over) {
        const char *key = json_key(member);

        if (strcmp(key, "env") == 0)
            continue;
        if (strcmp(key, "startupProbe") == 0 && !json_is_null(member))
            json_del(base, key);
        if (strcmp(key, "livenessProbe") == 0 || strcmp(key, "readinessProbe") == 0)
            make_way_for_handler(json_get(base, key), member);
        merge_member(base, key, member);
    }
}

struct json *env_find(const struct json *env, const char *name)
{
    JSON_FOREACH (entry, env) {
        const char *n = json_get_cstr(entry, "name");

        if (n && strcmp(n, name) == 0)
            return entry;
    }
    return NULL;
}

static void replace_members(struct json *entry, const struct json *with)
{
    json_del(entry, "value");
    json_del(entry, "valueFrom");
    JSON_FOREACH (member, with)
        json_set(entry, json_key(member), json_dup(member));
}

void env_put(struct json *env, const struct json *entry)
{
    const char *name = json_get_cstr(entry, "name");
    struct json *have = name ? env_find(env, name) : NULL;

    if (have)
        replace_members(have, entry);
    else
        json_add(env, json_dup(entry));
}

void env_put_value(struct json *env, const char *name, const char *value)
{
    AUTO(json_free) struct json *entry = json_new_object();

    json_set_cstr(entry, "name", name);
    json_set_cstr(entry, "value", value);
    env_put(env, entry);
}

void env_put_all(struct json *env, const struct json *entries)
{
    JSON_FOREACH (entry, entries)
        env_put(env, entry);
}

void env_remove(struct json *env, const char *name)
{
    size_t i = 0;

    JSON_FOREACH (entry, env) {
        const char *n = json_get_cstr(entry, "name");

        if (n && strcmp(n, name) == 0) {
            (void)json_free(json_take_at(env, i));
            return;
        }
        i++;
    }
}

struct json *compact_copy(const struct json *v)
{
    struct json *copy;

    if (json_is_array(v)) {
        copy = json_new_array();
        JSON_FOREACH (element, v)
            json_add(copy, compact_copy(element));
        return copy;
    }
    if (!json_is_object(v))
        return json_dup(v);

    copy = json_new_object();
    JSON_FOREACH (member, v) {
        if (!json_is_null(member) && !(json_is_array(member) && json_len(member) == 0))
            json_set(copy, json_key(member), compact_copy(member));
    }
    return copy;
}
