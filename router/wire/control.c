/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/control.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "router/wire/fields.h"

/*
 * A decoded string is never longer than its JSON, so room for the whole text up front means that
 * @scratch does not move under the views that a parse hands out.
 */
static void reserve(struct buf *scratch, struct str json)
{
    (void)buf_reserve(scratch, json.len);
}

/* --- control message -------------------------------------------------------------------------- */

struct control_info {
    struct str address, subject, context, stream_type;
};

static int info_parse(struct str json, struct buf *scratch, struct control_info *ret, struct err *e)
{
    struct json_pull p;
    struct str key;
    int r;

    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            struct str *to = str_is(key, "address")       ? &ret->address
                             : str_is(key, "subject")     ? &ret->subject
                             : str_is(key, "context")     ? &ret->context
                             : str_is(key, "stream_type") ? &ret->stream_type
                                                          : NULL;

            if (!to)
                skip_pull(&p);
            else if (!json_pull_string(&p, scratch, to))
                break;
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return err_wrap(e, r, "connection info");
    if (!ret->address.len || !ret->subject.len)
        return err_set(e, -EINVAL, "connection info lacks address or subject");
    return 0;
}

/* The object connection_info: its `info` is a string that holds JSON. */
static void connection_pull(struct json_pull *p, struct buf *scratch, struct str *ret_transport,
                            struct str *ret_info)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        bool ok;

        if (str_is(key, "transport"))
            ok = json_pull_string(p, scratch, ret_transport);
        else if (str_is(key, "info"))
            ok = json_pull_string(p, scratch, ret_info);
        else
            ok = json_pull_skip(p, NULL);
        if (!ok)
            return;
    }
}

static int control_check(const struct control *c, struct str transport,
                         const struct control_info *info, struct err *e)
{
    if (!str_is(transport, "tcp_server"))
        return err_set(e, -EINVAL, "transport '%.*s' is not tcp_server",
                       STR_ARG(str_head(transport, 64)));
    if (!str_is(info->stream_type, "response"))
        return err_set(e, -EINVAL, "stream type '%.*s' is not response",
                       STR_ARG(str_head(info->stream_type, 64)));
    if (!str_eq(info->context, c->id))
        return err_set(e, -EINVAL, "context is not the request id");
    return 0;
}

int control_parse(struct str json, struct buf *scratch, struct control *ret, struct err *e)
{
    struct str key, transport = STR_NULL, info_json = STR_NULL, request_type = STR_NULL,
                    response_type = STR_NULL;
    struct control_info info = {0};
    struct control c = {0};
    struct json_pull p;
    bool has_id = false;
    int r;

    /* Twice: the inner text is decoded into scratch, and its strings once more. */
    (void)buf_reserve(scratch, 2 * json.len);
    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "id"))
                has_id = json_pull_string(&p, scratch, &c.id);
            else if (str_is(key, "request_type"))
                (void)json_pull_skip(&p, &request_type);
            else if (str_is(key, "response_type"))
                (void)json_pull_skip(&p, &response_type);
            else if (str_is(key, "payload_codec"))
                text_pull(&p, scratch, &c.payload_codec);
            else if (str_is(key, "connection_info"))
                connection_pull(&p, scratch, &transport, &info_json);
            else
                skip_pull(&p);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return err_wrap(e, r, "control message");
    if (!has_id || !request_type.len || !response_type.len || !info_json.len)
        return err_set(e, -EINVAL, "control message lacks id, request_type, response_type or info");

    r = info_parse(info_json, scratch, &info, e);
    if (r == 0)
        r = control_check(&c, transport, &info, e);
    if (r < 0)
        return err_wrap(e, r, "control message");
    c.address = info.address;
    c.subject = info.subject;
    *ret = c;
    return 0;
}

static void escape_twice(struct buf *out, struct str s)
{
    AUTO(buf_done) struct buf once = BUF_NULL;

    json_escape(&once, s);
    json_escape(out, buf_str(&once));
}

