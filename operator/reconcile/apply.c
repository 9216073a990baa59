/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/apply.h"

#include <errno.h>
#include <string.h>

#include "lib/base/log.h"
#include "operator/api/graph.h"
#include "operator/plan/status.h"
#include "operator/reconcile/diff.h"

static const struct log_target LG = {"dynamo_operator::apply"};

/* @verb "Update" or "Delete". */
static void tell(const struct apply *a, const char *verb, const struct kube_kind *kind,
                 const char *name)
{
    AUTO(mem_free) char *reason = xasprintf("%s%s", verb, kind->kind);
    AUTO(mem_free) char *message = xasprintf("%sd %s %s", verb, kind->kind, name);

    recorder_tell(a->rc->recorder, a->kind, a->owner, false, reason, message);
    log_info(&LG, message, LOG_STR("namespace", object_namespace(a->owner)),
             LOG_STR("for", object_name(a->owner)));
}

/* A refusal or a failed call, in the words that status shows. */
static int refused(const struct planned *p, int r, struct err *e)
{
    AUTO(mem_free) char *text = status_apply_failure(p->kind, e->text);

    return err_set(e, r < 0 ? r : -EINVAL, "%s", text);
}

/* Anything but success of a write on an object that was there a moment ago. */
static int written(const struct planned *p, int r, struct err *e)
{
    if (r == KUBE_CONFLICT || r == KUBE_NOT_FOUND || r == KUBE_EXISTS)
        return CONTROLLER_AGAIN;
    return r == 0 ? 0 : refused(p, r, e);
}

/* The answer enters the cache; its component need not wait for the watch to tell of it. */
static void take_answer(struct apply *a, const struct kube_kind *kind, const struct json *stored)
{
    cache_wrote(a->rc->cache, kind, stored);
    a->n_written++;
    if (kind == &KIND_DCD)
        queue_add(a->rc->components, object_namespace(stored), object_name(stored), true);
}

/* *ret_live is what stands there already when somebody else made it and the cache lags behind. */
static int create(struct apply *a, const struct planned *p, struct json **ret_live, struct err *e)
{
    AUTO(json_free) struct json *want = json_dup(p->object);
    AUTO(json_free) struct json *stored = NULL;
    int r;

    /* Claims belong to the user's data more than to us; the reference leaves them unmarked too. */
    if (p->kind != &KIND_PVC)
        diff_stamp(want);
    r = kube_create(a->rc->kube, p->kind, want, &stored, e);
    if (r == KUBE_EXISTS) {
        r = kube_get(a->rc->kube, p->kind, object_namespace(want), object_name(want), ret_live, e);
        return r == 0 ? KUBE_EXISTS : written(p, r, e);
    }
    if (r != 0)
        return refused(p, r, e);
    take_answer(a, p->kind, stored);
    a->n_created++;
    return 0;
}

static int recreate(struct apply *a, const struct planned *p, const struct json *live,
                    struct err *e)
{
    AUTO(json_free) struct json *other = NULL;
    int r = kube_delete(a->rc->kube, p->kind, object_namespace(live), object_name(live),
                        object_uid(live), e);

    if (r != 0)
        return written(p, r, e);
    r = create(a, p, &other, e);
    return r == KUBE_EXISTS ? CONTROLLER_AGAIN : r;
}

static int update(struct apply *a, const struct planned *p, const struct json *object,
                  struct err *e)
{
    AUTO(json_free) struct json *stored = NULL;
    int r = kube_update(a->rc->kube, p->kind, object, &stored, e);

    if (r != 0)
        return written(p, r, e);
    take_answer(a, p->kind, stored);
    tell(a, "Update", p->kind, object_name(object));
    return 0;
}

static int correct(struct apply *a, const struct planned *p, const struct json *live, struct err *e)
{
    AUTO(json_free) struct json *object = NULL;

    /* It comes back when it is gone: its deletion is an event. */
    if (p->create_only || object_is_deleted(live))
        return 0;
    switch (diff_objects(live, p->object, &object)) {
    case DIFF_NONE:
        return 0;
    case DIFF_UPDATE:
        return update(a, p, object, e);
    case DIFF_RECREATE:
        return recreate(a, p, live, e);
    case DIFF_FOREIGN:
        break;
    }
    (void)err_set(e, -EBUSY, "%s \"%s\" exists and is controlled by another object", p->kind->kind,
                  object_name(live));
    return refused(p, -EBUSY, e);
}

static int apply_one(struct apply *a, const struct planned *p, struct err *e)
{
    AUTO(json_free)
    struct json *live =
        cache_get(a->rc->cache, p->kind, object_namespace(p->object), object_name(p->object));
    int r = 0;

    if (!live)
        r = create(a, p, &live, e);
    if (r == KUBE_EXISTS)
        r = 0;
    return r == 0 && live ? correct(a, p, live, e) : r;
}

