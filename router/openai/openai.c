/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/openai.h"

#include "lib/base/err.h"
#include "router/openai/openai_read.h"

enum {
    STOP_MAX = 128,
    LIST_MAX = 1024,
};

/* --- keys --------------------------------------------------------------------------------------
 */

static bool key_model(struct openai_reader *rd, const char *key)
{
    return openai_read_string(rd, key, &rd->r->model);
}

static bool key_messages(struct openai_reader *rd, const char *key)
{
    return openai_read_tree(rd, key, JSON_KIND_ARRAY, &rd->r->messages);
}

static bool key_tools(struct openai_reader *rd, const char *key)
{
    return openai_read_tree(rd, key, JSON_KIND_ARRAY, &rd->r->tools);
}

static bool key_prompt_end(struct openai_reader *rd, const char *key)
{
    struct opt_bool *at = strcmp(key, "continue_final_message") == 0 ? &rd->r->continue_message
                                                                     : &rd->r->generation_prompt;

    at->set = true;
    return openai_read_bool(rd, key, &at->v);
}

static bool key_template_args(struct openai_reader *rd, const char *key)
{
    return openai_read_tree(rd, key, JSON_KIND_OBJECT, &rd->r->template_args);
}

static struct openai_prompt *add_prompt(struct openai_reader *rd)
{
    struct openai_request *r = rd->r;

    if (r->n_prompts == OPENAI_CHOICES_MAX) {
        (void)api_fail(rd->e, 400, "prompt", "Validation: prompt has more than %d entries",
                       OPENAI_CHOICES_MAX);
        return NULL;
    }
    if (r->n_prompts <= 1) { /* most have one */
        size_t room = r->n_prompts ? OPENAI_CHOICES_MAX : 1;
        struct openai_prompt *prompts = arena_alloc(rd->arena, room * sizeof(*prompts));

        if (r->n_prompts)
            prompts[0] = r->prompts[0];
        r->prompts = prompts;
    }
    return &r->prompts[r->n_prompts++];
}

static bool read_prompt_ids(struct openai_reader *rd, const char *key)
{
    struct openai_prompt *p = add_prompt(rd);

    if (p)
        p->is_ids = true;
    return p && openai_read_ids(rd, key, &p->ids, &p->n_ids);
}

static bool read_prompt_text(struct openai_reader *rd, const char *key)
{
    struct openai_prompt *p = add_prompt(rd);

    return p && openai_read_string(rd, key, &p->text);
}

/* "text", [ids], ["text", …] or [[ids], …] */
static bool key_prompt(struct openai_reader *rd, const char *key)
{
    if (json_pull_peek(&rd->p) == JSON_KIND_STRING)
        return read_prompt_text(rd, key);
    if (!openai_expect(rd, key, JSON_KIND_ARRAY, "a string or an array") ||
        !json_pull_array(&rd->p))
        return false;
    if (json_pull_peek(&rd->p) == JSON_KIND_NUMBER)
        return read_prompt_ids(rd, key);
    while (json_pull_element(&rd->p)) {
        if (json_pull_peek(&rd->p) == JSON_KIND_ARRAY) {
            if (!json_pull_array(&rd->p) || !read_prompt_ids(rd, key))
                return rd->e->status
                           ? false
                           : openai_wrong_type(rd, key, "token ids between 0 and 4294967295");
        } else if (!read_prompt_text(rd, key)) {
            return false;
        }
    }
    return true;
}

static bool key_stream(struct openai_reader *rd, const char *key)
{
    return openai_read_bool(rd, key, &rd->r->stream);
}

static bool key_stream_options(struct openai_reader *rd, const char *key)
{
    struct openai_names seen = {.n = 0};
    struct str name;

    if (!openai_expect(rd, key, JSON_KIND_OBJECT, "an object") || !json_pull_object(&rd->p))
        return false;
    rd->r->has_stream_options = true;
    while (openai_next_key(rd, &seen, &name)) {
        bool ok = true;

        if (json_pull_peek(&rd->p) == JSON_KIND_NULL)
            json_pull_skip(&rd->p, NULL);
        else if (str_is(name, "include_usage"))
            ok = openai_read_bool(rd, "stream_options.include_usage", &rd->r->include_usage);
        else if (str_is(name, "continuous_usage_stats"))
            ok = openai_read_bool(rd, "stream_options.continuous_usage_stats",
                                  &rd->r->continuous_usage);
        else
            json_pull_skip(&rd->p, NULL);
        if (!ok)
            return false;
    }
    return true;
}

