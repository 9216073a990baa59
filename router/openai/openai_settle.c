/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from several keys of a request: the rules of its answer, and what an engine is told.
 */
#include <string.h>

#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"
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

static bool has_rule(const struct openai_request *r)
{
    const struct guided *g = &r->guided;

    return g->json.len || g->regex.len || g->choice.len || g->grammar.len;
}

void openai_settle_tags(struct openai_request *r, const struct call_tags *c, struct arena *a)
{
    const struct call_wish wish = {r->tool_choice, r->named_tool, r->tools, r->one_call};
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (has_rule(r) || (r->tool_choice == TOOL_AUTO && r->sampling.guided_decoding_json.len))
        return;
    call_tags_put(c, &wish, &out);
    r->tagged = out.len > 0;
    if (r->tagged)
        r->sampling.guided_decoding_json = str_from(arena_strdup(a, buf_str(&out)));
}

/* --- thoughts --------------------------------------------------------------------------------- */

static const char *const THINKING[] = {"thinking", "enable_thinking"};

static bool is_word(const struct json *v, const char *const *words)
{
    struct str text = str_trim(str_from(json_cstr(v)));

    for (size_t i = 0; json_is_string(v) && words[i]; i++)
        if (str_eq_nocase(text, str_from(words[i])))
            return true;
    return false;
}

/* What is meant by a number or a word. */
static bool takes_as_bool(const struct json *v, bool is_mode, bool *ret)
{
    static const char *const yes[] = {"true", "yes", "on", "1", NULL};
    static const char *const no[] = {"false", "no", "off", "0", NULL};
    double number;

    if (json_bool(v, ret))
        return true;
    if (json_f64(v, &number)) {
        *ret = number < 0 || number > 0;
        return true;
    }
    *ret = is_word(v, yes);
    return *ret || is_word(v, no) || (!is_mode && json_is_string(v));
}

static void set_thinking(struct json *args, bool on)
{
    for (size_t i = 0; i < ARRAY_LEN(THINKING); i++)
        (void)json_set_bool(args, THINKING[i], on);
}

static void set_mode(struct json *args, bool on)
{
    (void)json_set_cstr(args, "thinking_mode", on ? "enabled" : "disabled");
}

/* What clearly says it: the first of these. */
static bool says_clearly(const struct json *args, bool *ret)
{
    struct str mode = str_from(json_get_cstr(args, "thinking_mode"));
    const char *effort = json_get_cstr(args, "reasoning_effort");

    if (json_get_bool(args, "thinking", ret) || json_get_bool(args, "enable_thinking", ret))
        return true;
    *ret = str_eq_nocase(mode, STR("enabled"));
    if (*ret || str_eq_nocase(mode, STR("disabled")))
        return true;
    *ret = effort && strcmp(effort, "none") != 0;
    return effort && !str_eq_nocase(mode, STR("adaptive"));
}

void openai_settle_thinking(struct json *args)
{
    bool on;

    if (says_clearly(args, &on)) {
        set_thinking(args, on);
        set_mode(args, on);
    } else if (takes_as_bool(json_get(args, "thinking"), false, &on) ||
               takes_as_bool(json_get(args, "enable_thinking"), false, &on) ||
               takes_as_bool(json_get(args, "thinking_mode"), true, &on)) {
        set_thinking(args, on);
    }
}

void openai_default_thinking(struct openai_request *r, bool on)
{
    static const char *const names[] = {"thinking", "enable_thinking", "thinking_mode",
                                        "reasoning_effort"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (json_get(r->template_args, names[i]))
            return;
    if (!r->template_args)
        r->template_args = json_new_object();
    set_thinking(r->template_args, on);
    set_mode(r->template_args, on);
}

void openai_drop_default_thinking(struct openai_request *r)
{
    static const char *const names[] = {"thinking", "enable_thinking", "thinking_mode",
                                        "truncate_history_thinking"};

    if (!r->thinks_by_default)
        return;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        json_del(r->template_args, names[i]);
}

/* What has a place of its own in the body, which only 1.x knows, goes before the template's arguments. */
static void settle_thinking(struct openai_request *r)
{
    if (!r->thinking.set && !r->thinks_adaptively && !r->reasoning_effort.len)
        return;
    if (!r->template_args)
        r->template_args = json_new_object();
    if (r->reasoning_effort.len)
        (void)json_set(r->template_args, "reasoning_effort", json_new_str(r->reasoning_effort));
    if (r->thinks_adaptively) {
        for (size_t i = 0; i < ARRAY_LEN(THINKING); i++)
            json_del(r->template_args, THINKING[i]);
        (void)json_set_cstr(r->template_args, "thinking_mode", "adaptive");
    }
    if (r->thinking.set)
        set_thinking(r->template_args, r->thinking.v);
    openai_settle_thinking(r->template_args);
}

/* --- the rest --------------------------------------------------------------------------------- */

static void put_nvext(struct json_put *j, const struct openai_request *r)
{
    json_put_key(j, "nvext");
    json_put_object(j);
    if (r->extra_fields_json.len) {
        json_put_key(j, "extra_fields");
        json_put_raw(j, r->extra_fields_json);
    }
    if (r->n_token_data) {
        json_put_key(j, "token_in");
        json_put_bool(j, true);
    }
    if (r->cache_salt.len) {
        json_put_key(j, "cache_salt");
        json_put_str(j, r->cache_salt);
    }
    json_put_object_end(j);
}

/* Where workers of 1.x look for what has no place of its own. */
static void settle_extra_args(struct openai_request *r, struct arena *a)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    bool has_nvext = r->cache_salt.len || r->extra_fields_json.len || r->n_token_data;

    if (!has_nvext && !r->allowed_token_ids_json.len)
        return;
    json_put_object(&j);
    if (has_nvext)
        put_nvext(&j, r);
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

void openai_request_set_salt(struct openai_request *r, struct str salt, struct arena *a)
{
    r->cache_salt = str_slice(arena_strdup(a, salt), salt.len);
    settle_extra_args(r, a);
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
