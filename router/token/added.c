/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/added.h"

#include "lib/base/mem.h"
#include "router/token/newer.h"
#include "router/token/regex.h"
#include "router/token/utf8.h"
#include "router/token/vocab.h"

void added_done(struct added *a)
{
    free(a->tokens);
    free(a->nodes);
    *a = (struct added){0};
}

/* --- filling ---------------------------------------------------------------------------------- */

static uint32_t new_node(struct added *a, uint8_t byte)
{
    if (a->n_nodes == a->cap_nodes) {
        a->cap_nodes = a->cap_nodes ? a->cap_nodes * 2 : 64;
        a->nodes = xreallocarray(a->nodes, a->cap_nodes, sizeof(*a->nodes));
    }
    a->nodes[a->n_nodes] = (struct added_node){.byte = byte};
    return (uint32_t)a->n_nodes++;
}

static uint32_t find_child(const struct added *a, uint32_t node, uint8_t byte)
{
    uint32_t child;

    if (node == 0)
        return a->first[byte];
    child = a->nodes[node].child;
    while (child && a->nodes[child].byte != byte)
        child = a->nodes[child].sibling;
    return child;
}

static uint32_t need_child(struct added *a, uint32_t node, uint8_t byte)
{
    uint32_t child = find_child(a, node, byte);

    if (child)
        return child;
    child = new_node(a, byte);
    if (node == 0)
        a->first[byte] = child;
    a->nodes[child].sibling = a->nodes[node].child;
    a->nodes[node].child = child;
    return child;
}

void added_add(struct added *a, struct str text, struct added_token token)
{
    uint32_t node = 0;

    if (text.len == 0)
        return;
    if (a->n_nodes == 0) {
        (void)new_node(a, 0);
        a->only_first = (uint8_t)text.ptr[0];
    }
    if (a->only_first != (uint8_t)text.ptr[0])
        a->only_first = -1;
    for (size_t i = 0; i < text.len; i++)
        node = need_child(a, node, (uint8_t)text.ptr[i]);
    if (a->nodes[node].token)
        return;
    if (a->n_tokens == a->cap_tokens) {
        a->cap_tokens = a->cap_tokens ? a->cap_tokens * 2 : 16;
        a->tokens = xreallocarray(a->tokens, a->cap_tokens, sizeof(*a->tokens));
    }
    a->tokens[a->n_tokens++] = token;
    a->nodes[node].token = (uint32_t)a->n_tokens;
}

/* --- cuts ------------------------------------------------------------------------------------- */

static void clear_cut(struct added *a, uint32_t index)
{
    a->n_cuts -= a->tokens[index].cuts;
    a->tokens[index].cuts = false;
}

void added_begin_cuts(struct added *a)
{
    a->n_cuts = a->n_tokens;
    for (uint32_t i = 0; i < a->n_tokens; i++) {
        a->tokens[i].cuts = true;
        if (a->tokens[i].single_word || a->tokens[i].rstrip)
            clear_cut(a, i);
    }
}

void added_note_text(struct added *a, struct str text)
{
    if (text.len == 0)
        return;
    if (text.len > ADDED_CUTS_TEXT) {
        for (uint32_t i = 0; i < a->n_tokens; i++)
            clear_cut(a, i);
        return;
    }
    for (size_t start = 0; start < text.len; start++) {
        uint32_t node = a->first[(uint8_t)text.ptr[start]];

        for (size_t at = start + 1; node; at++) {
            bool blanks = utf8_is_space(utf8_get(text.ptr)) ||
                          utf8_is_space(utf8_get(utf8_prev(text.ptr, text.ptr + text.len)));

            if (a->nodes[node].token && (at - start < text.len || blanks))
                clear_cut(a, a->nodes[node].token - 1);
            node = at < text.len ? find_child(a, node, (uint8_t)text.ptr[at]) : 0;
        }
    }
}

/* --- searching -------------------------------------------------------------------------------- */

