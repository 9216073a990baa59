/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/prompt_make.h"

static enum chat_end end_of(const struct openai_request *in)
{
    if (in->continue_message.v)
        return CHAT_CONTINUE;
    return in->generation_prompt.set && !in->generation_prompt.v ? CHAT_MESSAGES : CHAT_ANSWER;
}

static struct chat_choice choice_of(const struct openai_request *in)
{
    return (struct chat_choice){.nothing = in->tool_choice == TOOL_NONE,
                                .something = in->tool_choice == TOOL_REQUIRED,
                                .named = in->tool_choice == TOOL_NAMED ? in->named_tool : STR_NULL};
}

int prompt_make(const struct model *m, const struct openai_request *in,
                const struct prompt_making *how, struct token_ids *ret, struct err *e)
{
    AUTO(text_pieces_done) struct text_pieces pieces = {0};
    struct chat_input chat = {.messages = in->messages,
                              .tools = in->tools,
                              .args = in->template_args,
                              .now = how->now,
                              .steps = how->steps,
                              .end = end_of(in),
                              .choice = choice_of(in),
                              .response_format = in->guided.response_format,
                              .pieces = &pieces};
    int r = chat_render(m->chat, &chat, how->text, e);

    if (r < 0)
        return r;
    if (pieces.len)
        return tokenizer_encode_pieces(m->tokenizer, how->scratch, buf_str(how->text), &pieces, ret,
                                       e);
    return prompt_encode(m, how->scratch, buf_str(how->text), ret, how->reuse, e);
}

int prompt_encode(const struct model *m, struct tokenizer_scratch *scratch, struct str text,
                  struct token_ids *ret, struct prompt_reuse *reuse, struct err *e)
{
    return m->prompt_cache ? prompt_cache_encode(m->prompt_cache, scratch, text, ret, reuse, e)
                           : tokenizer_encode(m->tokenizer, scratch, text, ret, e);
}

void prompt_extras(const struct model *m, const struct openai_request *in, struct str text,
                   const struct prompt_media *media, struct arena *a, struct chat_extras *ret)
{
    const struct chat_extras_conf conf = {.of_1 = model_is_of_1(m),
                                          .has_thoughts = m->card->reasoning_parser != NULL,
                                          .prompt = text,
                                          .mm_hashes = media->hashes,
                                          .n_mm_hashes = media->is_exact ? media->n : 0};

    if (in->messages && !m->is_stock)
        chat_extras_make(in, &conf, a, ret);
    else
        *ret = (struct chat_extras){.args = in->extra_args_json};
}