static bool read_stop_ids(struct openai_reader *rd, const char *key)
{
    uint32_t *ids;

    if (!openai_read_ids(rd, key, &ids, &rd->r->stop.n_ids))
        return false;
    rd->r->stop.ids = ids;
    return rd->r->stop.n_ids <= LIST_MAX
               ? true
               : api_fail(rd->e, 400, key, "Validation: %s has more than %d entries", key,
                          LIST_MAX);
}

static bool stop_strings(struct openai_reader *rd, const char *key)
{
    struct str *list;
    size_t n;

    if (!openai_read_strings(rd, key, STOP_MAX, &list, &n))
        return false;
    for (size_t i = 0; i < n; i++)
        if (list[i].len == 0)
            return api_fail(rd->e, 400, key, "Validation: stop sequences must not be empty");
    rd->r->stop.stop = list;
    rd->r->stop.n_stop = n;
    return true;
}

/* Strings, or ids as in 1.x, which then go before stop_token_ids. */
static bool key_stop(struct openai_reader *rd, const char *key)
{
    struct json_pull ahead = rd->p;

    if (json_pull_peek(&ahead) != JSON_KIND_ARRAY || !json_pull_array(&ahead) ||
        !json_pull_element(&ahead) || json_pull_peek(&ahead) != JSON_KIND_NUMBER)
        return stop_strings(rd, key);
    rd->has_stop_ids = true;
    return json_pull_array(&rd->p) && read_stop_ids(rd, key);
}

static bool key_stop_token_ids(struct openai_reader *rd, const char *key)
{
    if (rd->has_stop_ids) {
        json_pull_skip(&rd->p, NULL);
        return true;
    }
    return openai_expect(rd, key, JSON_KIND_ARRAY, "an array") && json_pull_array(&rd->p) &&
           read_stop_ids(rd, key);
}

static bool key_max_tokens(struct openai_reader *rd, const char *key)
{
    return openai_read_u64(rd, key, UINT32_MAX, &rd->r->max_tokens);
}

static bool key_max_completion_tokens(struct openai_reader *rd, const char *key)
{
    if (!openai_read_u64(rd, key, UINT32_MAX, &rd->r->max_completion_tokens))
        return false;
    return rd->r->max_completion_tokens.v > 0 ? true
                                              : openai_out_of_range(rd, key, "greater than 0");
}

static bool key_min_tokens(struct openai_reader *rd, const char *key)
{
    return openai_read_u64(rd, key, UINT32_MAX, &rd->r->stop.min_tokens);
}

static bool key_ignore_eos(struct openai_reader *rd, const char *key)
{
    rd->r->stop.ignore_eos.set = true;
    return openai_read_bool(rd, key, &rd->r->stop.ignore_eos.v);
}

static bool key_temperature(struct openai_reader *rd, const char *key)
{
    return openai_read_f64(rd, key, 0, 2, &rd->r->sampling.temperature);
}

static bool key_top_p(struct openai_reader *rd, const char *key)
{
    if (!openai_read_f64(rd, key, 0, 1, &rd->r->sampling.top_p))
        return false;
    return rd->r->sampling.top_p.v > 0 ? true : openai_out_of_range(rd, key, "above 0");
}

static bool key_min_p(struct openai_reader *rd, const char *key)
{
    return openai_read_f64(rd, key, 0, 1, &rd->r->sampling.min_p);
}

static bool key_top_k(struct openai_reader *rd, const char *key)
{
    struct opt_i64 *k = &rd->r->sampling.top_k;

    if (!openai_read_i64(rd, key, k))
        return false;
    if (k->v == 0) /* as in 1.x: no limit */
        k->v = -1;
    return k->v >= -1 && k->v <= INT32_MAX ? true : openai_out_of_range(rd, key, "at least -1");
}

static bool key_presence_penalty(struct openai_reader *rd, const char *key)
{
    return openai_read_f64(rd, key, -2, 2, &rd->r->sampling.presence_penalty);
}

