/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/worker_answer.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"

/* --- members that answers have ----------------------------------------------------------------- */

/* Where a member that is not there is told as null. */
enum nulls { NEVER, ALWAYS, IN_0_9, IN_1, ONLY_IN_0_9 /* and there at all */ };

struct member {
    const char *name; /* NULL ends a list */
    enum nulls nulls;
    const struct member
        *members; /* of the object, or of the objects in an array; NULL = as it is */
};

static const struct member FUNCTION[] = {{"name", IN_0_9, NULL}, {"arguments", IN_0_9, NULL}, {0}};
static const struct member CALLS[] = {{"index", NEVER, NULL},
                                      {"id", IN_0_9, NULL},
                                      {"type", IN_0_9, NULL},
                                      {"function", IN_0_9, FUNCTION},
                                      {0}};
static const struct member DELTA[] = {{"content", IN_0_9, NULL},
                                      {"function_call", IN_0_9, NULL},
                                      {"tool_calls", IN_0_9, CALLS},
                                      {"role", IN_0_9, NULL},
                                      {"refusal", IN_0_9, NULL},
                                      {"reasoning_content", IN_0_9, NULL},
                                      {0}};
static const struct member MESSAGE[] = {{"content", IN_1, NULL},
                                        {"refusal", IN_1, NULL},
                                        {"tool_calls", NEVER, NULL},
                                        {"role", NEVER, NULL},
                                        {"reasoning_content", IN_0_9, NULL},
                                        {0}};
static const struct member LOGPROBS[] = {{"content", ALWAYS, NULL}, {"refusal", ALWAYS, NULL}, {0}};
static const struct member CHAT_CHUNK_CHOICE[] = {
    {"index", NEVER, NULL},        {"delta", NEVER, DELTA},
    {"finish_reason", IN_1, NULL}, {"stop_reason", ONLY_IN_0_9, NULL},
    {"logprobs", IN_1, LOGPROBS},  {0}};
static const struct member CHAT_CHOICE[] = {
    {"index", NEVER, NULL},        {"message", NEVER, MESSAGE},
    {"finish_reason", IN_1, NULL}, {"stop_reason", ONLY_IN_0_9, NULL},
    {"logprobs", IN_1, LOGPROBS},  {0}};
static const struct member COMPLETION_CHOICE[] = {{"text", NEVER, NULL},
                                                  {"index", NEVER, NULL},
                                                  {"logprobs", NEVER, NULL},
                                                  {"finish_reason", NEVER, NULL},
                                                  {0}};

/* Of a usage: those of a chat are told as they are in 1.x. */
#define USAGE(nulls)                                                                               \
    {                                                                                              \
        {"prompt_tokens", NEVER, NULL}, {"completion_tokens", NEVER, NULL},                        \
            {"total_tokens", NEVER, NULL},                                                         \
            {"prompt_tokens_details", NEVER,                                                       \
             (const struct member[]){                                                              \
                 {"audio_tokens", nulls, NULL}, {"cached_tokens", nulls, NULL}, {0}}},             \
            {"completion_tokens_details", NEVER,                                                   \
             (const struct member[]){{"accepted_prediction_tokens", nulls, NULL},                  \
                                     {"audio_tokens", nulls, NULL},                                \
                                     {"reasoning_tokens", nulls, NULL},                            \
                                     {"rejected_prediction_tokens", nulls, NULL},                  \
                                     {0}}},                                                        \
            {0},                                                                                   \
    }
static const struct member CHAT_USAGE[] = USAGE(IN_0_9);
static const struct member COMPLETION_USAGE[] = USAGE(ALWAYS);

static const struct member CHAT_CHUNK[] = {{"id", NEVER, NULL},
                                           {"choices", NEVER, CHAT_CHUNK_CHOICE},
                                           {"created", NEVER, NULL},
                                           {"model", NEVER, NULL},
                                           {"service_tier", IN_0_9, NULL},
                                           {"system_fingerprint", IN_0_9, NULL},
                                           {"object", NEVER, NULL},
                                           {"usage", IN_0_9, CHAT_USAGE},
                                           {"nvext", NEVER, NULL},
                                           {0}};
static const struct member CHAT_BODY[] = {{"id", NEVER, NULL},
                                          {"choices", NEVER, NULL},
                                          {"created", NEVER, NULL},
                                          {"model", NEVER, NULL},
                                          {"system_fingerprint", NEVER, NULL},
                                          {"object", NEVER, NULL},
                                          {"usage", IN_0_9, CHAT_USAGE},
                                          {"nvext", NEVER, NULL},
                                          {0}};
