/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/relay.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"

/* --- requests --------------------------------------------------------------------------------- */

/* What the client said of its stream, and that the usage is wanted. */
static void put_stream_options(struct json_put *j, struct str options)
{
    struct json_pull p;
    struct str key, value;

    json_put_key(j, "stream_options");
    json_put_object(j);
    json_pull_init(&p, options.len ? options : STR("null"));
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key) && json_pull_skip(&p, &value))
            if (!str_is(key, "include_usage"))
                json_put_member_raw(j, key, value);
    json_put_member_bool(j, "include_usage", true);
    json_put_object_end(j);
}

/* Dynamo's name of a template's arguments is not that of engines. */
static struct str engine_key(struct str key, bool has_kwargs)
{
    return !has_kwargs && str_is(key, "chat_template_args") ? STR("chat_template_kwargs") : key;
}

void relay_request_put(struct buf *out, struct str body, struct str engine_model,
                       enum relay_usage usage)
{
    bool has_kwargs = json_pull_member(body, "chat_template_kwargs").len > 0;
    struct str key, value, options = STR_NULL;
    struct json_put j = json_put_on(out);
    struct json_pull p;

    json_put_object(&j);
    if (engine_model.len)
        json_put_member_str(&j, "model", engine_model);
    json_pull_init(&p, body);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key) && json_pull_skip(&p, &value)) {
            if (str_is(key, "stream_options") && usage != RELAY_AS_IS)
                options = value;
            else if (!(engine_model.len && str_is(key, "model")) && !str_is(key, "nvext"))
                json_put_member_raw(&j, engine_key(key, has_kwargs), value);
        }
    if (usage == RELAY_STREAM)
        put_stream_options(&j, options);
    json_put_object_end(&j);
}

/* However it is spelled: readers decode keys. */
static bool key_is(struct str raw, const char *name)
{
    AUTO(buf_done) struct buf key = BUF_NULL;

    return str_is(raw, name) || (json_unescape(raw, &key) && str_is(buf_str(&key), name));
}

static void put_salt(struct json_put *j, struct str key, struct str nvext)
{
    AUTO(buf_done) struct buf kept = BUF_NULL;
    struct json_put inner = json_put_on(&kept);
    struct str name, value;
    struct json_pull p;

    json_put_object(&inner);
    json_pull_init(&p, nvext);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &name) && json_pull_skip(&p, &value))
            if (key_is(name, "cache_salt"))
                json_put_member_raw(&inner, name, value);
    json_put_object_end(&inner);
    json_put_member_raw(j, key, nvext.ptr[0] == '{' ? buf_str(&kept) : nvext);
}

bool relay_put_unsteered(struct buf *out, struct str body)
{
    struct json_put j = json_put_on(out);
    size_t begin = out->len;
    struct str key, value;
    struct json_pull p;
    struct err e;

    json_put_object(&j);
    json_pull_init(&p, body);
    if (json_pull_peek(&p) == JSON_KIND_OBJECT && json_pull_object(&p))
        while (json_pull_key(&p, &key) && json_pull_skip(&p, &value)) {
            if (key_is(key, "nvext"))
                put_salt(&j, key, value);
            else
                json_put_member_raw(&j, key, value);
        }
    json_put_object_end(&j);
    if (json_pull_end(&p, &e) == 0)
        return true;
    buf_truncate(out, begin);
    return false;
}

void relay_text_put(struct buf *out, struct str body, struct str prompt_json)
{
    struct json_put j = json_put_on(out);
    struct str key, value;
    struct json_pull p;

    json_put_object(&j);
    json_pull_init(&p, body);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key) && json_pull_skip(&p, &value)) {
            if (prompt_json.len && str_is(key, "prompt"))
                json_put_member_raw(&j, key, prompt_json);
            else if (!str_is(value, "null"))
                json_put_member_raw(&j, key, value);
        }
    json_put_object_end(&j);
}

/* --- answers: what is read -------------------------------------------------------------------- */

static bool is_something(struct str value)
{
    return value.len && !str_is(value, "null") && !str_is(value, "\"\"") && !str_is(value, "[]");
}

/* A delta, a message, or the text of a completion. */
static void read_choice(struct json_pull *p, struct relay_answer *ret)
{
    static const char *const texts[] = {"content",    "reasoning_content", "reasoning",
                                        "tool_calls", "function_call",     "refusal"};
    struct str key, value;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key) && json_pull_skip(p, &value)) {
        if (str_is(key, "finish_reason"))
            ret->has_finish |= is_something(value);
        else if (str_is(key, "text"))
            ret->has_text |= is_something(value);
        else if (str_is(key, "delta") || str_is(key, "message"))
            for (size_t i = 0; i < ARRAY_LEN(texts); i++)
                ret->has_text |= is_something(json_pull_member(value, texts[i]));
    }
}

