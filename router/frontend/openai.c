/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/openai.h"

#include <stdio.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"

enum { STOP_MAX = 4, TOOLS_MAX = 128, LIST_MAX = 1024, PROMPT_IDS_MAX = 1 << 22 };

struct reader {
    struct json_pull p;
    struct arena *arena;
    struct openai_request *r;
    struct api_error *e;
    struct buf unknown; /* names of keys outside the table */
};

/* --- values ------------------------------------------------------------------------------------
 */

static bool wrong_type(struct reader *rd, const char *key, const char *want)
{
    return api_fail(rd->e, 400, key,
                    "Failed to deserialize the JSON body into the target type: %s: expected %s",
                    key, want);
}

static bool out_of_range(struct reader *rd, const char *key, const char *range)
{
    return api_fail(rd->e, 400, key, "Validation: %s must be %s", key, range);
}

/* Whether a value of that kind comes next. Text that is no JSON at all is reported at the end. */
static bool expect(struct reader *rd, const char *key, enum json_kind kind, const char *want)
{
    enum json_kind next = json_pull_peek(&rd->p);

    if (next == kind)
        return true;
    return next == JSON_KIND_NONE ? false : wrong_type(rd, key, want);
}

static bool read_string(struct reader *rd, const char *key, struct str *ret)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str s;

    if (!expect(rd, key, JSON_KIND_STRING, "a string"))
        return false;
    if (!json_pull_string(&rd->p, &scratch, &s))
        return false;
    *ret = scratch.len ? str_slice(arena_strdup(rd->arena, s), s.len) : s;
    return true;
}

static bool read_bool(struct reader *rd, const char *key, bool *ret)
{
    return expect(rd, key, JSON_KIND_BOOL, "a boolean") && json_pull_bool(&rd->p, ret);
}

static bool read_u64(struct reader *rd, const char *key, uint64_t max, struct opt_u64 *ret)
{
    uint64_t v;

    if (!expect(rd, key, JSON_KIND_NUMBER, "a non-negative whole number"))
        return false;
    if (!json_pull_u64(&rd->p, &v) || v > max)
        return wrong_type(rd, key, "a non-negative whole number");
    *ret = OPT_U64(v);
    return true;
}

static bool read_i64(struct reader *rd, const char *key, struct opt_i64 *ret)
{
    int64_t v;

    if (!expect(rd, key, JSON_KIND_NUMBER, "a whole number"))
        return false;
    if (!json_pull_i64(&rd->p, &v))
        return wrong_type(rd, key, "a whole number");
    *ret = OPT_I64(v);
    return true;
}

static bool read_f64(struct reader *rd, const char *key, double min, double max,
                     struct opt_f64 *ret)
{
    char range[80];
    double v;

    if (!expect(rd, key, JSON_KIND_NUMBER, "a number"))
        return false;
    if (!json_pull_f64(&rd->p, &v))
        return wrong_type(rd, key, "a number");
    (void)snprintf(range, sizeof(range), "between %g and %g, got %g", min, max, v);
    if (!(v >= min && v <= max))
        return out_of_range(rd, key, range);
    *ret = OPT_F64(v);
    return true;
}

static bool read_tree(struct reader *rd, const char *key, enum json_kind kind, struct json **ret)
{
    struct str text;
    struct err e;

    if (!expect(rd, key, kind, kind == JSON_KIND_ARRAY ? "an array" : "an object") ||
        !json_pull_skip(&rd->p, &text))
        return false;
    *ret = json_free(*ret);
    if (json_parse(ret, text, &e) < 0)
        return api_fail(rd->e, 400, key, "%s: %s", key, e.text);
    return true;
}

/* A string or an array of at most @max strings. */
static bool read_strings(struct reader *rd, const char *key, size_t max, struct str **ret,
                         size_t *ret_n)
{
    struct str *list = arena_alloc(rd->arena, max * sizeof(*list));
    size_t n = 0;

    if (json_pull_peek(&rd->p) == JSON_KIND_STRING) {
        if (!read_string(rd, key, &list[n++]))
            return false;
    } else {
        if (!expect(rd, key, JSON_KIND_ARRAY, "a string or an array of strings") ||
            !json_pull_array(&rd->p))
            return false;
        while (json_pull_element(&rd->p)) {
            if (n == max)
                return api_fail(rd->e, 400, key, "Validation: %s has more than %zu entries", key,
                                max);
            if (!read_string(rd, key, &list[n++]))
                return false;
        }
    }
    *ret = list;
    *ret_n = n;
    return true;
}