static bool key_frequency_penalty(struct openai_reader *rd, const char *key)
{
    return openai_read_f64(rd, key, -2, 2, &rd->r->sampling.frequency_penalty);
}

static bool key_repetition_penalty(struct openai_reader *rd, const char *key)
{
    if (!openai_read_f64(rd, key, 0, 2, &rd->r->sampling.repetition_penalty))
        return false;
    return rd->r->sampling.repetition_penalty.v > 0
               ? true
               : openai_out_of_range(rd, key, "greater than 0");
}

static bool key_seed(struct openai_reader *rd, const char *key)
{
    return openai_read_i64(rd, key, &rd->r->sampling.seed);
}

static bool key_n(struct openai_reader *rd, const char *key)
{
    struct opt_u64 *n = &rd->r->sampling.n;

    if (!openai_read_u64(rd, key, UINT32_MAX, n))
        return false;
    return n->v >= 1 && n->v <= OPENAI_CHOICES_MAX ? true
                                                   : openai_out_of_range(rd, key, "1 to 128");
}

static bool key_best_of(struct openai_reader *rd, const char *key)
{
    if (!openai_read_u64(rd, key, UINT32_MAX, &rd->r->sampling.best_of))
        return false;
    return rd->r->sampling.best_of.v <= 20 ? true : openai_out_of_range(rd, key, "at most 20");
}

static bool key_include_stop(struct openai_reader *rd, const char *key)
{
    rd->r->sampling.include_stop_str_in_output.set = true;
    return openai_read_bool(rd, key, &rd->r->sampling.include_stop_str_in_output.v);
}

static bool key_skip_special(struct openai_reader *rd, const char *key)
{
    rd->r->output.skip_special_tokens.set = true;
    return openai_read_bool(rd, key, &rd->r->output.skip_special_tokens.v);
}

static bool key_logprobs(struct openai_reader *rd, const char *key)
{
    if (rd->r->api == API_CHAT)
        return openai_read_bool(rd, key, &rd->r->wants_logprobs);
    if (!openai_read_u64(rd, key, UINT32_MAX, &rd->r->logprobs))
        return false;
    return rd->r->logprobs.v <= 5 ? true : openai_out_of_range(rd, key, "at most 5");
}

static bool key_top_logprobs(struct openai_reader *rd, const char *key)
{
    if (!openai_read_u64(rd, key, UINT32_MAX, &rd->r->top_logprobs))
        return false;
    return rd->r->top_logprobs.v <= 20 ? true : openai_out_of_range(rd, key, "at most 20");
}

static bool key_echo(struct openai_reader *rd, const char *key)
{
    return openai_read_bool(rd, key, &rd->r->echo);
}

static bool key_user(struct openai_reader *rd, const char *key)
{
    if (!openai_read_string(rd, key, &rd->r->user))
        return false;
    return rd->r->user.len ? true : api_fail(rd->e, 400, key, "Validation: user must not be empty");
}

static bool key_logit_bias(struct openai_reader *rd, const char *key)
{
    struct str name;

    if (!openai_expect(rd, key, JSON_KIND_OBJECT, "an object") || !json_pull_object(&rd->p))
        return false;
    while (json_pull_key(&rd->p, &name)) {
        struct opt_f64 ignored;
        uint64_t id;

        if (!str_parse_u64(name, &id) || id > UINT32_MAX)
            return openai_out_of_range(rd, key, "by token ids");
        if (!openai_read_f64(rd, key, -100, 100, &ignored))
            return false;
    }
    return true;
}

