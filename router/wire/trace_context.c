/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/trace_context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/json_pull.h"

enum { VERSION_NONE = 0xff, FLAG_SAMPLED = 1, FLAGS_KNOWN = 2 };

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* @n lower-case hex digits and a '-' or the end. */
static bool take_hex(struct str *rest, size_t n, struct str *ret)
{
    struct str part;

    (void)str_cut(rest, '-', &part);
    if (part.len != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (hex_digit(part.ptr[i]) < 0)
            return false;
    *ret = part;
    return true;
}

static bool is_zero(struct str hex)
{
    for (size_t i = 0; i < hex.len; i++)
        if (hex.ptr[i] != '0')
            return false;
    return true;
}

static unsigned hex_byte(struct str hex)
{
    return (unsigned)(hex_digit(hex.ptr[0]) << 4 | hex_digit(hex.ptr[1]));
}

/* "00-<trace id>-<span id>-<flags>"; versions to come may have more behind. */
static bool parent_parse(struct trace_context *t, struct str text, unsigned *ret_flags)
{
    struct str rest = text, version, trace, span, flags;
    bool newer;

    if (!take_hex(&rest, 2, &version) || !take_hex(&rest, TRACE_ID_SIZE - 1, &trace) ||
        !take_hex(&rest, SPAN_ID_SIZE - 1, &span) || !take_hex(&rest, 2, &flags))
        return false;
    newer = hex_byte(version) != 0;
    if (hex_byte(version) == VERSION_NONE || is_zero(trace) || is_zero(span))
        return false;
    /* The first version ends here, and knows no higher flags. */
    if (!newer && (text.len != TRACE_PARENT_SIZE - 1 || hex_byte(flags) > FLAGS_KNOWN))
        return false;
    memcpy(t->trace_id, trace.ptr, trace.len);
    memcpy(t->parent_id, span.ptr, span.len);
    *ret_flags = hex_byte(flags) & FLAG_SAMPLED;
    return true;
}

/* What can be a header again, and an entry of JSON. */
static struct str value_of(struct str text)
{
    if (text.len > TRACE_VALUE_MAX)
        return STR_NULL;
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < ' ' || text.ptr[i] > '~')
            return STR_NULL;
    return text;
}

static void put_id(char *out, size_t size, uint64_t high, uint64_t low)
{
    if (size == TRACE_ID_SIZE)
        (void)snprintf(out, size, "%016" PRIx64 "%016" PRIx64, high, low);
    else
        (void)snprintf(out, size, "%016" PRIx64, low);
}

static void put_parent(struct trace_context *t, const char *span, unsigned flags)
{
    (void)snprintf(t->parent, sizeof(t->parent), "00-%s-%s-%02x", t->trace_id, span, flags);
}

/* The lower half of an id, as the SDKs have it; W3C wants it to be random. */
static bool is_within(const struct trace_context *t, double ratio)
{
    uint64_t low = 0;

    (void)!str_parse_hex64(str_skip(str_from(t->trace_id), 16), &low);
    return low >> 1 < (uint64_t)(ratio * 0x1p63);
}

static struct str *member(struct trace_headers *h, struct str key)
{
    if (str_is(key, "traceparent"))
        return &h->parent;
    if (str_is(key, "tracestate"))
        return &h->state;
    if (str_is(key, "x-request-id"))
        return &h->client_id;
    return str_is(key, "x-dynamo-request-id") ? &h->dynamo_id : NULL;
}

void trace_headers_parse(struct trace_headers *ret, struct str json, struct buf *scratch)
{
    struct trace_headers h = {.parent = STR_NULL};
    struct json_pull p;
    struct str key, *into;

    *ret = h;
    buf_clear(scratch);
    (void)buf_reserve(scratch, json.len); /* what is decoded must not move */
    json_pull_init(&p, json);
    if (!json_pull_object(&p))
        return;
    while (json_pull_key(&p, &key)) {
        into = member(&h, key);
        if (!into)
            (void)json_pull_skip(&p, NULL);
        else
            (void)json_pull_string(&p, scratch, into);
    }
    if (json_pull_end(&p, NULL) == 0)
        *ret = h;
}

void trace_context_init(struct trace_context *t, const struct trace_headers *in,
                        const struct trace_sampler *sampler)
{
    unsigned flags = 0;
    bool known;

    *t = (struct trace_context){.client_id = value_of(in->client_id)};
    known = parent_parse(t, in->parent, &flags);
    if (uuid_is_valid(in->dynamo_id))
        t->dynamo_id = in->dynamo_id;
    if (known) /* it means nothing alone */
        t->state = value_of(in->state);
    if (!sampler) {
        if (known)
            put_parent(t, t->parent_id, flags);
        return;
    }
    if (!known)
        put_id(t->trace_id, sizeof(t->trace_id), random_u64(), random_u64() | 1);
    if (!known || !sampler->by_parent)
        flags = is_within(t, sampler->ratio) ? FLAG_SAMPLED : 0;
    t->sampled = flags & FLAG_SAMPLED;
    put_id(t->span_id, sizeof(t->span_id), 0, random_u64() | 1);
    put_parent(t, t->span_id, flags);
}

struct trace_context trace_context_child(const struct trace_context *t)
{
    struct trace_context child = *t;

    memcpy(child.parent_id, t->span_id, sizeof(child.parent_id));
    put_id(child.span_id, sizeof(child.span_id), 0, random_u64() | 1);
    put_parent(&child, child.span_id, t->sampled ? FLAG_SAMPLED : 0);
    return child;
}

static bool parse_ratio(const char *text, double *ret)
{
    double v;

    if (!str_parse_f64(str_from(text), &v) || v < 0 || v > 1)
        return false;
    *ret = v;
    return true;
}

bool trace_sampler_parse(struct trace_sampler *ret, const char *name, const char *argument,
                         const char *ratio)
{
    struct str word = str_from(name);
    struct trace_sampler s = TRACE_SAMPLER_DEFAULT;
    bool ok = true;

    *ret = s;
    if (ratio) {
        ok = parse_ratio(ratio, &ret->ratio);
    } else if (name) {
        s.by_parent = str_starts(word, STR("parentbased_"));
        if (s.by_parent)
            word = str_skip(word, strlen("parentbased_"));
        if (str_is(word, "always_off"))
            s.ratio = 0;
        else if (str_is(word, "traceidratio"))
            ok = !argument || parse_ratio(argument, &s.ratio);
        else
            ok = str_is(word, "always_on");
        if (ok)
            *ret = s;
    }
    return ok;
}

static void put(struct plane_header *ret, size_t *n, const char *name, struct str value)
{
    if (value.len)
        ret[(*n)++] = (struct plane_header){name, value};
}

size_t trace_context_headers(const struct trace_context *t,
                             struct plane_header ret[TRACE_HEADERS_MAX])
{
    size_t n = 0;

    put(ret, &n, "traceparent", str_from(t->parent));
    put(ret, &n, "tracestate", t->state);
    put(ret, &n, "x-request-id", t->client_id);
    put(ret, &n, "x-dynamo-request-id", t->dynamo_id);
    return n;
}
