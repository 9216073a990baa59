/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/relay_own.h"

#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "router/openai/openai_read.h"

/* --- requests --------------------------------------------------------------------------------- */

static bool read_key(struct openai_reader *rd, struct str key)
{
    bool is_null = json_pull_peek(&rd->p) == JSON_KIND_NULL;

    if (str_is(key, "model"))
        return openai_read_string(rd, "model", &rd->r->model);
    if (!is_null && str_is(key, "stream"))
        return openai_read_bool(rd, "stream", &rd->r->stream);
    if (json_pull_peek(&rd->p) == JSON_KIND_STRING && str_is(key, "user"))
        return openai_read_string(rd, "user", &rd->r->user);
    return json_pull_skip(&rd->p, NULL);
}

bool relay_own_parse(struct str body, struct arena *a, struct openai_request *ret,
                     struct api_error *e)
{
    struct openai_reader rd = {.arena = a, .r = ret, .e = e};
    struct str key;
    struct err why;
    bool ok = true;

    *ret = (struct openai_request){.api = API_CHAT};
    e->status = 0;
    json_pull_init(&rd.p, body);
    if (json_pull_peek(&rd.p) == JSON_KIND_OBJECT && json_pull_object(&rd.p))
        while (ok && json_pull_key(&rd.p, &key))
            ok = read_key(&rd, key);
    else
        ok = false;
    if (e->status)
        return false;
    if (!ok || json_pull_end(&rd.p, &why) < 0)
        return api_malformed(e, NULL, "The request body must be a JSON object");
    return ret->model.len ? true : api_malformed(e, "model", "Validation: model is missing");
}

/* --- answers: what is read -------------------------------------------------------------------- */

static void add(struct opt_u64 *to, const struct opt_u64 *more)
{
    if (to->set && more->set && more->v <= UINT64_MAX - to->v)
        to->v += more->v;
}

/* Of both: tokens read from the cache are among the input's in one, beside them in the other. */
static void read_usage(struct str usage, struct relay_answer *ret)
{
    struct opt_u64 created = {0}, beside = {0};

    relay_count_read(usage, "input_tokens", &ret->prompt_tokens);
    relay_count_read(usage, "output_tokens", &ret->completion_tokens);
    relay_count_read(json_pull_member(usage, "input_tokens_details"), "cached_tokens",
                     &ret->cached_tokens);
    relay_count_read(usage, "cache_creation_input_tokens", &created);
    relay_count_read(usage, "cache_read_input_tokens", &beside);
    add(&ret->prompt_tokens, &created);
    add(&ret->prompt_tokens, &beside);
    if (beside.set)
        ret->cached_tokens = beside;
}

/* A text, its quotes left out; escapes stay. */
static struct str within_quotes(struct str json)
{
    return json.len >= 2 && json.ptr[0] == '"' ? str_slice(json.ptr + 1, json.len - 2) : STR_NULL;
}

/* Thoughts and arguments of calls come as deltas, too. */
static bool is_delta(struct str type)
{
    return str_is(type, "content_block_delta") ||
           (str_starts(type, STR("response.")) && str_ends(type, STR(".delta")));
}

static bool is_end(struct str type)
{
    static const char *const ends[] = {"response.completed", "response.incomplete",
                                       "response.failed", "message_stop", "message"};

    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (str_is(type, ends[i]))
            return true;
    return false;
}

static void read_type(struct str json, struct relay_answer *ret)
{
    struct str type = within_quotes(json_pull_member(json, "type"));
    struct str delta = json_pull_member(json, "delta");

    ret->has_text = is_delta(type) && delta.len && !str_is(delta, "\"\"");
    ret->has_finish = is_end(type);
    if (str_is(json_pull_member(json, "object"), "\"response\"")) {
        ret->has_finish = true;
        ret->is_error = false; /* it may have failed: then the answer says so */
    }
}

int relay_own_read(struct str json, struct buf *scratch, struct relay_answer *ret, struct err *e)
{
    static const char *const within[] = {"response", "message"};
    int r = relay_answer_read(json, scratch, ret, e);

    if (r < 0)
        return r;
    read_type(json, ret);
    read_usage(json_pull_member(json, "usage"), ret);
    for (size_t i = 0; i < ARRAY_LEN(within); i++)
        read_usage(json_pull_member(json_pull_member(json, within[i]), "usage"), ret);
    return 0;
}

/* --- answers: what is changed ----------------------------------------------------------------- */

/* The first of @at that stands at or behind @from; NULL = none. */
static const struct str *next_of(const struct str *at, size_t n, const char *from)
{
    const struct str *first = NULL;

    for (size_t i = 0; i < n; i++)
        if (at[i].len && at[i].ptr >= from && (!first || at[i].ptr < first->ptr))
            first = &at[i];
    return first;
}

void relay_own_put(struct buf *out, struct str json, struct str model)
{
    const struct str names[] = {
        json_pull_member(json, "model"),
        json_pull_member(json_pull_member(json, "response"), "model"),
        json_pull_member(json_pull_member(json, "message"), "model"),
    };
    const char *end = json.ptr + json.len, *from = json.ptr;
    const struct str *name;

    while (model.len && (name = next_of(names, ARRAY_LEN(names), from))) {
        struct json_put j = json_put_on(out);

        buf_put_str(out, str_slice(from, (size_t)(name->ptr - from)));
        json_put_str(&j, model);
        from = name->ptr + name->len;
    }
    buf_put_str(out, str_slice(from, (size_t)(end - from)));
}