/* "none", "auto", "required", or {"type":"function","function":{"name":…}} */
static bool key_tool_choice(struct openai_reader *rd, const char *key)
{
    static const char *const words[] = {"auto", "none", "required"}; /* of enum tool_choice */
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct openai_request *r = rd->r;
    struct str text, name;
    struct json_pull p;

    if (!json_pull_skip(&rd->p, &text))
        return false;
    json_pull_init(&p, text);
    if (json_pull_peek(&p) == JSON_KIND_STRING && json_pull_string(&p, &scratch, &name)) {
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
            if (str_is(name, words[i])) {
                r->tool_choice = (enum tool_choice)i;
                return true;
            }
        return openai_wrong_type(rd, key, "\"none\", \"auto\", \"required\" or a function");
    }
    json_pull_init(&p, json_pull_member(json_pull_member(text, "function"), "name"));
    if (json_pull_peek(&p) != JSON_KIND_STRING || !json_pull_string(&p, &scratch, &name))
        return openai_wrong_type(rd, key, "\"none\", \"auto\", \"required\" or a function");
    r->tool_choice = TOOL_NAMED;
    r->named_tool = str_slice(arena_strdup(rd->arena, name), name.len);
    return true;
}

static bool read_raw(struct openai_reader *rd, const char *key, enum json_kind kind,
                     const char *want, struct str *ret)
{
    return openai_expect(rd, key, kind, want) && json_pull_skip(&rd->p, ret);
}

static bool key_guided_json(struct openai_reader *rd, const char *key)
{
    (void)key;
    return json_pull_skip(&rd->p, &rd->r->guided.json);
}

static bool key_guided_text(struct openai_reader *rd, const char *key)
{
    struct guided *g = &rd->r->guided;

    return read_raw(rd, key, JSON_KIND_STRING, "a string",
                    strcmp(key, "guided_regex") == 0              ? &g->regex
                    : strcmp(key, "guided_grammar") == 0          ? &g->grammar
                    : strcmp(key, "guided_decoding_backend") == 0 ? &g->backend
                                                                  : &g->whitespace_pattern);
}

static bool key_guided_choice(struct openai_reader *rd, const char *key)
{
    struct str all;

    if (!read_raw(rd, key, JSON_KIND_ARRAY, "an array of strings", &all))
        return false;
    if (str_trim(str_slice(all.ptr + 1, all.len - 2)).len) /* an empty one rules nothing */
        rd->r->guided.choice = all;
    return true;
}

static bool key_response_format(struct openai_reader *rd, const char *key)
{
    return read_raw(rd, key, JSON_KIND_OBJECT, "an object", &rd->r->guided.response_format);
}

/* Any other value says nothing here. */
static bool key_parallel(struct openai_reader *rd, const char *key)
{
    struct str value;

    (void)key;
    if (!json_pull_skip(&rd->p, &value))
        return false;
    rd->r->one_call = str_is(value, "false");
    return true;
}

static bool key_effort(struct openai_reader *rd, const char *key)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    struct str *word = &rd->r->reasoning_effort;

    if (!openai_read_string(rd, key, word))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_is(*word, words[i]))
            return true;
    return openai_wrong_type(rd, key, "none, minimal, low, medium, high, xhigh or max");
}

/* true, false, or the type enabled, disabled or adaptive in an object */
static bool key_thinking(struct openai_reader *rd, const char *key)
{
    struct opt_bool *at = &rd->r->thinking;
    struct str text, type;

    if (json_pull_peek(&rd->p) == JSON_KIND_BOOL) {
        at->set = true;
        return openai_read_bool(rd, key, &at->v);
    }
    if (!read_raw(rd, key, JSON_KIND_OBJECT, "a boolean or an object", &text))
        return false;
    type = json_pull_member(text, "type");
    rd->r->thinks_adaptively = str_is(type, "\"adaptive\"");
    at->v = str_is(type, "\"enabled\"");
    at->set = at->v || str_is(type, "\"disabled\"");
    return at->set || rd->r->thinks_adaptively
               ? true
               : openai_wrong_type(rd, key, "the type \"enabled\", \"disabled\" or \"adaptive\"");
}

static bool key_cache_salt(struct openai_reader *rd, const char *key)
{
    struct str salt;

    if (!openai_read_string(rd, key, &salt))
        return false;
    if (!rd->r->cache_salt.len || !rd->has_salt_of_nvext)
        rd->r->cache_salt = salt;
    return true;
}

static bool key_allowed_ids(struct openai_reader *rd, const char *key)
{
    struct json_pull ahead = rd->p;
    uint32_t *ids;
    size_t n;

    return openai_expect(rd, key, JSON_KIND_ARRAY, "an array") && json_pull_array(&rd->p) &&
           openai_read_ids(rd, key, &ids, &n) &&
           json_pull_skip(&ahead, &rd->r->allowed_token_ids_json);
}

