/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as what a model said, in any way of writing: pieces of one byte and all at once give the
 * same parts, and without a call nothing is lost.
 */
#include "router/openai/reply.h"

#include <assert.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct told {
    struct buf content, thoughts, calls;
};

static void tell(void *arg, const struct reply_part *part)
{
    struct told *t = arg;

    if (part->kind == REPLY_CALL)
        buf_put_str(&t->calls, part->name);
    buf_put_str(part->kind == REPLY_CONTENT   ? &t->content
                : part->kind == REPLY_THOUGHT ? &t->thoughts
                                              : &t->calls,
                part->text);
}

static void read_reply(const struct reply_thoughts *thoughts, const struct reply_calls *calls,
                       struct str text, size_t piece, struct told *ret)
{
    AUTO(reply_free) struct reply *r = reply_new(thoughts, calls, STR("f"), tell, ret);

    (void)reply_expect_thoughts(r, REPLY_ASKED_EFFORT);
    if (text.len % 2)
        reply_open_thoughts(r);
    for (; text.len; text = str_skip(text, piece))
        reply_push(r, str_head(text, piece));
    reply_end(r);
}

static void done(struct told *t)
{
    buf_done(&t->content);
    buf_done(&t->thoughts);
    buf_done(&t->calls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const calls[] = {
        "hermes",      "llama3_json",   "mistral",    "pythonic",      "qwen3_coder",
        "deepseek_v3", "deepseek_v3_1", "minimax_m2", "deepseek_v3_2", "glm47",
        "kimi_k2",     "harmony",       NULL,         "gemma4",        "minimax_m3",
        "kimi_k3",     "inkling",       "muse",       "deepseek_v41"};
    static const char *const thoughts[] = {NULL,         "basic",   "deepseek_r1", "granite",
                                           "minimax_m2", "gpt_oss", "minimax_m3",  "kimi_k3",
                                           "inkling",    "muse",    "gemma4"};
    static const char *const framed[] = {"harmony", "muse", "kimi_k3", "inkling"};
    struct told whole = {.content = BUF_NULL}, pieces = {.content = BUF_NULL};
    const struct reply_thoughts *t;
    const struct reply_calls *c;
    bool is_framed = false;

    if (size == 0)
        return 0;
    t = reply_find_thoughts(thoughts[data[0] % ARRAY_LEN(thoughts)]);
    c = reply_find_calls(calls[data[0] / ARRAY_LEN(thoughts) % ARRAY_LEN(calls)]);
    read_reply(t, c, str_slice(data + 1, size - 1), size, &whole);
    read_reply(t, c, str_slice(data + 1, size - 1), 1, &pieces);
    assert(str_eq(buf_str(&whole.content), buf_str(&pieces.content)));
    assert(str_eq(buf_str(&whole.thoughts), buf_str(&pieces.thoughts)));
    assert(str_eq(buf_str(&whole.calls), buf_str(&pieces.calls)));
    /* Headers of messages and the marks around them are told to nobody. */
    for (size_t i = 0; i < ARRAY_LEN(framed); i++)
        is_framed |= c && c == reply_find_calls(framed[i]);
    assert(t || is_framed || whole.calls.len || whole.content.len == size - 1);
    done(&whole);
    done(&pieces);
    return 0;
}
