/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/chat_stream.h"

#include "lib/base/json_pull.h"
#include "lib/net/sse.h"

struct chat_stream {
    struct sse_reader *sse;
    bool keep_text, done, finished;
    enum chat_fault fault;
    struct buf text, scratch;
    struct chat_usage usage;
    uint64_t worker;
};

struct chat_stream *chat_stream_new(bool keep_text)
{
    struct chat_stream *s = xcalloc(1, sizeof(*s));

    s->sse = sse_reader_new(CHAT_LINE_MAX);
    s->keep_text = keep_text;
    return s;
}

struct chat_stream *chat_stream_free(struct chat_stream *s)
{
    if (!s)
        return NULL;
    sse_reader_free(s->sse);
    buf_done(&s->text);
    buf_done(&s->scratch);
    free(s);
    return NULL;
}

/* True when there is any. */
static bool pull_text(struct chat_stream *s, struct json_pull *p)
{
    struct str text;

    if (json_pull_null(p))
        return false;
    buf_clear(&s->scratch);
    if (!json_pull_string(p, &s->scratch, &text) || text.len == 0)
        return false;
    if (s->text.len + text.len > CHAT_TEXT_MAX)
        s->fault = CHAT_MALFORMED;
    else if (s->keep_text)
        buf_put_str(&s->text, text);
    return true;
}

static bool pull_choice(struct chat_stream *s, struct json_pull *p)
{
    bool has_text = false;
    struct str key;

    if (!json_pull_object(p))
        return false;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "delta"))
            has_text |= pull_choice(s, p);
        else if (str_is(key, "content") || str_is(key, "text") || str_is(key, "reasoning_content"))
            has_text |= pull_text(s, p);
        else if (str_is(key, "finish_reason"))
            s->finished |= !json_pull_null(p) && json_pull_skip(p, NULL);
        else
            (void)json_pull_skip(p, NULL);
    }
    return has_text;
}

static void pull_u64_or_null(struct json_pull *p, uint64_t *ret)
{
    if (!json_pull_null(p))
        (void)json_pull_u64(p, ret);
}

static void pull_usage(struct chat_stream *s, struct json_pull *p)
{
    struct str key;

    if (json_pull_null(p) || !json_pull_object(p))
        return;
    s->usage.known = true;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "prompt_tokens"))
            pull_u64_or_null(p, &s->usage.prompt_tokens);
        else if (str_is(key, "completion_tokens"))
            pull_u64_or_null(p, &s->usage.completion_tokens);
        else if (str_is(key, "cached_tokens"))
            pull_u64_or_null(p, &s->usage.cached_tokens);
        else if (str_is(key, "prompt_tokens_details"))
            pull_usage(s, p);
        else
            (void)json_pull_skip(p, NULL);
    }
}

/* {"worker_id":{"decode_worker_id":N}}, or the id itself. */
static void pull_nvext(struct chat_stream *s, struct json_pull *p)
{
    struct str key;

    if (json_pull_null(p) || !json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "worker_id") && json_pull_peek(p) == JSON_KIND_OBJECT)
            pull_nvext(s, p);
        else if (str_is(key, "decode_worker_id") || str_is(key, "worker_id"))
            pull_u64_or_null(p, &s->worker);
        else
            (void)json_pull_skip(p, NULL);
    }
}

static bool pull_chunk(struct chat_stream *s, struct str json)
{
    bool has_text = false, has_choices = false;
    struct json_pull p;
    struct str key;

    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "choices") && json_pull_array(&p)) {
                has_choices = true;
                while (json_pull_element(&p))
                    has_text |= pull_choice(s, &p);
            } else if (str_is(key, "usage")) {
                pull_usage(s, &p);
            } else if (str_is(key, "nvext")) {
                pull_nvext(s, &p);
            } else if (str_is(key, "error") && json_pull_peek(&p) != JSON_KIND_NULL) {
                s->fault = CHAT_ERROR_EVENT;
                (void)json_pull_skip(&p, NULL);
            } else {
                (void)json_pull_skip(&p, NULL);
            }
        }
    }
    if (s->fault == CHAT_FINE && (json_pull_end(&p, NULL) < 0 || !has_choices))
        s->fault = CHAT_MALFORMED;
    return has_text;
}

size_t chat_stream_feed(struct chat_stream *s, struct str bytes)
{
    struct sse_event ev;
    size_t n = 0;

    if (s->fault != CHAT_FINE)
        return 0;
    sse_reader_feed(s->sse, bytes);
    while (s->fault == CHAT_FINE && sse_reader_next(s->sse, &ev)) {
        if (str_is(ev.event, "error"))
            s->fault = CHAT_ERROR_EVENT;
        else if (str_is(ev.data, "[DONE]"))
            s->done = true;
        else if (ev.data.len > 0)
            n += pull_chunk(s, ev.data);
    }
    if (sse_reader_failed(s->sse) && s->fault == CHAT_FINE)
        s->fault = CHAT_MALFORMED;
    return n;
}

bool chat_stream_done(const struct chat_stream *s)
{
    return s->done;
}

bool chat_stream_finished(const struct chat_stream *s)
{
    return s->finished;
}

enum chat_fault chat_stream_fault(const struct chat_stream *s)
{
    return s->fault;
}

struct str chat_stream_text(const struct chat_stream *s)
{
    return buf_str(&s->text);
}

struct chat_usage chat_stream_usage(const struct chat_stream *s)
{
    return s->usage;
}

uint64_t chat_stream_worker(const struct chat_stream *s)
{
    return s->worker;
}
