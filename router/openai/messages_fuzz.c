/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies of /v1/messages: whatever is accepted is a chat, and an answer to it is JSON; what is
 * not says why. */
#include <assert.h>

#include "lib/base/err.h"
#include "router/openai/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void answer(const struct openai_request *in, uint64_t estimate)
{
    AUTO(chunk_done) struct chunk chunk;
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(json_free) struct json *body = NULL;
    struct messages *m = messages_new(in->model, estimate);
    struct err why;

    chunk_init(&chunk, API_CHAT, &CHUNKS_OF_1, STR("1"), in->model, 1);
    MESSAGES.put_body(m, &out, &(struct chunk_delta){.text = STR("x")}, &chunk,
                      &(struct dialect_end){.end = &(struct chunk_end){.finish = "stop"}});
    assert(json_parse(&body, buf_str(&out), &why) >= 0);
    assert(json_len(json_get(body, "content")) == 1);
    MESSAGES.free(m);
}

static void ask(struct str body, struct str chat)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(json_free) struct json *asked = NULL;
    struct err why;

    MESSAGES.put_chat(&out, body, chat);
    assert(json_parse_wide(&asked, buf_str(&out), &why) >= 0);
    assert(json_len(json_get(asked, "messages")) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct messages_facts facts = {.strips_preamble = size & 1}, counted = facts;
    struct str body = str_slice(data, size);
    struct openai_request in;
    struct api_error e;

    if (messages_request_parse(body, a, &in, &facts, &e)) {
        assert(in.api == API_CHAT && in.model.len > 0 && json_len(in.messages) > 0);
        assert(openai_request_choices(&in) == 1 && in.stop.max_tokens.set);
        assert(messages_count(body, &counted, &e) && counted.estimate == facts.estimate);
        answer(&in, facts.estimate);
        ask(body, in.made_chat);
    } else {
        assert(e.status >= 400 && e.status < 600 && e.text[0]);
    }
    openai_request_done(&in);
    return 0;
}
