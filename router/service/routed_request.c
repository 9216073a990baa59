/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/routed_request.h"

#include <errno.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"
#include "router/wire/fields.h"

#define AT(member) offsetof(struct routed_request, member)

static const struct field ROUTING[] = {
    {"backend_instance_id", FIELD_U64, AT(backend_instance_id)},
    {"dp_rank", FIELD_U32, AT(dp_rank)},
    {"expected_output_tokens", FIELD_U32, AT(expected_output_tokens)},
    {"enable_local_updates", FIELD_BOOL, AT(enable_local_updates)},
};
static const struct field OVERRIDES[] = {
    {"overlap_score_weight", FIELD_F64, AT(overlap_weight)},
    {"router_temperature", FIELD_F64, AT(temperature)},
};

/* What 0.9.0 fills in for callers that send token_ids alone. */
static const struct {
    const char *key, *json;
} DEFAULTS[] = {
    {"model", "\"unknown\""}, {"stop_conditions", "{}"}, {"sampling_options", "{}"},
    {"output_options", "{}"}, {"eos_token_ids", "[]"},   {"annotations", "[]"},
};

/* --- reading ---------------------------------------------------------------------------------- */

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

static void pull_routing(struct json_pull *p, struct routed_request *rq)
{
    struct json_pull inner = *p;

    pull_object(&inner, ROUTING, ARRAY_LEN(ROUTING), rq);
    if (inner.error)
        json_pull_fail(p, inner.error);
    else
        json_text_pull(p, &rq->routing);
}

/* A token takes two bytes of text at least, which bounds their number before any is stored. */
static void pull_tokens(struct arena *a, struct json_pull *p, struct routed_request *rq)
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
    rq->tokens = tokens;
    rq->n_tokens = n;
}

int routed_request_parse(struct arena *a, struct str json, struct routed_request *ret,
                         struct err *e)
{
    struct routed_request rq = {.tokens = NULL};
    struct json_pull p;
    struct str key;
    int r;

    json_pull_init(&p, json);
    rq.bare = json_pull_peek(&p) == JSON_KIND_ARRAY;
    if (rq.bare) {
        pull_tokens(a, &p, &rq);
    } else if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "token_ids"))
                pull_tokens(a, &p, &rq);
            else if (str_is(key, "routing"))
                pull_routing(&p, &rq);
            else if (str_is(key, "router_config_override"))
                pull_object(&p, OVERRIDES, ARRAY_LEN(OVERRIDES), &rq);
            else
                skip_pull(&p);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return r;
    if (rq.n_tokens == 0 || rq.n_tokens > UINT32_MAX)
        return err_set(e, -EINVAL, "token_ids is missing or empty");
    *ret = rq;
    return 0;
}

/* --- forwarding ------------------------------------------------------------------------------- */

/* One member as it came: the key is raw text, so it is not escaped again. */
static void put_member(struct buf *out, bool *comma, struct str key, struct str json)
{
    if (*comma)
        buf_put_char(out, ',');
    *comma = true;
    buf_put_char(out, '"');
    buf_put_str(out, key);
    buf_put_cstr(out, "\":");
    buf_put_str(out, json);
}

/* Copies the object's members but @without, and returns which of DEFAULTS were among them. */
static uint32_t put_members(struct buf *out, bool *comma, struct str json, const char *without)
{
    struct json_pull p;
    struct str key, value = STR_NULL;
    uint32_t seen = 0;

    json_pull_init(&p, json);
    if (!json_pull_object(&p))
        return 0;
    while (json_pull_key(&p, &key) && json_pull_skip(&p, &value)) {
        if (str_is(key, without))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(DEFAULTS); i++)
            if (str_is(key, DEFAULTS[i].key))
                seen |= 1u << i;
        put_member(out, comma, key, value);
    }
    return seen;
}

void routed_request_put(struct buf *out, struct str json, const struct routed_request *rq,
                        uint32_t dp_rank)
{
    bool comma = false, inner_comma = false;
    uint32_t seen;

    buf_put_char(out, '{');
    seen = put_members(out, &comma, json, "routing");
    for (size_t i = 0; i < ARRAY_LEN(DEFAULTS); i++)
        if (!(seen & 1u << i))
            put_member(out, &comma, str_from(DEFAULTS[i].key), str_from(DEFAULTS[i].json));
    put_member(out, &comma, STR("routing"), STR("{"));
    (void)put_members(out, &inner_comma, rq->routing, "dp_rank");
    buf_printf(out, "%s\"dp_rank\":%u}}", inner_comma ? "," : "", dp_rank);
}
