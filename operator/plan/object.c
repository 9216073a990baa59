/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/object.h"

#include <assert.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "operator/api/graph.h"
#include "operator/plan/plan.h"

struct json *json_constant(const char *text)
{
    struct json *v = NULL;
    struct err e;
    int r = json_parse(&v, str_from(text), &e);

    assert(r == 0 && v);
    (void)r;
    return v;
}

struct json *object_new(const struct kube_kind *kind, const char *ns, const char *name)
{
    AUTO(mem_free)
    char *api_version =
        kind->group[0] ? xasprintf("%s/%s", kind->group, kind->version) : xstrdup(kind->version);
    struct json *object = json_new_object();
    struct json *metadata;

    json_set_cstr(object, "apiVersion", api_version);
    json_set_cstr(object, "kind", kind->kind);
    metadata = json_set(object, "metadata", json_new_object());
    json_set_cstr(metadata, "name", name);
    json_set_cstr(metadata, "namespace", ns);
    return object;
}

static struct json *metadata_map(struct json *object, const char *key)
{
    return json_need_object(json_need_object(object, "metadata"), key);
}

void object_put_label(struct json *object, const char *key, const char *value)
{
    if (value)
        json_set_cstr(metadata_map(object, "labels"), key, value);
}

void object_put_annotation(struct json *object, const char *key, const char *value)
{
    if (value)
        json_set_cstr(metadata_map(object, "annotations"), key, value);
}

void object_add_labels(struct json *object, const struct json *map)
{
    JSON_FOREACH (member, map)
        object_put_label(object, json_key(member), json_cstr(member));
}

void object_add_annotations(struct json *object, const struct json *map)
{
    JSON_FOREACH (member, map)
        object_put_annotation(object, json_key(member), json_cstr(member));
}

void object_put_owner(struct json *object, const struct kube_kind *kind, const struct json *owner)
{
    AUTO(mem_free) char *api_version = xasprintf("%s/%s", kind->group, kind->version);
    struct json *list =
        json_set(json_need_object(object, "metadata"), "ownerReferences", json_new_array());
    struct json *ref = json_add(list, json_new_object());

    json_set_cstr(ref, "apiVersion", api_version);
    json_set_cstr(ref, "kind", kind->kind);
    json_set_cstr(ref, "name", object_name(owner));
    if (object_uid(owner)[0])
        json_set_cstr(ref, "uid", object_uid(owner));
    json_set_bool(ref, "controller", true);
    json_set_bool(ref, "blockOwnerDeletion", true);
}

void plan_spec_hash(const struct json *object, char ret_hex[PLAN_HASH_SIZE])
{
    static const char *const not_content[] = {"apiVersion", "kind", "metadata", "status"};
    const struct json *spec = json_get(object, "spec");
    AUTO(json_free) struct json *content = json_dup(spec ? spec : object);
    AUTO(buf_done) struct buf text = BUF_NULL;

    for (size_t i = 0; !spec && i < ARRAY_LEN(not_content); i++)
        json_del(content, not_content[i]);
    json_print_sorted(content, &text);
    digest_sha256_hex(buf_str(&text), ret_hex);
}

struct object_set *object_set_new(void)
{
    return xcalloc(1, sizeof(struct object_set));
}

struct object_set *object_set_free(struct object_set *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n; i++)
        (void)json_free(s->at[i].object);
    free(s->at);
    free(s->blocked);
    free(s);
    return NULL;
}

struct json *object_set_add(struct object_set *s, const struct kube_kind *kind, struct json *object)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 8;
        s->at = xreallocarray(s->at, s->cap, sizeof(*s->at));
    }
    s->at[s->n++] = (struct planned){.kind = kind, .object = object};
    return object;
}

const struct planned *object_set_find(const struct object_set *s, const struct kube_kind *kind,
                                      const char *name)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].kind == kind && strcmp(object_name(s->at[i].object), name) == 0)
            return &s->at[i];
    }
    return NULL;
}
