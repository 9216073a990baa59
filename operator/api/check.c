/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/api/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "operator/api/graph.h"

/* Grove's limit for generated pod names; kept everywhere, so that a graph can move there. */
enum { NAME_LIMIT = 45 };

void problems_done(struct problems *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->at[i].field);
        free(p->at[i].message);
    }
    free(p->at);
    *p = PROBLEMS_NULL;
}

char *problems_text(const struct problems *p)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    for (size_t i = 0; i < p->n; i++)
        buf_printf(&text, "%s%s", i ? "\n" : "", p->at[i].message);
    return buf_take_cstr(&text);
}

/* Takes @field; @format is what follows the field in the message. */
PRINTF_LIKE(3, 4)
static void report(struct problems *out, char *field, const char *format, ...)
{
    AUTO(buf_done) struct buf message = BUF_NULL;
    va_list ap;

    buf_put_cstr(&message, field);
    va_start(ap, format);
    buf_vprintf(&message, format, ap);
    va_end(ap);

    if (out->n == out->cap) {
        out->cap = out->cap ? 2 * out->cap : 8;
        out->at = xreallocarray(out->at, out->cap, sizeof(*out->at));
    }
    out->at[out->n++] = (struct problem){.field = field, .message = buf_take_cstr(&message)};
}

static bool is_blank(const struct json *object, const char *key)
{
    const char *s = json_get_cstr(object, key);

    return !s || !s[0];
}

static bool is_true(const struct json *object, const char *key)
{
    bool v = false;

    return json_get_bool(object, key, &v) && v;
}

static void check_ingress(const struct json *service, const char *path, struct problems *out)
{
    const struct json *ingress = json_get(service, "ingress");

    if (is_true(ingress, "enabled") && is_blank(ingress, "host"))
        report(out, xasprintf("%s.ingress.host", path), " is required when ingress is enabled");
}

static void check_volume_mounts(const struct json *service, const char *path, struct problems *out)
{
    size_t i = 0;

    JSON_FOREACH (mount, json_get(service, "volumeMounts")) {
        if (is_blank(mount, "mountPoint") && !is_true(mount, "useAsCompilationCache"))
            report(out, xasprintf("%s.volumeMounts[%zu].mountPoint", path, i),
                   " is required when useAsCompilationCache is false");
        i++;
    }
}

static void check_shared_memory(const struct json *service, const char *path, struct problems *out)
{
    const struct json *shm = json_get(service, "sharedMemory");
    const struct json *size = json_get(shm, "size");
    int64_t bytes = 0;

    if (!json_is_object(shm) || is_true(shm, "disabled"))
        return;
    if (is_blank(shm, "size") && !(json_i64(size, &bytes) && bytes > 0))
        report(out, xasprintf("%s.sharedMemory.size", path), " is required when disabled is false");
}

static void check_endpoint_picker(const struct json *service, const char *path,
                                  struct problems *out)
{
    const struct json *conf = json_get(service, "eppConfig");
    const struct json *ref = json_get(conf, "configMapRef");
    bool has_ref = json_is_object(ref);
    bool has_inline = json_is_object(json_get(conf, "config"));

    if (service_nodes(service) > 1)
        report(out, xstrdup(path),
               ": EPP component cannot be multinode (multinode field must be "
               "nil or nodeCount must be 1)");
    if (service_replicas(service) != 1)
        report(out, xstrdup(path),
               ": EPP component must have exactly 1 replica (found %lld replicas)",
               (long long)service_replicas(service));
    if (!json_is_object(conf))
        report(out, xasprintf("%s.eppConfig", path), " is required for EPP components");
    else if (!has_ref && !has_inline)
        report(out, xasprintf("%s.eppConfig", path),
               ": either configMapRef or config must be specified (no default configuration "
               "provided)");
    else if (has_ref && has_inline)
        report(out, xasprintf("%s.eppConfig", path),
               ": configMapRef and config are mutually exclusive, only one can be specified");
    else if (has_ref && is_blank(ref, "name"))
        report(out, xasprintf("%s.eppConfig.configMapRef.name", path), " is required");
}

static void check_service(const struct json *service, const char *path, struct problems *out)
{
    if (service_replicas(service) < 0)
        report(out, xasprintf("%s.replicas", path), " must be non-negative");
    check_ingress(service, path, out);
    check_volume_mounts(service, path, out);
    check_shared_memory(service, path, out);
    if (strcmp(service_type(service), "epp") == 0)
        check_endpoint_picker(service, path, out);
}