static const struct member COMPLETION_CHUNK[] = {{"id", NEVER, NULL},
                                                 {"choices", NEVER, COMPLETION_CHOICE},
                                                 {"created", NEVER, NULL},
                                                 {"model", NEVER, NULL},
                                                 {"system_fingerprint", ALWAYS, NULL},
                                                 {"object", NEVER, NULL},
                                                 {"usage", ALWAYS, COMPLETION_USAGE},
                                                 {"nvext", NEVER, NULL},
                                                 {0}};
static const struct member COMPLETION_BODY[] = {{"id", NEVER, NULL},
                                                {"choices", NEVER, NULL},
                                                {"created", NEVER, NULL},
                                                {"model", NEVER, NULL},
                                                {"system_fingerprint", ALWAYS, NULL},
                                                {"object", NEVER, NULL},
                                                {"usage", ALWAYS, COMPLETION_USAGE},
                                                {"nvext", NEVER, NULL},
                                                {0}};

/* --- state ------------------------------------------------------------------------------------- */

enum { LISTS = 4 }; /* of log probabilities */

/* Members of a call that are texts, as escaped. */
struct call {
    struct buf id, type, name, arguments;
    bool is;
};

/* Texts as they stand between their quotes; *_json are values. */
struct choice {
    bool is, told_role;
    struct buf content, refusal, reasoning;
    struct buf parts_json; /* of content that is no text */
    struct buf role_json, finish_json, stop_json;
    struct buf logprobs[LISTS];
    struct call *calls;
    size_t n_calls;
};

/* Of the answer; the last that was told counts. */
enum top { TOP_ID, TOP_CREATED, TOP_MODEL, TOP_FINGERPRINT, TOP_USAGE, TOP_NVEXT, TOPS };
static const char *const TOP_NAMES[TOPS] = {"id",    "created", "model", "system_fingerprint",
                                            "usage", "nvext"};

struct worker_answer {
    enum api api;
    const struct chunk_style *style;
    uint32_t first;
    size_t n_bytes; /* gathered */
    struct buf tops[TOPS];
    struct choice *choices; /* by index */
    size_t n_choices;
};

struct worker_answer *worker_answer_new(enum api api, const struct chunk_style *style,
                                        uint32_t first)
{
    struct worker_answer *w = xcalloc(1, sizeof(*w));

    w->api = api;
    w->style = style;
    w->first = first;
    return w;
}

static void choice_done(struct choice *c)
{
    struct buf *const bufs[] = {&c->content,   &c->refusal,     &c->reasoning, &c->parts_json,
                                &c->role_json, &c->finish_json, &c->stop_json};

    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        buf_done(bufs[i]);
    for (size_t i = 0; i < LISTS; i++)
        buf_done(&c->logprobs[i]);
    for (size_t i = 0; i < c->n_calls; i++) {
        buf_done(&c->calls[i].id);
        buf_done(&c->calls[i].type);
        buf_done(&c->calls[i].name);
        buf_done(&c->calls[i].arguments);
    }
    free(c->calls);
}

struct worker_answer *worker_answer_free(struct worker_answer *w)
{
    if (!w)
        return NULL;
    for (size_t i = 0; i < w->n_choices; i++)
        choice_done(&w->choices[i]);
    free(w->choices);
    for (size_t i = 0; i < TOPS; i++)
        buf_done(&w->tops[i]);
    free(w);
    return NULL;
}

/* --- reading ----------------------------------------------------------------------------------- */

/* Empty for null, too. */
static struct str member_of(struct str object, const char *name)
{
    struct str v = json_pull_member(object, name);

    return str_is(v, "null") ? STR_NULL : v;
}

static bool is_kind(struct str json, enum json_kind kind)
{
    struct json_pull p;

    json_pull_init(&p, json);
    return json.len && json_pull_peek(&p) == kind;
}

static int lacks(const char *name, struct err *e)
{
    return err_set(e, -EINVAL, "missing field `%s`", name);
}

/* The one that a choice of a chunk, which has been checked, adds to. */
static struct choice *choice_of(struct worker_answer *w, struct str json)
{
    uint64_t index = 0;

    (void)!str_parse_u64(json_pull_member(json, "index"), &index);
    if (index >= w->n_choices) {
        w->choices = xreallocarray(w->choices, index + 1, sizeof(*w->choices));
        memset(w->choices + w->n_choices, 0, (index + 1 - w->n_choices) * sizeof(*w->choices));
        w->n_choices = index + 1;
    }
    return &w->choices[index];
}

