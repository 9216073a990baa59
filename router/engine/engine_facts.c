/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_facts.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "lib/base/json_pull.h"

/* Where vLLM binds when it is not told. */
enum { EVENTS_PORT = 5557 };

/* --- /v1/models ------------------------------------------------------------------------------- */

void engine_models_done(struct engine_models *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->at[i].id);
        free(m->at[i].root);
    }
    m->n = 0;
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool engine_models_equal(const struct engine_models *a, const struct engine_models *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!same(a->at[i].id, b->at[i].id) || !same(a->at[i].root, b->at[i].root) ||
            a->at[i].max_len != b->at[i].max_len)
            return false;
    return true;
}

/* NULL for what is no text, too long, or holds a NUL. */
static char *text_of(struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_pull p;
    struct str s;

    json_pull_init(&p, json);
    if (json.len < 2 || json.ptr[0] != '"' || !json_pull_string(&p, &scratch, &s) || s.len == 0 ||
        s.len > ENGINE_NAME_MAX || memchr(s.ptr, '\0', s.len))
        return NULL;
    return str_dup(s);
}

static void read_model(struct str json, struct engine_models *ret)
{
    struct engine_model_name *m = &ret->at[ret->n];
    struct str parent = json_pull_member(json, "parent");
    uint64_t len = 0;

    *m = (struct engine_model_name){.id = text_of(json_pull_member(json, "id"))};
    if (!m->id)
        return;
    for (size_t i = 0; i < ret->n; i++)
        if (strcmp(ret->at[i].id, m->id) == 0) {
            free(m->id);
            return;
        }
    m->root = text_of(json_pull_member(json, "root"));
    m->is_lora = parent.len && !str_is(parent, "null");
    if (str_parse_u64(json_pull_member(json, "max_model_len"), &len))
        m->max_len = (uint32_t)MIN(len, (uint64_t)UINT32_MAX);
    ret->n++;
}

int engine_models_read(struct str json, struct engine_models *ret, struct err *e)
{
    AUTO(engine_models_done) struct engine_models m = {.n = 0};
    struct str data = json_pull_member(json, "data"), one;
    struct json_pull p;

    json_pull_init(&p, data.len ? data : STR("null"));
    if (!json_pull_array(&p))
        return err_set(e, -EINVAL, "/v1/models: no list of models");
    while (m.n < ENGINE_MODELS_MAX && json_pull_element(&p) && json_pull_skip(&p, &one))
        read_model(one, &m);
    if (m.n == 0)
        return err_set(e, -EINVAL, "/v1/models: it lists no model");
    *ret = m;
    m.n = 0;
    return 0;
}

/* --- /metrics --------------------------------------------------------------------------------- */

/* Value of a label in `a="x",b="y"`; STR_NULL when it has none. Escapes stay. */
static struct str label_of(struct str labels, const char *name)
{
    while (labels.len) {
        struct str key, value;
        size_t end = 0;

        if (!str_cut(&labels, '=', &key) || !str_starts(labels, STR("\"")))
            return STR_NULL;
        labels = str_skip(labels, 1);
        while (end < labels.len && labels.ptr[end] != '"')
            end += labels.ptr[end] == '\\' ? 2 : 1;
        if (end >= labels.len)
            return STR_NULL;
        value = str_head(labels, end);
        labels = str_skip(labels, end + 1);
        if (str_is(str_trim(key), name))
            return value;
        if (str_starts(labels, STR(",")))
            labels = str_skip(labels, 1);
    }
    return STR_NULL;
}

enum gauge { RUNNING, WAITING, USAGE };
static const struct {
    const char *name;
    enum gauge gauge;
} GAUGES[] = {
    {"vllm:num_requests_running", RUNNING}, {"vllm:num_requests_waiting", WAITING},
    {"vllm:kv_cache_usage_perc", USAGE},    {"vllm:gpu_cache_usage_perc", USAGE},
    {"sglang:num_running_reqs", RUNNING},   {"sglang:num_queue_reqs", WAITING},
    {"sglang:token_usage", USAGE},
};