void control_put(struct buf *out, const struct control *c)
{
    buf_put_cstr(out, "{\"id\":\"");
    json_escape(out, c->id);
    buf_put_cstr(out, "\",\"request_type\":\"single_in\",\"response_type\":\"many_out\","
                      "\"connection_info\":{\"transport\":\"tcp_server\",\"info\":\""
                      "{\\\"address\\\":\\\"");
    escape_twice(out, c->address);
    buf_put_cstr(out, "\\\",\\\"subject\\\":\\\"");
    escape_twice(out, c->subject);
    buf_put_cstr(out, "\\\",\\\"context\\\":\\\"");
    escape_twice(out, c->id);
    buf_put_cstr(out, "\\\",\\\"stream_type\\\":\\\"response\\\"}\"}}");
}

/* --- handshake, prologue, control words ------------------------------------------------------- */

void handshake_put(struct buf *out, struct str subject)
{
    buf_put_cstr(out, "{\"subject\":\"");
    json_escape(out, subject);
    buf_put_cstr(out, "\",\"stream_type\":\"response\"}");
}

int handshake_parse(struct str json, struct buf *scratch, struct str *ret_subject, struct err *e)
{
    struct str key, subject = STR_NULL, type = STR_NULL;
    struct json_pull p;
    int r;

    reserve(scratch, json);
    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "subject"))
                text_pull(&p, scratch, &subject);
            else if (str_is(key, "stream_type"))
                text_pull(&p, scratch, &type);
            else
                skip_pull(&p);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return err_wrap(e, r, "handshake");
    if (!subject.len || !str_is(type, "response"))
        return err_set(e, -EINVAL, "handshake without subject or for another stream type");
    *ret_subject = subject;
    return 0;
}

void prologue_put(struct buf *out, struct str error)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "error");
    if (error.ptr)
        json_put_str(&j, error);
    else
        json_put_null(&j);
    json_put_object_end(&j);
}

int prologue_parse(struct str json, struct buf *scratch, struct str *ret_error, struct err *e)
{
    bool seen = false, failed = false;
    struct str key, error = STR_NULL;
    struct json_pull p;
    int r;

    reserve(scratch, json);
    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (!str_is(key, "error")) {
                skip_pull(&p);
                continue;
            }
            seen = true;
            if (!json_pull_null(&p))
                failed = json_pull_string(&p, scratch, &error);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return err_wrap(e, r, "prologue");
    if (!seen)
        return err_set(e, -EINVAL, "prologue without 'error'");
    if (!failed)
        return 0;
    *ret_error = error;
    return PROLOGUE_ERROR;
}

static const struct str words[] = {
    [WORD_NONE] = {"", 0},
    [WORD_STOP] = {"\"stop\"", 6},
    [WORD_KILL] = {"\"kill\"", 6},
    [WORD_SENTINEL] = {"\"sentinel\"", 10},
};

enum control_word control_word_of(struct str header)
{
    for (unsigned w = WORD_STOP; w < ARRAY_LEN(words); w++)
        if (str_eq(header, words[w]))
            return (enum control_word)w;
    return WORD_NONE;
}

struct str control_word_text(enum control_word w)
{
    return words[w];
}

/* --- items ------------------------------------------------------------------------------------ */

/* ["a","b"] as "a, b", contiguous in @scratch. */
static bool comments_pull(struct json_pull *p, struct buf *scratch, struct str *ret)
{
    size_t begin = scratch->len;
    struct str raw;
    bool more = false;

    if (!json_pull_array(p))
        return json_pull_ok(p);
    while (json_pull_element(p)) {
        if (!json_pull_raw_string(p, &raw))
            return false;
        if (more)
            buf_put_cstr(scratch, ", ");
        if (!json_unescape(raw, scratch))
            json_pull_fail(p, "half of a surrogate pair");
        more = true;
    }
    *ret = str_skip(buf_str(scratch), begin);
    return json_pull_ok(p);
}

/* "T", or {"Backend":"B"} as "Backend.B". */
static bool error_type_pull(struct json_pull *p, struct buf *scratch, struct str *ret)
{
    size_t begin = scratch->len;
    struct str key, inner;

    if (json_pull_peek(p) == JSON_KIND_STRING)
        return json_pull_string(p, scratch, ret);
    if (!json_pull_object(p))
        return json_pull_ok(p);
    while (json_pull_key(p, &key)) {
        if (json_pull_peek(p) != JSON_KIND_STRING) {
            skip_pull(p);
        } else if (json_pull_raw_string(p, &inner)) {
            buf_put_str(scratch, key);
            buf_put_char(scratch, '.');
            buf_put_str(scratch, inner);
        }
    }
    *ret = str_skip(buf_str(scratch), begin);
    return json_pull_ok(p);
}

