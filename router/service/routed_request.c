/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/routed_request.h"

#include <errno.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "router/kv/block_hash.h"
#include "router/service/routing_told.h"
#include "router/wire/fields.h"

#define AT(member) offsetof(struct routed_request, member)

static const struct field ROUTING[] = {
    {"backend_instance_id", FIELD_U64, AT(backend_instance_id)},
    {"dp_rank", FIELD_U32, AT(dp_rank)},
    {"expected_output_tokens", FIELD_U32, AT(expected_output_tokens)},
    {"enable_local_updates", FIELD_BOOL, AT(enable_local_updates)},
};
static const struct field QUESTION[] = {
    {"include_shared", FIELD_BOOL, AT(include_shared)},
};
static const struct field STOP[] = {
    {"max_tokens", FIELD_U64, AT(max_tokens)},
    {"min_tokens", FIELD_U64, AT(min_tokens)},
};
static const struct field OVERRIDES[] = {
    {"overlap_score_weight", FIELD_F64, AT(overlap_weight)},
    {"router_temperature", FIELD_F64, AT(temperature)},
    {"overlap_score_credit", FIELD_F64, AT(overlap_credit)},
    {"assume_kv_reuse", FIELD_BOOL, AT(assume_kv_reuse)},
    {"track_prefill_tokens", FIELD_BOOL, AT(track_prefill_tokens)},
};

/* What 0.9.0 fills in for callers that send token_ids alone. */
static const struct {
    const char *key, *json;
} DEFAULTS[] = {
    {"model", "\"unknown\""}, {"stop_conditions", "{}"}, {"sampling_options", "{}"},
    {"output_options", "{}"}, {"eos_token_ids", "[]"},   {"annotations", "[]"},
};

/* --- reading ---------------------------------------------------------------------------------- */

/* What tells blocks of the same tokens apart. */
struct naming {
    struct buf lora_text, cache_text;
    struct str lora_name, cache;
};

static void naming_done(struct naming *nm)
{
    buf_done(&nm->lora_text);
    buf_done(&nm->cache_text);
}
DEFINE_CLEANUP_EMBEDDED(struct naming, naming_done)

static bool pull_naming(struct json_pull *p, struct str key, struct naming *nm)
{
    if (str_is(key, "lora_name"))
        text_pull(p, &nm->lora_text, &nm->lora_name);
    else if (str_is(key, "cache_salt") || str_is(key, "cache_namespace"))
        text_pull(p, &nm->cache_text, &nm->cache);
    else
        return false;
    return true;
}

static void pull_object(struct json_pull *p, const struct field *table, size_t n,
                        struct routed_request *rq)
{
    struct str key;

    if (json_pull_null(p) || !json_pull_object(p))
        return;
    while (json_pull_key(p, &key))
        if (!fields_pull(p, key, table, n, rq))
            skip_pull(p);
}

/* Members of the object by @table, and its text. */
static void pull_part(struct json_pull *p, const struct field *table, size_t n,
                      struct routed_request *rq, struct str *ret_text)
{
    struct json_pull inner = *p;

    pull_object(&inner, table, n, rq);
    if (inner.error)
        json_pull_fail(p, inner.error);
    else
        json_text_pull(p, ret_text);
}

static void pull_routing(struct json_pull *p, struct routed_request *rq, struct naming *nm)
{
    struct json_pull inner = *p;
    struct str key;

    pull_part(p, ROUTING, ARRAY_LEN(ROUTING), rq, &rq->routing);
    if (p->error || !rq->routing.len || !json_pull_object(&inner))
        return;
    while (json_pull_key(&inner, &key))
        if (!pull_naming(&inner, key, nm))
            skip_pull(&inner);
    if (inner.error)
        json_pull_fail(p, inner.error);
}

/* Whether the value is an object whose member @wanted is there and not null; then it was read over. */
static bool pull_has(struct json_pull *p, const char *wanted)
{
    struct str key, text = STR_NULL;

    if (json_pull_peek(p) != JSON_KIND_OBJECT || !json_pull_object(p)) {
        skip_pull(p);
        return false;
    }
    while (json_pull_key(p, &key)) {
        if (str_is(key, wanted))
            json_text_pull(p, &text);
        else
            skip_pull(p);
    }
    return text.len > 0;
}

static void pull_binding(struct json_pull *p, struct routed_request *rq)
{
    struct str text = STR_NULL;

    json_text_pull(p, &text);
    rq->immovable |= text.len > 0;
}

/* A token takes two bytes of text at least, which bounds their number before any is stored. */
static void pull_tokens(struct arena *a, struct json_pull *p, struct u32_list *ret)
{
    struct str text;
    struct json_pull counter = *p;
    uint32_t *tokens;
    size_t n = 0;

    if (!json_pull_skip(&counter, &text) || !json_pull_array(p)) {
        json_pull_fail(p, "token_ids must be an array");
        return;
    }
    tokens = arena_alloc(a, (text.len / 2 + 1) * sizeof(*tokens));
    while (json_pull_element(p)) {
        uint64_t id = 0;

        (void)json_pull_u64(p, &id);
        if (id > UINT32_MAX)
            json_pull_fail(p, "a token id does not fit into 32 bits");
        tokens[n++] = (uint32_t)id;
    }
    *ret = (struct u32_list){tokens, n};
}

