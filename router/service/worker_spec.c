/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/worker_spec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/base/json_pull.h"

#define AT(member) offsetof(struct worker_spec, member)

static const struct body_field FIELDS[] = {
    {"worker_id", BODY_U64, AT(worker_id), false},
    {"model_name", BODY_STR, AT(model_name), false},
    {"routing_group", BODY_STR, AT(routing_group), false},
    {"endpoint", BODY_STR, AT(endpoint), false},
    {"kv_events_endpoint", BODY_STR, AT(kv_events_endpoint), false},
    {"kv_events_endpoints", BODY_OBJECT, AT(kv_events_endpoints), false},
    {"replay_endpoint", BODY_STR, AT(replay_endpoint), false},
    {"block_size", BODY_U32, AT(block_size), false},
    {"data_parallel_start_rank", BODY_U32, AT(dp_start), false},
    {"data_parallel_size", BODY_U32, AT(dp_size), false},
    {"max_num_batched_tokens", BODY_U64, AT(max_num_batched_tokens), false},
    {"total_kv_blocks", BODY_U64, AT(total_kv_blocks), false},
    {"stable_routing_id", BODY_JSON, AT(extras[WORKER_STABLE_ROUTING_ID]), false},
    {"is_eagle", BODY_JSON, AT(extras[WORKER_IS_EAGLE]), false},
    {"taints", BODY_JSON, AT(taints), false},
    {"topology_domains", BODY_JSON, AT(extras[WORKER_TOPOLOGY_DOMAINS]), false},
    {"kv_transfer_domain", BODY_JSON, AT(extras[WORKER_KV_TRANSFER_DOMAIN]), false},
    {"kv_transfer_enforcement", BODY_JSON, AT(extras[WORKER_KV_TRANSFER_ENFORCEMENT]), false},
    {"kv_transfer_preferred_weight", BODY_JSON, AT(extras[WORKER_KV_TRANSFER_PREFERRED_WEIGHT]),
     false},
};
static const char *const EXTRA_DEFAULTS[WORKER_EXTRAS] = {[WORKER_TOPOLOGY_DOMAINS] = "{}"};

/* --- reading ---------------------------------------------------------------------------------- */

static int read_taints(struct arena *a, const struct worker_spec *w, struct str_list *ret,
                       struct err *e)
{
    static const struct body_field table[] = {{"taints", BODY_STRINGS, 0, true}};
    char *object = arena_printf(a, "{\"taints\":%.*s}", STR_ARG(w->taints));

    return body_parse(a, str_from(object), table, ARRAY_LEN(table), ret, e);
}

int worker_spec_patch(struct arena *a, struct str json, struct worker_spec *spec, struct err *e)
{
    struct worker_spec w = *spec;
    int r = body_parse(a, json, FIELDS, ARRAY_LEN(FIELDS), &w, e);

    if (r == 0 && w.taints.ptr)
        r = read_taints(a, &w, &(struct str_list){.ptr = NULL}, e);
    if (r == 0)
        *spec = w;
    return r;
}

struct str_list worker_spec_taints(struct arena *a, const struct worker_spec *w)
{
    struct str_list taints = {.ptr = NULL};
    struct err e;

    if (w->taints.ptr)
        (void)!read_taints(a, w, &taints, &e); /* they were read when they were told */
    return taints;
}

int worker_spec_parse(struct arena *a, struct str json, struct worker_spec *ret, struct err *e)
{
    struct worker_spec w = {.model_name = STR("default"), .routing_group = STR("default")};
    int r = worker_spec_patch(a, json, &w, e);

    if (r == 0 && !w.worker_id.set)
        return err_set(e, -EINVAL, "missing field `worker_id`");
    if (r == 0)
        *ret = w;
    return r;
}

struct worker_spec worker_spec_copy(struct arena *a, const struct worker_spec *spec)
{
    struct worker_spec w = *spec;

    for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++) {
        struct str *s = (struct str *)(void *)((char *)&w + FIELDS[i].offset);

        if ((FIELDS[i].type == BODY_STR || FIELDS[i].type == BODY_OBJECT ||
             FIELDS[i].type == BODY_JSON) &&
            s->ptr)
            s->ptr = arena_strdup(a, *s);
    }
    return w;
}

struct str worker_spec_events(struct arena *a, const struct worker_spec *w, uint32_t rank)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str key, value = STR_NULL, found = STR_NULL;
    struct json_pull p;
    uint64_t n;

    if (w->kv_events_endpoint.len && worker_spec_ranks(w) == 1)
        return w->kv_events_endpoint;
    if (!w->kv_events_endpoints.len)
        return STR_NULL;
    json_pull_init(&p, w->kv_events_endpoints);
    if (!json_pull_object(&p))
        return STR_NULL;
    while (json_pull_key(&p, &key)) {
        buf_clear(&scratch);
        if (json_pull_peek(&p) != JSON_KIND_STRING)
            (void)json_pull_skip(&p, NULL);
        else if (json_pull_string(&p, &scratch, &value) && str_parse_u64(key, &n) && n == rank)
            found = (struct str){arena_strdup(a, value), value.len};
    }
    return found;
}