static bool key_media_args(struct openai_reader *rd, const char *key)
{
    (void)key;
    return json_pull_skip(&rd->p, &rd->r->mm_processor_kwargs_json);
}

static bool key_prompt_logprobs(struct openai_reader *rd, const char *key)
{
    return openai_read_u64(rd, key, UINT32_MAX, &rd->r->output.prompt_logprobs);
}

/* Taken and without effect here: what describes the request, or what only the engine's side knows.
 */
static bool key_ignored(struct openai_reader *rd, const char *key)
{
    (void)key;
    json_pull_skip(&rd->p, NULL);
    return true;
}

/* --- the table ---------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    unsigned apis;
    bool (*read)(struct openai_reader *rd, const char *key);
} KEYS[] = {
    {"model", API_CHAT | API_COMPLETIONS, key_model},
    {"messages", API_CHAT, key_messages},
    {"prompt", API_COMPLETIONS, key_prompt},
    {"stream", API_CHAT | API_COMPLETIONS, key_stream},
    {"stream_options", API_CHAT | API_COMPLETIONS, key_stream_options},
    {"max_tokens", API_CHAT | API_COMPLETIONS, key_max_tokens},
    {"max_completion_tokens", API_CHAT, key_max_completion_tokens},
    {"min_tokens", API_CHAT | API_COMPLETIONS, key_min_tokens},
    {"ignore_eos", API_CHAT | API_COMPLETIONS, key_ignore_eos},
    {"stop", API_CHAT | API_COMPLETIONS, key_stop},
    {"stop_token_ids", API_CHAT | API_COMPLETIONS, key_stop_token_ids},
    {"allowed_token_ids", API_CHAT | API_COMPLETIONS, key_allowed_ids},
    {"prompt_logprobs", API_CHAT | API_COMPLETIONS, key_prompt_logprobs},
    {"cache_salt", API_CHAT | API_COMPLETIONS, key_cache_salt},
    {"temperature", API_CHAT | API_COMPLETIONS, key_temperature},
    {"top_p", API_CHAT | API_COMPLETIONS, key_top_p},
    {"top_k", API_CHAT | API_COMPLETIONS, key_top_k},
    {"min_p", API_CHAT | API_COMPLETIONS, key_min_p},
    {"n", API_CHAT | API_COMPLETIONS, key_n},
    {"best_of", API_COMPLETIONS, key_best_of},
    {"presence_penalty", API_CHAT | API_COMPLETIONS, key_presence_penalty},
    {"frequency_penalty", API_CHAT | API_COMPLETIONS, key_frequency_penalty},
    {"repetition_penalty", API_CHAT | API_COMPLETIONS, key_repetition_penalty},
    {"seed", API_CHAT | API_COMPLETIONS, key_seed},
    {"logit_bias", API_CHAT | API_COMPLETIONS, key_logit_bias},
    {"logprobs", API_CHAT | API_COMPLETIONS, key_logprobs},
    {"top_logprobs", API_CHAT, key_top_logprobs},
    {"echo", API_COMPLETIONS, key_echo},
    {"user", API_CHAT | API_COMPLETIONS, key_user},
    {"include_stop_str_in_output", API_CHAT | API_COMPLETIONS, key_include_stop},
    {"skip_special_tokens", API_CHAT | API_COMPLETIONS, key_skip_special},
    {"tools", API_CHAT, key_tools},
    {"tool_choice", API_CHAT, key_tool_choice},
    {"parallel_tool_calls", API_CHAT, key_parallel},
    {"add_generation_prompt", API_CHAT, key_prompt_end},
    {"continue_final_message", API_CHAT, key_prompt_end},
    {"chat_template_args", API_CHAT, key_template_args},
    {"chat_template_kwargs", API_CHAT, key_template_args},
    {"nvext", API_CHAT | API_COMPLETIONS, openai_read_nvext},
    {"response_format", API_CHAT, key_response_format},
    {"guided_json", API_CHAT | API_COMPLETIONS, key_guided_json},
    {"guided_regex", API_CHAT | API_COMPLETIONS, key_guided_text},
    {"guided_grammar", API_CHAT | API_COMPLETIONS, key_guided_text},
    {"guided_choice", API_CHAT | API_COMPLETIONS, key_guided_choice},
    {"guided_decoding_backend", API_CHAT | API_COMPLETIONS, key_guided_text},
    {"guided_whitespace_pattern", API_CHAT | API_COMPLETIONS, key_guided_text},
    {"functions", API_CHAT, openai_refuse_functions},
    {"function_call", API_CHAT, openai_refuse_function_call},
    {"metadata", API_CHAT | API_COMPLETIONS, key_ignored},
    {"store", API_CHAT, key_ignored},
    {"service_tier", API_CHAT, key_ignored},
    {"reasoning_effort", API_CHAT, key_effort},
    {"thinking", API_CHAT, key_thinking},
    {"mm_processor_kwargs", API_CHAT, key_media_args},
    {"modalities", API_CHAT, key_ignored},
    {"prediction", API_CHAT, key_ignored},
    {"prompt_cache_key", API_CHAT, key_ignored},
    {"audio", API_CHAT, key_ignored},
    {"web_search_options", API_CHAT, key_ignored},
    {"media_io_kwargs", API_CHAT, key_ignored},
    {"suffix", API_COMPLETIONS, key_ignored},
};

_Static_assert(ARRAY_LEN(KEYS) <= OPENAI_ROWS_MAX, "a bit each");

static bool read_key(struct openai_reader *rd, struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
        if (!(KEYS[i].apis & rd->r->api) || !str_is(name, KEYS[i].name))
            continue;
        if (!openai_read_once(rd, i, KEYS[i].name))
            return false;
        return json_pull_null(&rd->p) || KEYS[i].read(rd, KEYS[i].name);
    }
    if (rd->unknown.len < 256)
        buf_printf(&rd->unknown, "%s`%.64s`", rd->unknown.len ? ", " : "",
                   arena_strdup(rd->arena, str_head(name, 64)));
    json_pull_skip(&rd->p, NULL);
    return true;
}

static bool parse(enum api api, struct str body, struct arena *a, bool loosely,
                  struct openai_request *ret, struct api_error *e)
{
    struct openai_reader rd = {.arena = a, .r = ret, .e = e};
    struct str name;
    struct err why;
    bool ok = true;

    *ret = (struct openai_request){.api = api};
    e->status = 0;
    json_pull_init(&rd.p, body);
    if (json_pull_peek(&rd.p) != JSON_KIND_OBJECT) {
        ok = false;
        (void)json_pull_skip(&rd.p, NULL);
    } else if (json_pull_object(&rd.p)) {
        while (ok && openai_next_key(&rd, NULL, &name))
            ok = read_key(&rd, name);
    }
    /* Malformed text explains itself best; what a reader found wrong in well-formed text comes
     * next. */
    if (!json_pull_ok(&rd.p) && json_pull_end(&rd.p, &why) < 0 && e->status == 0)
        (void)api_malformed(e, NULL, "Failed to parse the request body as JSON: %s", why.text);
    else if (ok && json_pull_end(&rd.p, &why) < 0)
        (void)api_malformed(e, NULL, "Failed to parse the request body as JSON: %s", why.text);
    else if (!ok && e->status == 0)
        (void)api_malformed(e, NULL, "The request body must be a JSON object");
    if (e->status == 0 && rd.unknown.len && !loosely)
        (void)api_fail(e, 400, NULL, "Validation: Unsupported parameter(s): %s",
                       buf_cstr(&rd.unknown));
    buf_done(&rd.unknown);
    return e->status == 0 && openai_check(ret, e) && openai_settle(ret, a, e);
}

bool openai_request_parse(enum api api, struct str body, struct arena *a,
                          struct openai_request *ret, struct api_error *e)
{
    return parse(api, body, a, false, ret, e);
}

bool openai_request_parse_loosely(enum api api, struct str body, struct arena *a,
                                  struct openai_request *ret, struct api_error *e)
{
    return parse(api, body, a, true, ret, e);
}

void openai_request_done(struct openai_request *r)
{
    r->messages = json_free(r->messages);
    r->tools = json_free(r->tools);
    r->template_args = json_free(r->template_args);
}
