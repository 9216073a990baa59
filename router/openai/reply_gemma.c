/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of Gemma 4: call:NAME{key:value,…} with texts between <|"|>, and no other quotes.
 */
#include "lib/base/json_put.h"
#include "router/openai/reply_calls.h"

enum { DEPTH_MAX = 32 };

#define QUOTE "<|\"|>"

/* The mark may stand in a text: as many quotes before it as end one are before the mark itself. */
size_t reply_find_gemma_end(struct str text, bool *ret_found)
{
    static const char mark[] = "<tool_call|>";
    struct str rest = text;
    size_t at = 0;

    for (;;) {
        bool quoted;
        size_t n = reply_find_mark(rest, mark, ret_found);
        size_t open = reply_find_mark(rest, QUOTE, &quoted);

        if (!*ret_found || !quoted || n < open)
            return at + n;
        rest = str_skip(rest, open + strlen(QUOTE));
        at += open + strlen(QUOTE);
        n = reply_find_mark(rest, QUOTE, &quoted);
        if (!quoted) {
            *ret_found = false;
            return text.len;
        }
        rest = str_skip(rest, n + strlen(QUOTE));
        at += n + strlen(QUOTE);
    }
}

struct gemma {
    struct str rest;
    int depth;
};

static bool take(struct gemma *g, const char *what)
{
    while (g->rest.len && strchr(" \t\r\n", g->rest.ptr[0]) && g->rest.ptr[0])
        g->rest = str_skip(g->rest, 1);
    if (!str_starts(g->rest, str_from(what)))
        return false;
    g->rest = str_skip(g->rest, strlen(what));
    return true;
}

/* Letters, digits, "_", "-" and "." */
static struct str take_word(struct gemma *g)
{
    struct str rest;
    size_t n = 0;

    (void)take(g, "");
    rest = g->rest;
    while (n < rest.len &&
           (strchr("_-.", rest.ptr[n]) || (rest.ptr[n] >= '0' && rest.ptr[n] <= '9') ||
            ((rest.ptr[n] | 0x20) >= 'a' && (rest.ptr[n] | 0x20) <= 'z')))
        if (!rest.ptr[n++])
            break;
    g->rest = str_skip(rest, n);
    return str_head(rest, n);
}

static bool put_any(struct gemma *g, struct json_put *j);

/* Behind the "{". A key without a value has an empty text. */
static bool put_members(struct gemma *g, struct json_put *j)
{
    json_put_object(j);
    while (!take(g, "}")) {
        struct str key = take_word(g);

        if (!key.len || !take(g, ":"))
            return false;
        json_put_key_str(j, key);
        (void)take(g, "");
        if (g->rest.len && (g->rest.ptr[0] == ',' || g->rest.ptr[0] == '}'))
            json_put_cstr(j, "");
        else if (!put_any(g, j))
            return false;
        if (!take(g, ",") && !(g->rest.len && g->rest.ptr[0] == '}'))
            return false;
    }
    json_put_object_end(j);
    return true;
}

static bool put_list(struct gemma *g, struct json_put *j)
{
    json_put_array(j);
    while (!take(g, "]"))
        if (!put_any(g, j) || (!take(g, ",") && !(g->rest.len && g->rest.ptr[0] == ']')))
            return false;
    json_put_array_end(j);
    return true;
}

static bool put_bare(struct gemma *g, struct json_put *j)
{
    static const struct {
        const char *word, *json;
    } words[] = {
        {"true", "true"}, {"false", "false"}, {"null", "null"}, {"none", "null"}, {"nil", "null"},
    };
    AUTO(buf_done) struct buf number = BUF_NULL;
    struct str word = take_word(g);

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq_nocase(word, str_from(words[i].word))) {
            json_put_raw(j, str_from(words[i].json));
            return true;
        }
    if (!word.len || !reply_compact_json(word, &number))
        return false;
    json_put_raw(j, buf_str(&number));
    return true;
}

static bool put_any(struct gemma *g, struct json_put *j)
{
    struct str text;
    bool ok;

    if (take(g, QUOTE)) {
        if (!reply_take_to(&g->rest, QUOTE, &text))
            return false;
        json_put_str(j, text);
        return true;
    }
    if (++g->depth > DEPTH_MAX)
        return false;
    ok = take(g, "{") ? put_members(g, j) : take(g, "[") ? put_list(g, j) : put_bare(g, j);
    g->depth--;
    return ok;
}

bool reply_read_gemma(struct str text, struct reply_found *f)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct gemma g = {.rest = text};
    struct str name;

    if (!take(&g, "call:"))
        return false;
    name = take_word(&g);
    if (!take(&g, "{") || !put_members(&g, &j) || str_trim(g.rest).len)
        return false;
    return reply_add_call(f, name, buf_str(&out), STR_NULL);
}
