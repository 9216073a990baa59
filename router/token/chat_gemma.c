/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat_gemma.h"

#include <string.h>

#define THOUGHT(words) "{{- '<|channel>thought\\n' + " words " + '\\n<channel|>' -}}"

/* What stands in the template, and what for it. */
static const struct {
    const char *old, *new;
} PLACES[] = {
    {"{%- if message.get('reasoning') and loop.index0 > ns_turn.last_user_idx and "
     "message.get('tool_calls') -%}\n"
     "        {{- '<|channel>thought\\n' + message['reasoning'] + '\\n<channel|>'}}\n"
     "    {%- endif -%}",
     "{%- set thoughts_told = message.get('reasoning_content') or [] -%}"
     "{%- if thoughts_told is string -%}{%- set thoughts_told = [thoughts_told] -%}{%- endif -%}"
     "{%- if not message.get('tool_calls') -%}"
     "{%- for told in thoughts_told if told -%}" THOUGHT("told") "{%- endfor -%}"
                                                                 "{%- endif -%}"},
    {"{%- for tool_call in message['tool_calls'] -%}\n"
     "                    {%- set function = tool_call['function'] -%}",
     "{%- for tool_call in message['tool_calls'] -%}"
     "{%- if thoughts_told[loop.index0] -%}" THOUGHT(
         "thoughts_told[loop.index0]") "{%- endif -%}"
                                       "{%- set function = tool_call['function'] -%}"},
    {"{{- '}<tool_call|>' -}}\n"
     "                {%- endfor -%}",
     "{{- '}<tool_call|>' -}}{%- endfor -%}"
     "{%- set thought_left = thoughts_told[message['tool_calls'] | length] -%}"
     "{%- if thought_left -%}" THOUGHT("thought_left") "{%- endif -%}"},
};

static bool is_known(struct str source)
{
    bool all = true;

    for (size_t i = 0; i < ARRAY_LEN(PLACES); i++)
        all = all && str_has(source, str_from(PLACES[i].old));
    return all && str_has(source, STR("<|tool_call>call:")) &&
           !str_has(source, STR("reasoning_content"));
}

/* How much of @source is one of the places; @i is which. 0 = none begins here. */
static size_t place_at(struct str source, size_t *ret_i)
{
    for (size_t i = 0; i < ARRAY_LEN(PLACES); i++)
        if (str_starts(source, str_from(PLACES[i].old))) {
            *ret_i = i;
            return strlen(PLACES[i].old);
        }
    return 0;
}

void chat_gemma_put(struct str source, struct buf *out)
{
    size_t which = 0, n;

    if (!is_known(source)) {
        buf_put_str(out, source);
        return;
    }
    for (; source.len; source = str_skip(source, n)) {
        n = place_at(source, &which);
        if (n) {
            buf_put_cstr(out, PLACES[which].new);
        } else {
            n = 1;
            buf_put_char(out, source.ptr[0]);
        }
    }
}