/* --- keys --------------------------------------------------------------------------------------
 */

static bool key_model(struct reader *rd, const char *key)
{
    return read_string(rd, key, &rd->r->model);
}

static bool key_messages(struct reader *rd, const char *key)
{
    return read_tree(rd, key, JSON_KIND_ARRAY, &rd->r->messages);
}

static bool key_tools(struct reader *rd, const char *key)
{
    return read_tree(rd, key, JSON_KIND_ARRAY, &rd->r->tools);
}

static bool key_template_args(struct reader *rd, const char *key)
{
    return read_tree(rd, key, JSON_KIND_OBJECT, &rd->r->template_args);
}

static bool read_prompt_ids(struct reader *rd, const char *key)
{
    struct buf ids = BUF_NULL;
    bool ok = true;

    while (ok && json_pull_element(&rd->p)) {
        uint64_t id;
        uint32_t narrow;

        ok = json_pull_u64(&rd->p, &id) && id <= UINT32_MAX &&
             ids.len < PROMPT_IDS_MAX * sizeof(narrow);
        narrow = ok ? (uint32_t)id : 0;
        buf_put(&ids, &narrow, sizeof(narrow));
    }
    rd->r->prompt_is_ids = true;
    rd->r->n_prompt_ids = ids.len / sizeof(uint32_t);
    rd->r->prompt_ids = arena_alloc(rd->arena, ids.len);
    if (ids.len)
        memcpy(rd->r->prompt_ids, buf_data(&ids), ids.len);
    buf_done(&ids);
    return ok ? true : wrong_type(rd, key, "token ids between 0 and 4294967295");
}

/* "text", [ids], ["text"] or [[ids]]: one prompt a request. */
static bool key_prompt(struct reader *rd, const char *key)
{
    if (json_pull_peek(&rd->p) == JSON_KIND_STRING)
        return read_string(rd, key, &rd->r->prompt);
    if (!expect(rd, key, JSON_KIND_ARRAY, "a string or an array") || !json_pull_array(&rd->p))
        return false;
    if (json_pull_peek(&rd->p) == JSON_KIND_NUMBER)
        return read_prompt_ids(rd, key);
    if (!json_pull_element(&rd->p))
        return true; /* empty: refused by the check for an empty prompt */
    if (json_pull_peek(&rd->p) == JSON_KIND_ARRAY) {
        if (!json_pull_array(&rd->p) || !read_prompt_ids(rd, key))
            return wrong_type(rd, key, "token ids between 0 and 4294967295");
    } else if (!read_string(rd, key, &rd->r->prompt)) {
        return false;
    }
    if (json_pull_element(&rd->p))
        return api_fail(rd->e, 400, key,
                        "Validation: prompt: one prompt a request is served, not several");
    return true;
}

static bool key_stream(struct reader *rd, const char *key)
{
    return read_bool(rd, key, &rd->r->stream);
}

static bool key_stream_options(struct reader *rd, const char *key)
{
    struct str name;

    if (!expect(rd, key, JSON_KIND_OBJECT, "an object") || !json_pull_object(&rd->p))
        return false;
    while (json_pull_key(&rd->p, &name)) {
        bool ok = true;

        if (str_is(name, "include_usage"))
            ok = read_bool(rd, "stream_options.include_usage", &rd->r->include_usage);
        else if (str_is(name, "continuous_usage_stats"))
            ok = read_bool(rd, "stream_options.continuous_usage_stats", &rd->r->continuous_usage);
        else
            json_pull_skip(&rd->p, NULL);
        if (!ok)
            return false;
    }
    return true;
}

static bool key_stop(struct reader *rd, const char *key)
{
    struct str *list;
    size_t n;

    if (!read_strings(rd, key, STOP_MAX, &list, &n))
        return false;
    for (size_t i = 0; i < n; i++)
        if (list[i].len == 0)
            return api_fail(rd->e, 400, key, "Validation: stop sequences must not be empty");
    rd->r->stop.stop = list;
    rd->r->stop.n_stop = n;
    return true;
}

static bool key_max_tokens(struct reader *rd, const char *key)
{
    return read_u64(rd, key, UINT32_MAX, &rd->r->max_tokens);
}