static void error_pull(struct json_pull *p, struct buf *scratch, struct wire_item *it)
{
    struct str key;

    if (!json_pull_object(p))
        return; /* null, or an error already recorded */
    it->is_error = true;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "message"))
            text_pull(p, scratch, &it->error);
        else if (str_is(key, "error_type"))
            (void)error_type_pull(p, scratch, &it->error_type);
        else
            skip_pull(p);
    }
}

static void annotated_pull(struct json_pull *p, struct buf *scratch, struct wire_item *it)
{
    struct str key, comments = STR_NULL;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "data")) {
            json_text_pull(p, &it->data);
        } else if (str_is(key, "error")) {
            error_pull(p, scratch, it);
        } else if (str_is(key, "comment")) {
            (void)comments_pull(p, scratch, &comments);
        } else if (str_is(key, "event") || str_is(key, "id")) {
            text_pull(p, scratch, str_is(key, "event") ? &it->event : &it->id);
        } else {
            skip_pull(p);
        }
    }
    if (str_is(it->event, "error"))
        it->is_error = true;
    if (it->is_error && !it->error.len)
        it->error = comments;
}

/* The outer "data": annotated as a rule, of any shape for endpoints without annotations. */
static void outer_pull(struct json_pull *p, struct buf *scratch, struct wire_item *it)
{
    enum json_kind kind = json_pull_peek(p); /* moves to the value's first byte */
    const char *begin = p->at;

    if (kind == JSON_KIND_OBJECT)
        annotated_pull(p, scratch, it);
    else
        skip_pull(p);
    if (json_pull_ok(p) && kind != JSON_KIND_NULL)
        it->raw = str_slice(begin, (size_t)(p->at - begin));
}

int wire_item_parse(struct str body, struct buf *scratch, struct wire_item *ret, struct err *e)
{
    struct wire_item it = {0};
    struct json_pull p;
    bool has_final = false;
    struct str key;
    int r;

    /* Twice: joined comments take more room than their JSON when they are short. */
    (void)buf_reserve(scratch, 2 * body.len);
    json_pull_init(&p, body);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "data"))
                outer_pull(&p, scratch, &it);
            else if (str_is(key, "complete_final"))
                has_final = json_pull_bool(&p, &it.final);
            else
                skip_pull(&p);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return err_wrap(e, r, "item");
    if (!has_final)
        return err_set(e, -EINVAL, "item: missing field `complete_final`");
    if (!it.final && !it.raw.len)
        return err_set(e, -EINVAL, "item: neither data nor final");
    *ret = it;
    return 0;
}

bool wire_item_is_loss(const struct wire_item *item)
{
    static const char *const types[] = {
        "CannotConnect",    "Disconnected",           "ConnectionTimeout",       "ResponseTimeout",
        "WorkerOverloaded", "Backend.EngineShutdown", "Backend.StreamIncomplete"};

    if (!item->is_error)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_is(item->error_type, types[i]))
            return true;
    return str_starts(item->error, STR("Stream ended before generation completed"));
}

void wire_item_put(struct buf *out, struct str data)
{
    buf_put_cstr(out, "{\"data\":{\"data\":");
    buf_put_str(out, data);
    buf_put_cstr(out, "},\"complete_final\":false}");
}

void wire_item_put_raw(struct buf *out, struct str raw)
{
    buf_put_cstr(out, "{\"data\":");
    buf_put_str(out, raw);
    buf_put_cstr(out, ",\"complete_final\":false}");
}

void wire_item_put_error(struct buf *out, struct str text)
{
    buf_put_cstr(out, "{\"data\":{\"event\":\"error\",\"comment\":[\"");
    json_escape(out, text);
    buf_put_cstr(out, "\"]},\"complete_final\":false}");
}

void wire_item_put_final(struct buf *out)
{
    buf_put_cstr(out, "{\"complete_final\":true}");
}
