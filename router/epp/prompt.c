/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/prompt.h"

#include <time.h>

static enum chat_end end_of(const struct openai_request *in)
{
    if (in->continue_message.v)
        return CHAT_CONTINUE;
    return in->generation_prompt.set && !in->generation_prompt.v ? CHAT_MESSAGES : CHAT_ANSWER;
}

int epp_prompt_make(const struct model *m, const struct openai_request *in,
                    struct tokenizer_scratch *scratch, struct token_ids *ret, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    const time_t seconds = (time_t)(clock_wall_ms() / 1000);
    struct tm now;
    struct chat_input chat = {.messages = in->messages,
                              .tools = in->tools,
                              .args = in->template_args,
                              .now = &now,
                              .end = end_of(in),
                              .calls_nothing = in->tool_choice == TOOL_NONE,
                              .response_format = in->guided.response_format};
    struct prompt_reuse reuse;
    int r;

    localtime_r(&seconds, &now);
    r = chat_render(m->chat, &chat, &text, e);
    if (r < 0)
        return r;
    return m->prompt_cache
               ? prompt_cache_encode(m->prompt_cache, scratch, buf_str(&text), ret, &reuse, e)
               : tokenizer_encode(m->tokenizer, scratch, buf_str(&text), ret, e);
}