static bool key_max_completion_tokens(struct reader *rd, const char *key)
{
    if (!read_u64(rd, key, UINT32_MAX, &rd->r->max_completion_tokens))
        return false;
    return rd->r->max_completion_tokens.v > 0 ? true : out_of_range(rd, key, "greater than 0");
}

static bool key_min_tokens(struct reader *rd, const char *key)
{
    return read_u64(rd, key, UINT32_MAX, &rd->r->stop.min_tokens);
}

static bool key_ignore_eos(struct reader *rd, const char *key)
{
    rd->r->stop.ignore_eos.set = true;
    return read_bool(rd, key, &rd->r->stop.ignore_eos.v);
}

static bool key_temperature(struct reader *rd, const char *key)
{
    return read_f64(rd, key, 0, 2, &rd->r->sampling.temperature);
}

static bool key_top_p(struct reader *rd, const char *key)
{
    return read_f64(rd, key, 0, 1, &rd->r->sampling.top_p);
}

static bool key_min_p(struct reader *rd, const char *key)
{
    return read_f64(rd, key, 0, 1, &rd->r->sampling.min_p);
}

static bool key_top_k(struct reader *rd, const char *key)
{
    struct opt_i64 *k = &rd->r->sampling.top_k;

    if (!read_i64(rd, key, k))
        return false;
    return k->v == -1 || (k->v >= 1 && k->v <= INT32_MAX)
               ? true
               : out_of_range(rd, key, "-1 or at least 1");
}

static bool key_presence_penalty(struct reader *rd, const char *key)
{
    return read_f64(rd, key, -2, 2, &rd->r->sampling.presence_penalty);
}

static bool key_frequency_penalty(struct reader *rd, const char *key)
{
    return read_f64(rd, key, -2, 2, &rd->r->sampling.frequency_penalty);
}

static bool key_repetition_penalty(struct reader *rd, const char *key)
{
    if (!read_f64(rd, key, 0, 2, &rd->r->sampling.repetition_penalty))
        return false;
    return rd->r->sampling.repetition_penalty.v > 0 ? true
                                                    : out_of_range(rd, key, "greater than 0");
}

static bool key_seed(struct reader *rd, const char *key)
{
    return read_i64(rd, key, &rd->r->sampling.seed);
}

static bool key_n(struct reader *rd, const char *key)
{
    struct opt_u64 *n = &rd->r->sampling.n;

    if (!read_u64(rd, key, UINT32_MAX, n))
        return false;
    return n->v == 1 ? true : out_of_range(rd, key, "1: one choice a request is served");
}

static bool key_best_of(struct reader *rd, const char *key)
{
    if (!read_u64(rd, key, UINT32_MAX, &rd->r->sampling.best_of))
        return false;
    return rd->r->sampling.best_of.v <= 20 ? true : out_of_range(rd, key, "at most 20");
}

static bool key_include_stop(struct reader *rd, const char *key)
{
    rd->r->sampling.include_stop_str_in_output.set = true;
    return read_bool(rd, key, &rd->r->sampling.include_stop_str_in_output.v);
}

static bool key_skip_special(struct reader *rd, const char *key)
{
    rd->r->output.skip_special_tokens.set = true;
    return read_bool(rd, key, &rd->r->output.skip_special_tokens.v);
}

static bool key_logprobs(struct reader *rd, const char *key)
{
    if (rd->r->api == API_CHAT)
        return read_bool(rd, key, &rd->r->wants_logprobs);
    if (!read_u64(rd, key, UINT32_MAX, &rd->r->logprobs))
        return false;
    return rd->r->logprobs.v <= 5 ? true : out_of_range(rd, key, "at most 5");
}

static bool key_top_logprobs(struct reader *rd, const char *key)
{
    if (!read_u64(rd, key, UINT32_MAX, &rd->r->top_logprobs))
        return false;
    return rd->r->top_logprobs.v <= 20 ? true : out_of_range(rd, key, "at most 20");
}

static bool key_echo(struct reader *rd, const char *key)
{
    return read_bool(rd, key, &rd->r->echo);
}

static bool key_user(struct reader *rd, const char *key)
{
    if (!read_string(rd, key, &rd->r->user))
        return false;
    return rd->r->user.len ? true : api_fail(rd->e, 400, key, "Validation: user must not be empty");
}

static bool key_logit_bias(struct reader *rd, const char *key)
{
    struct str name;

    if (!expect(rd, key, JSON_KIND_OBJECT, "an object") || !json_pull_object(&rd->p))
        return false;
    while (json_pull_key(&rd->p, &name)) {
        struct opt_f64 ignored;

        if (!read_f64(rd, key, -100, 100, &ignored))
            return false;
    }
    return true;
}

