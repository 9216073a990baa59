/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured HTTP of the reference's frontends: each request reads, or is refused where theirs refused it, and damaged
 * ones do no harm; each answer, chunk by chunk, comes out of our writer byte for byte.
 */
#include "lib/base/json_pull.h"
#include "lib/base/json_tree.h"
#include "lib/base/test.h"
#include "lib/net/sse.h"
#include "router/openai/chunk.h"
#include "router/openai/relay.h"
#include "router/wire/walk.h"

struct tally {
    size_t requests, refused, cut, flipped, chunks, bodies, others;
};

static enum api api_of(const char *path)
{
    return strstr(path, "completions") ? API_COMPLETIONS : API_CHAT;
}

/* --- requests --------------------------------------------------------------------------------- */

static bool reads(const char *path, struct str body)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;
    bool ok = openai_request_parse(api_of(path), body, a, &r, &e);

    assert_true(!ok || (r.model.len && (r.messages || r.n_prompts)));
    openai_request_done(&r);
    return ok;
}

/* Of no more than it is, so that a sanitizer sees a step beyond its end. */
static bool reads_copy(const char *path, struct str body)
{
    AUTO(mem_free) char *copy = xmalloc(body.len + 1);

    memcpy(copy, body.ptr, body.len);
    return reads(path, str_slice(copy, body.len));
}

static void damage(struct tally *t, const char *path, struct str body)
{
    AUTO(buf_done) struct buf damaged = BUF_NULL;
    size_t step = 1 + body.len / TEST_STEPS(256);

    for (size_t n = 0; n < body.len; n += step, t->cut++)
        assert_false(reads_copy(path, str_head(body, n)));
    buf_put_str(&damaged, body);
    for (size_t n = 0; n < body.len; n += step, t->flipped++) {
        char *byte = buf_data(&damaged) + n;

        *byte ^= (char)(1u << n % 8);
        (void)reads_copy(path, buf_str(&damaged));
        *byte ^= (char)(1u << n % 8);
    }
}

static void check_request(struct tally *t, const char *path, struct str body)
{
    body = str_trim(body);
    if (strstr(path, "/08-bad-json")) {
        assert_false(reads(path, body));
        t->refused++;
        return;
    }
    if (!reads(path, body))
        fail_msg("%s is refused", path);
    t->requests++;
    damage(t, path, body);
}

/* --- answers ---------------------------------------------------------------------------------- */

/* We write as 0.9.0 and as 1.6.1 do: this one has members of both. */
static bool is_between(const char *path)
{
    return strstr(path, "/version-1.4.2-");
}

static bool number_of(const struct json *v, uint64_t *ret)
{
    int64_t small;

    if (json_u64(v, ret))
        return true;
    if (!json_i64(v, &small) || small < 0)
        return false;
    *ret = (uint64_t)small;
    return true;
}

static void tell_workers(struct chunk *c, const struct json *nvext)
{
    const struct json *who = json_get(nvext, "worker_id");
    struct chunk_workers w = {0};
    uint64_t rank;

    if (!who)
        return;
    assert_true(number_of(json_get(who, "prefill_worker_id"), &w.prefill_id));
    assert_true(number_of(json_get(who, "decode_worker_id"), &w.decode_id));
    w.has_ranks = number_of(json_get(who, "prefill_dp_rank"), &rank);
    buf_clear(&c->worker);
    chunk_tell_workers(c, &w);
}

static struct str text_of(const struct json *string)
{
    return json_is_string(string) ? str_from(json_cstr(string)) : STR_NULL;
}

static const char *finish_of(const struct json *choice)
{
    return json_is_null(json_get(choice, "finish_reason")) ? NULL
                                                           : json_get_cstr(choice, "finish_reason");
}

static bool usage_of(const struct json *body, struct str json, struct usage *ret)
{
    const struct json *u = json_get(body, "usage");

    *ret = (struct usage){0};
    if (!json_is_object(u))
        return false;
    assert_true(number_of(json_get(u, "prompt_tokens"), &ret->prompt_tokens));
    assert_true(number_of(json_get(u, "completion_tokens"), &ret->completion_tokens));
    ret->prompt_details_json =
        json_pull_member(json_pull_member(json, "usage"), "prompt_tokens_details");
    return true;
}

static void begin(struct chunk *c, const char *path, const struct json *body)
{
    const char *id = json_get_cstr(body, "id");
    uint64_t created = 0;

    assert_non_null(id);
    assert_true(number_of(json_get(body, "created"), &created));
    chunk_init(c, api_of(path), strstr(path, "/0.9.0/") ? &CHUNKS_OF_0_9 : &CHUNKS_OF_1,
               str_from(strchr(id, '-') + 1), str_from(json_get_cstr(body, "model")), created);
}

/* One chunk as our writer has it, for what the captured one says. */
static void rewrite(struct chunk *c, struct buf *out, struct str json, const struct json *body)
{
    const struct json *choice = json_first(json_get(body, "choices"));
    const struct json *delta = json_get(choice, "delta");
    struct chunk_delta d = {
        .text = text_of(delta ? json_get(delta, "content") : json_get(choice, "text"))};
    struct chunk_end end = {.finish = choice ? finish_of(choice) : NULL,
                            .timing_json =
                                json_pull_member(json_pull_member(json, "nvext"), "timing")};
    struct usage usage;

    tell_workers(c, json_get(body, "nvext"));
    if (!choice) {
        assert_true(usage_of(body, json, &usage));
        chunk_put_usage(c, out, &usage);
    } else if (end.finish) {
        chunk_put_end(c, out, &d, &end, NULL);
    } else {
        chunk_put_delta(c, out, &d, NULL);
    }
}