/* Longest token that starts at @at: its index + 1 and its end; 0 when none does. */
static uint32_t match_at(const struct added *a, struct str text, size_t at, size_t *ret_end)
{
    uint32_t node = a->first[(uint8_t)text.ptr[at]], found = 0;

    while (node) {
        at++;
        if (a->nodes[node].token) {
            found = a->nodes[node].token;
            *ret_end = at;
        }
        node = at < text.len ? find_child(a, node, (uint8_t)text.ptr[at]) : 0;
    }
    return found;
}

size_t added_prefix(const struct added *a, struct str text)
{
    size_t end = 0;

    return text.len > 0 && match_at(a, text, 0, &end) ? end : 0;
}

static bool is_word(const struct added *a, struct regex_scratch *scratch, const char *p)
{
    AUTO(buf_done) struct buf older = BUF_NULL;
    struct str character = newer_replaced(str_slice(p, utf8_len(*p)), &older);
    size_t start, end;

    return regex_find(a->word, scratch, character, 0, &start, &end) == REGEX_FOUND;
}

static bool stands_alone(const struct added *a, struct regex_scratch *scratch, struct str text,
                         size_t start, size_t end)
{
    if (start > 0 && is_word(a, scratch, utf8_prev(text.ptr, text.ptr + start)))
        return false;
    return end == text.len || !is_word(a, scratch, text.ptr + end);
}

static size_t blanks_before(struct str text, size_t at)
{
    while (at > 0) {
        const char *c = utf8_prev(text.ptr, text.ptr + at);

        if (!utf8_is_space(utf8_get(c)))
            break;
        at = (size_t)(c - text.ptr);
    }
    return at;
}

static size_t blanks_after(struct str text, size_t at)
{
    while (at < text.len && utf8_is_space(utf8_get(text.ptr + at)))
        at += utf8_len(text.ptr[at]);
    return at;
}

/* Where a token may start, from @at on; text.len when nowhere. Nearly all begin with one byte, "<". */
static size_t next_start(const struct added *a, struct str text, size_t at)
{
    const char *hit;

    if (a->only_first < 0) {
        while (at < text.len && !a->first[(uint8_t)text.ptr[at]])
            at++;
        return at;
    }
    hit = at < text.len ? memchr(text.ptr + at, a->only_first, text.len - at) : NULL;
    return hit ? (size_t)(hit - text.ptr) : text.len;
}

/* The next token that counts, with the blanks it swallows; false when there is none. */
static bool find_token(const struct added *a, struct added_search *s, struct regex_scratch *scratch)
{
    size_t end = 0;

    for (s->at = next_start(a, s->text, s->at); s->at < s->text.len;
         s->at = next_start(a, s->text, s->at + 1)) {
        uint32_t found = match_at(a, s->text, s->at, &end);
        const struct added_token *t;

        if (!found)
            continue;
        t = &a->tokens[found - 1];
        if (t->single_word && !stands_alone(a, scratch, s->text, s->at, end)) {
            s->at = end - 1; /* what it covers is not searched again */
            continue;
        }
        s->token.id = t->id;
        s->token.cuts = t->cuts;
        s->token.start = t->lstrip ? MAX(blanks_before(s->text, s->at), s->done) : s->at;
        s->token.end = t->rstrip ? blanks_after(s->text, end) : end;
        s->at = end;
        return true;
    }
    return false;
}

bool added_next(const struct added *a, struct added_search *s, struct regex_scratch *scratch,
                struct added_piece *ret)
{
    size_t plain = s->done;

    if (!s->has_token)
        s->has_token = a->n_tokens > 0 && find_token(a, s, scratch);
    if (s->has_token && s->token.start <= plain) {
        *ret = s->token;
        s->done = s->token.end;
        s->has_token = false;
        return true;
    }
    s->done = s->has_token ? s->token.start : s->text.len;
    *ret = (struct added_piece){VOCAB_NONE, false, plain, s->done};
    return plain < s->done;
}
