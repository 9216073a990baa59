/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/worker_said.h"

#include "lib/base/json_pull.h"

void worker_said_init(struct worker_said *s)
{
    *s = (struct worker_said){.finish = ""};
}

void worker_said_done(struct worker_said *s)
{
    buf_done(&s->text);
    buf_done(&s->thoughts);
    buf_done(&s->calls);
    buf_done(&s->stop_json);
    buf_done(&s->nvext);
    buf_done(&s->prompt_details);
    buf_done(&s->completion_details);
}

static void clear(struct worker_said *s)
{
    buf_clear(&s->text);
    buf_clear(&s->thoughts);
    buf_clear(&s->calls);
}

static void add_text(struct buf *to, struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_pull p;
    struct str text = STR_NULL;

    json_pull_init(&p, json);
    if (str_starts(json, STR("\"")) && json_pull_string(&p, &scratch, &text))
        buf_put_str(to, text);
}

/* A text, or parts of which some are. */
static void add_content(struct buf *to, struct str json)
{
    struct json_pull p;
    struct str part;

    add_text(to, json);
    json_pull_init(&p, json);
    if (!str_starts(json, STR("[")) || !json_pull_array(&p))
        return;
    while (json_pull_element(&p) && json_pull_skip(&p, &part))
        add_text(to, json_pull_member(part, "text"));
}

static struct str list_of(struct str object, const char *name)
{
    struct str list = json_pull_member(object, name);

    return str_starts(list, STR("[")) ? str_trim(str_slice(list.ptr + 1, list.len - 2)) : STR_NULL;
}

static void add_calls(struct worker_said *s, struct str message)
{
    struct str items = list_of(message, "tool_calls");

    if (s->calls.len && items.len)
        buf_put_char(&s->calls, ',');
    buf_put_str(&s->calls, items);
}

static void take_finish(struct worker_said *s, struct str json)
{
    static const char *const known[] = {"stop", "length", "tool_calls", "content_filter"};

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (json.len > 2 && str_is(str_slice(json.ptr + 1, json.len - 2), known[i]))
            s->finish = known[i];
}

static void read_message(struct worker_said *s, struct str choice, const char *member)
{
    struct str message = json_pull_member(choice, member);

    add_content(&s->text, json_pull_member(message, "content"));
    add_text(&s->thoughts, json_pull_member(message, "reasoning_content"));
    take_finish(s, json_pull_member(choice, "finish_reason"));
}

bool worker_said_read_chunk(struct worker_said *s, struct str chunk)
{
    bool has_calls = false;
    struct json_pull p;
    struct str choice;

    clear(s);
    json_pull_init(&p, json_pull_member(chunk, "choices"));
    if (!json_pull_array(&p))
        return false;
    while (json_pull_element(&p) && json_pull_skip(&p, &choice)) {
        read_message(s, choice, "delta");
        has_calls |= list_of(json_pull_member(choice, "delta"), "tool_calls").len > 0;
    }
    worker_said_read_rest(s, chunk);
    return has_calls;
}

/* Choices as an array that can be walked; @list owns it. */
static bool walk(struct json_pull *p, struct str choices, struct buf *list)
{
    buf_put_char(list, '[');
    buf_put_str(list, choices);
    buf_put_char(list, ']');
    json_pull_init(p, buf_str(list));
    return json_pull_array(p);
}

void worker_said_read_first(struct worker_said *s, struct str choices)
{
    AUTO(buf_done) struct buf list = BUF_NULL;
    struct json_pull p;
    struct str choice;

    clear(s);
    if (!walk(&p, choices, &list) || !json_pull_element(&p) || !json_pull_skip(&p, &choice))
        return;
    read_message(s, choice, "message");
    add_calls(s, json_pull_member(choice, "message"));
}

void worker_said_read_calls(struct worker_said *s, struct str choices)
{
    AUTO(buf_done) struct buf list = BUF_NULL;
    struct json_pull p;
    struct str choice;

    clear(s);
    if (!walk(&p, choices, &list))
        return;
    while (json_pull_element(&p) && json_pull_skip(&p, &choice))
        add_calls(s, json_pull_member(choice, "message"));
}

static struct str keep(struct buf *to, struct str json)
{
    buf_clear(to);
    if (str_starts(json, STR("{")))
        buf_put_str(to, json);
    return buf_str(to);
}

void worker_said_read_rest(struct worker_said *s, struct str json)
{
    struct str usage = json_pull_member(json, "usage");
    struct str nvext = json_pull_member(json, "nvext");
    struct str stop = json_pull_member(nvext, "stop_reason");
    struct usage *u = &s->usage;

    if (stop.len && !str_is(stop, "null")) {
        buf_clear(&s->stop_json);
        buf_put_str(&s->stop_json, stop);
    }
    if (str_starts(nvext, STR("{")))
        (void)keep(&s->nvext, nvext);
    if (!str_starts(usage, STR("{")))
        return;
    s->has_usage = true;
    *u = (struct usage){0};
    (void)!str_parse_u64(json_pull_member(usage, "prompt_tokens"), &u->prompt_tokens);
    (void)!str_parse_u64(json_pull_member(usage, "completion_tokens"), &u->completion_tokens);
    u->prompt_details_json =
        keep(&s->prompt_details, json_pull_member(usage, "prompt_tokens_details"));
    u->completion_details_json =
        keep(&s->completion_details, json_pull_member(usage, "completion_tokens_details"));
    if (str_parse_u64(json_pull_member(u->completion_details_json, "reasoning_tokens"),
                      &u->reasoning_tokens.v))
        u->reasoning_tokens.set = true;
}

const struct usage *worker_said_usage(const struct worker_said *s)
{
    return s->has_usage ? &s->usage : NULL;
}