static bool key_tool_choice(struct reader *rd, const char *key)
{
    struct str text;

    (void)key;
    json_pull_skip(&rd->p, &text);
    rd->r->tool_choice_none = str_is(text, "\"none\"");
    return true;
}

static bool key_functions(struct reader *rd, const char *key)
{
    return api_fail(rd->e, 501, key, "`%s` is not supported: use `tools`", key);
}

/* Taken and without effect here: what describes the request, or what only the engine's side knows.
 */
static bool key_ignored(struct reader *rd, const char *key)
{
    (void)key;
    json_pull_skip(&rd->p, NULL);
    return true;
}

/* --- nvext -------------------------------------------------------------------------------------
 */

static bool nvext_u64(struct reader *rd, struct str name, bool *ret_known)
{
    struct openai_request *r = rd->r;
    const struct {
        const char *name;
        struct opt_u64 *at;
    } keys[] = {{"backend_instance_id", &r->backend_instance_id},
                {"prefill_worker_id", &r->prefill_worker_id},
                {"decode_worker_id", &r->decode_worker_id},
                {"expected_output_tokens", &r->expected_output_tokens},
                {"max_thinking_tokens", &r->stop.max_thinking_tokens}};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (str_is(name, keys[i].name)) {
            *ret_known = true;
            return json_pull_null(&rd->p) || read_u64(rd, keys[i].name, UINT64_MAX, keys[i].at);
        }
    }
    *ret_known = false;
    return true;
}

static bool nvext_list(struct reader *rd, struct str name)
{
    struct openai_request *r = rd->r;
    struct str *fields;
    size_t n;

    if (str_is(name, "annotations")) {
        if (!read_strings(rd, "annotations", LIST_MAX, &r->annotations, &r->n_annotations))
            return false;
        for (size_t i = 0; i < r->n_annotations; i++)
            r->wants_tracking |= str_is(r->annotations[i], "query_instance_id");
        return true;
    }
    if (!read_strings(rd, "extra_fields", LIST_MAX, &fields, &n))
        return false;
    for (size_t i = 0; i < n; i++)
        r->wants_tracking |= str_is(fields[i], "timing") || str_is(fields[i], "worker_id");
    return true;
}

static bool key_nvext(struct reader *rd, const char *key)
{
    struct openai_request *r = rd->r;
    struct str name;
    bool known, ok = true;

    if (!expect(rd, key, JSON_KIND_OBJECT, "an object") || !json_pull_object(&rd->p))
        return false;
    r->has_nvext = true;
    while (ok && json_pull_key(&rd->p, &name)) {
        ok = nvext_u64(rd, name, &known);
        if (known || json_pull_null(&rd->p))
            continue;
        if (str_is(name, "annotations") || str_is(name, "extra_fields")) {
            ok = nvext_list(rd, name);
        } else if (str_is(name, "greed_sampling")) {
            ok = read_bool(rd, "greed_sampling", &r->greedy);
        } else if (str_is(name, "enable_local_updates")) {
            r->enable_local_updates.set = true;
            ok = read_bool(rd, "enable_local_updates", &r->enable_local_updates.v);
        } else {
            json_pull_skip(&rd->p, NULL);
        }
    }
    return ok;
}

/* --- the table ---------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    unsigned apis;
    bool (*read)(struct reader *rd, const char *key);
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
    {"parallel_tool_calls", API_CHAT, key_ignored},
    {"chat_template_args", API_CHAT, key_template_args},
    {"chat_template_kwargs", API_CHAT, key_template_args},
    {"nvext", API_CHAT | API_COMPLETIONS, key_nvext},
    {"response_format", API_CHAT, key_ignored},
    {"functions", API_CHAT, key_functions},
    {"function_call", API_CHAT, key_functions},
    {"metadata", API_CHAT | API_COMPLETIONS, key_ignored},
    {"store", API_CHAT, key_ignored},
    {"service_tier", API_CHAT, key_ignored},
    {"reasoning_effort", API_CHAT, key_ignored},
    {"modalities", API_CHAT, key_ignored},
    {"prediction", API_CHAT, key_ignored},
    {"audio", API_CHAT, key_ignored},
    {"web_search_options", API_CHAT, key_ignored},
    {"media_io_kwargs", API_CHAT, key_ignored},
    {"suffix", API_COMPLETIONS, key_ignored},
};

static bool read_key(struct reader *rd, struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
        if (!(KEYS[i].apis & rd->r->api) || !str_is(name, KEYS[i].name))
            continue;
        if (json_pull_null(&rd->p))
            return true;
        return KEYS[i].read(rd, KEYS[i].name);
    }
    if (rd->unknown.len < 256)
        buf_printf(&rd->unknown, "%s`%.64s`", rd->unknown.len ? ", " : "",
                   arena_strdup(rd->arena, str_head(name, 64)));
    json_pull_skip(&rd->p, NULL);
    return true;
}

/* --- checks over several keys ------------------------------------------------------------------
 */

