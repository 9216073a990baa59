/* SPDX-License-Identifier: Apache-2.0 */
/* Other APIs' requests and answers: another name of the model changes nothing else that is read. */
#include <assert.h>

#include "lib/base/err.h"
#include "router/openai/relay_own.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(struct str body)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct arena *arena = arena_new();
    struct openai_request in, again;
    struct api_error e;

    if (relay_own_parse(body, arena, &in, &e)) {
        relay_request_put(&out, body, STR("theirs"), RELAY_AS_IS);
        assert(relay_own_parse(buf_str(&out), arena, &again, &e));
        assert(str_is(again.model, "theirs") && again.stream == in.stream);
    }
    arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL, other = BUF_NULL, out = BUF_NULL;
    struct str json = str_slice(data, size);
    struct relay_answer a, b;
    struct err e;

    ask(json);
    if (relay_own_read(json, &scratch, &a, &e) < 0)
        return 0;
    relay_own_put(&out, json, STR("ours"));
    assert(relay_own_read(buf_str(&out), &other, &b, &e) == 0);
    assert(a.has_text == b.has_text && a.has_finish == b.has_finish && a.is_error == b.is_error);
    assert(a.prompt_tokens.v == b.prompt_tokens.v &&
           a.completion_tokens.v == b.completion_tokens.v);
    assert(a.cached_tokens.v == b.cached_tokens.v && a.status == b.status);
    return 0;
}