static struct engine_rank_load *rank_of(struct str labels, struct engine_load_report *ret)
{
    struct str rank = label_of(labels, "engine");
    uint64_t n = 0;

    if (!rank.ptr)
        rank = label_of(labels, "dp_rank");
    if (rank.len && (!str_parse_u64(rank, &n) || n >= ENGINE_RANKS_MAX))
        return NULL;
    ret->n_ranks = MAX(ret->n_ranks, (uint32_t)n + 1);
    return &ret->ranks[n];
}

static void read_gauge(enum gauge g, struct str labels, double v, struct engine_load_report *ret)
{
    struct engine_rank_load *load;

    if (!(v >= 0 && v < 1e15))
        return; /* NaN too */
    load = rank_of(labels, ret);
    if (!load)
        return;
    if (g == RUNNING)
        load->running = (uint64_t)v;
    else if (g == WAITING)
        load->waiting = (uint64_t)v;
    else {
        load->usage = MIN(v, 1.0);
        load->has_usage = true;
    }
}

static void read_cache_config(struct str labels, struct engine_load_report *ret)
{
    uint64_t n;

    (void)rank_of(labels, ret); /* one that has computed nothing yet has no gauge */
    if (str_parse_u64(label_of(labels, "block_size"), &n) && n && n <= 65536)
        ret->block_size = (uint32_t)n;
    if (str_parse_u64(label_of(labels, "num_gpu_blocks"), &n))
        ret->total_blocks = n;
}

/* name{labels} value */
static void read_line(struct str line, struct engine_load_report *ret)
{
    struct str name = line, labels = STR_NULL, value;
    size_t brace = 0, end = line.len;
    double v;

    while (brace < line.len && line.ptr[brace] != '{' && line.ptr[brace] != ' ')
        brace++;
    name = str_head(line, brace);
    value = str_skip(line, brace);
    if (str_starts(value, STR("{"))) {
        while (end > brace && line.ptr[end - 1] != '}')
            end--;
        if (end <= brace + 1)
            return;
        labels = str_slice(line.ptr + brace + 1, end - brace - 2);
        value = str_skip(line, end);
    }
    if (str_is(name, "vllm:cache_config_info")) {
        read_cache_config(labels, ret);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(GAUGES); i++)
        if (str_is(name, GAUGES[i].name) && str_parse_f64(str_trim(value), &v))
            read_gauge(GAUGES[i].gauge, labels, v, ret);
}

void engine_load_read(struct str metrics, struct engine_load_report *ret)
{
    struct str line;

    *ret = (struct engine_load_report){.block_size = 0};
    for (bool more = true; more;) {
        more = str_cut(&metrics, '\n', &line);
        if (line.len && line.ptr[0] != '#')
            read_line(line, ret);
    }
}

/* --- /tokenize -------------------------------------------------------------------------------- */

size_t engine_tokens_read(struct str json, uint32_t *ret_ids, size_t cap)
{
    struct str tokens = json_pull_member(json, "tokens");
    struct json_pull p;
    struct err e;
    uint64_t id;
    size_t n = 0;

    json_pull_init(&p, tokens.len ? tokens : STR("null"));
    if (!json_pull_array(&p))
        return 0;
    while (json_pull_element(&p) && json_pull_u64(&p, &id)) {
        if (n == cap || id > UINT32_MAX)
            return 0;
        ret_ids[n++] = (uint32_t)id;
    }
    return json_pull_end(&p, &e) == 0 ? n : 0;
}

/* --- events ----------------------------------------------------------------------------------- */

/* "tcp://host:port"; 0 for anything else. */
static uint16_t port_of(struct str endpoint_json)
{
    AUTO(mem_free) char *text = text_of(endpoint_json);
    struct str s = str_from(text);
    size_t colon = s.len;
    uint64_t port;

    while (colon && s.ptr[colon - 1] != ':')
        colon--;
    return str_starts(s, STR("tcp://")) && str_parse_u64(str_skip(s, colon), &port) &&
                   port <= UINT16_MAX
               ? (uint16_t)port
               : 0;
}