/* One event for all that a pass created of a kind: what a graph's first pass would else flood. */
static void tell_created(struct apply *a, const struct object_set *set,
                         const struct kube_kind *kind, const bool *created)
{
    AUTO(buf_done) struct buf names = BUF_NULL;
    AUTO(mem_free) char *reason = xasprintf("Create%s", kind->kind);

    for (size_t i = 0; i < set->n; i++)
        if (created[i] && set->at[i].kind == kind)
            buf_printf(&names, "%s%s", names.len ? ", " : "", object_name(set->at[i].object));
    if (names.len == 0)
        return;
    AUTO(mem_free) char *message = xasprintf("Created %s %s", kind->kind, buf_cstr(&names));

    recorder_tell(a->rc->recorder, a->kind, a->owner, false, reason, message);
    log_info(&LG, message, LOG_STR("namespace", object_namespace(a->owner)),
             LOG_STR("for", object_name(a->owner)));
}

int apply_set(struct apply *a, const struct object_set *set, const struct kube_kind *only,
              struct err *e)
{
    static const struct kube_kind *const told[] = {&KIND_DCD, &KIND_DEPLOYMENT, &KIND_PVC};
    AUTO(mem_free) bool *created = xcalloc(set->n, sizeof(bool));
    int r = 0;

    for (size_t i = 0; i < set->n && r == 0; i++) {
        size_t before = a->n_created;

        if (only && set->at[i].kind != only)
            continue;
        r = apply_one(a, &set->at[i], e);
        created[i] = a->n_created > before;
    }
    for (size_t i = 0; i < ARRAY_LEN(told); i++)
        tell_created(a, set, told[i], created);
    return r;
}

static int prune_kind(struct apply *a, const struct object_set *set, const struct kube_kind *kind,
                      struct err *e)
{
    AUTO(json_free) struct json *owned = cache_get_owned(a->rc->cache, kind, object_uid(a->owner));
    int r;

    JSON_FOREACH (live, owned) {
        if (object_is_deleted(live) || object_set_find(set, kind, object_name(live)))
            continue;
        r = kube_delete(a->rc->kube, kind, object_namespace(live), object_name(live),
                        object_uid(live), e);
        if (r == KUBE_NOT_FOUND || r == KUBE_CONFLICT)
            continue; /* somebody was faster */
        if (r != 0)
            return err_wrap(e, r < 0 ? r : -EACCES, "delete %s %s", kind->kind, object_name(live));
        a->n_written++;
        tell(a, "Delete", kind, object_name(live));
    }
    return 0;
}

int apply_prune(struct apply *a, const struct object_set *set, const struct kube_kind *const *kinds,
                size_t n, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = prune_kind(a, set, kinds[i], e);
    return r;
}

int apply_status(struct apply *a, struct json *take_status, struct err *e)
{
    AUTO(json_free) struct json *status = take_status;
    AUTO(json_free) struct json *patch = NULL;
    AUTO(json_free) struct json *stored = NULL;
    const struct json *present = json_get(a->owner, "status");
    struct json *changes = diff_patch(present, status);
    int r;

    if (!changes)
        return 0;
    patch = json_new_object();
    (void)json_set(patch, "status", changes);
    r = kube_patch(a->rc->kube, a->kind, object_namespace(a->owner), object_name(a->owner),
                   "status", patch, &stored, e);
    if (r == KUBE_NOT_FOUND)
        return 0; /* deleted meanwhile */
    if (r != 0)
        return err_wrap(e, r < 0 ? r : -EINVAL, "status");
    cache_wrote(a->rc->cache, a->kind, stored);
    a->n_written++;
    return 0;
}

int apply_release(struct apply *a, struct err *e)
{
    AUTO(json_free) struct json *patch = json_new_object();
    struct json *metadata = json_need_object(patch, "metadata");
    struct json *kept = json_set(metadata, "finalizers", json_new_array());
    bool found = false;
    int r;

    JSON_FOREACH (it, json_path(a->owner, "metadata", "finalizers", NULL)) {
        const char *name = json_cstr(it);

        if (name && strcmp(name, GRAPH_FINALIZER) == 0)
            found = true;
        else
            (void)json_add(kept, json_dup(it));
    }
    /* Finalizers are a list: nobody's may be lost. */
    (void)json_set(metadata, "resourceVersion",
                   json_dup(json_path(a->owner, "metadata", "resourceVersion", NULL)));
    if (!found)
        return 0;
    r = kube_patch(a->rc->kube, a->kind, object_namespace(a->owner), object_name(a->owner), NULL,
                   patch, NULL, e);
    if (r == KUBE_CONFLICT)
        return CONTROLLER_AGAIN;
    return r == 0 || r == KUBE_NOT_FOUND ? 0 : err_wrap(e, r < 0 ? r : -EACCES, "finalizer");
}
