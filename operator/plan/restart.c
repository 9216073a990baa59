/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/restart.h"

#include <string.h>

#include "operator/api/graph.h"
#include "operator/plan/names.h"
#include "operator/plan/status.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of services in the order of restarting, NULL at the end; the strings are borrowed. */
static const char **restart_order(const struct json *dgd)
{
    const struct json *order = json_path(dgd, "spec", "restart", "strategy", "order", NULL);
    const struct json *services = graph_services(dgd);
    size_t n = 0, n_order = json_len(order);
    const char **names = xcalloc((n_order ? n_order : json_len(services)) + 1, sizeof(*names));

    JSON_FOREACH (name, order) {
        if (json_cstr(name) && graph_service(dgd, json_cstr(name)))
            names[n++] = json_cstr(name);
    }
    if (n_order)
        return names;
    JSON_FOREACH (service, services)
        names[n++] = json_key(service);
    qsort(names, n, sizeof(*names), by_text);
    return names;
}

static const struct json *component_of(const struct json *dgd, const struct json *components,
                                       const char *service)
{
    AUTO(mem_free) char *name = graph_child_name(object_name(dgd), service);

    return json_get(components, name);
}

static const char *mark_of(const struct json *dcd)
{
    return json_get_cstr(json_path(dcd, "spec", "annotations", NULL), ANNOTATION_RESTART);
}

static bool is_done(const struct json *dcd, const char *id)
{
    const char *mark = mark_of(dcd);

    return mark && strcmp(mark, id) == 0 && component_is_settled(dcd);
}

static const char *restart_id(const struct json *dgd)
{
    const char *id = json_get_cstr(json_path(dgd, "spec", "restart", NULL), "id");

    return id && id[0] ? id : NULL;
}

static bool is_parallel(const struct json *dgd)
{
    const char *type = json_get_cstr(json_path(dgd, "spec", "restart", "strategy", NULL), "type");

    return type && strcmp(type, "Parallel") == 0;
}

struct json *restart_marks(const struct json *dgd, const struct json *components)
{
    AUTO(mem_free) const char **names = restart_order(dgd);
    const char *id = restart_id(dgd);
    struct json *marks = json_new_object();
    bool turn = id; /* of the services up to the first that is not ready again */

    for (size_t i = 0; names[i]; i++) {
        const struct json *dcd = component_of(dgd, components, names[i]);
        /* What does not exist yet starts with the mark: it needs no restart. */
        const char *mark = turn || (id && !dcd) ? id : mark_of(dcd);

        if (mark)
            json_set_cstr(marks, names[i], mark);
        if (turn && dcd && !is_parallel(dgd) && !is_done(dcd, id))
            turn = false;
    }
    return marks;
}

struct json *restart_status(const struct json *dgd, const struct json *components)
{
    AUTO(mem_free) const char **names = restart_order(dgd);
    AUTO(json_free) struct json *marks = restart_marks(dgd, components);
    const char *id = restart_id(dgd);
    struct json *status;

    if (!id)
        return NULL;
    status = json_new_object();
    json_set_cstr(status, "observedID", id);
    for (size_t i = 0; names[i]; i++) {
        const char *mark = json_get_cstr(marks, names[i]);

        if (mark && strcmp(mark, id) == 0 && !is_done(component_of(dgd, components, names[i]), id))
            json_add(json_need_array(status, "inProgress"), json_new_cstr(names[i]));
    }
    json_set_cstr(status, "phase", json_get(status, "inProgress") ? "Restarting" : "Completed");
    return status;
}
