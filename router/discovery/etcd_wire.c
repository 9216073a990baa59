/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/etcd_wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/digest.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"

enum { UNKNOWN = 2, WORDS_MAX = 200 };

/* --- what we say ------------------------------------------------------------------------------ */

static void put_bytes(struct json_put *j, const char *name, struct str bytes)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    base64_encode(&text, bytes);
    json_put_key(j, name);
    json_put_str(j, buf_str(&text));
}

/* As text: the gateway takes both, and a double would lose the end of an id. */
static void put_number(struct json_put *j, const char *name, uint64_t n)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, n);
    json_put_key(j, name);
    json_put_cstr(j, text);
}

static void put_flag(struct json_put *j, const char *name)
{
    json_put_key(j, name);
    json_put_bool(j, true);
}

/* The first key behind all that begin with @prefix, which does not end in 0xFF. */
static void put_prefix_end(struct json_put *j, struct str prefix)
{
    AUTO(mem_free) char *end = str_dup(prefix);

    end[prefix.len - 1]++;
    put_bytes(j, "range_end", str_slice(end, prefix.len));
}

void etcd_put_range(struct buf *out, struct str from, struct str prefix, uint64_t revision,
                    uint64_t limit)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    put_bytes(&j, "key", from);
    put_prefix_end(&j, prefix);
    if (revision)
        put_number(&j, "revision", revision);
    if (limit)
        put_number(&j, "limit", limit);
    else
        put_flag(&j, "count_only");
    json_put_object_end(&j);
}

void etcd_put_watch(struct buf *out, struct str prefix, uint64_t revision)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "create_request");
    json_put_object(&j);
    put_bytes(&j, "key", prefix);
    put_prefix_end(&j, prefix);
    put_number(&j, "start_revision", revision);
    put_flag(&j, "progress_notify");
    put_flag(&j, "fragment");
    json_put_object_end(&j);
    json_put_object_end(&j);
}

void etcd_put_put(struct buf *out, struct str key, struct str value, uint64_t lease)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    put_bytes(&j, "key", key);
    put_bytes(&j, "value", value);
    put_number(&j, "lease", lease);
    json_put_object_end(&j);
}

void etcd_put_delete(struct buf *out, struct str key)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    put_bytes(&j, "key", key);
    json_put_object_end(&j);
}

void etcd_put_grant(struct buf *out, uint64_t lease, uint64_t ttl_s)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    put_number(&j, "ID", lease);
    put_number(&j, "TTL", ttl_s);
    json_put_object_end(&j);
}

void etcd_put_lease(struct buf *out, uint64_t lease)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    put_number(&j, "ID", lease);
    json_put_object_end(&j);
}

void etcd_put_login(struct buf *out, const char *user, const char *password)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_member_cstr(&j, "name", user);
    json_put_member_cstr(&j, "password", password ? password : "");
    json_put_object_end(&j);
}

/* --- what etcd says --------------------------------------------------------------------------- */

static void skip(struct json_pull *p)
{
    (void)json_pull_skip(p, NULL);
}

static void pull_number(struct json_pull *p, uint64_t *ret)
{
    struct str text;

    if (json_pull_peek(p) == JSON_KIND_NUMBER)
        (void)json_pull_u64(p, ret);
    else if (json_pull_raw_string(p, &text) && !str_parse_u64(text, ret))
        json_pull_fail(p, "not a number");
}

static void pull_bytes(struct json_pull *p, struct buf *out)
{
    struct str text;

    buf_clear(out);
    if (!json_pull_raw_string(p, &text))
        return;
    /* A gateway may escape the slash. */
    if (str_index(text, '\\') < text.len) {
        AUTO(buf_done) struct buf plain = BUF_NULL;

        if (!json_unescape(text, &plain) || !base64_decode(out, buf_str(&plain)))
            json_pull_fail(p, "not base64");
    } else if (!base64_decode(out, text)) {
        json_pull_fail(p, "not base64");
    }
}

/* The number @name of an object; *ret stays where there is none. */
static void pull_number_of(struct json_pull *p, const char *name, uint64_t *ret)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, name))
            pull_number(p, ret);
        else
            skip(p);
    }
}

/* Of a whole document; 0 where there is none. */
static int number_parse(struct str json, const char *name, uint64_t *ret, struct err *e)
{
    struct json_pull p;
    uint64_t n = 0;
    int r;

    json_pull_init(&p, json);
    pull_number_of(&p, name, &n);
    r = json_pull_end(&p, e);
    if (r < 0)
        return r;
    *ret = n;
    return 0;
}

/* Where pairs go; the buffers are reused from one to the next. */
struct sink {
    etcd_kv_fn fn;
    void *arg;
    struct buf key, value;
};

static void sink_done(struct sink *s)
{
    buf_done(&s->key);
    buf_done(&s->value);
}
DEFINE_CLEANUP_EMBEDDED(struct sink, sink_done)