static void read_choices(struct json_pull *p, struct relay_answer *ret)
{
    if (!json_pull_array(p))
        return;
    while (json_pull_element(p)) {
        ret->has_choices = true;
        read_choice(p, ret);
    }
}

void relay_count_read(struct str object, const char *key, struct opt_u64 *ret)
{
    uint64_t n;

    if (str_parse_u64(json_pull_member(object, key), &n))
        *ret = OPT_U64(n);
}

static void read_usage(struct str usage, struct relay_answer *ret)
{
    relay_count_read(usage, "prompt_tokens", &ret->prompt_tokens);
    relay_count_read(usage, "completion_tokens", &ret->completion_tokens);
    relay_count_read(json_pull_member(usage, "prompt_tokens_details"), "cached_tokens",
                     &ret->cached_tokens);
}

static struct str read_text(struct str json, struct buf *scratch)
{
    struct json_pull p;
    struct str text = STR_NULL;

    json_pull_init(&p, json);
    buf_clear(scratch);
    return json.len && json.ptr[0] == '"' && json_pull_string(&p, scratch, &text) ? text : STR_NULL;
}

/* A text without escapes, which stays where it is. */
static struct str plain_text(struct str json)
{
    return json.len > 2 && json.ptr[0] == '"' && !memchr(json.ptr, '\\', json.len)
               ? str_slice(json.ptr + 1, json.len - 2)
               : STR_NULL;
}

/* {"error":{"message":s,"param":s,"code":n}}, or flat {"object":"error","message":s,"code":n}, as
 * engines do; in events of other APIs "type" says so. */
static void read_error(struct str error, struct buf *scratch, struct relay_answer *ret)
{
    uint64_t code;

    ret->is_error = true;
    ret->error = read_text(error, scratch);
    if (!ret->error.ptr)
        ret->error = read_text(json_pull_member(error, "message"), scratch);
    ret->param = plain_text(json_pull_member(error, "param"));
    if (str_parse_u64(json_pull_member(error, "code"), &code) && code >= 400 && code < 600)
        ret->status = (int)code;
}

int relay_answer_read(struct str json, struct buf *scratch, struct relay_answer *ret, struct err *e)
{
    struct json_pull p;
    struct str key, value, error = STR_NULL;

    *ret = (struct relay_answer){.status = 0};
    json_pull_init(&p, json);
    if (json_pull_peek(&p) != JSON_KIND_OBJECT)
        return err_set(e, -EINVAL, "an answer that is no JSON object");
    (void)!json_pull_object(&p);
    while (json_pull_key(&p, &key)) {
        if (str_is(key, "choices")) {
            read_choices(&p, ret);
            continue;
        }
        if (!json_pull_skip(&p, &value))
            break;
        if (str_is(key, "usage"))
            read_usage(value, ret);
        else if (str_is(key, "error") && is_something(value))
            error = value;
        else if ((str_is(key, "object") || str_is(key, "type")) && str_is(value, "\"error\"") &&
                 !error.len)
            error = json;
    }
    if (json_pull_end(&p, e) < 0)
        return -EINVAL;
    if (error.len)
        read_error(error, scratch, ret);
    return 0;
}

/* --- answers: what is changed ----------------------------------------------------------------- */

void relay_answer_put(struct buf *out, struct str json, const struct relay_change *c)
{
    struct json_put j = json_put_on(out);
    struct str key, value;
    struct json_pull p;

    if (!c->model.len && !c->hide_usage && !c->fingerprint_json.len) {
        buf_put_str(out, json);
        return;
    }
    json_pull_init(&p, json);
    json_put_object(&j);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key) && json_pull_skip(&p, &value)) {
            if (c->model.len && str_is(key, "model")) {
                json_put_key(&j, "model");
                json_put_str(&j, c->model);
            } else if (c->fingerprint_json.len && str_is(key, "system_fingerprint")) {
                continue;
            } else if (!c->hide_usage || !str_is(key, "usage") || str_is(value, "null")) {
                json_put_member_raw(&j, key, value);
            }
        }
    if (c->fingerprint_json.len)
        json_put_member_raw(&j, STR("system_fingerprint"), c->fingerprint_json);
    json_put_object_end(&j);
}
