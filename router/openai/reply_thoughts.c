/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/reply_thoughts.h"

#include <strings.h>

#include "router/openai/reply_harmony.h"

#define THINK_ALONE .begin = {"<think>"}, .end = {"</think>"}
#define THINK THINK_ALONE, .opened_by = "<think>"
#define DSML_CALLS                                                                                 \
    "<\xef\xbd\x9c"                                                                                \
    "DSML\xef\xbd\x9ctool_calls>"
#define V41_CALLS                                                                                  \
    "<\xef\xbd\x9c"                                                                                \
    "DSML\xef\xbd\x9c calls>"
#define KIMI_CALLS "<|tool_calls_section_begin|>"
#define KIMI_THOUGHTS                                                                              \
    .begin = {"<|open|>think<|sep|>"}, .end = {"<|close|>think<|sep|>"},                           \
    .opened_by = "<|open|>think<|sep|>", .calls = {"<|open|>tools<|sep|>"},                        \
    .frame = &REPLY_KIMI_FRAME, .how = REPLY_EITHER, .special = true
#define MINIMAX_M3_THOUGHTS                                                                        \
    .begin = {"<mm:think>"}, .end = {"</mm:think>"}, .opened_by = "<mm:think>",                    \
    .calls = {"]<]minimax[>[<tool_call>"}, .how = REPLY_EITHER | REPLY_UNLESS_NONE,                \
    .special = true
#define GEMMA_THOUGHTS                                                                             \
    .begin = {"<|channel>"}, .end = {"<channel|>"}, .label = "thought\n", .how = REPLY_IF_ASKED,   \
    .special = true

enum {
    SWITCHED = REPLY_INSIDE | REPLY_UNLESS_NONE,
    BY_MODE = SWITCHED | REPLY_BY_MODE,
    IF_ASKED = REPLY_INSIDE | REPLY_IF_ASKED | REPLY_BY_MODE,
};

const struct reply_frame REPLY_KIMI_FRAME = {
    .marks = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>",
              "<|end_of_msg|>"},
};
const struct reply_frame REPLY_INKLING_FRAME = {
    .header = "<|message_model|>",
    .marks = {"<|content_text|>", "<|end_message|>", "<|end_sampling|>"},
};

static const struct reply_thoughts THOUGHTS[] = {
    {"basic", THINK}, /* the first: of unknown names */
    {"qwen3", THINK},
    {"qwen3_coder", THINK},
    {"nemotron_deci", THINK},
    {"glm45", THINK},
    {"glm47", THINK},
    {"kimi_k2", THINK},
    {"deepseek_r1", THINK, .how = BY_MODE},
    {"deepseek_v3", THINK, .how = IF_ASKED},
    {"deepseek_v3_1", THINK, .how = IF_ASKED},
    {"deepseek_v3_2", THINK, .how = BY_MODE},
    {"deepseek_v4", THINK, .calls = {DSML_CALLS}, .how = REPLY_UNLESS_NONE | REPLY_BY_MODE},
    {"deepseek-v4", THINK, .calls = {DSML_CALLS}, .how = REPLY_UNLESS_NONE | REPLY_BY_MODE},
    {"deepseekv4", THINK, .calls = {DSML_CALLS}, .how = REPLY_UNLESS_NONE | REPLY_BY_MODE},
    {"deepseek_v41", THINK, .calls = {V41_CALLS}, .how = REPLY_UNLESS_NONE | REPLY_BY_MODE,
     .special = true},
    {"step3", THINK, .how = REPLY_INSIDE},
    {"kimi_k25", THINK, .calls = {KIMI_CALLS}, .how = SWITCHED, .special = true},
    {"minimax_m2", THINK, .calls = {"<minimax:tool_call>"}, .how = BY_MODE},
    {"nemotron_nano", THINK, .how = SWITCHED},
    {"nemotron3", THINK_ALONE, .calls = {"<tool_call>"}, .how = SWITCHED | REPLY_NO_MARKS},
    {"nemotron_v3", THINK_ALONE, .calls = {"<tool_call>"}, .how = SWITCHED | REPLY_NO_MARKS},
    {"minimax_append_think", .said_first = "<think>"},
    {"kimi", .begin = {"\xe2\x97\x81think\xe2\x96\xb7"}, .end = {"\xe2\x97\x81/think\xe2\x96\xb7"},
     .opened_by = "<think>"},
    {"kimi_k3", KIMI_THOUGHTS},
    {"kimi-k3", KIMI_THOUGHTS},
    {"mistral", .begin = {"[THINK]"}, .end = {"[/THINK]"}, .how = REPLY_INSIDE_WITH_EFFORT,
     .special = true},
    {"granite", .begin = {"Here is my thought process:", "Here's my thought process:"},
     .end = {"Here is my response:", "Here's my response:"}},
    {"minimax_m3", MINIMAX_M3_THOUGHTS},
    {"minimax-m3", MINIMAX_M3_THOUGHTS},
    {"gemma4", GEMMA_THOUGHTS},
    {"gemma-4", GEMMA_THOUGHTS},
    {"inkling", .begin = {"<|content_thinking|>"}, .end = {"<|end_message|>"},
     .frame = &REPLY_INKLING_FRAME, .special = true},
    {"gpt_oss", .dialect = &HARMONY_GPT_OSS, .special = true},
    {"muse", .dialect = &HARMONY_MUSE, .special = true},
    {"muse_glimmer", .dialect = &HARMONY_MUSE, .special = true},
};

static const struct reply_thoughts *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(THOUGHTS); i++)
        if (strcasecmp(name, THOUGHTS[i].name) == 0)
            return &THOUGHTS[i];
    return NULL;
}

const struct reply_thoughts *reply_find_thoughts(const char *name)
{
    const struct reply_thoughts *known = name ? find(name) : NULL;

    return known || !name ? known : &THOUGHTS[0];
}

bool reply_prompt_opens(const struct reply_thoughts *t, struct str prompt)
{
    struct str mark = str_from(t ? t->opened_by : NULL);

    prompt = str_trim(prompt);
    return mark.len && prompt.len >= mark.len &&
           str_eq(str_skip(prompt, prompt.len - mark.len), mark);
}

bool reply_knows_thoughts(const char *name)
{
    return find(name) != NULL;
}