static void check_chunk(struct tally *t, const char *path, struct chunk *c, struct str json)
{
    AUTO(json_free) struct json *body = NULL;
    AUTO(buf_done) struct buf want = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    EXPECT_OK(json_parse_wide(&body, json, &e), &e);
    if (!c->style)
        begin(c, path, body);
    sse_put_data(&want, json);
    rewrite(c, &out, json, body);
    if (!is_between(path) && !str_eq(buf_str(&want), buf_str(&out)))
        fail_msg("%s\nwant %s\ngot  %s", path, buf_cstr(&want), buf_cstr(&out));
    t->chunks++;
}

static void check_stream(struct tally *t, const char *path, struct str body)
{
    AUTO(sse_reader_free) struct sse_reader *r = sse_reader_new(1 << 20);
    AUTO(chunk_done) struct chunk c = {0};
    struct sse_event event;
    bool done = false;

    sse_reader_feed(r, body);
    while (sse_reader_next(r, &event)) {
        assert_false(done);
        if (!event.data.len)
            assert_true(event.event.len && event.comment.len); /* an annotation */
        else if (str_is(event.data, "[DONE]"))
            done = true;
        else if (!str_ends(event.data, STR("}")))
            assert_non_null(strstr(path, "client-gone")); /* the capture ends in it */
        else
            check_chunk(t, path, &c, event.data);
    }
    assert_false(sse_reader_failed(r));
    assert_true(done == !strstr(path, "client-gone"));
}

static void check_body(struct tally *t, const char *path, struct str json)
{
    AUTO(json_free) struct json *body = NULL;
    AUTO(chunk_done) struct chunk c = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    const struct json *choice, *message;
    struct usage usage;
    struct err e;

    EXPECT_OK(json_parse_wide(&body, json, &e), &e);
    choice = json_first(json_get(body, "choices"));
    message = json_get(choice, "message");
    assert_true(usage_of(body, json, &usage));
    begin(&c, path, body);
    chunk_put_folded(&c, &out, &(struct chunk_delta){.text = text_of(json_get(message, "content"))},
                     &(struct chunk_end){.finish = finish_of(choice)}, &usage);
    if (!is_between(path) && !str_eq(json, buf_str(&out)))
        fail_msg("%s\nwant %.*s\ngot  %s", path, STR_ARG(json), buf_cstr(&out));
    t->bodies++;
}

/* Errors, and what is asked of routes without models: e2e/test_frontend.py has their words. */
static void check_json(struct tally *t, struct str body)
{
    AUTO(json_free) struct json *v = NULL;
    struct str line;
    struct err e;

    (void)str_cut(&body, '\n', &line); /* below it, the status in the captures of Kubernetes */
    EXPECT_OK(json_parse_wide(&v, line, &e), &e);
    t->others++;
}

/* @head is empty for a client that left before it wrote that down. */
static void check_response(struct tally *t, const char *path, struct str head, struct str body)
{
    if (!head.len || str_has(head, STR("text/event-stream"))) {
        check_stream(t, path, body);
    } else if (str_starts(head, STR("HTTP/1.1 200 ")) && str_has(str_from(path), STR("chat-"))) {
        check_body(t, path, str_trim(body));
    } else if (str_has(head, STR("application/json")) || str_starts(body, STR("{"))) {
        check_json(t, body);
    } else { /* how malformed JSON is refused, and metrics */
        assert_true(strstr(path, "/08-bad-json") || strstr(path, "-GET-metrics"));
    }
}

static void check_file(void *arg, const char *path, struct str content)
{
    struct tally *t = arg;
    struct str p = str_from(path), head = STR_NULL;

    if (str_has(p, STR("/kubernetes-live/")) && !str_ends(p, STR("metrics.txt")) &&
        (str_ends(p, STR(".txt")) || str_ends(p, STR("/health.json")) ||
         str_ends(p, STR("/models.json"))))
        check_json(t, content);
    if (!str_has(p, STR("/http/")))
        return;
    if (str_ends(p, STR(".request.json"))) {
        check_request(t, path, content);
        return;
    }
    if (str_starts(content, STR("HTTP/1.1 "))) {
        const char *end = memmem(content.ptr, content.len, "\n\n", 2);

        assert_non_null(end);
        head = str_head(content, (size_t)(end - content.ptr));
        content = str_skip(content, head.len + 2);
    }
    check_response(t, path, head, content);
}

static void captured_http(void **state)
{
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", test_shared());
    struct tally t = {0};

    (void)state;
    walk(dir, check_file, &t);
    print_message(
        "%zu requests, %zu refused, %zu cut, %zu flipped, %zu chunks, %zu bodies, %zu others\n",
        t.requests, t.refused, t.cut, t.flipped, t.chunks, t.bodies, t.others);
    assert_true(t.requests > 60 && t.refused > 8 && t.chunks > 200 && t.bodies > 8);
}

int main(void)
{
    return TEST_RUN(T(captured_http));
}
