/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/logprobs.h"

#include "lib/base/json_put.h"

void logprobs_done(struct logprobs *l)
{
    buf_done(&l->content);
    buf_done(&l->tokens);
    buf_done(&l->values);
    buf_done(&l->top);
    buf_done(&l->scratch);
}

void logprobs_item_init(struct logprobs_item *it, struct str log_probs_json,
                        struct str top_logprobs_json)
{
    json_pull_init(&it->values, log_probs_json);
    json_pull_init(&it->top, top_logprobs_json);
    it->has_values = json_pull_peek(&it->values) == JSON_KIND_ARRAY && json_pull_array(&it->values);
    it->has_top = json_pull_peek(&it->top) == JSON_KIND_ARRAY && json_pull_array(&it->top);
}

static void put_quoted(struct buf *out, struct str s)
{
    buf_put_char(out, '"');
    json_escape(out, s);
    buf_put_char(out, '"');
}

/* "token":…,"logprob":…,"token_id":…,"bytes":…; @id NULL = it is not told. */
static void put_entry(struct buf *out, struct str token, struct str logprob, const uint32_t *id)
{
    buf_put_cstr(out, "\"token\":");
    put_quoted(out, token);
    buf_put_cstr(out, ",\"logprob\":");
    buf_put_str(out, logprob);
    if (id) {
        buf_put_cstr(out, ",\"token_id\":");
        buf_put_u64dec(out, *id);
    }
    buf_put_cstr(out, ",\"bytes\":[");
    for (size_t i = 0; i < token.len; i++) {
        if (i > 0)
            buf_put_char(out, ',');
        buf_put_u64dec(out, (uint8_t)token.ptr[i]);
    }
    buf_put_char(out, ']');
}

/* Chat has objects in a list, completions the members of one object. */
static void put_choice(const struct logprobs *l, struct str token, struct str logprob,
                       struct buf *out)
{
    if (l->api == API_CHAT) {
        buf_put_char(out, '{');
        put_entry(out, token, logprob, NULL);
        buf_put_char(out, '}');
        return;
    }
    put_quoted(out, token);
    buf_put_char(out, ':');
    buf_put_str(out, logprob);
}

/* One alternative: {rank, token_id, token, logprob}; *ret_chosen when it is the token itself: by
 * its id, or by its text @chosen where texts are names. */
static void put_alternative(struct logprobs *l, struct str json, uint32_t id, struct str chosen,
                            struct buf *out, bool *ret_chosen)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct str token = json_pull_member(json, "token"), logprob = json_pull_member(json, "logprob");
    struct str number = json_pull_member(json, "token_id"), s = STR_NULL;
    struct json_pull p;
    uint64_t at = UINT64_MAX;

    (void)!str_parse_u64(number, &at);
    json_pull_init(&p, token);
    if (json_pull_peek(&p) == JSON_KIND_STRING)
        (void)!json_pull_string(&p, &l->scratch, &s);
    if (!s.ptr && at <= UINT32_MAX) {
        l->decode(l->arg, (uint32_t)at, &text);
        s = buf_str(&text);
    }
    *ret_chosen |= l->api == API_CHAT ? at == id : str_eq(s, chosen);
    put_choice(l, s, logprob.len ? logprob : STR("null"), out);
}

/* The alternatives of one token, and the token itself when it is not among them. */
static void put_top(struct logprobs *l, struct logprobs_item *it, uint32_t id, struct str token,
                    struct str logprob, struct buf *out)
{
    bool chosen = false, some = false;
    struct json_pull p;
    struct str list, one;

    if (!it->has_top || !json_pull_element(&it->top) || !json_pull_skip(&it->top, &list)) {
        it->has_top = false;
        if (l->api == API_CHAT)
            put_choice(l, token, logprob, out);
        return;
    }
    json_pull_init(&p, list);
    if (json_pull_peek(&p) == JSON_KIND_ARRAY && json_pull_array(&p))
        while (json_pull_element(&p) && json_pull_skip(&p, &one)) {
            if (some)
                buf_put_char(out, ',');
            some = true;
            put_alternative(l, one, id, token, out, &chosen);
        }
    if (chosen)
        return;
    if (some)
        buf_put_char(out, ',');
    put_choice(l, token, logprob, out);
}

static void comma(struct logprobs *l, struct buf *out)
{
    if (l->n > 0)
        buf_put_char(out, ',');
}

void logprobs_add(struct logprobs *l, struct logprobs_item *it, uint32_t id, struct str text)
{
    AUTO(buf_done) struct buf decoded = BUF_NULL, top = BUF_NULL;
    struct str logprob;

    if (!it->has_values || l->content.len + l->top.len > LOGPROBS_BYTES_MAX)
        return;
    if (!json_pull_element(&it->values) || json_pull_peek(&it->values) != JSON_KIND_NUMBER ||
        !json_pull_skip(&it->values, &logprob)) {
        it->has_values = false;
        return;
    }
    if (!text.len) {
        l->decode(l->arg, id, &decoded);
        text = buf_str(&decoded);
    }
    put_top(l, it, id, text, logprob, &top);
    if (l->api == API_CHAT) {
        comma(l, &l->content);
        buf_put_char(&l->content, '{');
        put_entry(&l->content, text, logprob, &id);
        buf_put_cstr(&l->content, ",\"top_logprobs\":[");
        buf_put_str(&l->content, buf_str(&top));
        buf_put_cstr(&l->content, "]}");
    } else {
        comma(l, &l->tokens);
        put_quoted(&l->tokens, text);
        comma(l, &l->values);
        buf_put_str(&l->values, logprob);
        if (it->has_top) { /* that the worker gave none is an empty list */
            if (l->top.len)
                buf_put_char(&l->top, ',');
            buf_put_char(&l->top, '{');
            buf_put_str(&l->top, buf_str(&top));
            buf_put_char(&l->top, '}');
        }
    }
    l->n++;
}

static void take(struct buf *out, const char *before, struct buf *what)
{
    buf_put_cstr(out, before);
    buf_put_str(out, buf_str(what));
    buf_clear(what);
}

void logprobs_take(struct logprobs *l, struct buf *out)
{
    if (l->n == 0)
        return;
    if (l->api == API_CHAT) {
        take(out, "{\"content\":[", &l->content);
        buf_put_cstr(out, "],\"refusal\":null}");
    } else {
        take(out, "{\"tokens\":[", &l->tokens);
        take(out, "],\"token_logprobs\":[", &l->values);
        take(out, "],\"top_logprobs\":[", &l->top);
        buf_put_cstr(out, "],\"text_offset\":[]}");
    }
    l->n = 0;
}
