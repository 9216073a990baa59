/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies of /v1/responses: whatever is accepted is a chat, and an answer to it is JSON that
 * repeats what was asked; what is not says why. */
#include <assert.h>

#include "lib/base/err.h"
#include "router/openai/responses.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void answer(const struct openai_request *in, const struct responses_echo *echo)
{
    AUTO(responses_done) struct responses r;
    AUTO(chunk_done) struct chunk chunk;
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(json_free) struct json *body = NULL;
    struct err why;

    responses_init(&r, echo, in->model, 1);
    chunk_init(&chunk, API_CHAT, &CHUNKS_OF_1, STR("1"), in->model, 1);
    responses_put_body(
        &r, &out, &(struct chunk_delta){.text = STR("x")}, &chunk,
        &(struct dialect_end){.end = &(struct chunk_end){.finish = "stop"}, .completed = 2});
    assert(json_parse(&body, buf_str(&out), &why) >= 0);
    assert(json_len(json_get(body, "output")) == 1);
}

static void ask(struct str body, struct str chat)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(json_free) struct json *asked = NULL;
    struct err why;

    RESPONSES.put_chat(&out, body, chat);
    assert(json_parse_wide(&asked, buf_str(&out), &why) >= 0);
    assert(json_get_cstr(asked, "model"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request in;
    struct responses_echo echo;
    struct api_error e;

    if (responses_request_parse(str_slice(data, size), a, &in, &echo, &e)) {
        assert(in.api == API_CHAT && in.model.len > 0 && json_len(in.messages) > 0);
        assert(openai_request_choices(&in) == 1);
        answer(&in, &echo);
        ask(str_slice(data, size), in.made_chat);
    } else {
        assert(e.status >= 400 && e.status < 600 && e.text[0]);
    }
    openai_request_done(&in);
    return 0;
}
