/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/live_conf.h"

#include <sys/stat.h>

#include "lib/base/buf.h"
#include "lib/base/json_tree.h"
#include "lib/base/log.h"
#include "lib/kube/kube_kinds.h"
#include "lib/kube/kube_watch.h"
#include "lib/net/file.h"

static const struct log_target LG = {"commutator::frontend::live_conf"};
#define GENERATION_ANNOTATION "commutator.dev/routing-generation"

enum { FILE_BYTES_MAX = 64 << 10, FILE_POLL_MS = 200 };

struct live_conf {
    struct live_conf_spec spec;
    struct kube_watcher *watcher;
    struct kube_watch *watch;
    struct timer *poll;
    struct stat seen; /* of the file, when it was read last */
    uint64_t file_generation;
};

static struct strmap *drop_variables(struct strmap *m)
{
    return strmap_free_with(m, free);
}

static void put_variable(struct strmap *m, struct str name, struct str value)
{
    free(strmap_set(m, name, str_dup(value)));
}

/* --- ConfigMap ---------------------------------------------------------------------------------
 */

static void on_config_map(void *arg, enum kube_change what, const struct json *object,
                          struct str raw)
{
    struct live_conf *c = arg;
    struct strmap *variables = strmap_new();
    const char *text =
        json_cstr(json_path(object, "metadata", "annotations", GENERATION_ANNOTATION, NULL));
    uint64_t generation = 0;

    (void)raw;
    if (what == KUBE_DELETED) {
        /* The graph goes, or somebody tidied up: what runs stays as it is until told otherwise. */
        log_warn(&LG, "routing ConfigMap was deleted, keeping its last values");
        drop_variables(variables);
        return;
    }
    if (text && !str_parse_u64(str_from(text), &generation))
        log_warn(&LG, "routing ConfigMap has no readable generation, ignoring",
                 LOG_STR("generation", text));
    JSON_FOREACH (value, json_get(object, "data"))
        if (json_cstr(value))
            put_variable(variables, str_from(json_key(value)), str_from(json_cstr(value)));
    c->spec.changed(c->spec.arg, variables, generation);
    drop_variables(variables);
}

static int start_config_map(struct live_conf *c, struct err *e)
{
    AUTO(mem_free) char *selector = xasprintf("metadata.name=%s", c->spec.config_map);
    struct kube_watch_spec watch = {.kind = &KIND_CONFIG_MAP,
                                    .ns = c->spec.ns,
                                    .field_selector = selector,
                                    .change = on_config_map,
                                    .arg = c};
    int r = kube_watcher_new(&c->watcher, c->spec.loop, c->spec.kube, e);

    if (r < 0)
        return r;
    c->watch = kube_watch_start(c->watcher, &watch);
    return 0;
}

/* --- file --------------------------------------------------------------------------------------
 */

static int read_variables(const char *path, struct strmap *variables, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct str rest, line, name;
    bool more = true;
    int r = file_read(path, FILE_BYTES_MAX, &text, e);

    if (r < 0)
        return r;
    for (rest = buf_str(&text); more;) {
        more = str_cut(&rest, '\n', &line);
        line = str_trim(line);
        if (line.len == 0 || line.ptr[0] == '#' || !str_cut(&line, '=', &name))
            continue;
        put_variable(variables, str_trim(name), str_trim(line));
    }
    return 0;
}

/*
 * Looked at five times a second rather than watched: editors and mounted volumes replace files in
 * ways that differ, and one stat(2) notices all of them.
 */
static void poll_file(void *arg)
{
    struct live_conf *c = arg;
    struct strmap *variables;
    struct stat st;
    struct err e;

    if (stat(c->spec.file, &st) < 0)
        return;
    if (st.st_mtim.tv_sec == c->seen.st_mtim.tv_sec &&
        st.st_mtim.tv_nsec == c->seen.st_mtim.tv_nsec && st.st_ino == c->seen.st_ino &&
        st.st_size == c->seen.st_size)
        return;
    variables = strmap_new();
    c->seen = st;
    if (read_variables(c->spec.file, variables, &e) == 0)
        c->spec.changed(c->spec.arg, variables, ++c->file_generation);
    else
        log_warn(&LG, "routing file cannot be read, keeping what is in force",
                 LOG_STR("why", e.text));
    drop_variables(variables);
}

/* --- life --------------------------------------------------------------------------------------
 */

int live_conf_start(struct live_conf **ret, const struct live_conf_spec *spec, struct err *e)
{
    AUTO(live_conf_free) struct live_conf *c = xcalloc(1, sizeof(*c));
    int r;

    c->spec = *spec;
    if (spec->config_map) {
        r = start_config_map(c, e);
        if (r < 0)
            return err_wrap(e, r, "routing ConfigMap %s", spec->config_map);
    }
    if (spec->file) {
        c->poll = timer_new(spec->loop, poll_file, c);
        timer_start_repeat(c->poll, FILE_POLL_MS);
    }
    *ret = TAKE(c);
    return 0;
}

struct live_conf *live_conf_free(struct live_conf *c)
{
    if (!c)
        return NULL;
    kube_watch_stop(c->watch);
    kube_watcher_free(c->watcher);
    timer_free(c->poll);
    free(c);
    return NULL;
}
