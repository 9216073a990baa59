/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/apply.h"

#include <errno.h>
#include <string.h>

#include "lib/base/log.h"
#include "operator/api/graph.h"
#include "operator/plan/status.h"
#include "operator/reconcile/diff.h"

static const struct log_target LG = {"dynamo_operator::apply"};

/* @verb "Update", "Recreate" or "Delete". */
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

/* What is sent; the plan itself bears no stamp. */
static struct json *to_create(const struct planned *p)
{
    struct json *want = json_dup(p->object);

    /* Claims belong to the user's data more than to us; the reference leaves them unmarked too. */
    if (p->kind != &KIND_PVC)
        diff_stamp(want);
    return want;
}

static int recreate(struct apply *a, const struct planned *p, const struct json *live,
                    struct err *e)
{
    AUTO(json_free) struct json *want = to_create(p);
    AUTO(json_free) struct json *stored = NULL;
    int r = kube_delete(a->rc->kube, p->kind, object_namespace(live), object_name(live),
                        object_uid(live), e);

    if (r != 0)
        return written(p, r, e);
    r = kube_create(a->rc->kube, p->kind, want, &stored, e);
    if (r != 0)
        return written(p, r, e);
    take_answer(a, p->kind, stored);
    tell(a, "Recreate", p->kind, object_name(p->object));
    return 0;
}

static int update(struct apply *a, const struct planned *p, const struct json *object,
                  struct err *e)
{
    AUTO(json_free) struct json *stored = NULL;
    int r = kube_update(a->rc->kube, p->kind, object, &stored, e);

    if (r != 0)
        return written(p, r, e);
    take_answer(a, p->kind, stored);
    a->routing_changed |= p->kind == &KIND_CONFIG_MAP;
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

/* One planned object of a wave. */
struct item {
    struct apply *apply;
    const struct planned *planned;
    struct json *live; /* what stands there, or NULL */
    bool created;
};

/* @at: the objects of @set that are of those kinds, in the order of the kinds. Returns how many. */
static size_t gather(struct apply *a, const struct object_set *set,
                     const struct kube_kind *const *kinds, size_t n, struct item *at)
{
    size_t n_items = 0;

    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i < set->n; i++) {
            const struct planned *p = &set->at[i];

            if (p->kind == kinds[k])
                at[n_items++] = (struct item){
                    .apply = a,
                    .planned = p,
                    .live = cache_get(a->rc->cache, p->kind, object_namespace(p->object),
                                      object_name(p->object)),
                };
        }
    }
    return n_items;
}

/* At once: the next pass need not wait for the slowest of a wave. */
static void take_creation(void *arg, struct kube_creation *c)
{
    struct item *it = arg;

    if (c->r != 0)
        return;
    take_answer(it->apply, c->kind, c->stored);
    it->created = true;
}

/* It was not created: 0 also when somebody else was faster, with what stands there. */
static int not_created(struct apply *a, struct item *it, const struct kube_creation *c,
                       struct err *e)
{
    int r = c->r;

    (void)err_set(e, -EIO, "%s", c->err.text);
    if (r != KUBE_EXISTS)
        return refused(it->planned, r, e);
    r = kube_get(a->rc->kube, c->kind, object_namespace(c->object), object_name(c->object),
                 &it->live, e);
    return r == 0 ? 0 : written(it->planned, r, e);
}

/* Whatever failed, what was created is taken; the first failure is the result. */
static int create_missing(struct apply *a, struct item *at, size_t n, struct err *e)
{
    AUTO(mem_free) struct kube_creation *c = xcalloc(n, sizeof(*c));
    AUTO(mem_free) struct json **want = xcalloc(n, sizeof(*want));
    AUTO(mem_free) struct item **missing = xcalloc(n, sizeof(*missing));
    size_t n_missing = 0;
    int first = 0;

    for (size_t i = 0; i < n; i++) {
        if (at[i].live)
            continue;
        want[n_missing] = to_create(at[i].planned);
        c[n_missing] = (struct kube_creation){.kind = at[i].planned->kind,
                                              .object = want[n_missing],
                                              .done = take_creation,
                                              .arg = &at[i]};
        missing[n_missing++] = &at[i];
    }
    if (n_missing)
        kube_create_all(a->rc->kube, c, n_missing);
    for (size_t i = 0; i < n_missing; i++) {
        struct err other;

        if (c[i].r != 0) {
            int r = not_created(a, missing[i], &c[i], first ? &other : e);

            first = first ? first : r;
        }
        json_free(c[i].stored);
        json_free(want[i]);
    }
    return first;
}

