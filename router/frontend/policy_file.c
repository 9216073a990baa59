/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/policy_file.h"

#include <errno.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/yaml.h"
#include "lib/net/file.h"
#include "router/frontend/frontend_conf.h"
#include "router/sched/policy_keys.h"
#include "router/sched/worker_selection.h"

enum { FILE_BYTES_MAX = 1 << 20 };

enum setting_kind { SETTING_BOOL, SETTING_NUMBER, SETTING_WHOLE, SETTING_TEXT };

/* @null: the option's text for null, NULL where that is no value. */
static const struct policy_setting {
    const char *key, *option;
    enum setting_kind kind;
    const char *null;
} POLICY_SETTINGS[] = {
    {"host_cache_hit_weight", "router-host-cache-hit-weight", SETTING_NUMBER, NULL},
    {"disk_cache_hit_weight", "router-disk-cache-hit-weight", SETTING_NUMBER, NULL},
    {"use_kv_events", "kv-events", SETTING_BOOL, NULL},
    {"router_replica_sync", "router-replica-sync", SETTING_BOOL, NULL},
    {"router_track_active_blocks", "track-active-blocks", SETTING_BOOL, NULL},
    {"router_track_output_blocks", "track-output-blocks", SETTING_BOOL, NULL},
    {"router_assume_kv_reuse", "assume-kv-reuse", SETTING_BOOL, NULL},
    {"router_track_prefill_tokens", "router-track-prefill-tokens", SETTING_BOOL, NULL},
    {"router_tracking_hash", "router-tracking-hash", SETTING_TEXT, NULL},
    {"router_tracking_key_file", "router-tracking-key-file", SETTING_TEXT, ""},
    {"router_tracking_key_id", "router-tracking-key-id", SETTING_TEXT, ""},
    {"router_prefill_load_model", NULL, SETTING_TEXT, NULL},
    {"router_ttl_secs", "router-ttl", SETTING_NUMBER, NULL},
    {"router_approximate_cache_policy", "router-approximate-cache-policy", SETTING_TEXT, NULL},
    {"router_event_threads", "router-event-threads", SETTING_WHOLE, NULL},
    {"use_remote_indexer", "use-remote-indexer", SETTING_BOOL, NULL},
    {"serve_indexer", "serve-indexer", SETTING_BOOL, NULL},
    {"enable_session_prefix_index", "enable-session-prefix-index", SETTING_BOOL, NULL},
    {"shared_cache_type", "shared-cache-type", SETTING_TEXT, NULL},
    {"router_predicted_ttl_secs", "router-predicted-ttl-secs", SETTING_NUMBER, "0"},
};

/* The value as the option's text; NULL: it is not of the kind. */
static char *text_of(const struct policy_setting *s, const struct json *v)
{
    bool on;
    double number;
    int64_t whole;

    if (s->null && json_is_null(v))
        return xstrdup(s->null);
    switch (s->kind) {
    case SETTING_BOOL:
        return json_bool(v, &on) ? xstrdup(on ? "true" : "false") : NULL;
    case SETTING_NUMBER:
        return json_f64(v, &number) ? xasprintf("%.17g", number) : NULL;
    case SETTING_WHOLE:
        return json_i64(v, &whole) ? xasprintf("%lld", (long long)whole) : NULL;
    case SETTING_TEXT:
        return json_cstr(v) ? xstrdup(json_cstr(v)) : NULL;
    }
    return NULL;
}

static int apply_setting(struct frontend_conf *c, const struct policy_setting *s,
                         const struct json *v, struct err *e)
{
    static const char *const kinds[] = {[SETTING_BOOL] = "true or false",
                                        [SETTING_NUMBER] = "a number",
                                        [SETTING_WHOLE] = "a whole number",
                                        [SETTING_TEXT] = "text"};
    AUTO(mem_free) char *text = text_of(s, v);
    int r;

    if (!text)
        return err_set(e, -EINVAL, "router.%s: expected %s", s->key, kinds[s->kind]);
    if (!s->option) /* --router-prefill-load-model, which is not here either */
        return strcmp(text, "none") == 0 ? 0
                                         : err_set(e, -EINVAL, "router.%s: expected none", s->key);
    r = conf_set(&FRONTEND_CONF_SPEC, c, str_from(s->option), str_from(text), e);
    if (r == 0 && strcmp(s->key, "use_kv_events") == 0)
        c->route.caches_anyway = c->route.use_kv_events;
    return r < 0 ? err_wrap(e, r, "router.%s", s->key) : 0;
}

static const struct policy_setting *setting_of(const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(POLICY_SETTINGS); i++)
        if (strcmp(POLICY_SETTINGS[i].key, key) == 0)
            return &POLICY_SETTINGS[i];
    return NULL;
}

static int apply_settings(struct frontend_conf *c, const struct json *section, struct err *e)
{
    int r = 0;

    if (!section || json_is_null(section))
        return 0;
    if (!json_is_object(section))
        return err_set(e, -EINVAL, "router: expected a mapping");
    JSON_FOREACH (v, section) {
        const struct policy_setting *s = setting_of(json_key(v));

        r = s ? apply_setting(c, s, v, e)
              : err_set(e, -EINVAL, "router: unknown key '%s'", json_key(v));
        if (r < 0)
            break;
    }
    return r;
}

static int select_workers(struct frontend_conf *c, const struct json *section, struct err *e)
{
    return worker_selection_read(c->route.selectors, json_is_null(section) ? NULL : section,
                                 c->prefill_selector, c->decode_selector, e);
}

/* Events are followed all the same: what they tell counts when it is switched off while requests run. */
static void preset_load_aware(struct frontend_conf *c)
{
    c->route.caches_anyway = false;
    if (!c->route.load_aware)
        return;
    c->route.overlap_credit = 0;
    c->route.predicted_ttl_ms = 0;
    c->route.assume_kv_reuse = false;
    c->route.track_active_blocks = c->route.track_prefill_tokens = true;
    c->use_remote_indexer = c->serve_indexer = false;
}

int policy_file_apply_text(struct frontend_conf *c, struct str yaml, struct err *e)
{
    AUTO(json_free) struct json *documents = NULL;
    const struct json *file;
    int r = yaml_parse(&documents, yaml, e);

    if (r < 0)
        return r;
    file = json_at(documents, 0);
    if (json_len(documents) != 1 || !json_is_object(file))
        return err_set(e, -EINVAL, "policy file: expected one mapping");
    r = apply_settings(c, json_get(file, "router"), e);
    if (r == 0)
        r = select_workers(c, json_get(file, "worker_selection"), e);
    return r < 0 ? r
                 : programs_conf_read(&c->route.programs, json_get(file, "request_classifier"), e);
}

int policy_file_apply(struct frontend_conf *c, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r;

    preset_load_aware(c);
    if (!c->queue.file)
        return select_workers(c, NULL, e);
    r = file_read(c->queue.file, FILE_BYTES_MAX, &text, e);
    if (r == 0)
        r = policy_file_apply_text(c, buf_str(&text), e);
    return r < 0 ? err_wrap(e, r, "--router-policy-config %s", c->queue.file) : 0;
}

int policy_file_apply_to_service(struct frontend_conf *c, struct err *e)
{
    int r = policy_file_apply(c, e);

    if (r == 0 && c->route.programs.on)
        r = err_set(e, -EINVAL,
                    "--router-policy-config %s: request_classifier: frontends alone have it",
                    c->queue.file);
    return r;
}