/* Whether all is there that a chunk must have; the index of a choice fits. */
static int check_choice(const struct worker_answer *w, struct str choice, struct err *e)
{
    const char *subject = w->api == API_CHAT ? "delta" : "text";
    enum json_kind kind = w->api == API_CHAT ? JSON_KIND_OBJECT : JSON_KIND_STRING;
    uint64_t index;

    if (!str_parse_u64(json_pull_member(choice, "index"), &index))
        return lacks("index", e);
    if (index >= OPENAI_CHOICES_MAX)
        return err_set(e, -EINVAL, "choice %llu", (unsigned long long)index);
    return is_kind(json_pull_member(choice, subject), kind) ? 0 : lacks(subject, e);
}

static int check_chunk(const struct worker_answer *w, struct str json, struct err *e)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } needs[] = {{"id", JSON_KIND_STRING},
                 {"choices", JSON_KIND_ARRAY},
                 {"created", JSON_KIND_NUMBER},
                 {"model", JSON_KIND_STRING},
                 {"object", JSON_KIND_STRING}};
    struct str choice;
    struct json_pull p;
    int r = 0;

    json_pull_init(&p, json);
    if (!json_pull_skip(&p, NULL) || json_pull_end(&p, e) < 0)
        return err_set(e, -EINVAL, "it is no JSON");
    for (size_t i = 0; i < ARRAY_LEN(needs); i++)
        if (!is_kind(json_pull_member(json, needs[i].name), needs[i].kind))
            return lacks(needs[i].name, e);
    json_pull_init(&p, json_pull_member(json, "choices"));
    (void)!json_pull_array(&p);
    while (r == 0 && json_pull_element(&p) && json_pull_skip(&p, &choice))
        r = check_choice(w, choice, e);
    return r;
}

/* --- writing ----------------------------------------------------------------------------------- */

static bool tells_null(const struct worker_answer *w, enum nulls nulls)
{
    return nulls == ALWAYS || nulls == (w->style->is_of_1 ? IN_1 : IN_0_9);
}

/* 1.x tells the role of a choice once. */
static bool role_is_told(struct worker_answer *w, struct choice *at)
{
    bool told = at->told_role;

    at->told_role = true;
    return told && w->style->is_of_1;
}

static void put_members(struct worker_answer *w, struct choice *at, struct str object,
                        const struct member *members, struct buf *out);

/* @at is the choice that the value is of, if any. */
static void put_value(struct worker_answer *w, struct choice *at, struct str json,
                      const struct member *members, struct buf *out)
{
    const char *before = "";
    struct str element;
    struct json_pull p;

    if (members && is_kind(json, JSON_KIND_OBJECT)) {
        put_members(w, at, json, members, out);
        return;
    }
    json_pull_init(&p, json);
    if (!members || !is_kind(json, JSON_KIND_ARRAY) || !json_pull_array(&p)) {
        buf_put_str(out, json);
        return;
    }
    buf_put_char(out, '[');
    while (json_pull_element(&p) && json_pull_skip(&p, &element)) {
        buf_put_cstr(out, before);
        before = ",";
        put_value(w, at, element, members, out);
    }
    buf_put_char(out, ']');
}

static void put_index(const struct worker_answer *w, struct str index, struct buf *out)
{
    uint64_t n = 0;

    (void)!str_parse_u64(index, &n);
    buf_put_u64dec(out, w->first + n);
}

static void put_members(struct worker_answer *w, struct choice *at, struct str object,
                        const struct member *members, struct buf *out)
{
    bool is_choice =
        members == CHAT_CHUNK_CHOICE || members == CHAT_CHOICE || members == COMPLETION_CHOICE;
    const char *before = "";

    if (members == CHAT_CHUNK_CHOICE)
        at = choice_of(w, object);
    buf_put_char(out, '{');
    for (const struct member *m = members; m->name; m++) {
        struct str v = member_of(object, m->name);

        if (v.len && m->nulls == ONLY_IN_0_9 && w->style->is_of_1)
            continue;
        if (v.len && members == DELTA && strcmp(m->name, "role") == 0 && role_is_told(w, at))
            continue;
        if (!v.len && !tells_null(w, m->nulls))
            continue;
        buf_printf(out, "%s\"%s\":", before, m->name);
        before = ",";
        if (!v.len)
            buf_put_cstr(out, "null");
        else if (is_choice && strcmp(m->name, "index") == 0)
            put_index(w, v, out);
        else
            put_value(w, at, v, m->members, out);
    }
    buf_put_char(out, '}');
}

int worker_answer_put_chunk(struct worker_answer *w, struct str json, struct buf *out,
                            struct err *e)
{
    int r = check_chunk(w, json, e);

