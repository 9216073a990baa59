/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from several keys of a request: the rules of its answer, and what an engine is told.
 */
#include "lib/base/json_put.h"
#include "router/openai/openai_read.h"

static bool settle_guided(struct openai_request *r, struct arena *a, struct api_error *e)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (!guided_put(&r->guided, r->tool_choice, r->named_tool, r->tools, &out))
        return api_fail(e, 400, "guided_json",
                        "Validation: only one of guided_json, guided_regex, guided_choice and "
                        "guided_grammar can be set");
    if (out.len)
        r->sampling.guided_decoding_json = str_from(arena_strdup(a, buf_str(&out)));
    return true;
}

/* Templates and parsers know it by several names; what the client says by one of them stays. */
static void settle_thinking(struct openai_request *r)
{
    static const char *const names[] = {"enable_thinking", "thinking"};

    if (r->reasoning_effort.len && !r->thinking.set) {
        r->thinking = (struct opt_bool){true, !str_is(r->reasoning_effort, "none")};
        for (size_t i = ARRAY_LEN(names); i > 0; i--)
            (void)json_get_bool(r->template_args, names[i - 1], &r->thinking.v);
    }
    if (!r->thinking.set)
        return;
    if (!r->template_args)
        r->template_args = json_new_object();
    if (r->reasoning_effort.len)
        (void)json_set(r->template_args, "reasoning_effort", json_new_str(r->reasoning_effort));
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!json_get(r->template_args, names[i]))
            (void)json_set(r->template_args, names[i], json_new_bool(r->thinking.v));
    if (!json_get(r->template_args, "thinking_mode"))
        (void)json_set_cstr(r->template_args, "thinking_mode",
                            r->thinking.v ? "enabled" : "disabled");
}

/* Where workers of 1.x look for what has no place of its own. */
static void settle_extra_args(struct openai_request *r, struct arena *a)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);

    if (!r->cache_salt.len && !r->allowed_token_ids_json.len)
        return;
    json_put_object(&j);
    if (r->cache_salt.len) {
        json_put_key(&j, "nvext");
        json_put_object(&j);
        json_put_key(&j, "cache_salt");
        json_put_str(&j, r->cache_salt);
        json_put_object_end(&j);
    }
    if (r->allowed_token_ids_json.len) {
        json_put_key(&j, "sampling_options");
        json_put_object(&j);
        json_put_key(&j, "allowed_token_ids");
        json_put_raw(&j, r->allowed_token_ids_json);
        json_put_object_end(&j);
    }
    json_put_object_end(&j);
    r->extra_args_json = str_from(arena_strdup(a, buf_str(&out)));
}

/* What the two APIs name differently, in the engine's terms. */
static void settle_names(struct openai_request *r)
{
    r->stop.max_tokens = r->max_completion_tokens.set ? r->max_completion_tokens : r->max_tokens;
    if (r->n_prompts)
        r->prompt = r->prompts[0];
    if (r->greedy)
        r->sampling.temperature.set = r->sampling.top_p.set = false;
    if (r->wants_logprobs)
        r->output.logprobs = r->top_logprobs.set ? r->top_logprobs : OPT_U64(1);
    if (r->api == API_COMPLETIONS && r->logprobs.set)
        r->output.logprobs = r->logprobs;
    if (r->echo && !r->output.prompt_logprobs.set)
        r->output.prompt_logprobs = OPT_U64(1);
}

bool openai_settle(struct openai_request *r, struct arena *a, struct api_error *e)
{
    if (!settle_guided(r, a, e))
        return false;
    settle_names(r);
    settle_thinking(r);
    settle_extra_args(r, a);
    return true;
}