static void pull_prompt(struct arena *a, struct json_pull *p, struct routed_request *rq)
{
    struct u32_list tokens = {NULL, 0};

    pull_tokens(a, p, &tokens);
    rq->tokens = tokens.ptr;
    rq->n_tokens = tokens.len;
}

/* What it says goes before the prompt, and before what is said of that, if it has tokens. */
static void pull_mm_routing(struct arena *a, struct json_pull *p, struct routed_request *rq)
{
    struct media_list media = {.ptr = NULL};
    bool has_tokens = false;
    struct str key;

    if (json_pull_null(p) || !json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "routing_token_ids")) {
            pull_tokens(a, p, &rq->routed);
            has_tokens = true;
        } else if (str_is(key, "block_mm_infos")) {
            media_list_pull(a, p, &media);
        } else {
            skip_pull(p);
        }
    }
    if (!has_tokens)
        json_pull_fail(p, "mm_routing_info has no routing_token_ids");
    if (rq->routed.len)
        rq->media = media;
}

/* Of the prompt itself. */
static void pull_media(struct arena *a, struct json_pull *p, struct routed_request *rq)
{
    struct media_list media = {.ptr = NULL};

    if (json_pull_null(p))
        return;
    media_list_pull(a, p, &media);
    if (!rq->routed.len)
        rq->media = media;
}

static void pull_member(struct arena *a, struct json_pull *p, struct str key,
                        struct routed_request *rq, struct naming *nm)
{
    if (str_is(key, "token_ids"))
        pull_prompt(a, p, rq);
    else if (str_is(key, "mm_routing_info"))
        pull_mm_routing(a, p, rq);
    else if (str_is(key, "block_mm_infos"))
        pull_media(a, p, rq);
    else if (str_is(key, "routing"))
        pull_routing(p, rq, nm);
    else if (str_is(key, "stop_conditions"))
        pull_part(p, STOP, ARRAY_LEN(STOP), rq, &rq->stop_conditions);
    else if (str_is(key, "router_config_override"))
        pull_object(p, OVERRIDES, ARRAY_LEN(OVERRIDES), rq);
    else if (str_is(key, "sampling_options"))
        rq->immovable |= pull_has(p, "guided_decoding");
    else if (str_is(key, "prefill_result") || str_is(key, "bootstrap_info"))
        pull_binding(p, rq);
    else if (!pull_naming(p, key, nm) && !fields_pull(p, key, QUESTION, ARRAY_LEN(QUESTION), rq))
        skip_pull(p);
}

int routed_request_parse(struct arena *a, struct str json, struct routed_request *ret,
                         struct err *e)
{
    AUTO(naming_done) struct naming nm = {.lora_name = STR_NULL};
    struct routed_request rq = {.tokens = NULL};
    struct json_pull p;
    struct str key;
    int r;

    json_pull_init(&p, json);
    rq.bare = json_pull_peek(&p) == JSON_KIND_ARRAY;
    if (rq.bare) {
        pull_prompt(a, &p, &rq);
    } else if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key))
            pull_member(a, &p, key, &rq, &nm);
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return r;
    if (!rq.tokens || rq.n_tokens > UINT32_MAX)
        return err_set(e, -EINVAL, "token_ids is missing or too long");
    if (!rq.routed.len)
        rq.routed = (struct u32_list){rq.tokens, rq.n_tokens};
    if (rq.routed.len > UINT32_MAX)
        return err_set(e, -EINVAL, "routing_token_ids is too long");
    rq.hash_seed = block_hash_seed(nm.lora_name, nm.cache);
    rq.salted = nm.cache.len > 0;
    *ret = rq;
    return 0;
}

/* --- forwarding ------------------------------------------------------------------------------- */

static bool is_among(struct str key, const char *const *names)
{
    for (; *names; names++)
        if (str_is(key, *names))
            return true;
    return false;
}

/* Copies the object's members but @without, and returns which of DEFAULTS were among them. */
static uint32_t put_members(struct json_put *j, struct str json, const char *const *without)
{
    struct json_pull p;
    struct str key, value = STR_NULL;
    uint32_t seen = 0;

    json_pull_init(&p, json);
    if (!json_pull_object(&p))
        return 0;
    while (json_pull_key(&p, &key) && json_pull_skip(&p, &value)) {
        if (is_among(key, without))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(DEFAULTS); i++)
            if (str_is(key, DEFAULTS[i].key))
                seen |= 1u << i;
        json_put_member_raw(j, key, value);
    }
    return seen;
}

static uint64_t less(uint64_t v, uint64_t by)
{
    return v - MIN(v, by);
}