/* One event for all that a pass created of a kind: what a graph's first pass would else flood. */
static void tell_created(struct apply *a, const struct kube_kind *kind, const struct item *at,
                         size_t n)
{
    AUTO(buf_done) struct buf names = BUF_NULL;
    AUTO(mem_free) char *reason = xasprintf("Create%s", kind->kind);

    for (size_t i = 0; i < n; i++)
        if (at[i].created && at[i].planned->kind == kind)
            buf_printf(&names, "%s%s", names.len ? ", " : "", object_name(at[i].planned->object));
    if (names.len == 0)
        return;
    AUTO(mem_free) char *message = xasprintf("Created %s %s", kind->kind, buf_cstr(&names));

    recorder_tell(a->rc->recorder, a->kind, a->owner, false, reason, message);
    log_info(&LG, message, LOG_STR("namespace", object_namespace(a->owner)),
             LOG_STR("for", object_name(a->owner)));
}

static int correct_all(struct apply *a, const struct item *at, size_t n, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        if (at[i].live)
            r = correct(a, at[i].planned, at[i].live, e);
    return r;
}

static void items_done(struct item *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_free(at[i].live);
}

int apply_wave(struct apply *a, const struct object_set *set, const struct kube_kind *const *kinds,
               size_t n, struct err *e)
{
    static const struct kube_kind *const told[] = {&KIND_DCD, &KIND_DEPLOYMENT, &KIND_PVC};
    AUTO(mem_free) struct item *at = xcalloc(set->n, sizeof(*at));
    size_t n_items = gather(a, set, kinds, n, at);
    int r = create_missing(a, at, n_items, e);

    if (r == 0)
        r = correct_all(a, at, n_items, e);
    for (size_t i = 0; i < ARRAY_LEN(told); i++)
        tell_created(a, told[i], at, n_items);
    items_done(at, n_items);
    return r;
}

int apply_correct(struct apply *a, const struct object_set *set,
                  const struct kube_kind *const *kinds, size_t n, struct err *e)
{
    AUTO(mem_free) struct item *at = xcalloc(set->n, sizeof(*at));
    size_t n_items = gather(a, set, kinds, n, at);
    int r = correct_all(a, at, n_items, e);

    items_done(at, n_items);
    return r;
}

/* 0 also when somebody else was faster; @ret says whether it was us. */
static int delete_child(struct apply *a, const struct kube_kind *kind, const struct json *live,
                        bool *ret, struct err *e)
{
    int r = kube_delete(a->rc->kube, kind, object_namespace(live), object_name(live),
                        object_uid(live), e);

    *ret = r == 0;
    if (r == KUBE_NOT_FOUND || r == KUBE_CONFLICT)
        return 0;
    if (r != 0)
        return err_wrap(e, r < 0 ? r : -EACCES, "delete %s %s", kind->kind, object_name(live));
    a->n_written++;
    return 0;
}

static int prune_kind(struct apply *a, const struct object_set *set, const struct kube_kind *kind,
                      struct err *e)
{
    AUTO(json_free) struct json *owned = cache_get_owned(a->rc->cache, kind, object_uid(a->owner));

    JSON_FOREACH (live, owned) {
        bool deleted;
        int r;

        if (object_is_deleted(live) || object_set_find(set, kind, object_name(live)))
            continue;
        r = delete_child(a, kind, live, &deleted, e);
        if (r < 0)
            return r;
        if (deleted)
            tell(a, "Delete", kind, object_name(live));
    }
    return 0;
}

int apply_withdraw(struct apply *a, const struct kube_kind *const *kinds, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        AUTO(json_free)
        struct json *owned = cache_get_owned(a->rc->cache, kinds[i], object_uid(a->owner));

        JSON_FOREACH (live, owned) {
            bool deleted;
            int r = object_is_deleted(live) ? 0 : delete_child(a, kinds[i], live, &deleted, e);

            if (r < 0)
                return r;
        }
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

/*
 * The watch's event of an edit that our answer showed first counts as an echo of the answer, so that
 * nothing but this would ask for the pass which the edit needs.
 */
static void follow_edit(const struct apply *a, const struct json *stored)
{
    struct queue *queue = a->kind == &KIND_DCD ? a->rc->components : a->rc->graphs;
    const char *name = object_name(stored);

    if (!diff_edited(a->owner, stored))
        return;
    if (a->kind == &KIND_DGDSA)
        name = json_get_cstr(object_controller(stored), "name");
    if (name)
        queue_add(queue, object_namespace(stored), name, true);
}

/* What a component says of itself becomes the graph's status. */
static void tell_graph(const struct apply *a, const struct json *stored)
{
    const struct json *owner = object_controller(stored);
    const char *kind = json_get_cstr(owner, "kind"), *name = json_get_cstr(owner, "name");

    if (a->kind == &KIND_DCD && kind && name && strcmp(kind, KIND_DGD.kind) == 0)
        queue_add(a->rc->graphs, object_namespace(stored), name, false);
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
    follow_edit(a, stored);
    tell_graph(a, stored);
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