/* --- what is missing -------------------------------------------------------------------------- */

struct missing {
    void (*tell)(void *arg, const char *reason);
    void *arg;
    size_t n;
};

static PRINTF_LIKE(2, 3) void say(struct missing *m, const char *format, ...)
{
    char text[128];
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    m->tell(m->arg, text);
    m->n++;
}

size_t worker_spec_missing(const struct worker_spec *w, struct worker_needs needs,
                           void (*tell)(void *arg, const char *reason), void *arg)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct missing m = {.tell = tell, .arg = arg};
    uint32_t first = worker_spec_first_rank(w), n = worker_spec_ranks(w);

    if (!w->endpoint.len)
        say(&m, "endpoint is required");
    if (w->block_size.v == 0)
        say(&m, "block_size must be greater than 0");
    if (n == 0 || n > WORKER_RANKS_MAX || first > UINT32_MAX - n) {
        say(&m, "data_parallel_size must be between 1 and %d", WORKER_RANKS_MAX);
        return m.n;
    }
    for (uint32_t i = 0; needs.events && i < n; i++)
        if (!worker_spec_events(a, w, first + i).len)
            say(&m, "kv_events endpoint is required for dp_rank %" PRIu32, first + i);
    if (w->replay_endpoint.len && n > 1)
        say(&m, "replay_endpoint is supported only for data_parallel_size 1");
    if (needs.capacity && !w->max_num_batched_tokens.set)
        say(&m, "max_num_batched_tokens is required while queueing is enabled");
    return m.n;
}

bool worker_spec_same_targets(const struct worker_spec *a, const struct worker_spec *b)
{
    return str_eq(a->model_name, b->model_name) && str_eq(a->routing_group, b->routing_group) &&
           str_eq(a->kv_events_endpoint, b->kv_events_endpoint) &&
           str_eq(a->kv_events_endpoints, b->kv_events_endpoints) &&
           str_eq(a->replay_endpoint, b->replay_endpoint) && a->block_size.v == b->block_size.v &&
           worker_spec_first_rank(a) == worker_spec_first_rank(b) &&
           worker_spec_ranks(a) == worker_spec_ranks(b);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put_str(struct json_put *j, const char *key, struct str s)
{
    json_put_key(j, key);
    if (s.ptr)
        json_put_str(j, s);
    else
        json_put_null(j);
}

static void put_extra(struct json_put *j, const struct worker_spec *w, size_t i, const char *key)
{
    json_put_key(j, key);
    if (w->extras[i].ptr)
        json_put_raw(j, w->extras[i]);
    else
        json_put_raw(j, str_from(EXTRA_DEFAULTS[i] ? EXTRA_DEFAULTS[i] : "null"));
}

void worker_spec_put(struct json_put *j, const struct worker_spec *w, const char *lifecycle)
{
    opt_u64_put(j, "worker_id", w->worker_id);
    put_str(j, "model_name", w->model_name);
    put_str(j, "routing_group", w->routing_group);
    json_put_member_cstr(j, "lifecycle", lifecycle);
    put_str(j, "endpoint", w->endpoint);
    put_str(j, "kv_events_endpoint", w->kv_events_endpoint);
    if (w->kv_events_endpoints.ptr) {
        json_put_key(j, "kv_events_endpoints");
        json_put_raw(j, w->kv_events_endpoints);
    }
    put_str(j, "replay_endpoint", w->replay_endpoint);
    opt_u64_put(j, "block_size", w->block_size);
    opt_u64_put(j, "data_parallel_start_rank", w->dp_start);
    opt_u64_put(j, "data_parallel_size", w->dp_size);
    opt_u64_put(j, "max_num_batched_tokens", w->max_num_batched_tokens);
    opt_u64_put(j, "total_kv_blocks", w->total_kv_blocks);
    put_extra(j, w, WORKER_STABLE_ROUTING_ID, "stable_routing_id");
    put_extra(j, w, WORKER_IS_EAGLE, "is_eagle");
    json_put_key(j, "taints");
    json_put_raw(j, w->taints.ptr ? w->taints : STR("[]"));
    put_extra(j, w, WORKER_TOPOLOGY_DOMAINS, "topology_domains");
    put_extra(j, w, WORKER_KV_TRANSFER_DOMAIN, "kv_transfer_domain");
    put_extra(j, w, WORKER_KV_TRANSFER_ENFORCEMENT, "kv_transfer_enforcement");
    put_extra(j, w, WORKER_KV_TRANSFER_PREFERRED_WEIGHT, "kv_transfer_preferred_weight");
}