    if (r == 0)
        put_members(w, NULL, json, w->api == API_CHAT ? CHAT_CHUNK : COMPLETION_CHUNK, out);
    return r;
}

/* --- gathering --------------------------------------------------------------------------------- */

static const char *const *list_names(const struct worker_answer *w)
{
    static const char *const chat[LISTS] = {"content", "refusal"};
    static const char *const completion[LISTS] = {"tokens", "token_logprobs", "top_logprobs",
                                                  "text_offset"};

    return w->api == API_CHAT ? chat : completion;
}

static void keep(struct buf *at, struct str json)
{
    if (!json.len)
        return;
    buf_clear(at);
    buf_put_str(at, json);
}

/* What is between the quotes; @json may be anything else, which adds nothing. */
static void join_text(struct buf *at, struct str json)
{
    if (is_kind(json, JSON_KIND_STRING))
        buf_put_str(at, str_slice(json.ptr + 1, json.len - 2));
}

static void join_list(struct buf *at, struct str json)
{
    struct str inner;

    if (!is_kind(json, JSON_KIND_ARRAY))
        return;
    inner = str_trim(str_slice(json.ptr + 1, json.len - 2));
    if (at->len && inner.len)
        buf_put_char(at, ',');
    buf_put_str(at, inner);
}

static int gather_calls(struct choice *c, struct str json, struct err *e)
{
    struct json_pull p;
    struct str call;

    json_pull_init(&p, json);
    if (!is_kind(json, JSON_KIND_ARRAY) || !json_pull_array(&p))
        return 0;
    while (json_pull_element(&p) && json_pull_skip(&p, &call)) {
        struct str function = member_of(call, "function");
        struct call *at;
        uint64_t index;

        if (!str_parse_u64(json_pull_member(call, "index"), &index))
            return lacks("tool_calls.index", e);
        if (index >= WORKER_ANSWER_CALLS_MAX)
            return err_set(e, -EMSGSIZE, "more than %d calls of tools", WORKER_ANSWER_CALLS_MAX);
        if (index >= c->n_calls) {
            c->calls = xreallocarray(c->calls, index + 1, sizeof(*c->calls));
            memset(c->calls + c->n_calls, 0, (index + 1 - c->n_calls) * sizeof(*c->calls));
            c->n_calls = index + 1;
        }
        at = &c->calls[index];
        at->is = true;
        keep(&at->id, member_of(call, "id"));
        keep(&at->type, member_of(call, "type"));
        join_text(&at->name, member_of(function, "name"));
        join_text(&at->arguments, member_of(function, "arguments"));
    }
    return 0;
}

static int gather_choice(struct worker_answer *w, struct str json, struct err *e)
{
    struct str delta = member_of(json, "delta"), logprobs = member_of(json, "logprobs");
    struct str content = member_of(delta, "content");
    const char *const *names = list_names(w);
    struct choice *c = choice_of(w, json);

    c->is = true;
    keep(&c->finish_json, member_of(json, "finish_reason"));
    keep(&c->stop_json, member_of(json, "stop_reason"));
    for (size_t i = 0; i < LISTS && names[i]; i++)
        join_list(&c->logprobs[i], member_of(logprobs, names[i]));
    if (w->api == API_COMPLETIONS) {
        join_text(&c->content, member_of(json, "text"));
        return 0;
    }
    join_text(&c->content, content);
    if (content.len && !is_kind(content, JSON_KIND_STRING))
        keep(&c->parts_json, content);
    join_text(&c->refusal, member_of(delta, "refusal"));
    join_text(&c->reasoning, member_of(delta, "reasoning_content"));
    keep(&c->role_json, member_of(delta, "role"));
    return gather_calls(c, member_of(delta, "tool_calls"), e);
}

int worker_answer_gather(struct worker_answer *w, struct str json, struct err *e)
{
    int r = check_chunk(w, json, e);
    struct json_pull p;
    struct str choice;

    if (r < 0)
        return r;
    w->n_bytes += json.len;
    if (w->n_bytes > WORKER_ANSWER_BYTES_MAX)
        return err_set(e, -EMSGSIZE, "more than %d bytes", WORKER_ANSWER_BYTES_MAX);
    for (size_t i = 0; i < TOPS; i++)
        keep(&w->tops[i], member_of(json, TOP_NAMES[i]));
    json_pull_init(&p, json_pull_member(json, "choices"));
    (void)!json_pull_array(&p);
    while (r == 0 && json_pull_element(&p) && json_pull_skip(&p, &choice))
        r = gather_choice(w, choice, e);
    return r;
}