static bool check_subject(const struct openai_request *r, struct api_error *e)
{
    if (r->model.len == 0)
        return api_fail(e, 400, "model", "Validation: model must not be empty");
    if (r->api == API_CHAT && json_len(r->messages) == 0)
        return api_fail(e, 400, "messages", "Validation: messages must not be empty");
    if (r->api == API_COMPLETIONS && r->prompt.len == 0 && r->n_prompt_ids == 0)
        return api_fail(e, 400, "prompt", "Validation: prompt must not be empty");
    if (json_len(r->tools) > TOOLS_MAX)
        return api_fail(e, 400, "tools", "Validation: tools has more than %d entries", TOOLS_MAX);
    if ((r->include_usage || r->continuous_usage) && !r->stream)
        return api_fail(e, 400, "stream_options", "Validation: stream_options needs stream");
    return true;
}

/* Text, parts, or nothing (an assistant that only calls tools). */
static bool is_content(const struct json *v)
{
    return !v || json_is_null(v) || json_is_string(v) || json_is_array(v);
}

static bool check_messages(const struct openai_request *r, struct api_error *e)
{
    size_t i = 0;

    JSON_FOREACH (m, r->messages) {
        const char *wrong = !json_get_cstr(m, "role") ? "missing field `role`"
                            : !is_content(json_get(m, "content"))
                                ? "content: expected a string or an array"
                                : NULL;

        if (wrong)
            return api_fail(
                e, 400, "messages",
                "Failed to deserialize the JSON body into the target type: messages[%zu]: %s", i,
                wrong);
        i++;
    }
    return true;
}

/* What the two APIs name differently, in the engine's terms. */
static void settle(struct openai_request *r)
{
    r->stop.max_tokens = r->max_completion_tokens.set ? r->max_completion_tokens : r->max_tokens;
    if (r->greedy)
        r->sampling.temperature.set = r->sampling.top_p.set = false;
    if (r->wants_logprobs)
        r->output.logprobs = r->top_logprobs.set ? r->top_logprobs : OPT_U64(1);
    if (r->api == API_COMPLETIONS && r->logprobs.set)
        r->output.logprobs = r->logprobs;
    if (r->echo)
        r->output.prompt_logprobs = OPT_U64(1);
}

bool openai_request_parse(enum api api, struct str body, struct arena *a,
                          struct openai_request *ret, struct api_error *e)
{
    struct reader rd = {.arena = a, .r = ret, .e = e};
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
        while (ok && json_pull_key(&rd.p, &name))
            ok = read_key(&rd, name);
    }
    /* Malformed text explains itself best; what a reader found wrong in well-formed text comes
     * next. */
    if (!json_pull_ok(&rd.p) && json_pull_end(&rd.p, &why) < 0 && e->status == 0)
        (void)api_fail(e, 400, NULL, "Failed to parse the request body as JSON: %s", why.text);
    else if (ok && json_pull_end(&rd.p, &why) < 0)
        (void)api_fail(e, 400, NULL, "Failed to parse the request body as JSON: %s", why.text);
    else if (!ok && e->status == 0)
        (void)api_fail(e, 400, NULL, "The request body must be a JSON object");
    if (e->status == 0 && rd.unknown.len)
        (void)api_fail(e, 400, NULL, "Validation: Unsupported parameter(s): %s",
                       buf_cstr(&rd.unknown));
    buf_done(&rd.unknown);
    if (e->status == 0 && check_subject(ret, e))
        (void)check_messages(ret, e);
    if (e->status != 0)
        return false;
    settle(ret);
    return true;
}

void openai_request_done(struct openai_request *r)
{
    r->messages = json_free(r->messages);
    r->tools = json_free(r->tools);
    r->template_args = json_free(r->template_args);
}