/* Tokens and limits of what is left to do. */
static uint32_t put_rest(struct json_put *j, const struct routed_request *rq)
{
    static const char *const LIMITS[] = {"max_tokens", "min_tokens", NULL};

    json_put_key(j, "token_ids");
    json_put_u32_array(j, rq->tokens, rq->n_tokens);
    json_put_key(j, "stop_conditions");
    json_put_object(j);
    (void)put_members(j, rq->stop_conditions, LIMITS);
    for (size_t i = 0; i < ARRAY_LEN(STOP); i++) {
        const struct opt_u64 *v = (const void *)((const char *)rq + STOP[i].offset);

        if (v->set)
            json_put_member_u64(j, STOP[i].key, less(v->v, rq->n_said));
    }
    json_put_object_end(j);
    return 1u << 1;
}

void routed_request_put(struct buf *out, struct str json, const struct routed_request *rq,
                        uint32_t dp_rank)
{
    static const char *const ROUTED[] = {"routing", NULL};
    static const char *const MOVED[] = {"routing", "token_ids", "stop_conditions", NULL};
    static const char *const RANK[] = {"dp_rank", NULL};
    struct json_put j = json_put_on(out);
    uint32_t seen;

    json_put_object(&j);
    seen = put_members(&j, json, rq->n_said ? MOVED : ROUTED);
    if (rq->n_said)
        seen |= put_rest(&j, rq);
    for (size_t i = 0; i < ARRAY_LEN(DEFAULTS); i++)
        if (!(seen & 1u << i))
            json_put_member_raw(&j, str_from(DEFAULTS[i].key), str_from(DEFAULTS[i].json));
    json_put_key(&j, "routing");
    json_put_object(&j);
    (void)put_members(&j, rq->routing, RANK);
    json_put_member_u64(&j, "dp_rank", dp_rank);
    json_put_object_end(&j);
    json_put_object_end(&j);
}

/* --- another worker goes on ------------------------------------------------------------------- */

static const uint32_t *joined(struct arena *a, const uint32_t *tokens, size_t n_tokens,
                              const uint32_t *said, size_t n)
{
    uint32_t *all = arena_alloc(a, (n_tokens + n) * sizeof(*all));

    memcpy(all, tokens, n_tokens * sizeof(*all));
    memcpy(all + n_tokens, said, n * sizeof(*all));
    return all;
}

void routed_request_extend(struct arena *a, struct routed_request *rq, const uint32_t *said,
                           size_t n)
{
    const uint32_t *all = joined(a, rq->tokens, rq->n_tokens, said, n);

    rq->routed.ptr =
        rq->routed.ptr == rq->tokens ? all : joined(a, rq->routed.ptr, rq->routed.len, said, n);
    rq->routed.len += n;
    rq->tokens = all;
    rq->n_tokens += n;
    rq->n_said += n;
}

uint64_t routed_request_left(const struct routed_request *rq, size_t n_said_since)
{
    return rq->max_tokens.set ? less(rq->max_tokens.v, rq->n_said + n_said_since) : UINT64_MAX;
}

/* The counts of one worker; what it took for prompt and was said before counts as said. */
static void put_usage(struct json_put *j, struct str json, const struct routed_request *rq)
{
    static const char *const COUNTS[] = {"prompt_tokens", "completion_tokens", NULL};
    struct json_pull p;
    struct str key;
    uint64_t prompt = 0, said = 0;

    json_pull_init(&p, json);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key)) {
            if (str_is(key, COUNTS[0]))
                (void)json_pull_u64(&p, &prompt);
            else if (str_is(key, COUNTS[1]))
                (void)json_pull_u64(&p, &said);
            else
                skip_pull(&p);
        }
    json_put_object(j);
    json_put_member_u64(j, COUNTS[0], less(prompt, rq->n_said));
    json_put_member_u64(j, COUNTS[1], said + MIN(prompt, (uint64_t)rq->n_said));
    (void)put_members(j, json, COUNTS);
    json_put_object_end(j);
}

void routed_output_put(struct buf *out, struct str data, const struct routed_request *rq,
                       const struct routing_told *told)
{
    static const char *const REWRITTEN[] = {"completion_usage", "routing_data", NULL};
    static const char *const USAGE[] = {"completion_usage", NULL};
    bool tells = told->has_worker || told->has_timing;
    struct json_put j = json_put_on(out);
    struct str key, usage = STR_NULL;
    struct json_pull p;

    json_pull_init(&p, data);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key)) {
            if (str_is(key, USAGE[0]))
                json_text_pull(&p, &usage);
            else
                skip_pull(&p);
        }
    json_put_object(&j);
    (void)put_members(&j, data, tells ? REWRITTEN : USAGE);
    if (usage.len) {
        json_put_key(&j, USAGE[0]);
        put_usage(&j, usage, rq);
    }
    if (tells) {
        json_put_key(&j, REWRITTEN[1]);
        routing_told_put(&j, told);
    }
    json_put_object_end(&j);
}