/* Reads one KeyValue; the caller tells it. */
static void pull_kv(struct json_pull *p, struct sink *s, struct etcd_kv *kv)
{
    struct str name;

    buf_clear(&s->key);
    buf_clear(&s->value);
    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &name)) {
        if (str_is(name, "key"))
            pull_bytes(p, &s->key);
        else if (str_is(name, "value"))
            pull_bytes(p, &s->value);
        else if (str_is(name, "mod_revision"))
            pull_number(p, &kv->revision);
        else
            skip(p);
    }
    kv->key = buf_str(&s->key);
    kv->value = buf_str(&s->value);
}

static void tell(struct json_pull *p, struct sink *s, const struct etcd_kv *kv)
{
    if (json_pull_ok(p) && kv->key.len)
        s->fn(s->arg, kv);
}

int etcd_range_parse(struct str json, struct etcd_range *ret, etcd_kv_fn fn, void *arg,
                     struct err *e)
{
    AUTO(sink_done) struct sink s = {.fn = fn, .arg = arg};
    struct etcd_range range = {0};
    struct json_pull p;
    struct str key;
    int r;

    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "header")) {
                pull_number_of(&p, "revision", &range.revision);
            } else if (str_is(key, "more")) {
                (void)json_pull_bool(&p, &range.more);
            } else if (str_is(key, "kvs") && json_pull_array(&p)) {
                while (json_pull_element(&p)) {
                    struct etcd_kv kv = {0};

                    pull_kv(&p, &s, &kv);
                    tell(&p, &s, &kv);
                }
            } else if (!str_is(key, "kvs")) {
                skip(&p);
            }
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return r;
    *ret = range;
    return 0;
}

int etcd_count_parse(struct str json, uint64_t *ret, struct err *e)
{
    return number_parse(json, "count", ret, e);
}

static void pull_event(struct json_pull *p, struct sink *s)
{
    struct etcd_kv kv = {0};
    struct str key, type;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "type") && json_pull_raw_string(p, &type))
            kv.is_end = str_is(type, "DELETE");
        else if (str_is(key, "kv"))
            pull_kv(p, s, &kv);
        else
            skip(p);
    }
    tell(p, s, &kv);
}

static void pull_result(struct json_pull *p, struct sink *s, struct etcd_watch_answer *a)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "header"))
            pull_number_of(p, "revision", &a->revision);
        else if (str_is(key, "created"))
            (void)json_pull_bool(p, &a->created);
        else if (str_is(key, "canceled"))
            (void)json_pull_bool(p, &a->cancelled);
        else if (str_is(key, "fragment"))
            (void)json_pull_bool(p, &a->fragment);
        else if (str_is(key, "compact_revision"))
            pull_number(p, &a->compact_revision);
        else if (str_is(key, "cancel_reason"))
            (void)json_pull_raw_string(p, &a->reason);
        else if (!str_is(key, "events"))
            skip(p);
        else if (json_pull_array(p))
            while (json_pull_element(p))
                pull_event(p, s);
    }
}

int etcd_watch_parse(struct str json, struct etcd_watch_answer *ret, etcd_kv_fn fn, void *arg,
                     struct err *e)
{
    AUTO(sink_done) struct sink s = {.fn = fn, .arg = arg};
    struct etcd_watch_answer answer = {0};
    struct str key, error = STR_NULL;
    struct json_pull p;
    int r;

    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "result"))
                pull_result(&p, &s, &answer);
            else
                (void)json_pull_skip(&p, str_is(key, "error") ? &error : NULL);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return r;
    if (error.len)
        return err_set(e, -EINVAL, "watch: %.*s", (int)MIN(error.len, (size_t)WORDS_MAX),
                       error.ptr);
    *ret = answer;
    return 0;
}

int etcd_keepalive_parse(struct str json, uint64_t *ret_ttl_s, struct err *e)
{
    struct str result = json_pull_member(json, "result");

    if (!result.len)
        return err_set(e, -EINVAL, "answer without result");
    return number_parse(result, "TTL", ret_ttl_s, e);
}

int etcd_login_parse(struct str json, struct buf *token, struct err *e)
{
    struct str text = json_pull_member(json, "token");
    size_t before = token->len;

    /* A token goes into a header as it is: no line may end in it. */
    if (text.len < 3 || text.ptr[0] != '"' ||
        !json_unescape(str_slice(text.ptr + 1, text.len - 2), token))
        return err_set(e, -EINVAL, "answer without token");
    for (size_t i = before; i < token->len; i++) {
        if (buf_data(token)[i] > ' ' && buf_data(token)[i] < 0x7F)
            continue;
        buf_truncate(token, before);
        return err_set(e, -EINVAL, "token with a strange character");
    }
    return 0;
}

int etcd_refusal_parse(struct str json, struct err *e)
{
    struct str words = json_pull_member(json, "message");
    struct str code_text = json_pull_member(json, "code");
    uint64_t code = UNKNOWN;

    if (!words.len)
        words = json_pull_member(json, "error"); /* etcd before 3.5 */
    if (!str_parse_u64(code_text, &code) || code == 0 || code > ETCD_UNAUTHENTICATED)
        code = UNKNOWN;
    (void)err_set(e, -EPROTO, "etcd says %.*s", (int)MIN(words.len, (size_t)WORDS_MAX),
                  words.len ? words.ptr : "");
    return (int)code;
}