static void check_name_length(const struct json *dgd, const char *name, const struct json *service,
                              struct problems *out)
{
    const char *graph = object_name(dgd);
    bool multinode = service_nodes(service) > 1;
    size_t graph_len = strlen(graph), len = strlen(name);
    size_t total = graph_len + len + (multinode ? len + strlen("-ldr") : 0);
    AUTO(mem_free) char *lower = graph_child_name("", name);
    AUTO(mem_free)
    char *suffix = multinode
                       ? xasprintf(" + service name with role suffix (e.g., '%s-ldr')", lower + 1)
                       : xstrdup("");

    if (total <= NAME_LIMIT)
        return;
    report(out, xasprintf("spec.services[%s]", name),
           ": combined resource name length %zu exceeds %d-character limit required for pod "
           "naming. Consider shortening the DynamoGraphDeployment name '%s' (length %zu) or "
           "service name '%s' (length %zu). %s combined length of DGD name + service name%s must "
           "not exceed %d characters",
           total, NAME_LIMIT, graph, graph_len, name, len,
           multinode ? "For multinode services, the" : "The", suffix, NAME_LIMIT);
}

static void check_pvcs(const struct json *dgd, struct problems *out)
{
    static const char *const needed[] = {"storageClass", "size", "volumeAccessMode"};
    size_t i = 0;

    JSON_FOREACH (pvc, graph_pvcs(dgd)) {
        if (is_blank(pvc, "name"))
            report(out, xasprintf("spec.pvcs[%zu].name", i), " is required");
        for (size_t f = 0; graph_pvc_is_created(pvc) && f < ARRAY_LEN(needed); f++) {
            if (is_blank(pvc, needed[f]) && !json_i64(json_get(pvc, needed[f]), &(int64_t){0}))
                report(out, xasprintf("spec.pvcs[%zu].%s", i, needed[f]),
                       " is required when create is true");
        }
        i++;
    }
}

/* How many distinct names an order has; *ret_n is how many entries. */
static size_t count_distinct(const struct json *order, size_t *ret_n)
{
    size_t distinct = 0, n = 0;

    JSON_FOREACH (name, order) {
        bool seen = false;

        n++;
        for (struct json *o = json_first(order); o != name && !seen; o = json_next(o))
            seen = json_equal(o, name);
        distinct += !seen;
    }
    *ret_n = n;
    return distinct;
}

static void check_restart_order(const struct json *dgd, const struct json *order,
                                struct problems *out)
{
    const char *field = "spec.restart.strategy.order";
    size_t n, distinct = count_distinct(order, &n);

    if (distinct != n)
        report(out, xstrdup(field), " must be unique");
    if (distinct != json_len(graph_services(dgd)))
        report(out, xstrdup(field),
               " must have the same number of unique services as the deployment");
    JSON_FOREACH (name, order) {
        const char *s = json_cstr(name);

        if (s && !graph_service(dgd, s))
            report(out, xstrdup(field), " contains unknown service: %s", s);
    }
}

static void check_restart(const struct json *dgd, struct problems *out)
{
    const struct json *restart = json_path(dgd, "spec", "restart", NULL);
    const struct json *strategy = json_get(restart, "strategy");
    const struct json *order = json_get(strategy, "order");
    const char *type = json_get_cstr(strategy, "type");

    if (!json_is_object(restart))
        return;
    if (is_blank(restart, "id"))
        report(out, xstrdup("spec.restart.id"), " is required");
    if (json_len(order) == 0)
        return;
    if (type && strcmp(type, "Parallel") == 0)
        report(out, xstrdup("spec.restart.strategy.order"),
               " cannot be specified when strategy is parallel");
    else
        check_restart_order(dgd, order, out);
}

void check_graph(const struct json *dgd, struct problems *out)
{
    if (json_len(graph_services(dgd)) == 0)
        report(out, xstrdup("spec.services"), " must have at least one service");
    check_pvcs(dgd, out);
    check_restart(dgd, out);
    JSON_FOREACH (service, graph_services(dgd)) {
        AUTO(mem_free) char *path = xasprintf("spec.services[%s]", json_key(service));

        check_name_length(dgd, json_key(service), service, out);
        check_service(service, path, out);
    }
}

void check_component(const struct json *dcd, struct problems *out)
{
    check_service(json_get(dcd, "spec"), "spec", out);
}