/* --- what was gathered --------------------------------------------------------------------------
 */

/* A member of an object that has some already, if there is any. */
static void put_text(struct buf *out, const char *name, const struct buf *text)
{
    if (!text->len)
        return;
    buf_printf(out, ",\"%s\":\"", name);
    buf_put_str(out, buf_str(text));
    buf_put_char(out, '"');
}

static void put_json(struct buf *out, const char *name, const struct buf *json)
{
    if (!json->len)
        return;
    buf_printf(out, ",\"%s\":", name);
    buf_put_str(out, buf_str(json));
}

static void put_calls(const struct choice *c, struct buf *out)
{
    const char *before = "";

    if (!c->n_calls)
        return;
    buf_put_cstr(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < c->n_calls; i++) {
        const struct call *call = &c->calls[i];

        if (!call->is)
            continue;
        buf_printf(out, "%s{\"id\":", before);
        before = ",";
        buf_put_str(out, call->id.len ? buf_str(&call->id) : STR("\"\""));
        buf_put_cstr(out, ",\"type\":");
        buf_put_str(out, call->type.len ? buf_str(&call->type) : STR("\"function\""));
        buf_put_cstr(out, ",\"function\":{\"name\":\"");
        buf_put_str(out, buf_str(&call->name));
        buf_put_cstr(out, "\",\"arguments\":\"");
        buf_put_str(out, buf_str(&call->arguments));
        buf_put_cstr(out, "\"}}");
    }
    buf_put_char(out, ']');
}

static void put_logprobs(const struct worker_answer *w, const struct choice *c, struct buf *out)
{
    const char *const *names = list_names(w);
    const char *before = "";
    bool any = false;

    for (size_t i = 0; i < LISTS; i++)
        any |= c->logprobs[i].len > 0;
    if (!any)
        return;
    buf_put_cstr(out, ",\"logprobs\":{");
    for (size_t i = 0; i < LISTS && names[i]; i++) {
        if (w->api == API_CHAT && !c->logprobs[i].len)
            continue;
        buf_printf(out, "%s\"%s\":[", before, names[i]);
        before = ",";
        buf_put_str(out, buf_str(&c->logprobs[i]));
        buf_put_char(out, ']');
    }
    buf_put_char(out, '}');
}

static void put_message(const struct choice *c, struct buf *out)
{
    buf_put_cstr(out, ",\"message\":{\"role\":");
    buf_put_str(out, c->role_json.len ? buf_str(&c->role_json) : STR("\"assistant\""));
    if (c->parts_json.len)
        put_json(out, "content", &c->parts_json);
    else
        put_text(out, "content", &c->content);
    put_text(out, "refusal", &c->refusal);
    put_text(out, "reasoning_content", &c->reasoning);
    put_calls(c, out);
    buf_put_char(out, '}');
}

void worker_answer_put_choices(struct worker_answer *w, struct buf *out)
{
    AUTO(buf_done) struct buf raw = BUF_NULL;
    bool chat = w->api == API_CHAT;
    const char *before = "";

    for (size_t i = 0; i < w->n_choices; i++) {
        const struct choice *c = &w->choices[i];

        if (!c->is)
            continue;
        buf_clear(&raw);
        buf_printf(&raw, "{\"index\":%zu", i);
        put_json(&raw, "finish_reason", &c->finish_json);
        put_json(&raw, "stop_reason", &c->stop_json);
        put_logprobs(w, c, &raw);
        if (chat) {
            put_message(c, &raw);
        } else {
            buf_put_cstr(&raw, ",\"text\":\"");
            buf_put_str(&raw, buf_str(&c->content));
            buf_put_char(&raw, '"');
        }
        buf_put_char(&raw, '}');
        buf_put_cstr(out, before);
        before = ",";
        put_members(w, NULL, buf_str(&raw), chat ? CHAT_CHOICE : COMPLETION_CHOICE, out);
    }
}

void worker_answer_put_body(struct worker_answer *w, struct str choices, struct buf *out)
{
    AUTO(buf_done) struct buf raw = BUF_NULL;
    bool chat = w->api == API_CHAT;

    buf_printf(&raw, "{\"object\":\"%s\",\"choices\":[",
               chat ? "chat.completion" : "text_completion");
    buf_put_str(&raw, choices);
    buf_put_char(&raw, ']');
    for (size_t i = 0; i < TOPS; i++)
        put_json(&raw, TOP_NAMES[i], &w->tops[i]);
    buf_put_char(&raw, '}');
    put_members(w, NULL, buf_str(&raw), chat ? CHAT_BODY : COMPLETION_BODY, out);
}