bool engine_events_config_read(struct str json, uint16_t *ret_events, uint16_t *ret_replay)
{
    struct str enabled = json_pull_member(json, "enable_kv_cache_events");
    struct str publisher = json_pull_member(json, "publisher");
    struct str endpoint = json_pull_member(json, "endpoint");

    if (str_is(enabled, "false") || str_is(publisher, "\"null\"") ||
        (!str_is(publisher, "\"zmq\"") && !str_is(enabled, "true")))
        return false;
    *ret_events = endpoint.len ? port_of(endpoint) : EVENTS_PORT;
    *ret_replay = port_of(json_pull_member(json, "replay_endpoint"));
    return *ret_events != 0;
}

/* A port of this rank, as that of rank 0; 0 when it cannot be one. */
static uint16_t port_of_first(uint16_t port, uint64_t rank)
{
    return port > rank ? (uint16_t)(port - rank) : 0;
}

/* False: another rank has said otherwise. */
static bool read_source(struct str rank, struct str config, struct engine_event_sources *s)
{
    uint16_t events = 0, replay = 0;
    uint64_t n;

    if (!str_parse_u64(rank, &n) || n >= ENGINE_RANKS_MAX)
        return false;
    s->n_ranks = MAX(s->n_ranks, (uint32_t)n + 1);
    if (!engine_events_config_read(config, &events, &replay))
        return true;
    events = port_of_first(events, n);
    replay = port_of_first(replay, n);
    if (!events || (s->has_events && (s->events_port != events || s->replay_port != replay)))
        return false;
    s->has_events = true;
    s->events_port = events;
    s->replay_port = replay;
    return true;
}

int engine_event_sources_read(struct str json, struct engine_event_sources *ret, struct err *e)
{
    struct engine_event_sources s = {.has_events = false};
    struct str rank, config;
    struct json_pull p;

    json_pull_init(&p, json);
    if (json_pull_peek(&p) != JSON_KIND_OBJECT || !json_pull_object(&p))
        return err_set(e, -EINVAL, "event sources: no JSON object");
    while (json_pull_key(&p, &rank) && json_pull_skip(&p, &config))
        if (!read_source(rank, config, &s))
            return err_set(e, -EINVAL, "event sources: rank %.*s has a port of its own",
                           (int)MIN(rank.len, (size_t)16), rank.ptr);
    if (json_pull_end(&p, e) < 0)
        return err_wrap(e, -EINVAL, "event sources");
    *ret = s;
    return 0;
}

int engine_server_info_read(struct str json, struct engine_server_info *ret, struct err *e)
{
    struct str config = json_pull_member(json, "kv_events_config");
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_pull p;
    uint64_t n;

    *ret = (struct engine_server_info){.page_size = 0};
    json_pull_init(&p, json);
    if (json_pull_peek(&p) != JSON_KIND_OBJECT)
        return err_set(e, -EINVAL, "server info: no JSON object");
    if (str_parse_u64(json_pull_member(json, "page_size"), &n) && n <= 65536)
        ret->page_size = (uint32_t)n;
    if (str_parse_u64(json_pull_member(json, "dp_size"), &n) && n <= ENGINE_RANKS_MAX)
        ret->dp_size = (uint32_t)n;
    if (str_parse_u64(json_pull_member(json, "max_total_num_tokens"), &n))
        ret->max_tokens = n;
    if (config.len && config.ptr[0] == '"') { /* a text that holds JSON */
        json_pull_init(&p, config);
        if (!json_pull_string(&p, &scratch, &config))
            config = STR_NULL;
    }
    ret->has_events = engine_events_config_read(config, &ret->events_port, &ret->replay_port);
    return 0;
}
